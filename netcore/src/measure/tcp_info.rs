//! TCP_INFO, and the available congestion controls.
//!
//! The kernel's structure has only ever grown at its end. Fields are read by their offset, and a field beyond the
//! returned length is `None`, not zero.

use std::{io, os::fd::BorrowedFd};

use crate::{
    report::{TcpInfo, TcpInfoHere, TcpLimits},
    sys::opt,
};

/// Longer than the structure of any known kernel (248 bytes in Linux 6.12); a longer one is cut off here.
const LENGTH: usize = 320;

/// Place of `tcpi_options`, and its bits.
const OPTIONS: usize = 5;
const TCPI_OPT_TIMESTAMPS: u8 = 1;
const TCPI_OPT_ECN: u8 = 8;
/// The bit `tcpi_delivery_rate_app_limited` of byte 7. Bit fields begin with the lowest bit on little-endian machines.
const APP_LIMITED: u8 = if cfg!(target_endian = "little") { 1 } else { 0x80 };
const DELIVERY_RATE: usize = 160;

/// `TCP_ESTABLISHED`, the state in byte 0.
const ESTABLISHED: u8 = 1;
/// Retransmissions without an acknowledgement, with twice the pause after each, from which on a packet may not pass.
const FEWEST_TIMES: u64 = 3;
/// What to conclude from full packets that do not pass, and what to try.
const MTU: &str =
    "full packets may not pass (MTU); `ip link set dev IFACE mtu 1280` at one end shows whether that is it";

/// The returned bytes: `struct tcp_info` of `linux/tcp.h`.
struct Raw {
    bytes: [u8; LENGTH],
    length: usize,
}

