//! `--metrics ADDR`: a scrape by Prometheus tells what a run or a daemon does at this moment.
//!
//! A thread of its own answers, asleep unless somebody asks. It reads copies that the thread of the campaign, or sessions,
//! keep at the edges of iterations and tests; it takes no lock of a thread that moves data.
//!
//! - `address`: ADDR as people write it
//! - `request`: the head of a request, bounded
//! - `server`: connections, their deadlines, and the answers
//! - `families`: every family of samples but those of results, in one table
//! - `page`: the text of an answer
//! - `results`: values of finished cases, under the names that `plumb export openmetrics` gives them
//! - `run`, `serve`: the two who are asked

mod address;
mod families;
mod page;
mod request;
mod results;
mod run;
mod serve;
mod server;

pub use address::address;
pub use families::{ALL, Family, Kind};
pub use results::MOST_SAMPLES;
pub use run::Board;
pub use serve::Served;
pub use server::{Server, bounds};
