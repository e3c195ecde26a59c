//! Round trips to the hops of the path, before the load and under it: probes whose time to live ends at each of them.
//!
//! A probe is a UDP datagram, and the answer is an ICMP message that the kernel puts on the socket's error queue (`IP_RECVERR`), with
//! the time at which it arrived. That takes no privileges. All probes have the same addresses and ports, so that routers which
//! spread flows over several paths send them the same way in both states.
//!
//! [`schedule`] decides which hop is asked when.

mod schedule;

use std::{
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use nix::{
    cmsg_space,
    poll::PollFlags,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt, sockopt},
    sys::time::TimeSpec,
};

use self::schedule::{Answer, Prober, Schedule};
use super::{address::Address, options};
use crate::{
    error::EndError,
    measure::clock::{in_ns, monotonic_ns, wall_ns},
    report::ProbedPath,
    spec::{Phases, SocketOptions, Transport},
    sys::{self, opt},
};

/// Longest sleep: the end of the test is noticed within it.
const SLEEP: Duration = Duration::from_millis(50);

/// The port that traceroute begins with; firewalls let it pass more often than others.
const PORT: u16 = 33434;

/// Bytes of a probe. Its number stands first.
const PROBE_BYTES: usize = 36;

/// A thread that probes. Dropping it ends it.
#[derive(Debug)]
pub struct HopProbes {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<ProbedPath>>,
}