impl Raw {
    fn read(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0_u8; LENGTH];
        let length = opt::get(&socket, opt::TCP_INFO, &mut bytes)?;
        Ok(Self { bytes, length })
    }

    fn u16_at(&self, offset: usize) -> Option<u16> {
        let field = self.bytes[..self.length].get(offset..offset + size_of::<u16>())?;
        Some(u16::from_ne_bytes(field.try_into().ok()?))
    }

    fn u32_at(&self, offset: usize) -> Option<u32> {
        let field = self.bytes[..self.length].get(offset..offset + size_of::<u32>())?;
        Some(u32::from_ne_bytes(field.try_into().ok()?))
    }

    fn u64_at(&self, offset: usize) -> Option<u64> {
        let field = self.bytes[..self.length].get(offset..offset + size_of::<u64>())?;
        Some(u64::from_ne_bytes(field.try_into().ok()?))
    }

    fn has_option(&self, option: u8) -> Option<bool> {
        Some(self.bytes[..self.length].get(OPTIONS)? & option != 0)
    }

    fn info(&self) -> Option<TcpInfo> {
        Some(TcpInfo {
            mss_bytes: self.u32_at(16)?,
            pmtu_bytes: self.u32_at(60)?,
            timestamps: self.has_option(TCPI_OPT_TIMESTAMPS),
            here: TcpInfoHere {
                rto_us: self.u32_at(8)?,
                ato_us: self.u32_at(12)?,
                rcv_ssthresh_bytes: self.u32_at(64)?,
                snd_ssthresh_segments: self.u32_at(76)?,
                reordering_segments: self.u32_at(88)?,
            },
            rtt_us: self.u32_at(68)?,
            rtt_var_us: self.u32_at(72)?,
            cwnd_segments: self.u32_at(80)?,
            retransmits: u64::from(self.u32_at(100)?),
            bytes_acked: self.u64_at(120),
            delivered_bytes: self.delivered_bytes(),
            // All bits are set before the first acknowledgement.
            min_rtt_us: self.u32_at(148).filter(|v| *v != u32::MAX),
            delivery_rate_bytes_per_s: self.u64_at(DELIVERY_RATE).filter(|v| *v != 0),
            busy_us: self.u64_at(168),
            rwnd_limited_us: self.u64_at(176),
            sndbuf_limited_us: self.u64_at(184),
            limits: None,
        })
    }

    fn delivered_bytes(&self) -> Option<u64> {
        let [delivered, sent] = [self.u32_at(192)?, self.u32_at(156)?].map(u128::from);
        let bytes = u128::from(self.u64_at(200)?);
        // Both counters of segments wrap.
        if sent == 0 || bytes > sent * u128::from(self.u32_at(16)?) {
            return None;
        }
        // The SYN counts as delivered, and is no segment of data.
        u64::try_from(bytes * delivered.saturating_sub(1) / sent).ok()
    }

    fn stuck(&self) -> Option<String> {
        // The retransmissions since the last acknowledgement, and the mean length of all of them.
        let times = u64::from(*self.bytes[..self.length].get(2)?);
        let mss = u64::from(self.u32_at(16)?);
        let resent = self.u64_at(208)? / u64::from(self.u32_at(100)?).max(1);
        // A path that is down lets no small packet through either: one behind the full ones was acknowledged (SACK), or came.
        let sacked = self.u32_at(28)? > 0;
        // Of a connection that got less than one full packet, since one that got more may have had its holes filled.
        let has_holes = self.u32_at(224)? > 0 && self.u64_at(128)? < mss;
        let why = match () {
            () if self.bytes[0] != ESTABLISHED => return None,
            () if sacked && times >= FEWEST_TIMES && resent >= mss * 3 / 4 => {
                format!("packets of {mss} bytes were sent again {times} times without an answer")
            }
            () if has_holes => "later packets of the other end came and earlier ones did not".to_owned(),
            () => return None,
        };
        Some(format!("the connection is up, but {why}: {MTU}"))
    }

    fn limits(&self) -> TcpLimits {
        // The bit came together with the rate that it marks; before, its byte was padding.
        let delivery_rate = self.u64_at(DELIVERY_RATE);
        TcpLimits {
            app_limited: delivery_rate.map(|_| self.bytes[7] & APP_LIMITED != 0),
            // All bits are set where nothing is paced.
            pacing_rate_bytes_per_s: self.u64_at(104).filter(|rate| *rate != u64::MAX),
            peer_window_bytes: self.u32_at(228),
            delivered_ce: self.u32_at(196).map(u64::from),
            ecn: self.has_option(TCPI_OPT_ECN),
            timeouts: self.u16_at(242).map(u64::from),
            timeouts_ms: self.u32_at(244).map(u64::from),
        }
    }
}

/// Current TCP_INFO, with the fields about limits if they are asked for. `None` for sockets other than TCP's and MPTCP's,
/// and after the connection's end.
pub fn read(socket: BorrowedFd<'_>, limits: bool) -> Option<TcpInfo> {
    let raw = Raw::read(socket).ok()?;
    Some(TcpInfo { limits: limits.then(|| raw.limits()), ..raw.info()? })
}

/// Whether the connection has agreed on Explicit Congestion Notification. `None`: this is no connection.
pub fn has_ecn(socket: BorrowedFd<'_>) -> Option<bool> {
    Raw::read(socket).ok()?.has_option(TCPI_OPT_ECN)
}

/// Time since the last packet with an acknowledgement came, milliseconds.
pub fn silence_ms(socket: BorrowedFd<'_>) -> Option<u32> {
    Raw::read(socket).ok()?.u32_at(56)
}

/// Evidence that a connection is up and its full packets do not pass, in words; `None`: there is none, or this is no connection.
pub fn stuck(socket: BorrowedFd<'_>) -> Option<String> {
    Raw::read(socket).ok()?.stuck()
}

