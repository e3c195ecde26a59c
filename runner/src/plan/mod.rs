//! Plans: YAML text in, checked cases out.
//!
//! - [`mod@load`]: the entry: [`fn@load`] gives a [`case::Plan`], or every mistake in the text
//! - [`case`]: a checked plan, as the schedule runs it
//! - [`source`], [`diagnostics`]: texts, places, and messages that point at them
//! - [`yaml`], [`tree`]: YAML as a tree that knows the place of each word
//! - [`decode`]: from the tree to typed values, finding every mistake
//! - [`model`], [`quantity`], [`workload`]: the typed values, from which the published schema is made
//! - [`keys`]: the keys of a test, one row each
//! - [`ranges`], `inventory`: ranges of hosts, and the hosts of a plan
//! - [`vars`], [`merge`], [`resolve`], [`matrix`], [`condition`]: from layers of test bodies to swept values
//! - `pairs`, `rounds`: pairs of hosts, and which of them are measured at the same time
//! - `apart`: several plans in one run
//! - [`estimate`]: how long it takes
//! - [`output`]: how the output of a command is read
//! - [`requested`]: the cells that a test between two ends decides
//! - [`job`], `ranks`: the kinds of tests, and what each answers
//! - [`expand`], `member`, `policy`, [`spec`], [`measures`], [`check`]: from bodies to checked cases
//! - [`mod@explain`]: which layers set a value; [`schema`]: the published JSON Schema

mod apart;
mod arguments;
#[cfg(test)]
mod bounds;
pub mod case;
pub mod check;
pub mod condition;
pub mod decode;
pub mod diagnostics;
mod ends;
pub mod estimate;
pub mod expand;
pub mod explain;
mod generator;
mod inventory;
pub mod job;
pub mod keys;
mod launch;
pub mod load;
pub mod matrix;
pub mod measures;
mod member;
pub mod merge;
pub mod model;
pub mod output;
mod pairs;
mod policy;
pub mod quantity;
pub mod ranges;
mod ranks;
pub mod requested;
pub mod resolve;
mod responsiveness;
mod rounds;
pub mod schema;
pub mod shipped;
pub mod source;
mod speaks;
pub mod spec;
pub mod tree;
pub mod vars;
pub mod workload;
pub mod yaml;

pub use apart::tell_apart;
pub use case::{Case, Plan};
pub use diagnostics::{Diagnostics, Format};
pub use ends::bind_parts;
pub use explain::{Explanation, explain};
pub use inventory::{is_like_host, split_port};
pub use load::{LoadOptions, load, load_str};
