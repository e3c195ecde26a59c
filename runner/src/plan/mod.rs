//! Plans: YAML text in, checked cases out.
//!
//! - [`mod@load`]: the entry: [`fn@load`] gives a [`case::Plan`], or every mistake in the text
//! - [`case`]: a checked plan, as the schedule runs it
//! - [`diagnostics`]: messages that point at places in texts
//! - [`tree`], [`decode`]: YAML as a tree that knows the place of each word, and typed values from it, with every mistake
//! - [`model`], [`quantity`], [`workload`]: the typed values, from which the published schema is made
//! - [`keys`]: the keys of a test, one row each, and the schema
//! - [`ranges`], `inventory`: ranges of hosts, and the hosts of a plan
//! - [`vars`], [`resolve`], [`matrix`], [`axis`]: from layers of test bodies to swept values
//! - `pairs`: pairs of hosts, and which of them are measured at the same time
//! - [`output`]: how the output of a command is read
//! - [`job`], `ranks`, [`answers`]: the kinds of tests, and what each answers
//! - [`expand`], `member`, `policy`, [`spec`], [`check`]: from bodies to checked cases
//! - [`pictures`]: the pictures of a plan
//! - [`mod@shipped`]: the plans inside the program
//! - [`mod@explain`]: which layers set a value

pub mod answers;
pub mod axis;
#[cfg(test)]
mod bounds;
pub mod case;
pub mod check;
pub mod decode;
pub mod diagnostics;
pub mod expand;
pub mod explain;
mod inventory;
pub mod job;
pub mod keys;
mod launch;
pub mod load;
pub mod matrix;
mod member;
pub mod model;
pub mod output;
mod pairs;
pub mod pictures;
mod policy;
pub mod quantity;
pub mod ranges;
mod ranks;
pub mod resolve;
mod responsiveness;
pub mod shipped;
pub mod spec;
pub mod tree;
pub mod vars;
pub mod workload;

pub use case::{Case, Plan};
pub use diagnostics::{Diagnostics, Format};
pub use explain::{Explanation, explain};
pub use inventory::is_like_host;
pub use load::{LoadOptions, load, load_str, read, tell_apart};
pub use shipped::shipped;
pub use spec::bind_parts;
