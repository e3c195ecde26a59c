//! The reflector of STAMP (RFC 8762, RFC 8972): it answers each well-formed request with the times of its arrival and of the
//! answer, and with as many bytes as came.
//!
//! A request may have any address as its source. So no answer is longer than its request, what one address and all together are
//! answered is bounded, and so is what is remembered of them.

use std::{
    hash::{BuildHasher, RandomState},
    io::{self, IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

use nix::{
    cmsg_space, libc,
    sys::{
        socket::{
            ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
        },
        time::TimeSpec,
    },
};

use crate::{
    control::stop::{StopFlag, Urgency, wait},
    measure::clock::{in_ns, monotonic_ns, wall_ns},
    spec::Dialect,
    sys,
    transport::stamp::{ErrorEstimate, Packets, Reflection, Secret, ntp},
};

/// Sessions whose requests are counted. A further one gets the numbers of its own requests, as from a stateless reflector.
pub const SESSIONS: usize = 4096;

/// A session without a request for so long is over.
pub const IDLE: Duration = Duration::from_mins(1);

/// Most answers per second to an address, and to all of them; so many more come at once.
pub const PER_ADDRESS: u64 = 20_000;
pub const IN_ALL: u64 = 100_000;
const BURST: u64 = 1_000;

/// Rates that are kept: addresses that share one share its bound.
const RATES: usize = 4096;

/// Ports of services. A request from one may have been sent in the name of another reflector, with which this one would go on
/// for ever.
const SERVICES: u16 = 1024;

/// Packets between two looks at the stop flag.
const AT_ONCE: usize = 64;

/// The daemon, as a reflector sees it.
pub trait Host: Sync {
    /// Whether this address gets answers.
    fn allows(&self, address: IpAddr) -> bool;

    /// A session began.
    fn opened(&self, client: SocketAddr);

    /// It is over, after so many answers.
    fn closed(&self, client: SocketAddr, answers: u64);
}

/// A socket whose requests are answered.
#[derive(Debug)]
pub struct Reflector {
    socket: UdpSocket,
    address: SocketAddr,
}

impl Reflector {
    pub fn bind(address: &SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        // Of a socket for both versions of IP, each packet has the facts of its own version.
        if address.is_ipv6() {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
            setsockopt(&socket, sockopt::Ipv6RecvTClass, &true)?;
            setsockopt(&socket, sockopt::Ipv6Ttl, &Dialect::STAMP_TTL.into())?;
        } else {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        }
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
        setsockopt(&socket, sockopt::IpRecvTos, &true)?;
        setsockopt(&socket, sockopt::Ipv4Ttl, &Dialect::STAMP_TTL.into())?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is raised. With a secret, authenticated packets are answered, too.
    pub fn serve(&self, secret: Option<Secret>, host: &dyn Host, stop: &StopFlag) -> io::Result<()> {
        let forms = [secret.map(|secret| Packets::new(Some(secret))), Some(Packets::new(None))];
        let forms: Vec<Packets> = forms.into_iter().flatten().collect();
        let mut known = Known::new();
        let mut buffer = vec![0; 1 << 16];
        let mut looked_ns = 0;
        let mut error = ErrorEstimate::default();
        loop {
            let until = (known.open > 0).then(|| Instant::now() + IDLE);
            let ready = wait([Some(self.socket.as_fd()), stop.beyond(Urgency::None)], until)?;
            let now_ns = monotonic_ns();
            known.close(host, if ready[1] { u64::MAX } else { now_ns });
            if ready[1] {
                return Ok(());
            }
            if now_ns >= looked_ns {
                // The bound grows by 0.5 ms/s, and is renewed by whatever synchronises the clock.
                looked_ns = now_ns + 1_000_000_000;
                let clock = sys::wall_clock();
                error = ErrorEstimate::new(clock.max_error_ns, clock.synchronised);
            }
            for _ in 0..AT_ONCE {
                let Some(arrival) = self.receive(&mut buffer) else { break };
                let packet = &mut buffer[..arrival.bytes];
                let from_service = arrival.from.port() < SERVICES || arrival.from.port() == self.address.port();
                let read =
                    |form: &&Packets| form.read_request(packet).filter(|_| !from_service || !form.has_times(packet));
                let Some((form, request)) = forms.iter().find_map(|form| Some((form, read(&form)?))) else { continue };
                let address = arrival.from.ip().to_canonical();
                if !host.allows(address) || !known.admits(address, now_ns) {
                    continue;
                }
                let number = known.count(host, arrival.from, (request.ssid, request.number), now_ns);
                let sent_ns = wall_ns();
                // The clock may have been set back meanwhile.
                let received = ntp(arrival.wall_ns.unwrap_or(sent_ns).min(sent_ns));
                let own = Reflection { number, received, sent: ntp(sent_ns), error, ttl: arrival.ttl };
                form.reflect(packet, &request, &own);
                self.answer(packet, &arrival);
            }
        }
    }

    /// The next request. `None`: there is none now.
    fn receive(&self, buffer: &mut [u8]) -> Option<Arrival> {
        let mut space = cmsg_space!(TimeSpec, libc::in6_pktinfo, libc::in_pktinfo, i32, i32, i32, i32);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_DONTWAIT;
        let message = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), flags).ok()?;
        let from = message.address.as_ref()?;
        let v4 = || Some(SocketAddr::V4((*from.as_sockaddr_in()?).into()));
        let from = v4().or_else(|| Some(SocketAddr::V6((*from.as_sockaddr_in6()?).into())))?;
        let mut arrival = Arrival { bytes: message.bytes, from, to: None, ttl: 0, class: 0, wall_ns: None };
        for item in message.cmsgs().ok()? {
            // Numbers of an `int` that have one byte.
            let byte = |value: i32| u8::try_from(value).unwrap_or(0);
            match item {
                ControlMessageOwned::ScmTimestampns(at) => arrival.wall_ns = Some(in_ns(&at)),
                // Of a broadcast the two addresses differ: it may reach many reflectors, and none answers.
                ControlMessageOwned::Ipv4PacketInfo(info) if info.ipi_addr.s_addr == info.ipi_spec_dst.s_addr => {
                    arrival.to = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    let to = Ipv6Addr::from(info.ipi6_addr.s6_addr);
                    arrival.to = (!to.is_multicast()).then_some(to.into());
                }
                ControlMessageOwned::Ipv4Ttl(ttl) => arrival.ttl = byte(ttl),
                ControlMessageOwned::Ipv6HopLimit(limit) => arrival.ttl = byte(limit),
                ControlMessageOwned::Ipv4Tos(class) => arrival.class = class,
                ControlMessageOwned::Ipv6TClass(class) => arrival.class = byte(class),
                _ => {}
            }
        }
        Some(arrival)
    }

    /// Sends an answer from the address to which its request came, in the same class of service (DSCP).
    fn answer(&self, packet: &[u8], arrival: &Arrival) {
        /// The bits behind the class: the answers' senders react to no congestion.
        const ECN: u8 = 3;
        let Some(from) = arrival.to else { return };
        let class = arrival.class & !ECN;
        let wide = i32::from(class);
        let v4 = |ip: Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
        let (info4, info6);
        let source = match from {
            IpAddr::V4(ip) => {
                info4 = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: v4(ip), ipi_addr: v4(ip) };
                ControlMessage::Ipv4PacketInfo(&info4)
            }
            IpAddr::V6(ip) => {
                let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                info6 = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                ControlMessage::Ipv6PacketInfo(&info6)
            }
        };
        let class = if arrival.from.ip().to_canonical().is_ipv4() {
            ControlMessage::Ipv4Tos(&class)
        } else {
            ControlMessage::Ipv6TClass(&wide)
        };
        let (to, flags) = (SockaddrStorage::from(arrival.from), MsgFlags::MSG_DONTWAIT);
        // An answer that cannot be sent is lost, as on the way.
        let _ = sendmsg(self.socket.as_raw_fd(), &[IoSlice::new(packet)], &[source, class], flags, Some(&to));
    }
}

