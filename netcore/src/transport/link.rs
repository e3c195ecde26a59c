//! Ethernet frames of one type on a named interface (`AF_PACKET`): the link layer without IP above it.
//!
//! After the Ethernet header a frame carries the session (the first four bytes of its token), the flow and the message's
//! length, since short frames are padded on the wire. A filter in the kernel passes only frames that the other end sends on
//! this flow: on an interface that both ends share, such as loopback, it drops the end's own frames.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

use nix::{
    net::if_::if_nametoindex,
    sys::socket::{MsgFlags, recv, send},
};
use socket2::{SockFilter, SockRef};

use super::{
    Link,
    connection::{PREAMBLE_BYTES, Token, flow_of, preamble, set_blocking},
    datagram::{ANSWERS, await_preamble, look_up, repeat_until_answered},
    largest_message,
    meeting::{Destination, Endpoints, Listening, Meeting},
    options,
};
use crate::{
    error::EndError,
    report::NicFacts,
    spec::{Side, SocketOptions, TestSpec, memory::LINK_HEADER_BYTES as HEADER_BYTES},
    sys,
};

/// Type of the frames: the first of the two that IEEE 802 reserves for experiments.
const ETHERTYPE: u16 = 0x88b5;

/// Bytes of the Ethernet header: destination, source, type.
const ETHERNET_BYTES: usize = 14;

/// Far end: a socket for each flow.
pub fn listen(spec: &TestSpec, token: &Token) -> Result<Listening, EndError> {
    let mut listening = Listening::default();
    for flow in 0..spec.flows() {
        let (socket, mac) = socket(spec, token, flow, Side::Far)?;
        listening.endpoints.mac = Some(mac);
        listening.sockets.push(Arc::new(socket));
    }
    Ok(listening)
}

/// Far end: the flows of those sockets.
pub fn accept(at: &Listening, meeting: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let own = at.endpoints.mac.unwrap_or_default();
    at.sockets.iter().zip(0..).map(|(socket, flow)| admit(socket, own, flow, meeting)).collect()
}

/// Near end: a socket for each flow.
pub fn open(to: Destination<'_>, meeting: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let Endpoints { mac: Some(to), .. } = *to.endpoints else {
        return Err(EndError::Impossible("the far end did not name its hardware address".to_owned()));
    };
    (0..meeting.spec.flows()).map(|flow| greet(to, flow, meeting)).collect()
}

/// A socket on the test's interface that receives the frames of one flow, and the interface's hardware address.
fn socket(spec: &TestSpec, token: &Token, flow: u32, side: Side) -> Result<(OwnedFd, [u8; 6]), EndError> {
    let asked = &spec.end(side).socket;
    let Some(device) = asked.device.as_deref() else {
        return Err(EndError::Impossible(
            "a link test needs the interface of each end: set socket.device and remote_socket.device".to_owned(),
        ));
    };
    let index =
        if_nametoindex(device).map_err(EndError::system(format!("there is no interface `{device}` on this host")))?;
    let largest = largest_message(spec);
    if let Some(mtu) = NicFacts::named(device).and_then(|facts| facts.mtu_bytes)
        && largest + (HEADER_BYTES - ETHERNET_BYTES) as u64 > u64::from(mtu)
    {
        return Err(EndError::Impossible(format!(
            "a message of {largest} bytes does not fit a frame of `{device}`: its MTU is {mtu} bytes, {} of which identify \
             the flow",
            HEADER_BYTES - ETHERNET_BYTES
        )));
    }
    // With protocol 0 nothing arrives before the filter is attached.
    let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
        .map_err(EndError::system("no packet socket: it needs CAP_NET_RAW (setcap cap_net_raw+ep, or root)"))?;
    SockRef::from(&socket)
        .attach_filter(&filter(token, mark(flow, side, false)))
        .map_err(EndError::system("cannot filter frames"))?;
    sys::bind_link(&socket, index, ETHERTYPE)
        .map_err(EndError::system(format!("cannot use the interface `{device}` (is it up?)")))?;
    let address =
        sys::link_address(&socket).map_err(EndError::system(format!("`{device}` has no hardware address")))?;
    let without_device = SocketOptions { device: None, ..asked.clone() };
    options::apply(&socket, &without_device, spec.transport, false)?;
    Ok((socket, address))
}

/// Identifier of the session in its frames.
fn session(token: &Token) -> [u8; 4] {
    [token[0], token[1], token[2], token[3]]
}

/// Identifier of a flow in the frames that an end sends, or that it receives.
fn mark(flow: u32, side: Side, sends: bool) -> u32 {
    if (side == Side::Far) == sends { flow | 1 << 31 } else { flow }
}

