//! Clients and daemons that do what they like, in any order: the other side answers, refuses or ends the session, and keeps
//! nothing of it. `FULL=1 cargo test -p netcore --test random` plays many more conversations.
//!
//! A program of its own: it counts the open files of its process.

mod client;
mod daemon;
#[path = "../session/served.rs"]
mod served;

use std::sync::Mutex;

use proptest::test_runner::{Config, TestRunner};

/// Held by a test while it plays, so that the files that it counts are its own.
static ALONE: Mutex<()> = Mutex::new(());

/// Plays this many conversations, or forty times as many.
fn runner(cases: u32) -> TestRunner {
    let cases = if std::env::var_os("FULL").is_some() { 40 * cases } else { cases };
    // A failed conversation is kept as a test in the code.
    TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 100, ..Config::default() })
}
