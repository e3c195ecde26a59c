//! `--metrics ADDR`: a scrape by Prometheus tells what a run or a daemon does at this moment.
//!
//! A thread of its own answers, asleep unless somebody asks. It reads copies that the thread of the campaign, or sessions,
//! keep at the edges of iterations and tests; it takes no lock of a thread that moves data.
//!
//! - `request`: ADDR as people write it, and the head of a request, bounded
//! - `server`: connections, their deadlines, and the answers
//! - `page`: every family of samples but those of results, in one table, and the text of an answer
//! - `results`: values of finished cases, under the names that `plumb export openmetrics` gives them
//! - `run`: the samples of a run, and those of a daemon
//! - `cycles`: the samples of a plan that is measured again and again, and of a probe

mod cycles;
mod page;
mod request;
mod results;
mod run;
mod server;

pub use cycles::{Cycle, WatchState, probe_page};
pub use page::{ALL, Family, Kind};
pub use request::{address, parameter};
pub use results::MOST_SAMPLES;
pub use run::{LiveState, Served};
pub use server::{Answer, Reply, Server, Source};
