//! System calls in the form that the engines need, where `std`, `nix` and `socket2` lack it. With [`crate::io::batch`],
//! the only `unsafe` of the data path.

pub mod opt;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::NonNull,
    time::Duration,
};

use nix::{
    libc::c_void,
    poll::{PollFd, PollFlags, ppoll},
    sched::{CpuSet, sched_setaffinity},
    sys::{
        mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
        prctl::set_timerslack,
        stat::{SFlag, fstat},
        time::TimeSpec,
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use socket2::{SockRef, Socket};

/// Here and in [`crate::io::batch`] structures of the kernel are laid out by hand, as they are with a 64-bit `long`.
const _: () = assert!(size_of::<libc::c_long>() == 8, "the engines know the kernel's structures of 64-bit Linux only");

/// Turns the C convention (-1 and `errno`) into a result.
fn check(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// A socket of any family, kind and protocol, by number, since `nix` has no name for some protocols. Closed on exec.
pub fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    Socket::new(family.into(), kind.into(), Some(protocol.into())).map(Into::into)
}

/// Accepts a connection. The peer's address is `None` for families other than IP.
pub fn accept(listener: &impl AsFd) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let (socket, from) = SockRef::from(listener).accept()?;
    Ok((socket.into(), from.as_socket()))
}

/// Waits for an event of a descriptor. `true`: it has come; a signal may end the wait earlier.
pub fn wait_for(fd: &impl AsFd, event: PollFlags, at_most: Duration) -> io::Result<bool> {
    match ppoll(&mut [PollFd::new(fd.as_fd(), event)], Some(TimeSpec::from_duration(at_most)), None) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::Error::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Receives a datagram. The sender's address is `None` for families other than IP.
pub fn receive_from(
    socket: &impl AsFd,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Option<SocketAddr>)> {
    let mut address = [0u8; 28];
    let mut length: libc::socklen_t = 28;
    // SAFETY: the pointers and lengths are those of live variables that nobody else uses during the call.
    let n = unsafe {
        libc::recvfrom(
            socket.as_fd().as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            flags,
            address.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    Ok((n, ip_address(&address)))
}

/// Encodes a `sockaddr_in` or `sockaddr_in6`, and its length; the inverse of [`ip_address`].
pub fn address_bytes(address: SocketAddr) -> ([u8; 28], libc::socklen_t) {
    let mut bytes = [0; 28];
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // Family numbers are small constants.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes[4..8].copy_from_slice(&address.ip().octets());
            (bytes, 16)
        }
        SocketAddr::V6(address) => {
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes[24..].copy_from_slice(&address.scope_id().to_ne_bytes());
            (bytes, 28)
        }
    }
}

/// Decodes a `sockaddr_in` or `sockaddr_in6`: family, port (in network order), and address at byte 4 or, after the flow
/// label, at byte 8.
pub fn ip_address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match family {
        libc::AF_INET => <[u8; 4]>::try_from(bytes.get(4..8)?).ok()?.into(),
        libc::AF_INET6 => <[u8; 16]>::try_from(bytes.get(8..24)?).ok()?.into(),
        _ => return None,
    };
    Some((ip, port).into())
}

/// Binds a packet socket to an interface and a frame type.
pub fn bind_link(socket: &impl AsFd, interface: u32, ethertype: u16) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    // The family number is a small constant.
    address.sll_family = u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
    address.sll_protocol = ethertype.to_be();
    address.sll_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    // SAFETY: the pointer and the length are those of a live sockaddr_ll, which the kernel only reads.
    unsafe { check(libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), length)).map(|_| ()) }
}

/// Hardware address of the interface that a packet socket is bound to. `nix` refuses the answer: the kernel cuts it off
/// behind the address.
pub fn link_address(socket: &impl AsFd) -> io::Result<[u8; 6]> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).map_err(io::Error::other)?;
    // SAFETY: the pointers are those of live variables, and the kernel writes at most `length` bytes.
    unsafe {
        check(libc::getsockname(socket.as_fd().as_raw_fd(), (&raw mut address).cast(), &raw mut length))?;
    }
    let bytes = address.sll_addr;
    if address.sll_halen != 6 {
        return Err(io::Error::other("its addresses are not Ethernet's"));
    }
    Ok([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]])
}

/// Makes the descriptor of a pipe refer to `/dev/null`: closes the pipe, and keeps the number taken. Any other descriptor is
/// refused: its owner may rely on what it refers to.
pub fn lead_nowhere(pipe: &impl AsFd) -> io::Result<()> {
    let kind = SFlag::from_bits_truncate(fstat(pipe)?.st_mode) & SFlag::S_IFMT;
    if kind != SFlag::S_IFIFO {
        return Err(io::Error::other("the descriptor is not that of a pipe"));
    }
    let nowhere = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: both descriptors are open for the length of the call, by the borrow and by the file. The target stays an open
    // descriptor of its owner, so that its number is closed once; and of a pipe no memory depends.
    unsafe { check(libc::dup3(nowhere.as_raw_fd(), pipe.as_fd().as_raw_fd(), libc::O_CLOEXEC)).map(|_| ()) }
}

