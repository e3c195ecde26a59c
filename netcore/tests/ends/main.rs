//! Both ends of a test in one process, over the real transports of this machine.

mod connect;
mod copyless;
mod datagram;
mod delays;
mod evidence;
mod local;
mod namespaces;
#[allow(dead_code, reason = "what only other tests use")]
#[path = "../../../tests/common/needs.rs"]
mod needs;
mod pair;
mod request_response;
mod rings;
mod stream;
mod threads;
mod transports;
