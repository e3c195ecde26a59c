//! Clients and daemons over real control connections on loopback: what works, and what is said and survived when it does
//! not.

mod common;
mod daemon;
mod exclusive;
mod hostile;
mod idle;
mod namespaces;
#[allow(dead_code, reason = "what only other tests use")]
#[path = "../../../tests/common/needs.rs"]
mod needs;
mod one_port;
mod programs;
mod run;
mod secret;
mod served;
mod settle;
mod silent;
mod wire;
