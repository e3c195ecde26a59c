//! Explicit Congestion Notification (`socket.ecn`): the ends that ask for it, and the tests that cannot have it.

use super::{
    Dialect, Pattern, Side, TestSpec, Transport,
    key::{Unsupported, refuse_if},
};

impl TestSpec {
    /// Whether this end takes part in Explicit Congestion Notification.
    pub fn asks_for_ecn(&self, side: Side) -> bool {
        self.end(side).socket.ecn == Some(true) && matches!(self.transport, Transport::Tcp | Transport::Udp)
    }
}

/// Refuses what cannot be counted.
pub(super) fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let key = match [Side::Near, Side::Far].map(|side| spec.asks_for_ecn(side)) {
        [true, _] => "socket.ecn",
        [_, true] => "remote_socket.ecn",
        _ => return Ok(()),
    };
    let udp = spec.transport == Transport::Udp;
    refuse_if! {
        spec.pattern.is_connecting() => key,
            "ecn: these connections are closed again before anybody can look at them: use tcp_stream or tcp_rr, or leave it out";
        udp && spec.pattern != Pattern::Stream => key,
            "ecn: marks are counted of the messages of a stream: use udp_stream, or leave it out";
        udp && spec.dialect != Dialect::Plumb => key,
            "ecn: only a far end of Plumbline marks its messages and counts marks: leave it out, or name a host without `speaks`";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::support;

    #[test]
    fn marks_that_nobody_counts_are_refused() {
        let with = |transport, pattern, near, far| {
            let mut spec = TestSpec::new(pattern, transport);
            (spec.near.socket.ecn, spec.far.socket.ecn) = (near, far);
            support::check(&spec).map_err(|refusal| (refusal.key, refusal.reason))
        };
        let yes = Some(true);
        for (transport, pattern) in [
            (Transport::Tcp, Pattern::Stream),
            (Transport::Tcp, Pattern::RequestResponse),
            (Transport::Udp, Pattern::Stream),
            // It means nothing there, and a note says so.
            (Transport::UnixStream, Pattern::Stream),
        ] {
            assert_eq!(with(transport, pattern, yes, yes), Ok(()));
        }
        assert_eq!(with(Transport::Tcp, Pattern::Connect, Some(false), None), Ok(()));
        for (transport, pattern, near, key, word) in [
            (Transport::Tcp, Pattern::Connect, yes, "socket.ecn", "closed again"),
            (Transport::Udp, Pattern::RequestResponse, yes, "socket.ecn", "use udp_stream"),
            (Transport::Udp, Pattern::RequestResponse, None, "remote_socket.ecn", "use udp_stream"),
        ] {
            let (at, reason) = with(transport, pattern, near, yes).unwrap_err();
            assert!(at == key && reason.contains(word), "{at}: {reason}");
        }
    }
}