/// A packet, and what the kernel says of it.
struct Arrival {
    bytes: usize,
    from: SocketAddr,
    /// The address of this host that it was sent to; `None`: it was sent to many.
    to: Option<IpAddr>,
    ttl: u8,
    /// Class of service and marks of congestion.
    class: u8,
    wall_ns: Option<i64>,
}

/// Sessions and rates of the clients, in two tables of fixed length: strangers cannot make them grow.
struct Known {
    hasher: RandomState,
    sessions: Vec<Option<Session>>,
    /// Of them, those that are there.
    open: usize,
    /// When the next answer would be due at the rate of an address, nanoseconds, and at that of all.
    due_ns: Vec<u64>,
    all_due_ns: u64,
    closed_ns: u64,
}

struct Session {
    client: SocketAddr,
    ssid: u16,
    answers: u32,
    seen_ns: u64,
}

const IDLE_NS: u64 = IDLE.as_secs() * 1_000_000_000;

impl Known {
    fn new() -> Self {
        let sessions = std::iter::repeat_with(|| None).take(SESSIONS).collect();
        Self { hasher: RandomState::new(), sessions, open: 0, due_ns: vec![0; RATES], all_due_ns: 0, closed_ns: 0 }
    }

    fn place(&self, key: impl std::hash::Hash, places: usize) -> usize {
        usize::try_from(self.hasher.hash_one(key) % places as u64).unwrap_or(0)
    }

