//! Tests with other programs at one end: the real ones where they are installed, this daemon, and stubs that misbehave.

mod iperf3;
mod netperf;
mod netperf_abuse;
mod netperf_stub;
mod served;
