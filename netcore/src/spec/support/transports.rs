//! What holds for single transports.

use super::{Direction, Pattern, TestSpec, Transport, Unsupported, no, touches};
use crate::spec::{BufferOptions, EndSpec};

/// Whether an end asks for a certain place of its buffers.
fn places(end: &EndSpec) -> bool {
    let default = BufferOptions::default();
    end.buffers.alignment != default.alignment || end.buffers.offset != default.offset
}

/// What holds for datagrams.
pub(super) fn datagrams(spec: &TestSpec) -> Result<(), Unsupported> {
    if spec.direction == Direction::Duplex {
        return no(
            "workload",
            "datagrams go one way on each pair of sockets: choose `direction: bidirectional` instead",
        );
    }
    if touches(&spec.near) || touches(&spec.far) {
        return no(
            "buffers",
            "ring, dirty and clean are not available for datagrams, which use one buffer per message",
        );
    }
    if spec.pattern == Pattern::Stream && (places(&spec.near) || places(&spec.far)) {
        return no(
            "buffers",
            "alignment and offset are not available for streams of datagrams, whose messages lie one after the other",
        );
    }
    let sizes = &spec.sizes;
    let (key, largest) = match spec.pattern {
        Pattern::Stream => ("message_size", sizes.message_bytes),
        _ if sizes.request_bytes >= sizes.response_bytes => ("request_size", sizes.request_bytes),
        _ => ("response_size", sizes.response_bytes),
    };
    if spec.pattern == Pattern::Ping {
        if sizes.message_bytes > LARGEST_UDP {
            return no(
                "message_size",
                format!("an ICMP echo carries at most {LARGEST_UDP} bytes, not {}", sizes.message_bytes),
            );
        }
        if spec.inflight > 65_535 {
            return no("inflight", "an ICMP echo's number has 16 bits: at most 65535 can be told apart");
        }
        return Ok(());
    }
    if matches!(spec.transport, Transport::Udp | Transport::UdpLite) && largest > LARGEST_UDP {
        return no(key, format!("a UDP datagram carries at most {LARGEST_UDP} bytes, not {largest}"));
    }
    if spec.transport == Transport::Link {
        if largest > LARGEST_FRAME {
            return no(key, format!("a frame carries at most {LARGEST_FRAME} bytes of a message, not {largest}"));
        }
        if spec.near.socket.device.is_none() || spec.far.socket.device.is_none() {
            return no(
                "socket.device",
                "a link test needs the interface of each end: socket.device and remote_socket.device",
            );
        }
    }
    if spec.coalesce {
        return no("coalesce", "datagrams keep their boundaries: requests cannot share one");
    }
    Ok(())
}

/// What holds for pipes.
pub(super) fn pipes(spec: &TestSpec) -> Result<(), Unsupported> {
    let sizes = &spec.sizes;
    let all = u64::from(spec.inflight).saturating_mul(sizes.request_bytes.max(sizes.response_bytes));
    if spec.pattern == Pattern::RequestResponse {
        // A pipe's calls cannot do without waiting: what is in flight must fit.
        if spec.inflight > 1 && all > PIPE_BYTES {
            return no("inflight", format!("a pipe holds {PIPE_BYTES} bytes: {all} in flight could lock both ends up"));
        }
    }
    Ok(())
}

/// What a pipe holds by default, bytes.
const PIPE_BYTES: u64 = 65_536;

/// Payload of the longest UDP datagram over IPv4, bytes.
const LARGEST_UDP: u64 = 65_507;

/// The longest frame that any interface takes (the loopback's MTU), less what tells the flows apart, bytes.
const LARGEST_FRAME: u64 = 65_536 - 10;
