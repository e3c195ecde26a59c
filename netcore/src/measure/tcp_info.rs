//! TCP_INFO, and the available congestion controls.
//!
//! The kernel's structure has only ever grown at its end. Fields are read by their offset, and a field beyond the
//! returned length is `None`, not zero.

use std::{io, os::fd::BorrowedFd};

use crate::{
    report::{TcpInfo, TcpInfoHere},
    sys::opt,
};

/// Longer than the structure of any known kernel (248 bytes in Linux 6.12); a longer one is cut off here.
const LENGTH: usize = 320;

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

    fn u32_at(&self, offset: usize) -> Option<u32> {
        let field = self.bytes[..self.length].get(offset..offset + size_of::<u32>())?;
        Some(u32::from_ne_bytes(field.try_into().ok()?))
    }

    fn u64_at(&self, offset: usize) -> Option<u64> {
        let field = self.bytes[..self.length].get(offset..offset + size_of::<u64>())?;
        Some(u64::from_ne_bytes(field.try_into().ok()?))
    }

    fn info(&self) -> Option<TcpInfo> {
        Some(TcpInfo {
            mss_bytes: self.u32_at(16)?,
            pmtu_bytes: self.u32_at(60)?,
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
            // All bits are set before the first acknowledgement.
            min_rtt_us: self.u32_at(148).filter(|v| *v != u32::MAX),
            delivery_rate_bytes_per_s: self.u64_at(160).filter(|v| *v != 0),
            busy_us: self.u64_at(168),
            rwnd_limited_us: self.u64_at(176),
            sndbuf_limited_us: self.u64_at(184),
            ..TcpInfo::default()
        })
    }
}

/// Current TCP_INFO. `None` for sockets other than TCP's and MPTCP's, and after the connection's end.
pub fn read(socket: BorrowedFd<'_>) -> Option<TcpInfo> {
    Raw::read(socket).ok()?.info()
}

/// Time since the last packet with an acknowledgement came, milliseconds.
pub fn silence_ms(socket: BorrowedFd<'_>) -> Option<u32> {
    Raw::read(socket).ok()?.u32_at(56)
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

    use super::*;

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
        let info = read(near.as_fd()).unwrap();
        // The kernel counts the SYN as one byte.
        assert_eq!(info.bytes_acked, Some(100_001));
        assert!(info.rtt_us > 0 && info.cwnd_segments > 0 && info.mss_bytes > 500);
        assert!(info.pmtu_bytes >= info.mss_bytes);
        // The kernel waits at least 200 ms before it sends again, and expects a reordering by three segments.
        let here = info.here;
        assert!(here.rto_us >= 200_000 && here.ato_us < 1_000_000 && here.rcv_ssthresh_bytes >= 16_384, "{here:?}");
        assert!(here.snd_ssthresh_segments > 1 && here.reordering_segments >= 3, "{here:?}");
        assert!(silence_ms(near.as_fd()).unwrap() < 60_000);
        assert!(info.min_rtt_us.unwrap() <= info.rtt_us + 4 * info.rtt_var_us);
        assert!(info.delivery_rate_bytes_per_s.unwrap() > 0);
        assert!(info.busy_us.is_some() && info.rwnd_limited_us.is_some() && info.sndbuf_limited_us.is_some());
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
        assert_eq!((info.busy_us, info.rwnd_limited_us, info.sndbuf_limited_us), (None, None, None));
        raw.length = 60;
        assert_eq!(raw.info(), None);
    }

    #[test]
    fn other_sockets_have_none() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(read(udp.as_fd()), None);
    }
}
