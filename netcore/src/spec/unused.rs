//! Keys that are set and mean nothing to the workload. They are noted and accepted, since `defaults` serve many workloads.

use super::{Io, Pattern, TestSpec, Transport, key, segments};

/// Unused keys by their names in plans. A key set to its default looks like an absent key.
pub fn unused(spec: &TestSpec) -> Vec<&'static str> {
    let default = TestSpec::new(spec.pattern, spec.transport);
    let (now, then) = (&spec.sizes, &default.sizes);
    let stream = spec.pattern == Pattern::Stream;
    let exchange = matches!(spec.pattern, Pattern::RequestResponse | Pattern::ConnectRequestResponse);
    let answers_may_be_lost = spec.transport.is_datagram() && !stream;
    let ports = spec.transport.uses_ip() && spec.transport != Transport::Icmp;
    let remote_ports = ports || spec.transport == Transport::Vsock;
    [
        (key::message_size, now.message_bytes != then.message_bytes && !stream && spec.pattern != Pattern::Ping),
        (key::receive_size, now.receive_bytes > then.receive_bytes.max(now.message_bytes) && !stream),
        (key::request_size, now.request_bytes != then.request_bytes && !exchange),
        (key::response_size, now.response_bytes != then.response_bytes && !exchange),
        (
            key::inflight,
            spec.inflight != default.inflight
                && stream
                && !(spec.has_window() && spec.resolved_io() == Io::Nonblocking),
        ),
        (key::coalesce, spec.coalesce && spec.pattern != Pattern::RequestResponse),
        (key::close, spec.close != default.close && !spec.pattern.is_connecting()),
        (key::reply_timeout, spec.reply_timeout_ns != default.reply_timeout_ns && !answers_may_be_lost),
        (key::payload, spec.payload != default.payload && spec.pattern == Pattern::Connect),
        (key::ports, spec.near.port.is_some() && !ports),
        (key::remote_ports, spec.far.port.is_some() && !remote_ports),
    ]
    .into_iter()
    .chain(segments::is_unused(spec))
    .filter_map(|(key, is_unused)| is_unused.then_some(key))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Close;

    #[test]
    fn defaults_for_many_workloads_are_told_where_they_do_nothing() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Tcp);
        assert!(unused(&spec).is_empty());
        (spec.inflight, spec.close, spec.reply_timeout_ns, spec.near.port) = (4, Close::Reset, 1, Some(5000));
        (spec.sizes.request_bytes, spec.sizes.message_bytes) = (10, 10);
        assert_eq!(unused(&spec), ["request_size", "inflight", "close", "reply_timeout"]);
        (spec.pattern, spec.transport, spec.sizes.receive_bytes) =
            (Pattern::RequestResponse, Transport::UnixDatagram, 1472);
        assert_eq!(unused(&spec), ["message_size", "close", "ports"]);
        (spec.pattern, spec.transport) = (Pattern::ConnectRequestResponse, Transport::Tcp);
        assert_eq!(unused(&spec), ["message_size", "reply_timeout"]);
    }
}