/// Classic BPF program that accepts the frames of this session and flow.
fn filter(token: &Token, flow: u32) -> [SockFilter; 6] {
    /// BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K.
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    [
        SockFilter::new(LOAD, 0, 0, 14),
        SockFilter::new(JUMP_IF_EQUAL, 0, 3, u32::from_be_bytes(session(token))),
        SockFilter::new(LOAD, 0, 0, 18),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, flow),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
        SockFilter::new(RETURN, 0, 0, 0),
    ]
}

/// The header of every frame of a flow, without the message's length.
fn header(to: [u8; 6], from: [u8; 6], token: &Token, mark: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(to);
    header.extend(from);
    header.extend(ETHERTYPE.to_be_bytes());
    header.extend(session(token));
    header.extend(mark.to_be_bytes());
    header.extend([0, 0]);
    header
}

fn set_length(header: &mut [u8], bytes: usize) {
    // At most a frame's payload, which is below 2^16.
    let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
    header[HEADER_BYTES - 2..HEADER_BYTES].copy_from_slice(&bytes.to_be_bytes());
}

/// The message in a received frame, without padding.
#[inline]
pub fn message(frame: &[u8]) -> &[u8] {
    let length = frame.get(HEADER_BYTES - 2..HEADER_BYTES).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    frame.get(HEADER_BYTES..HEADER_BYTES + usize::from(length)).unwrap_or_default()
}

fn frame(header: &[u8], message: &[u8]) -> Vec<u8> {
    let mut frame = header.to_vec();
    set_length(&mut frame, message.len());
    frame.extend(message);
    frame
}

/// Near end: sends the preamble until it is answered.
fn greet(to: [u8; 6], flow: u32, Meeting { spec, token, deadline }: Meeting<'_>) -> Result<Link, EndError> {
    let (socket, own) = socket(spec, token, flow, Side::Near)?;
    let header = header(to, own, token, mark(flow, Side::Near, true));
    let hello = frame(&header, &preamble(token, flow));
    let failed = |error: nix::Error| {
        let hint = if error == nix::Error::ENETDOWN { " (bring the interface up: ip link set … up)" } else { "" };
        EndError::System { what: format!("cannot send frames{hint}"), source: error.into() }
    };
    let hint = "no frame came back: are the two interfaces on one link?";
    let send = || send(socket.as_raw_fd(), &hello, MsgFlags::MSG_DONTWAIT).map(drop).map_err(failed);
    let is_answered = || Ok(sender(&socket, token, flow).is_some());
    repeat_until_answered(&socket, flow, deadline, hint, send, is_answered)?;
    finish(socket.into(), header, flow)
}

/// The sender of an arrived preamble of the flow.
fn sender(socket: &OwnedFd, token: &Token, flow: u32) -> Option<[u8; 6]> {
    let mut hello = [0; HEADER_BYTES + PREAMBLE_BYTES];
    let n = recv(socket.as_raw_fd(), &mut hello, MsgFlags::MSG_DONTWAIT).ok()?;
    (flow_of(message(&hello[..n]), token) == Some(flow))
        .then(|| [hello[6], hello[7], hello[8], hello[9], hello[10], hello[11]])
}

/// Far end: waits for the near end's preamble and answers.
fn admit(
    socket: &Arc<OwnedFd>,
    own: [u8; 6],
    flow: u32,
    Meeting { token, deadline, .. }: Meeting<'_>,
) -> Result<Link, EndError> {
    let hint = "the peer's frames did not arrive: are the two interfaces on one link?";
    let peer = await_preamble(socket, flow, deadline, hint, || sender(socket, token, flow))?;
    let header = header(peer, own, token, mark(flow, Side::Far, true));
    let answer = frame(&header, &preamble(token, flow));
    for _ in 0..ANSWERS {
        // An answer that cannot be sent counts as lost: there are others.
        let _ = send(socket.as_raw_fd(), &answer, MsgFlags::empty());
    }
    set_blocking(socket, true)?;
    finish(socket.clone(), header, flow)
}

fn finish(socket: Arc<OwnedFd>, header: Vec<u8>, flow: u32) -> Result<Link, EndError> {
    look_up(&socket)?;
    Ok(Link { header, ..Link::new(flow, socket.clone(), socket) })
}

/// Writes a flow's header before a message of `bytes`.
pub fn prepend(header: &[u8], frame: &mut [u8], bytes: usize) {
    frame[..HEADER_BYTES].copy_from_slice(header);
    set_length(frame, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_not_part_of_the_message() {
        let token = [9; 16];
        let header = header([1; 6], [2; 6], &token, 7);
        let mut padded = frame(&header, b"abc");
        padded.resize(60, 0);
        assert_eq!(message(&padded), b"abc");
        assert_eq!(message(&padded[..HEADER_BYTES + 2]), b"", "cut off");
        assert_eq!(message(&padded[..10]), b"");
        assert_eq!(padded[12..14], [0x88, 0xb5]);
    }
}