    /// Whether the address gets one more answer now. Of IPv6 its network counts, in which a host may have any address.
    fn admits(&mut self, address: IpAddr, now_ns: u64) -> bool {
        let network = match address {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        };
        let place = self.place(network, RATES);
        let mut both = [(&mut self.due_ns[place], PER_ADDRESS), (&mut self.all_due_ns, IN_ALL)];
        let gap = |rate: u64| 1_000_000_000 / rate;
        let admits = both.iter().all(|(due_ns, rate)| **due_ns <= now_ns + BURST * gap(*rate));
        if admits {
            for (due_ns, rate) in &mut both {
                **due_ns = (**due_ns).max(now_ns) + gap(*rate);
            }
        }
        admits
    }

    /// The number of the answer to a request of a session: its own count, or that of the request if the session's place is taken.
    fn count(&mut self, host: &dyn Host, client: SocketAddr, (ssid, number): (u16, u32), now_ns: u64) -> u32 {
        let place = self.place((client, ssid), SESSIONS);
        let slot = &mut self.sessions[place];
        let is_its_own = |session: &Session| (session.client, session.ssid) == (client, ssid);
        if slot.as_ref().is_some_and(|session| !is_its_own(session) && !session.is_over(now_ns)) {
            return number;
        }
        if !slot.as_ref().is_some_and(is_its_own) {
            if let Some(over) = slot.take() {
                host.closed(over.client, over.answers.into());
                self.open -= 1;
            }
            host.opened(client);
            self.open += 1;
        }
        let session = slot.get_or_insert(Session { client, ssid, answers: 0, seen_ns: now_ns });
        session.seen_ns = now_ns;
        session.answers = session.answers.wrapping_add(1);
        session.answers.wrapping_sub(1)
    }

    /// Forgets the sessions that are over, at most once in the time that makes one so.
    fn close(&mut self, host: &dyn Host, now_ns: u64) {
        if now_ns.saturating_sub(self.closed_ns) < IDLE_NS {
            return;
        }
        self.closed_ns = now_ns;
        for slot in &mut self.sessions {
            if let Some(over) = slot.take_if(|session| session.is_over(now_ns)) {
                host.closed(over.client, over.answers.into());
                self.open -= 1;
            }
        }
    }
}

