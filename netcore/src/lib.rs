//! The engines that move bytes and the instruments that measure it.
//!
//! A test is one value, [`spec::TestSpec`]: a pattern, a transport, an io method and a direction, with sizes, phases and
//! socket options. Two *ends* run it: the **near** end opens the data connections, the **far** end accepts them. Both
//! call the same code ([`end::End`]) and each makes a [`report::SideReport`] from its own counters, cut on its own
//! monotonic clock at instants that both agreed on beforehand. An end says nothing about the other one: the number of
//! bytes that arrived is the receiver's count.
//!
//! The ends agree over one control connection ([`control`]); [`client`] is a session seen from the near end, [`daemon`]
//! serves the far end of many sessions.
#![deny(unsafe_code)]

pub mod client;
pub mod control;
pub mod daemon;
pub mod end;
pub mod error;
pub mod foreign;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../fuzz/entries/mod.rs"]
pub mod fuzz;
mod io;
pub mod lock;
pub mod measure;
pub mod mpi;
#[cfg(test)]
#[allow(dead_code, reason = "what only other tests use")]
#[path = "../../tests/common/needs.rs"]
mod needs;
mod pace;
mod pattern;
pub mod peers;
pub mod ranks;
pub mod report;
pub mod spec;
#[expect(unsafe_code, reason = "thin wrappers of system calls")]
mod sys;
mod transport;

pub use sys::{give_way, local_minute};