/// Congestion controls that the kernel has loaded, in its order.
pub fn available_congestion_controls() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream, UdpSocket},
        os::fd::AsFd,
    };

    use super::{
        super::namespace::{inside, run, set},
        *,
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn acknowledged_bytes_are_those_that_were_sent() {
        let (mut near, mut far) = pair();
        let mut got = vec![0; 100_000];
        near.write_all(&got.clone()).unwrap();
        far.read_exact(&mut got).unwrap();
        // An answer carries the acknowledgement of everything before it.
        far.write_all(b"x").unwrap();
        near.read_exact(&mut got[..1]).unwrap();
        let info = read(near.as_fd(), true).unwrap();
        // The kernel counts the SYN as one byte.
        assert_eq!(info.bytes_acked, Some(100_001));
        assert!(info.delivered_bytes.is_some_and(|bytes| bytes.abs_diff(100_000) <= 1), "{info:?}");
        assert!(info.rtt_us > 0 && info.cwnd_segments > 0 && info.mss_bytes > 500);
        assert!(info.pmtu_bytes >= info.mss_bytes);
        let timestamps = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_timestamps").unwrap();
        assert_eq!(info.timestamps, Some(timestamps.trim() != "0"));
        // The kernel waits at least 200 ms before it sends again, and expects a reordering by three segments.
        let here = info.here;
        assert!(here.rto_us >= 200_000 && here.ato_us < 1_000_000 && here.rcv_ssthresh_bytes >= 16_384, "{here:?}");
        assert!(here.snd_ssthresh_segments > 1 && here.reordering_segments >= 3, "{here:?}");
        assert!(silence_ms(near.as_fd()).unwrap() < 60_000);
        assert!(info.min_rtt_us.unwrap() <= info.rtt_us + 4 * info.rtt_var_us);
        assert!(info.delivery_rate_bytes_per_s.unwrap() > 0);
        assert!(info.busy_us.is_some() && info.rwnd_limited_us.is_some() && info.sndbuf_limited_us.is_some());
        let limits = info.limits.unwrap();
        assert!(limits.peer_window_bytes.unwrap() > 0, "{limits:?}");
        assert!(limits.app_limited.is_some() && limits.ecn.is_some(), "{limits:?}");
        assert_eq!(limits.delivered_ce, Some(0));
        assert_eq!(read(near.as_fd(), false).unwrap().limits, None);
    }

    #[test]
    fn an_older_kernels_shorter_answer_lacks_fields_instead_of_being_zero() {
        let (near, _far) = pair();
        let mut raw = Raw::read(near.as_fd()).unwrap();
        assert!(raw.length >= 192);
        // Linux 2.6.39 ended behind the total of retransmissions.
        raw.length = 104;
        let info = raw.info().unwrap();
        assert!(info.mss_bytes > 0);
        assert_eq!((info.bytes_acked, info.min_rtt_us, info.delivery_rate_bytes_per_s), (None, None, None));
        assert_eq!(info.delivered_bytes, None);
        assert_eq!((info.busy_us, info.rwnd_limited_us, info.sndbuf_limited_us), (None, None, None));
        assert_eq!(raw.limits(), TcpLimits { ecn: Some(false), ..TcpLimits::default() });
        // Linux 4.9 had the delivery rate, but not yet the marks and the window of the other end.
        raw.length = 192;
        let limits = raw.limits();
        assert!(limits.app_limited.is_some() && limits.ecn.is_some(), "{limits:?}");
        assert_eq!((limits.delivered_ce, limits.peer_window_bytes), (None, None));
        raw.length = 60;
        assert_eq!(raw.info(), None);
    }

    /// The word behind `name` in the output of `ss`, up to a unit.
    fn number(text: &str, name: &str) -> Option<f64> {
        let rest = text.split(' ').find_map(|word| word.strip_prefix(name))?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].parse().ok()
    }

    #[test]
    fn ss_shows_the_same() {
        inside(|| {
            if !crate::needs::has_program("ss", "iproute2") {
                return;
            }
            for ecn in [true, false] {
                set("ipv4/tcp_ecn", if ecn { "1" } else { "0" });
                let (mut near, mut far) = pair();
                opt::set(&near, opt::SO_MAX_PACING_RATE, &5_000_000_u64.to_ne_bytes()).unwrap();
                let mut got = vec![0; 100_000];
                for _ in 0..4 {
                    near.write_all(&got.clone()).unwrap();
                    far.read_exact(&mut got).unwrap();
                    far.write_all(&got[..20_000]).unwrap();
                    near.read_exact(&mut got[..20_000]).unwrap();
                }
                // The last acknowledgement may be delayed.
                std::thread::sleep(std::time::Duration::from_millis(300));
                for socket in [&near, &far] {
                    let port = socket.local_addr().unwrap().port();
                    let of = |socket: &TcpStream| read(socket.as_fd(), true).unwrap().limits.unwrap();
                    let ours = of(socket);
                    let text = run(&format!("ss -tineOH state established sport = :{port}"))
                        .replace("pacing_rate ", "pacing_rate:");
                    assert_eq!(ours, of(socket), "nothing moves");
                    assert_eq!(ours.ecn, Some(ecn), "{text}");
                    assert_eq!(text.split(' ').any(|word| word == "ecn"), ecn, "{text}");
                    assert_eq!(ours.app_limited, Some(text.split(' ').any(|word| word == "app_limited")), "{text}");
                    let pacing = number(&text, "pacing_rate:").map(|bits| bits / 8.0);
                    assert_eq!(ours.pacing_rate_bytes_per_s.map(|rate| rate as f64), pacing, "{text}");
                    assert_eq!(ours.peer_window_bytes.map(f64::from), number(&text, "snd_wnd:"), "{text}");
                    assert_eq!(ours.delivered_ce, number(&text, "delivered_ce:").map_or(Some(0), |_| None), "{text}");
                }
                assert_eq!(read(near.as_fd(), true).unwrap().limits.unwrap().pacing_rate_bytes_per_s, Some(5_000_000));
            }
        });
    }

    #[test]
    fn full_packets_that_are_sent_again_in_vain_are_told() {
        let stuck = |state: u8, times: u8, resent: u64, sacked: u8, [holes, received]: [u32; 2]| {
            let mut raw = Raw { bytes: [0; LENGTH], length: 248 };
            (raw.bytes[0], raw.bytes[2], raw.bytes[28]) = (state, times, sacked);
            raw.bytes[16..20].copy_from_slice(&1448_u32.to_ne_bytes());
            raw.bytes[100..104].copy_from_slice(&u32::from(times).to_ne_bytes());
            raw.bytes[208..216].copy_from_slice(&(resent * u64::from(times)).to_ne_bytes());
            raw.bytes[224..228].copy_from_slice(&holes.to_ne_bytes());
            raw.bytes[128..136].copy_from_slice(&u64::from(received).to_ne_bytes());
            raw.stuck().unwrap_or_default()
        };
        let said = stuck(ESTABLISHED, 5, 1448, 1, [0, 0]);
        let packets = "the connection is up, but packets of 1448 bytes were sent again 5 times without an answer: full packets may";
        assert!(said.starts_with(packets), "{said}");
        assert!(stuck(ESTABLISHED, 0, 0, 0, [1, 200]).contains("later packets of the other end came"));
        assert_eq!(stuck(ESTABLISHED, 0, 0, 0, [1, 9000]), "", "full packets came, in another order");
        assert_eq!(stuck(ESTABLISHED, 5, 1448, 0, [0, 0]), "", "the path may be down");
        assert_eq!(stuck(ESTABLISHED, 5, 100, 1, [0, 0]), "", "small ones do not pass either");
        assert_eq!(
            (stuck(ESTABLISHED, 1, 1448, 1, [0, 0]), stuck(2, 5, 1448, 1, [0, 0])),
            (String::new(), String::new())
        );
        let (near, _far) = pair();
        assert_eq!(super::stuck(near.as_fd()), None);
    }

    #[test]
    fn other_sockets_have_none() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(read(udp.as_fd(), true), None);
    }
}