/// Bytes that a socket has sent and its peer has not acknowledged, or that it has still to send.
pub fn unacknowledged(socket: &impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: of a socket the request (SIOCOUTQ) writes one `int` through the pointer, which is that of a live variable, and
    // of a terminal or another file the same or nothing; the descriptor is open for the length of the call, by the borrow.
    unsafe { check(libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes))? };
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Context identifier of this machine's vsock device.
pub fn vsock_cid() -> io::Result<u32> {
    /// IOCTL_VM_SOCKETS_GET_LOCAL_CID: `_IO(7, 0xb9)`.
    const GET_LOCAL_CID: libc::Ioctl = 0x7b9;
    let device = std::fs::File::open("/dev/vsock")?;
    let mut cid = 0u32;
    // SAFETY: of this device the request writes one 32-bit number through the pointer, which is that of a live variable; the
    // descriptor is open for the length of the call.
    unsafe { check(libc::ioctl(device.as_raw_fd(), GET_LOCAL_CID, &raw mut cid))? };
    Ok(cid)
}

/// Lets the calling thread wake from sleeps as precisely as the hardware's timer allows; by default the kernel may be
/// 50 µs late to save wake-ups.
pub fn precise_timers() {
    // It cannot fail; late wake-ups would show in the results.
    let _ = set_timerslack(1);
}

/// Pins the calling thread to a CPU. The error is a sentence.
pub fn pin(cpu: u32) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(cpu as usize)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| format!("cannot run on CPU {cpu}: {error} (is it online, and allowed for this process?)"))
}

/// Gives the calling thread the least share of a busy CPU: 15/1024 of what another thread gets. It cannot be taken back.
pub fn give_way() {
    // SAFETY: the call takes three numbers. On Linux the process 0 is the calling thread.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// A moment in seconds since 1970 in the local time (`TZ`, else /etc/localtime): a number that grows from day to day, and the
/// minute of the day. `None`: beyond the calendar.
pub fn local_minute(unix_s: i64) -> Option<(i64, u32)> {
    // SAFETY: all fields of `tm` are numbers, and a pointer to a name that stays null: zero is valid.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live variables, and no one changes the environment of a running program.
    let known = unsafe { libc::localtime_r(&raw const unix_s, &raw mut local) };
    let day = i64::from(local.tm_year) * 366 + i64::from(local.tm_yday);
    let minute = u32::try_from(local.tm_hour * 60 + local.tm_min).ok()?;
    (!known.is_null()).then_some((day, minute))
}

/// The kernel's account of the wall clock (adjtimex).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WallClock {
    /// Whether a program disciplines the clock now.
    pub synchronised: bool,
    /// Bound of its error, nanoseconds; the kernel lets it grow until that program renews it.
    pub max_error_ns: u64,
    /// Error by that program's estimate, nanoseconds.
    pub estimated_error_ns: u64,
    /// Correction of the oscillator's rate, parts per billion.
    pub frequency_ppb: i64,
    /// TAI minus UTC, seconds; `None`: no program has told the kernel.
    pub tai_offset_s: Option<i32>,
}

/// The wall clock's state now.
pub fn wall_clock() -> WallClock {
    // SAFETY: all fields of `timex` are numbers: zero is valid, and as `modes` it changes nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is that of a live variable.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    let nanoseconds = |us| u64::try_from(us).unwrap_or(u64::MAX).saturating_mul(1_000);
    WallClock {
        synchronised: (0..libc::TIME_ERROR).contains(&state) && timex.status & libc::STA_UNSYNC == 0,
        max_error_ns: nanoseconds(timex.maxerror),
        estimated_error_ns: nanoseconds(timex.esterror),
        // In parts per million with 16 bits of fraction, and 500 at most.
        frequency_ppb: timex.freq.saturating_mul(1_000) >> 16,
        tai_offset_s: Some(timex.tai).filter(|offset| *offset != 0),
    }
}

/// A mapping of its own, written once and read-only from then on.
///
/// A page that went into a pipe or a socket without a copy is sent as it is at that time, and again if it is lost. So the
/// mapping is never written again, and it does not come from the allocator, which would reuse it: dropping it only unmaps the
/// pages. The kernel frees each of them when the last packet that refers to it is gone.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<c_void>,
    /// Bytes asked for; the mapping ends with a whole page.
    bytes: NonZeroUsize,
}

