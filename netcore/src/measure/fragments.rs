//! A note on messages that leave in several fragments: such a test measures the network's handling of fragments.

use std::net::IpAddr;

use crate::{
    report::NicFacts,
    spec::{Direction, Pattern, Side, TestSpec, Transport},
};

/// Header of UDP, UDP-Lite or an ICMP echo, bytes.
const HEADER: u64 = 8;

/// The note, if this end's messages to `peer` exceed the MTU of the interface that routes there.
pub fn note(spec: &TestSpec, side: Side, peer: IpAddr, nic: &NicFacts) -> Option<String> {
    let mtu = u64::from(nic.mtu_bytes?);
    let (key, bytes) = sent(spec, side)?;
    let fragments = fragments(bytes, mtu, peer)?;
    let fits = mtu.checked_sub(ip_header(peer) + HEADER)?;
    Some(format!(
        "each {key} of {bytes} bytes leaves {} in {fragments} fragments, and is lost with any of them: its MTU of {mtu} bytes has \
         room for {fits}",
        nic.name
    ))
}

/// Key in a plan, and size in bytes, of the IP datagrams that this end sends.
fn sent(spec: &TestSpec, side: Side) -> Option<(&'static str, u64)> {
    if !matches!(spec.transport, Transport::Udp | Transport::UdpLite | Transport::Icmp) {
        return None;
    }
    let sizes = &spec.sizes;
    match (spec.pattern, side) {
        (Pattern::RequestResponse, Side::Near) => Some(("request_size", sizes.request_bytes)),
        (Pattern::RequestResponse, Side::Far) => Some(("response_size", sizes.response_bytes)),
        (Pattern::Stream, Side::Near) if spec.direction == Direction::Reverse => None,
        (Pattern::Stream, Side::Far) if spec.direction == Direction::Forward => None,
        _ => Some(("message_size", sizes.message_bytes)),
    }
}

/// Number of fragments of a message; `None` if it fits one packet. Each but the last has a multiple of 8 bytes (RFC
/// 791, section 3.2; RFC 8200, section 4.5, with 8 bytes for the fragment header).
fn fragments(bytes: u64, mtu: u64, peer: IpAddr) -> Option<u64> {
    let room = mtu.checked_sub(ip_header(peer))?;
    let own_header = if peer.is_ipv4() { 0 } else { 8 };
    let each = room.checked_sub(own_header)? / 8 * 8;
    (bytes + HEADER > room && each > 0).then(|| (bytes + HEADER).div_ceil(each))
}

fn ip_header(peer: IpAddr) -> u64 {
    if peer.is_ipv4() { 20 } else { 40 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "192.0.2.1";
    const V6: &str = "2001:db8::1";

    #[test]
    fn a_message_is_cut_into_multiples_of_eight_bytes() {
        for (bytes, mtu, peer, expected) in [
            (1472, 1500, V4, None),
            (1473, 1500, V4, Some(2)),
            (1472, 1500, V6, Some(2)),
            (1452, 1500, V6, None),
            (2952, 1500, V4, Some(2)),
            (2953, 1500, V4, Some(3)),
            // 1481 bytes have room for as much as 1480 in a fragment.
            (2953, 1501, V4, Some(3)),
            (2888, 1500, V6, Some(2)),
            (2889, 1500, V6, Some(3)),
            (65_507, 65_536, V4, None),
        ] {
            assert_eq!(fragments(bytes, mtu, peer.parse().unwrap()), expected, "{bytes} over {mtu} to {peer}");
        }
    }

    #[test]
    fn only_who_sends_datagrams_of_ip_says_it() {
        let nic = NicFacts { name: "eth7".to_owned(), mtu_bytes: Some(1500), ..NicFacts::default() };
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        spec.sizes.message_bytes = 1472;
        let said =
            |spec: &TestSpec, side, peer: &str| note(spec, side, peer.parse().unwrap(), &nic).unwrap_or_default();
        assert_eq!(said(&spec, Side::Near, V4), "");
        let note = said(&spec, Side::Near, V6);
        assert!(
            note.contains("message_size of 1472 bytes leaves eth7 in 2 fragments") && note.ends_with("1452"),
            "{note}"
        );
        assert_eq!(said(&spec, Side::Far, V6), "");
        spec.direction = Direction::Bidirectional;
        assert!(!said(&spec, Side::Far, V6).is_empty());
        let mut requests = TestSpec::new(Pattern::RequestResponse, Transport::Udp);
        (requests.sizes.request_bytes, requests.sizes.response_bytes) = (1, 2000);
        assert_eq!(said(&requests, Side::Near, V4), "");
        assert!(said(&requests, Side::Far, V4).contains("response_size of 2000 bytes"));
        spec.transport = Transport::UnixDatagram;
        assert_eq!(said(&spec, Side::Near, V6), "");
    }
}
