//! Measures how evenly a program sends datagrams, by the kernel's clock instead of the program's. Watches loopback, takes the
//! kernel's timestamp of every sent datagram of the given size, and prints statistics of the gaps between them.
//!
//! `cargo run --release -p netcore --example gaps -- PAYLOAD_BYTES GAP_US SECONDS` (as root), while something sends.

use std::{
    io::IoSliceMut,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::sys::{
    socket::{
        AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, setsockopt,
        socket,
        sockopt::{RcvBufForce, ReceiveTimeout, ReceiveTimestampns},
    },
    time::TimeVal,
};

/// Packet type of a packet that this host sends (PACKET_OUTGOING). Loopback shows each packet a second time, as received.
const OUTGOING: u8 = 4;
/// Bytes of an IPv4 header and a UDP header.
const HEADERS: usize = 28;
const UDP: u8 = 17;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [payload, gap_us, seconds] = &arguments[..] else { return Err("gaps PAYLOAD_BYTES GAP_US SECONDS".into()) };
    let (payload, gap_us, seconds): (usize, f64, f64) = (payload.parse()?, gap_us.parse()?, seconds.parse()?);
    let socket: OwnedFd =
        socket(AddressFamily::Packet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    setsockopt(&socket, RcvBufForce, &(64 << 20))?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, 100_000))?;
    let mut times: Vec<i64> = Vec::with_capacity(1 << 22);
    let (mut bytes, mut control) = ([0_u8; 64], nix::cmsg_space!(nix::sys::time::TimeSpec));
    let mut end = Instant::now() + Duration::from_mins(1);
    while Instant::now() < end {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        // With MSG_TRUNC the length is that of the packet, even beyond the buffer.
        let Ok(message) = recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_TRUNC)
        else {
            continue;
        };
        let outgoing = message.address.is_some_and(|a| a.pkttype() == OUTGOING);
        let Some(time) = message.cmsgs()?.find_map(|c| match c {
            ControlMessageOwned::ScmTimestampns(t) => Some(t.tv_sec() * 1_000_000_000 + t.tv_nsec()),
            _ => None,
        }) else {
            continue;
        };
        let length = message.bytes;
        if outgoing && length == payload + HEADERS && bytes[9] == UDP {
            if times.is_empty() {
                end = Instant::now() + Duration::from_secs_f64(seconds);
            }
            times.push(time);
        }
    }
    let mut gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e3).collect();
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Err("no such datagram was sent".into());
    };
    gaps.sort_by(f64::total_cmp);
    let at = |percent: usize| gaps[(gaps.len() - 1) * percent / 100];
    let within = gaps.iter().filter(|g| (*g / gap_us - 1.0).abs() <= 0.1).count() as f64 / gaps.len() as f64;
    let rate = gaps.len() as f64 / ((last - first) as f64 / 1e9);
    println!(
        "rate_error {:+.4}% within_tenth {:.1}% gap_p50 {:.2}us p99 {:.2}us max {:.0}us datagrams {}",
        (rate * gap_us / 1e6 - 1.0) * 100.0,
        within * 100.0,
        at(50),
        at(99),
        at(100),
        times.len()
    );
    Ok(())
}
