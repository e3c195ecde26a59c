//! Which combinations of pattern, transport, io, direction and options exist, and a sentence for each that does not.
//!
//! The plan's check and the daemon's admission both ask here, so a test that passes is one that the engines can run.

use super::{Direction, Io, Pattern, Stop, TestSpec, Transport};
use crate::report::Side;

/// Why a test cannot be run by these engines, whatever the machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unsupported {
    /// The key of the plan's test body that is to blame: `workload`, `io`, `rate`, `socket.mss`, ….
    pub key: &'static str,
    /// The sentence.
    pub reason: String,
}

fn no(key: &'static str, reason: impl Into<String>) -> Result<(), Unsupported> {
    Err(Unsupported { key, reason: reason.into() })
}

/// Checks that the engines can run the test.
pub fn check(spec: &TestSpec) -> Result<(), Unsupported> {
    let transport = spec.transport.name();
    match (spec.pattern, spec.transport) {
        (
            Pattern::Stream | Pattern::RequestResponse,
            Transport::Tcp
            | Transport::Mptcp
            | Transport::Sctp
            | Transport::Vsock
            | Transport::UnixStream
            | Transport::UnixSeqpacket,
        )
        | (
            Pattern::Connect | Pattern::ConnectRequestResponse,
            Transport::Tcp | Transport::Mptcp | Transport::UnixStream,
        ) => {}
        _ => return no("workload", format!("this pattern over {transport} is not available yet")),
    }
    let known_io = match spec.pattern {
        Pattern::Connect | Pattern::ConnectRequestResponse => matches!(spec.io, Io::Auto | Io::Blocking | Io::Spin),
        Pattern::Stream => matches!(spec.io, Io::Auto | Io::Blocking | Io::Nonblocking | Io::Spin | Io::Sendfile),
        _ => matches!(spec.io, Io::Auto | Io::Blocking | Io::Nonblocking | Io::Spin),
    };
    if !known_io {
        return no("io", format!("io: {} is not available yet for this workload", spec.io.name()));
    }
    if spec.pattern != Pattern::Stream && spec.direction != Direction::Forward {
        return no("direction", "requests go from the near end to the far end: exchange `from` and `to` instead");
    }
    if spec.phases.cooldown_ns > 0 && !matches!(spec.phases.stop, Stop::AfterNs(_)) {
        return no("cooldown", "a cool-down needs `duration`: after a count of bytes or transactions the load is over");
    }
    if matches!(spec.phases.stop, Stop::AfterTransactions(_)) && spec.pattern == Pattern::Stream {
        return no("transactions", "a stream has no transactions: stop it by `duration` or `bytes`");
    }
    if matches!(spec.phases.stop, Stop::AfterBytes(_)) && spec.pattern != Pattern::Stream {
        return no("bytes", "requests and connections are counted by `transactions`, not by `bytes`");
    }
    if spec.pattern.is_connecting() {
        if spec.inflight != 1 {
            return no("inflight", "a connection test has one connection at a time and stream: use `streams` instead");
        }
        if spec.near.port_count.is_some() && spec.near.port.is_none() {
            return no("port_count", "a range of local ports needs its first one: `port`");
        }
    }
    if spec.transport == Transport::UnixSeqpacket {
        // A message that does not fit the receive call would be cut off in silence.
        if spec.pattern == Pattern::Stream && spec.sizes.receive_bytes < spec.sizes.message_bytes {
            return no(
                "receive_size",
                "sequenced packets are received whole: receive_size must not be less than message_size",
            );
        }
    }
    if spec.pace.is_some() {
        return no("rate", "an offered rate is not available yet");
    }
    Ok(())
}

/// Whether an end can learn that a counted test is over from its peer only, by way of the conversation: then an early
/// stop is how its measurement ordinarily ends.
#[must_use]
pub fn learns_its_end(spec: &TestSpec, side: Side) -> bool {
    let counted = !matches!(spec.phases.stop, Stop::AfterNs(_));
    let connectionless = spec.transport.is_datagram();
    let only_answers = matches!(spec.pattern, Pattern::Connect | Pattern::ConnectRequestResponse) && side == Side::Far;
    counted && (connectionless || only_answers)
}
