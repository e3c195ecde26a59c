//! Pacing by the kernel: refused where the kernel would not pace, since setsockopt succeeds everywhere.

use super::Link;
use crate::{
    error::EndError,
    report::NicFacts,
    spec::{PaceMode, TestSpec},
    sys::opt,
};

/// Lets the kernel pace a flow, if the test asks for it and the kernel does it.
pub fn kernel_pace(link: &Link, spec: &TestSpec) -> Result<(), EndError> {
    let socket = &*link.send;
    let Some(pace) = spec.pace.filter(|pace| pace.mode != PaceMode::User) else { return Ok(()) };
    let mut bytes = spec.sizes.message_bytes;
    // TCP paces by itself.
    if spec.transport.is_datagram() {
        let peer = link.peer_ip();
        let obstacle = match peer.and_then(NicFacts::qdiscs_towards) {
            Some((interface, kinds)) => obstacle(pace.mode, &interface, &kinds),
            None => Some(format!("the outgoing interface is unknown, so {} may have no effect", option(pace.mode))),
        };
        if let Some(obstacle) = obstacle {
            return Err(EndError::Impossible(obstacle));
        }
        // The queueing discipline counts whole frames: headers of Ethernet (loopback has it too), IP and UDP.
        bytes += 14 + 8 + if peer.is_some_and(|peer| peer.is_ipv4()) { 20 } else { 40 };
    }
    if pace.mode == PaceMode::Txtime {
        // `struct sock_txtime`: the clock, and no flags.
        let mut value = [0; 8];
        value[..4].copy_from_slice(&libc::CLOCK_MONOTONIC.to_ne_bytes());
        return opt::set(socket, opt::SO_TXTIME, &value).map_err(EndError::system("the kernel refuses SO_TXTIME"));
    }
    let rate = pace.events_per_s * bytes as f64;
    // Rates are positive; a rate beyond 2^64 bytes per second limits nothing.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes_per_s = rate.ceil() as u64;
    opt::set(socket, opt::SO_MAX_PACING_RATE, &bytes_per_s.to_ne_bytes())
        .map_err(EndError::system(format!("the kernel refuses to pace at {bytes_per_s} bytes/s")))
}

fn option(mode: PaceMode) -> &'static str {
    if mode == PaceMode::Txtime { "SO_TXTIME" } else { "SO_MAX_PACING_RATE" }
}

/// The reason why queueing disciplines of these kinds would not pace datagrams; `None`: they would.
fn obstacle(mode: PaceMode, interface: &str, kinds: &[String]) -> Option<String> {
    // `mq` only distributes packets to the disciplines of the hardware's queues.
    let leaves: Vec<&str> = kinds.iter().map(String::as_str).filter(|kind| *kind != "mq").collect();
    if !leaves.is_empty() && leaves.iter().all(|kind| *kind == "fq") {
        return None;
    }
    let there = if leaves.is_empty() { "none".to_owned() } else { leaves.join(", ") };
    // It drops packets without a time, ARP and control connections too, so it is never the only discipline of an interface.
    let etf = if mode == PaceMode::Txtime && leaves.contains(&"etf") {
        " (etf would, but receives only some of the traffic, and whether it receives these datagrams is unknown here)"
    } else {
        ""
    };
    Some(format!(
        "the kernel would not pace datagrams here: the queueing discipline of {interface} is {there}, and only fq heeds {} of \
         every UDP socket{etf}; set it with: tc qdisc replace dev {interface} root fq, or choose `mode: user`",
        option(mode)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_paced_by_fq_alone_and_a_refusal_says_what_is_there() {
        let obstacle = |mode, kinds: &[&str]| {
            obstacle(mode, "eth7", &kinds.iter().copied().map(str::to_owned).collect::<Vec<_>>()).unwrap_or_default()
        };
        for mode in [PaceMode::Kernel, PaceMode::Txtime] {
            assert_eq!(obstacle(mode, &["fq"]), "");
            assert_eq!(obstacle(mode, &["mq", "fq", "fq"]), "");
            assert!(obstacle(mode, &[]).contains("of eth7 is none, and only fq heeds SO_"));
            assert!(obstacle(mode, &["mq", "fq", "fq_codel"]).contains("of eth7 is fq, fq_codel, and only fq"));
        }
        let among = &["prio", "pfifo_fast", "etf"];
        assert!(obstacle(PaceMode::Txtime, among).contains("SO_TXTIME of every UDP socket (etf would, but"));
        assert!(obstacle(PaceMode::Kernel, among).contains("SO_MAX_PACING_RATE of every UDP socket; set it"));
    }
}