impl HopProbes {
    /// Begins to probe the path to `peer`, from `local` where that is known, for a load that begins at `t0_ns` on the monotonic clock.
    pub fn start(
        peer: IpAddr,
        local: Option<IpAddr>,
        of_load: &SocketOptions,
        t0_ns: u64,
        phases: &Phases,
    ) -> Result<Self, EndError> {
        let socket = open(peer, local, of_load)?;
        let schedule = Schedule::new(monotonic_ns(), t0_ns, phases);
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let run = move || probe(&socket, peer, Prober::new(monotonic_ns(), schedule), &is_over);
        let thread = std::thread::Builder::new().name("hops".to_owned()).spawn(run);
        let thread = thread.map_err(EndError::system("cannot start the thread that probes the hops"))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the probes and returns what they found.
    pub fn finish(mut self) -> ProbedPath {
        self.stop.store(true, Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for HopProbes {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// A socket whose error queue has the answers.
fn open(peer: IpAddr, local: Option<IpAddr>, of_load: &SocketOptions) -> Result<OwnedFd, EndError> {
    let failed = || EndError::system("cannot probe the hops of the path");
    let v6 = peer.is_ipv6();
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
    let socket = sys::socket(family, kind, libc::IPPROTO_UDP).map_err(failed())?;
    // Queues may have a place for each class of traffic.
    let shared = SocketOptions {
        dscp: of_load.dscp,
        priority: of_load.priority,
        device: of_load.device.clone(),
        ..SocketOptions::default()
    };
    options::apply(&socket, &shared, Transport::Udp, v6)?;
    let set = if v6 {
        setsockopt(&socket, sockopt::Ipv6RecvErr, &true)
    } else {
        setsockopt(&socket, sockopt::Ipv4RecvErr, &true)
    };
    set.and_then(|()| setsockopt(&socket, sockopt::ReceiveTimestampns, &true))
        .map_err(|error| failed()(error.into()))?;
    if let Some(local) = local.filter(|local| !local.is_unspecified() && local.is_ipv6() == v6) {
        Address::Ip(SocketAddr::from((local, 0))).bind(&socket)?;
    }
    Address::Ip(SocketAddr::from((peer, PORT))).connect(&socket).map_err(|error| failed()(error.into()))?;
    Ok(socket)
}

/// Probes until the test is over.
fn probe(socket: &OwnedFd, peer: IpAddr, mut prober: Prober, is_over: &AtomicBool) -> ProbedPath {
    while !is_over.load(Relaxed) {
        let now_ns = monotonic_ns();
        prober.expire(now_ns);
        if let Some((hops, state)) = prober.due(now_ns) {
            for hop in hops {
                let number = prober.sent(hop, state, monotonic_ns(), wall_ns());
                send(socket, peer, hop, number);
            }
            continue;
        }
        // Until soon after the next round is due, or the next answer.
        let left = Duration::from_nanos(prober.left_ns(now_ns)).clamp(Duration::from_millis(1), SLEEP);
        if sys::wait_for(socket, PollFlags::empty(), left).is_err() {
            continue;
        }
        while let Some(answer) = receive(socket, peer) {
            prober.answered(answer, monotonic_ns());
        }
    }
    prober.path()
}

/// Sends a probe to the hop of that index. One that cannot be sent has no answer.
fn send(socket: &OwnedFd, peer: IpAddr, hop: usize, number: u32) {
    let limit = if peer.is_ipv4() { opt::IP_TTL } else { opt::IPV6_UNICAST_HOPS };
    if opt::set_int(socket, limit, i32::try_from(hop + 1).unwrap_or(1)).is_err() {
        return;
    }
    let mut bytes = [0; PROBE_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    // An answer to an earlier probe fails the next call once.
    for _ in 0..3 {
        let parts = [IoSlice::new(&bytes)];
        if sendmsg::<()>(socket.as_raw_fd(), &parts, &[], MsgFlags::MSG_DONTWAIT, None).is_ok() {
            break;
        }
    }
}

/// The next answer on the error queue.
fn receive(socket: &OwnedFd, peer: IpAddr) -> Option<Answer> {
    let mut quoted = [0u8; PROBE_BYTES];
    let mut control = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6, TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut quoted)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(nix::Error::EINTR) => continue,
            Err(_) => return None,
        };
        let (mut error, mut wall) = (None, wall_ns());
        for item in message.cmsgs().into_iter().flatten() {
            match item {
                ControlMessageOwned::Ipv4RecvErr(about, Some(from)) => {
                    error = Some((about, IpAddr::from(from.sin_addr.s_addr.to_ne_bytes())));
                }
                ControlMessageOwned::Ipv6RecvErr(about, Some(from)) => {
                    error = Some((about, IpAddr::from(from.sin6_addr.s6_addr)));
                }
                ControlMessageOwned::ScmTimestampns(at) => wall = in_ns(&at),
                _ => {}
            }
        }
        let bytes = message.bytes;
        // Errors of this host's own kernel have another origin.
        let Some((about, from)) = error.filter(|(about, _)| [ORIGIN_ICMP, ORIGIN_ICMP6].contains(&about.ee_origin))
        else {
            continue;
        };
        let number = quoted.first_chunk().filter(|_| bytes >= 4).map(|number| u32::from_be_bytes(*number));
        let unreachable = if peer.is_ipv4() { UNREACHABLE } else { UNREACHABLE6 };
        return Some(Answer { number, from, reached: about.ee_type == unreachable && from == peer, wall_ns: wall });
    }
}

/// Origins in `sock_extended_err`.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;

/// Types of ICMP and ICMPv6: destination unreachable.
const UNREACHABLE: u8 = 3;
const UNREACHABLE6: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::namespace::{inside, set},
        spec::Stop,
    };

    const MS: u64 = 1_000_000;

    fn one_second() -> Phases {
        Phases { warmup_ns: 0, settle_ns: 0, stop: Stop::AfterNs(1000 * MS), cooldown_ns: 0, interval_ns: 0 }
    }

    /// On the loopback interface the far end is the first hop.
    #[test]
    fn the_far_end_answers_over_both_versions_of_ip() {
        inside(|| {
            set("ipv4/icmp_ratelimit", "0");
            for peer in ["127.0.0.1", "::1"] {
                let peer: IpAddr = peer.parse().unwrap();
                let t0_ns = monotonic_ns() + 600 * MS;
                let (of_load, phases) = (SocketOptions::default(), one_second());
                let probes = HopProbes::start(peer, None, &of_load, t0_ns, &phases).unwrap();
                std::thread::sleep(Duration::from_millis(300));
                let found = probes.finish();
                assert_eq!((found.hops.len(), found.reached), (1, true), "{found:?}");
                assert_eq!(found.hops[0].addresses, [peer]);
                assert!(!found.hops[0].idle.us.is_empty(), "{found:?}");
            }
        });
    }
}
