//! iperf3's protocol, as versions 3.12 to 3.21 speak it.
//!
//! Both ends talk over one control connection: the client's cookie, state bytes, and JSON texts behind their length. Data
//! connections go to the same port; those over TCP begin with the cookie, those over UDP with a hello and a reply. The
//! client decides when the test ends. To begin reading: `wire`, `parameters` and `results` are the messages,
//! `mapping` turns a [`TestSpec`](crate::spec::TestSpec) into parameters and back, `client` and `server` hold the
//! conversation.

mod client;
mod control;
pub(crate) mod mapping;
mod outcome;
pub(crate) mod parameters;
pub(crate) mod results;
mod server;
mod wire;

#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/entries/iperf3_sessions.rs"]
pub(crate) mod fuzz;

pub(crate) use client::Client;
pub use mapping::check;
pub(crate) use server::{Sessions, serve};
