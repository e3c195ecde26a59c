//! Socket options: a row for each one that the engines use, and the calls that set and read them.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};

use super::check;

/// A socket option whose value is plain bytes: it holds no pointer, and its length counts bytes. Only the rows of this module
/// make one, so that [`set`] and [`get`] are sound with any of them. They would not be with any number: TCP_ZEROCOPY_RECEIVE
/// maps pages where its value points to, RDS_GET_MR writes there, and the length of SO_GET_FILTER counts instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    level: libc::c_int,
    number: libc::c_int,
}

/// Rows of names and numbers, by level. The value of each option is an `int`, unless its row says otherwise.
macro_rules! options {
    ($($level:expr => { $($(#[$doc:meta])* $name:ident = $number:expr;)* })*) => {
        $($($(#[$doc])* pub const $name: Opt = Opt { level: $level, number: $number };)*)*

        #[cfg(test)]
        const ALL: &[Opt] = &[$($($name),*),*];
    };
}

options! {
    libc::SOL_SOCKET => {
        /// A name.
        SO_BINDTODEVICE = libc::SO_BINDTODEVICE;
        SO_BUSY_POLL = libc::SO_BUSY_POLL;
        SO_BUSY_POLL_BUDGET = libc::SO_BUSY_POLL_BUDGET;
        SO_DONTROUTE = libc::SO_DONTROUTE;
        SO_ERROR = libc::SO_ERROR;
        SO_INCOMING_CPU = libc::SO_INCOMING_CPU;
        SO_KEEPALIVE = libc::SO_KEEPALIVE;
        /// Two of them: a switch, and seconds.
        SO_LINGER = libc::SO_LINGER;
        SO_MARK = libc::SO_MARK;
        /// 64 bits: bytes per second.
        SO_MAX_PACING_RATE = libc::SO_MAX_PACING_RATE;
        /// Nine words, from `linux/sock_diag.h`; the kernel writes as many of them as fit.
        SO_MEMINFO = libc::SO_MEMINFO;
        SO_NO_CHECK = libc::SO_NO_CHECK;
        SO_PREFER_BUSY_POLL = libc::SO_PREFER_BUSY_POLL;
        SO_PRIORITY = libc::SO_PRIORITY;
        SO_RCVBUF = libc::SO_RCVBUF;
        SO_RCVLOWAT = libc::SO_RCVLOWAT;
        SO_REUSEADDR = libc::SO_REUSEADDR;
        SO_REUSEPORT = libc::SO_REUSEPORT;
        SO_SNDBUF = libc::SO_SNDBUF;
        /// Flags, `SOF_TIMESTAMPING_…`.
        SO_TIMESTAMPING = libc::SO_TIMESTAMPING;
        /// `struct sock_txtime`: a clock, and flags.
        SO_TXTIME = libc::SO_TXTIME;
        SO_ZEROCOPY = libc::SO_ZEROCOPY;
    }
    libc::IPPROTO_IP => {
        IP_BIND_ADDRESS_NO_PORT = libc::IP_BIND_ADDRESS_NO_PORT;
        /// The path's MTU, of a connected socket.
        IP_MTU = libc::IP_MTU;
        IP_MTU_DISCOVER = libc::IP_MTU_DISCOVER;
        IP_RECVTOS = libc::IP_RECVTOS;
        IP_TOS = libc::IP_TOS;
        IP_TTL = libc::IP_TTL;
    }
    libc::IPPROTO_IPV6 => {
        IPV6_MTU = libc::IPV6_MTU;
        IPV6_MTU_DISCOVER = libc::IPV6_MTU_DISCOVER;
        IPV6_RECVTCLASS = libc::IPV6_RECVTCLASS;
        IPV6_TCLASS = libc::IPV6_TCLASS;
        IPV6_UNICAST_HOPS = libc::IPV6_UNICAST_HOPS;
        IPV6_V6ONLY = libc::IPV6_V6ONLY;
    }
    libc::IPPROTO_TCP => {
        /// A name.
        TCP_CONGESTION = libc::TCP_CONGESTION;
        TCP_CORK = libc::TCP_CORK;
        TCP_DEFER_ACCEPT = libc::TCP_DEFER_ACCEPT;
        TCP_FASTOPEN = libc::TCP_FASTOPEN;
        TCP_FASTOPEN_CONNECT = libc::TCP_FASTOPEN_CONNECT;
        /// `struct tcp_info`; the kernel writes as much of it as fits.
        TCP_INFO = libc::TCP_INFO;
        TCP_MAXSEG = libc::TCP_MAXSEG;
        TCP_NODELAY = libc::TCP_NODELAY;
        TCP_NOTSENT_LOWAT = libc::TCP_NOTSENT_LOWAT;
        TCP_USER_TIMEOUT = libc::TCP_USER_TIMEOUT;
        TCP_WINDOW_CLAMP = libc::TCP_WINDOW_CLAMP;
    }
    libc::IPPROTO_UDP => {
        /// Reads as 0 or 1.
        UDP_GRO = libc::UDP_GRO;
        /// Bytes of a segment; 0: off.
        UDP_SEGMENT = libc::UDP_SEGMENT;
    }
    // The numbers of `linux/sctp.h`, `linux/udp.h`, `linux/icmp.h` and `linux/icmpv6.h`.
    libc::IPPROTO_SCTP => {
        SCTP_NODELAY = 3;
        SCTP_MAXSEG = 13;
    }
    libc::IPPROTO_UDPLITE => {
        UDPLITE_SEND_CSCOV = 10;
    }
    libc::SOL_DCCP => {
        /// 32 bits in network order.
        DCCP_SOCKOPT_SERVICE = libc::DCCP_SOCKOPT_SERVICE;
        DCCP_SOCKOPT_GET_CUR_MPS = libc::DCCP_SOCKOPT_GET_CUR_MPS;
    }
    libc::SOL_RAW => {
        /// A bit for each of the first 32 types, set for the dropped ones.
        ICMP_FILTER = 1;
    }
    libc::SOL_ICMPV6 => {
        /// The same for each of 256 types.
        ICMP6_FILTER = 1;
    }
}

/// Sets an option.
pub fn set(socket: &impl AsFd, option: Opt, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `length` bytes at the pointer, which are those of a live slice, and by the type of `option` it
    // finds no pointer among them.
    let set = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), option.level, option.number, value.as_ptr().cast(), length)
    };
    check(set).map(drop)
}

/// Sets an option whose value is an `int`.
pub fn set_int(socket: &impl AsFd, option: Opt, value: i32) -> io::Result<()> {
    set(socket, option, &value.to_ne_bytes())
}

/// Reads an option into `value`; returns the length that the kernel wrote.
pub fn get(socket: &impl AsFd, option: Opt, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: by the type of `option` the kernel writes to nothing but the value, at most `length` bytes, and the length. Both
    // pointers are those of live variables that are borrowed exclusively.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            option.level,
            option.number,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(got).map(|_| (length as usize).min(value.len()))
}

/// Reads an option whose value is an `int`.
pub fn get_int(socket: &impl AsFd, option: Opt) -> io::Result<i32> {
    let mut value = [0; 4];
    get(socket, option, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// Chooses the listening socket of a reuseport group by the CPU that handles a packet: the place in the group of `cpus[i]` is
/// i. Packets of other CPUs go to the place of their CPU's number, modulo the group's size. The socket must be one of the
/// group, with SO_REUSEPORT set.
pub fn steer_by_cpu(socket: &impl AsFd, cpus: &[u32], group: u32) -> io::Result<()> {
    // The extension of classic BPF that loads the current CPU's number.
    let cpu = (libc::SKF_AD_OFF + libc::SKF_AD_CPU).cast_unsigned();
    let mut program = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu, 0)];
    for (place, cpu) in (0..).zip(cpus) {
        // Not equal: over the return.
        program.push(instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *cpu, 1));
        program.push(instruction(libc::BPF_RET | libc::BPF_K, place, 0));
    }
    program.push(instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, group.max(1), 0));
    program.push(instruction(libc::BPF_RET | libc::BPF_A, 0, 0));
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    // The value holds a pointer, so it is no `Opt`. The kernel copies `len` instructions, all of them alive, and keeps nothing.
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    setsockopt(socket, AttachReusePortCbpf, &program).map_err(io::Error::from)
}

/// An instruction of classic BPF that goes on with the next one, or skips `otherwise` of them where a comparison fails.
fn instruction(code: u32, k: u32, otherwise: u8) -> libc::sock_filter {
    // Codes are below 256.
    #[expect(clippy::cast_possible_truncation)]
    let code = code as u16;
    libc::sock_filter { code, jt: 0, jf: otherwise, k }
}

#[cfg(test)]
mod tests {
    use super::{super::socket, *};

    #[test]
    fn options_read_back_and_refusals_are_errors() {
        let socket = socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        set_int(&socket, TCP_NODELAY, 1).unwrap();
        assert_eq!(get_int(&socket, TCP_NODELAY).unwrap(), 1);
        set(&socket, TCP_CONGESTION, b"reno").unwrap();
        let mut name = [0; 16];
        get(&socket, TCP_CONGESTION, &mut name).unwrap();
        assert!(name.starts_with(b"reno\0"));
        assert!(set(&socket, TCP_CONGESTION, b"no such").is_err());
    }

    #[test]
    fn listeners_of_a_group_are_steered_and_a_lone_socket_is_refused() {
        let member = socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        assert!(steer_by_cpu(&member, &[], 1).is_err(), "it belongs to no group");
        set_int(&member, SO_REUSEPORT, 1).unwrap();
        steer_by_cpu(&member, &[3, 1], 2).unwrap();
        steer_by_cpu(&member, &[], 5).unwrap();
        let many: Vec<u32> = (0..3000).collect();
        assert!(steer_by_cpu(&member, &many, 3000).is_err(), "a program has at most 4096 instructions");
    }

    /// No option makes the kernel write past the length that it was given, whatever its value's own length.
    #[test]
    fn no_option_is_written_past_its_room() {
        let kinds = [
            (libc::AF_INET, libc::SOCK_STREAM),
            (libc::AF_INET6, libc::SOCK_STREAM),
            (libc::AF_INET, libc::SOCK_DGRAM),
            (libc::AF_UNIX, libc::SOCK_STREAM),
        ];
        let mut read = 0;
        for socket in kinds.iter().filter_map(|(family, kind)| socket(*family, *kind, 0).ok()) {
            for option in ALL {
                for room in [0, 1, 3, 4, 8, 64, 400] {
                    let mut value = [0xa5; 512];
                    if let Ok(length) = get(&socket, *option, &mut value[..room]) {
                        assert!(length <= room, "{option:?}");
                        read += 1;
                    }
                    assert!(value[room..].iter().all(|byte| *byte == 0xa5), "{option:?} with room for {room}");
                }
            }
        }
        assert!(read > 100, "{read}");
    }
}
