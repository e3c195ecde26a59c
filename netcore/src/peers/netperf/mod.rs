//! netperf's protocol: a netserver as the far end of our tests, and this daemon as the far end of a netperf's.
//!
//! A control connection carries messages of 656 bytes ([`wire`]). A test is a request ([`messages`]), a response that
//! names the data port, the data, and the results. [`check`] says which tests a netserver can run, and [`request`] asks for one;
//! [`asked`] turns a client's request into a test here, and [`answer`] answers it.

pub mod answer;
pub mod asked;
pub(crate) mod client;
mod data;
pub mod messages;
pub mod request;
mod server;
pub mod wire;

#[cfg(test)]
pub(crate) use asked::{MOST_EXCHANGE_BYTES, MOST_STREAM_BYTES};
pub(super) use client::Client;
pub use request::check;
pub(super) use server::serve;
#[cfg(test)]
pub(crate) use server::{CONNECT, IDLE, MESSAGE};

#[cfg(test)]
mod tests;