impl Session {
    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.seen_ns) >= IDLE_NS
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::transport::stamp::Request;

    /// Writes down what it is told; 127.0.0.9 gets no answers.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Host for Told {
        fn allows(&self, address: IpAddr) -> bool {
            address != IpAddr::from([127, 0, 0, 9])
        }

        fn opened(&self, client: SocketAddr) {
            self.0.lock().unwrap().push(format!("opened {}", client.ip()));
        }

        fn closed(&self, client: SocketAddr, answers: u64) {
            self.0.lock().unwrap().push(format!("closed {} {answers}", client.ip()));
        }
    }

    /// Runs `clients` against a reflector; returns what its daemon was told.
    fn reflected(address: &str, secret: Option<Secret>, clients: impl FnOnce(SocketAddr)) -> Vec<String> {
        let reflector = Reflector::bind(&address.parse().unwrap()).unwrap();
        let (told, stop) = (Told::default(), StopFlag::new().unwrap());
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| reflector.serve(secret, &told, &stop));
            clients(reflector.address());
            stop.request();
            serving.join().unwrap().unwrap();
        });
        told.0.into_inner().unwrap()
    }

    fn client(from: &str, to: SocketAddr) -> UdpSocket {
        let socket = UdpSocket::bind(from).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect(to).unwrap();
        socket
    }

    fn request(packets: &Packets, number: u32, length: usize) -> Vec<u8> {
        let mut packet = vec![0; length];
        let request = Request { number, sent: ntp(wall_ns()), error: ErrorEstimate::new(9, false), ssid: 77 };
        packets.write_request(&mut packet, &request);
        packet
    }

    #[test]
    fn each_session_has_its_own_numbers_and_its_answers_the_length_of_the_requests() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let open = Packets::new(None);
            let told = reflected(address, None, |to| {
                let near = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
                for socket in [client(near, to), client(near, to)] {
                    setsockopt(&socket, sockopt::Ipv4Ttl, &61).unwrap();
                    let _ = setsockopt(&socket, sockopt::Ipv6Ttl, &61);
                    for (number, length) in [(5, 44), (9, 400)] {
                        let sent_ns = wall_ns();
                        socket.send(&request(&open, number, length)).unwrap();
                        let mut answer = [0; 2000];
                        let bytes = socket.recv(&mut answer).unwrap();
                        assert_eq!(bytes, length);
                        let read = open.read_answer(&answer[..bytes]).unwrap();
                        assert_eq!((read.number, read.request_number), (u32::from(number == 9), number));
                        assert_eq!((read.ttl, read.ssid), (Some(61), 77));
                        let times = [sent_ns, read.received_ns.cast_signed(), read.sent_ns.cast_signed(), wall_ns()];
                        assert!(times.is_sorted(), "{times:?}");
                    }
                }
            });
            assert_eq!(told.len(), 4, "{told:?}");
            assert!(told[2].starts_with("closed") && told[2].ends_with(" 2"), "{told:?}");
        }
    }

    #[test]
    fn what_is_not_well_formed_or_not_allowed_gets_no_answer() {
        let (open, proven) = (Packets::new(None), Packets::new(Some(Secret::new(&[3; 32]))));
        let other = Packets::new(Some(Secret::new(&[4; 32])));
        let told = reflected("127.0.0.1:0", Some(Secret::new(&[3; 32])), |to| {
            let socket = client("127.0.0.1:0", to);
            for packet in [&[][..], &[7; 13], &[7; 43]] {
                socket.send(packet).unwrap();
            }
            client("127.0.0.9:0", to).send(&request(&open, 1, 44)).unwrap();
            // Another key proves nothing: what comes back is an answer without proof.
            socket.send(&request(&other, 2, 112)).unwrap();
            let mut answer = [0; 200];
            assert_eq!(socket.recv(&mut answer).unwrap(), 112);
            assert!(proven.read_answer(&answer[..112]).is_err() && other.read_answer(&answer[..112]).is_err());
            socket.send(&request(&proven, 3, 120)).unwrap();
            assert_eq!(socket.recv(&mut answer).unwrap(), 120);
            assert_eq!(proven.read_answer(&answer[..120]).unwrap().request_number, 3);
        });
        assert!(told.iter().all(|line| line.contains("127.0.0.1")), "{told:?}");
    }

    /// Two reflectors that were made to talk with each other would go on for ever.
    #[test]
    fn an_answer_from_the_same_port_gets_no_answer() {
        let open = Packets::new(None);
        reflected("127.0.0.1:0", None, |to| {
            let twin = client(&format!("127.0.0.2:{}", to.port()), to);
            let mut packet = request(&open, 4, 44);
            twin.send(&packet).unwrap();
            assert_eq!(twin.recv(&mut packet).unwrap(), 44);
            twin.send(&packet).unwrap();
            twin.send(&request(&open, 8, 44)).unwrap();
            assert_eq!(twin.recv(&mut packet).unwrap(), 44);
            assert_eq!(open.named(&packet), Some(8), "the request after it was answered");
        });
    }

    #[test]
    fn rates_and_sessions_are_bounded_whoever_asks() {
        let (mut known, told) = (Known::new(), Told::default());
        let address = |last: u32| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + last));
        let granted =
            |known: &mut Known, last, now_ns| (0..10_000).filter(|_| known.admits(address(last), now_ns)).count();
        assert_eq!(granted(&mut known, 1, 0) as u64, BURST + 1);
        assert_eq!(granted(&mut known, 1, 1_000_000_000 / PER_ADDRESS), 1);
        let of_all: usize = (0..100_000).map(|last| usize::from(known.admits(address(last), 0))).sum();
        assert!(of_all as u64 <= BURST, "{of_all}");
        for last in 0..50_000 {
            known.count(&told, (address(last), 9).into(), (1, 7), 0);
        }
        let opened = told.0.lock().unwrap().len();
        assert!((SESSIONS / 2..=SESSIONS).contains(&opened), "{opened}");
        assert_eq!(known.sessions.len(), SESSIONS);
        known.close(&told, IDLE_NS);
        assert!(known.open == 0 && told.0.lock().unwrap().len() == 2 * opened);
    }
}
