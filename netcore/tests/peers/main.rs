//! Tests with other programs at one end: the real ones where they are installed, this daemon, and stubs that misbehave.

mod iperf3;
#[allow(dead_code, reason = "what only other tests use")]
#[path = "../../../tests/common/needs.rs"]
mod needs;
mod netperf;
mod netperf_abuse;
mod netperf_stub;
mod served;