impl Pages {
    /// Maps `bytes` of memory, which `fill` writes.
    pub fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> io::Result<Self> {
        let bytes = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: without an address the kernel chooses one where nothing is mapped. The mapping is private, anonymous and
        // readable and writable, so that its zero bytes may be used as a slice until it is unmapped, by `drop` and by nobody else.
        let start = unsafe {
            mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)?
        };
        let pages = Self { start, bytes };
        // SAFETY: the mapping is `bytes` long, initialised and writable, and nobody else knows of it yet.
        fill(unsafe { std::slice::from_raw_parts_mut(start.as_ptr().cast(), bytes.get()) });
        // SAFETY: the slice is gone, and those to come are only read.
        unsafe { mprotect(start, bytes.get(), ProtFlags::PROT_READ)? };
        Ok(pages)
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the mapping is `bytes` long, initialised, readable, never written any more, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes.get()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and its slices do not outlive it. It cannot fail for a whole mapping.
        let _ = unsafe { munmap(self.start, self.bytes.get()) };
    }
}

// SAFETY: the pages are read-only memory that belongs to no thread.
unsafe impl Send for Pages {}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use nix::{
        errno::Errno,
        fcntl::{SpliceFFlags, vmsplice},
        unistd::{pipe, read},
    };

    use super::*;

    #[test]
    fn the_error_of_the_wall_clock_grows_until_it_is_bounded_anew() {
        let clock = wall_clock();
        // The kernel lets it grow to 16 s, and then says that the clock is not synchronised.
        let most_ns = 16_000_000_000 - u64::from(clock.synchronised);
        assert!((1..=most_ns).contains(&clock.max_error_ns), "{clock:?}");
        assert!(clock.frequency_ppb.abs() <= 500_000, "{clock:?}");
    }

    #[test]
    fn local_time_goes_through_the_day() {
        let minutes: Vec<(i64, u32)> = (0..2880).filter_map(|minute| local_minute(minute * 60)).collect();
        assert!(minutes.len() == 2880 && minutes.iter().all(|(_, minute)| *minute < 1440));
        assert!(minutes.windows(2).all(|pair| pair[1].0 >= pair[0].0) && minutes[2879].0 > minutes[0].0);
        assert_eq!(local_minute(i64::MAX), None);
    }

    #[test]
    fn only_the_calling_thread_gives_way() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The name of the thread may have blanks; behind it, the third field has number 3.
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let before = nice();
        let there = std::thread::spawn(move || {
            give_way();
            nice()
        });
        assert_eq!((there.join().unwrap(), nice()), (19, before));
    }

    #[test]
    fn refusals_are_errors() {
        assert!(socket(libc::AF_INET, 99, 0).is_err());
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        assert_eq!(accept(&socket).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn addresses_read_back_as_they_were_written() {
        for text in ["127.0.0.1:7", "[2001:db8::1]:65535"] {
            let address = text.parse().unwrap();
            let (bytes, length) = address_bytes(address);
            assert_eq!(ip_address(&bytes[..length as usize]), Some(address));
        }
        assert_eq!(ip_address(&[0; 28]), None);
    }

    #[test]
    fn a_pipe_whose_writer_leads_nowhere_is_at_its_end() {
        let (reader, writer) = pipe().unwrap();
        nix::unistd::write(&writer, b"x").unwrap();
        lead_nowhere(&writer).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(read(&reader, &mut bytes).unwrap(), 1);
        assert_eq!(read(&reader, &mut bytes).unwrap(), 0);
        assert_eq!(nix::unistd::write(&writer, b"into nothing").unwrap(), 12);
        assert!(lead_nowhere(&writer).is_err(), "it is no pipe any more");
        assert!(lead_nowhere(&std::fs::File::open("/proc/self/stat").unwrap()).is_err());
    }

    #[test]
    fn timers_can_be_made_precise() {
        precise_timers();
        assert_eq!(nix::sys::prctl::get_timerslack(), Ok(1));
    }

    #[test]
    fn pages_in_a_pipe_outlive_their_mapping_and_are_not_reused() {
        let pages = Pages::filled(16 * 4096, |bytes| bytes.fill(b'p')).unwrap();
        assert!(pages.as_slice().iter().all(|byte| *byte == b'p') && pages.as_slice().len() == 16 * 4096);
        let (reader, writer) = pipe().unwrap();
        let sent = match vmsplice(&writer, &[IoSlice::new(pages.as_slice())], SpliceFFlags::empty()) {
            // podman forbids it.
            Err(Errno::EPERM) => return crate::needs::skip("`vmsplice` is not permitted here"),
            sent => sent.unwrap(),
        };
        assert_eq!(sent, 16 * 4096);
        drop(pages);
        // Memory that the process gets now is written. None of it may be what the pipe holds.
        let others: Vec<Pages> = (0..64).map(|_| Pages::filled(16 * 4096, |bytes| bytes.fill(b'x')).unwrap()).collect();
        let mut received = vec![0; sent];
        let mut at = 0;
        while at < sent {
            at += read(&reader, &mut received[at..]).unwrap();
        }
        assert!(received.iter().all(|byte| *byte == b'p'));
        drop(others);
    }

    #[test]
    fn no_memory_of_no_bytes() {
        assert!(Pages::filled(0, |_| unreachable!()).is_err());
        assert!(Pages::filled(1, |bytes| bytes[0] = 7).is_ok_and(|pages| pages.as_slice() == [7]));
    }
}
