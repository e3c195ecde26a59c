//! iperf3's protocol, as versions 3.12 to 3.21 speak it.
//!
//! Both ends talk over one control connection: the client's cookie, state bytes, and JSON texts behind their length. Data
//! connections go to the same port; those over TCP begin with the cookie, those over UDP with a hello and a reply. The
//! client decides when the test ends. To begin reading: `state`, `parameters` and `results` are the messages,
//! `mapping` turns a [`TestSpec`](crate::spec::TestSpec) into parameters and back, `client` and `server` hold the
//! conversation.

mod check;
mod client;
mod control;
mod cookie;
mod fault;
mod hello;
mod json;
pub(crate) mod mapping;
pub(crate) mod parameters;
pub(crate) mod results;
mod server;
mod state;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

pub use check::check;
pub(crate) use client::Client;
pub(crate) use server::{Sessions, serve};
