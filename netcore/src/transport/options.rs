//! Sets socket options and reads them back, since the kernel clamps and ignores silently. TCP Fast Open, deferred acceptance and
//! a port that several sockets listen on are options of the socket that connects or listens, not of its connections.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use nix::fcntl::{FcntlArg, fcntl};

use super::address::is_v6;
use crate::{
    error::EndError,
    measure::tcp_info::available_congestion_controls,
    report::Granted,
    spec::{
        Side, SocketOptions, TestSpec, Transport,
        quantity::{Bytes, Linger},
        socket::{Asked, OptionValue, SOCKET_OPTIONS, Setter, SocketOption},
    },
    sys::opt::{self, Opt},
};

/// A row of the table for sockets of one transport.
struct Entry {
    row: &'static SocketOption,
    option: Opt,
    /// Whether it is reported even if not requested.
    always: bool,
    asked: Option<Asked>,
}

/// Options of setsockopt(2) that have a meaning on this transport, in the order of setting.
fn entries(options: &SocketOptions, transport: Transport, v6: bool) -> impl Iterator<Item = Entry> {
    SOCKET_OPTIONS.iter().filter_map(move |row| match (row.setter)(transport, v6) {
        Setter::Call { option, always } => Some(Entry { row, option, always, asked: (row.asked)(options) }),
        Setter::Meaningless | Setter::Opening | Setter::Flows => None,
    })
}

/// Options ready to be set on one socket after another.
#[derive(Debug, Default)]
pub struct Prepared {
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    name: &'static str,
    option: Opt,
    asked: Asked,
}

impl Prepared {
    pub fn new(options: &SocketOptions, transport: Transport, v6: bool) -> Self {
        let settings = entries(options, transport, v6).filter_map(|entry| {
            let Entry { row, option, asked, .. } = entry;
            Some(Setting { name: row.name, option, asked: asked? })
        });
        Self { settings: settings.collect() }
    }

    /// Options that an accepted connection does not inherit from its listener: of TCP the priority, which the kernel
    /// resets; of the others all (a Unix socket inherits nothing).
    pub fn accepted(options: &SocketOptions, transport: Transport, v6: bool) -> Self {
        let mut all = Self::new(options, transport, v6);
        if transport.is_tcp() {
            all.settings.retain(|setting| setting.name == "priority");
        }
        all
    }

    pub fn apply(&self, socket: &OwnedFd) -> Result<(), EndError> {
        for Setting { name, option, asked } in &self.settings {
            opt::set(socket, *option, &asked.kernel).map_err(|source| refused(name, &asked.shown, source))?;
        }
        Ok(())
    }
}

/// Sets the options of a listening socket on a TCP connection that another socket has accepted.
pub fn apply_accepted(socket: &OwnedFd, options: &SocketOptions) -> Result<(), EndError> {
    apply(socket, options, Transport::Tcp, is_v6(socket))?;
    open_window(socket, options)
}

/// A buffer that is set on a connection does not widen its window, which the first packets have set.
fn open_window(socket: &OwnedFd, options: &SocketOptions) -> Result<(), EndError> {
    let Some(Bytes(bytes)) = options.receive_buffer else { return Ok(()) };
    opt::set_int(socket, opt::TCP_WINDOW_CLAMP, i32::try_from(bytes.saturating_mul(2)).unwrap_or(i32::MAX))
        .map_err(EndError::system("the kernel refuses TCP_WINDOW_CLAMP, which receive_buffer needs"))
}

pub fn apply(socket: &OwnedFd, options: &SocketOptions, transport: Transport, v6: bool) -> Result<(), EndError> {
    Prepared::new(options, transport, v6).apply(socket)
}

/// Makes a close of the socket a reset: SO_LINGER with 0 seconds.
pub fn reset_on_close(socket: &OwnedFd) -> io::Result<()> {
    opt::set(socket, opt::SO_LINGER, &Linger(0).to_kernel())
}

fn refused(name: &str, value: &str, source: io::Error) -> EndError {
    let what = match name {
        // The kernel has it: one that it lacks is ENOENT.
        "congestion_control" if source.raw_os_error() == Some(libc::EPERM) => {
            let allowed =
                std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap_or_default();
            format!(
                "congestion control `{value}` is for root on this host (for everybody: {}); root allows it with: sysctl \
                 net.ipv4.tcp_allowed_congestion_control='{} {value}'",
                allowed.trim(),
                allowed.trim()
            )
        }
        "congestion_control" => {
            let available =
                available_congestion_controls().map_or_else(|_| "unknown".to_owned(), |names| names.join(", "));
            format!(
                "congestion control `{value}` is not available on this host (available: {available}); if it is another \
                 name of the kernel's, load it with: modprobe tcp_{value}"
            )
        }
        "device" => format!("cannot bind a data socket to the device `{value}`"),
        _ => {
            let hint = match source.raw_os_error() {
                Some(libc::EPERM) => ": it needs CAP_NET_ADMIN here, which root has",
                Some(libc::ENOPROTOOPT) => ": this kernel lacks the option; leave it out, or take a newer kernel",
                _ => "",
            };
            format!("the kernel refuses {name} = {value}{hint}")
        }
    };
    EndError::System { what, source }
}

fn read(socket: &OwnedFd, entry: &Entry) -> Option<String> {
    let mut value = vec![0; entry.row.size];
    let length = opt::get(socket, entry.option, &mut value).ok()?;
    Some((entry.row.read)(&value[..length]))
}

/// Requested and granted values of the requested options and of those that are always reported.
pub fn granted(socket: &OwnedFd, flow: u32, options: &SocketOptions, transport: Transport, v6: bool) -> Vec<Granted> {
    if transport == Transport::Pipe {
        return vec![Granted {
            flow,
            option: "send_buffer".to_owned(),
            requested: options.send_buffer.map(|bytes| bytes.shown()),
            at_start: fcntl(socket, FcntlArg::F_GETPIPE_SZ).ok().map(|bytes| bytes.to_string()),
            at_end: None,
        }];
    }
    entries(options, transport, v6)
        .filter(|entry| entry.always || entry.asked.is_some())
        .map(|entry| Granted {
            flow,
            option: entry.row.name.to_owned(),
            at_start: read(socket, &entry),
            requested: entry.asked.map(|asked| asked.shown),
            at_end: None,
        })
        // An option that the kernel does not report is listed only if it was requested.
        .filter(|granted| granted.requested.is_some() || granted.at_start.is_some())
        .collect()
}

/// Adds the values at the end of the test.
pub fn read_again(list: &mut [Granted], socket: &OwnedFd, transport: Transport, v6: bool) {
    if transport == Transport::Pipe {
        // The descriptor is closed by now, and a pipe's capacity does not change by itself.
        for granted in list {
            granted.at_end.clone_from(&granted.at_start);
        }
        return;
    }
    let options = SocketOptions::default();
    for entry in entries(&options, transport, v6) {
        for granted in list.iter_mut().filter(|granted| granted.option == entry.row.name) {
            granted.at_end = read(socket, &entry);
        }
    }
}

/// Makes the next connect(2) of a socket send its first data in the SYN.
pub fn fast_open(socket: &OwnedFd) -> Result<(), EndError> {
    fast_open_is_on(Side::Near)?;
    opt::set_int(socket, opt::TCP_FASTOPEN_CONNECT, 1).map_err(EndError::system("the kernel refuses fastopen"))
}

/// Makes connect(2) hold back the last packet of the handshake until there is data to send with it.
pub fn with_first_bytes(socket: &impl AsFd) {
    // TCP_DEFER_ACCEPT does that on a socket that connects. Without it the far end reads the bytes a little later.
    let _ = opt::set_int(socket, opt::TCP_DEFER_ACCEPT, 1);
}

/// Reads SO_INCOMING_CPU where it steers, from the socket that listens: on a connection the kernel overwrites it with the CPU of
/// the last packet.
pub fn steered(list: &mut [Granted], socket: &OwnedFd) {
    for granted in list.iter_mut().filter(|granted| granted.option == "incoming_cpu") {
        granted.at_start = opt::get_int(socket, opt::SO_INCOMING_CPU).ok().map(|cpu| cpu.to_string());
    }
}

/// Lets further sockets listen on the port that this one is bound to.
pub fn share_port(socket: &OwnedFd) -> Result<(), EndError> {
    opt::set_int(socket, opt::SO_REUSEPORT, 1).map_err(EndError::system("the kernel refuses SO_REUSEPORT"))
}

/// Steers connections to the listening socket of the CPU that handles their packets: of flow i, whose thread has the CPU of
/// that number. `first`: one of the sockets that share the port.
pub fn steer(first: &OwnedFd, spec: &TestSpec) -> Result<(), EndError> {
    let cpus: Vec<u32> = (0..spec.flows() as usize).map_while(|flow| spec.far.cpu_of(flow)).collect();
    opt::steer_by_cpu(first, &cpus, spec.flows()).map_err(EndError::system(
        "the kernel refuses SO_ATTACH_REUSEPORT_CBPF, which reuseport: cpu needs (reuseport: hash does not)",
    ))
}

/// Checks the host's setting: without it the option can be set and has no effect.
pub fn fast_open_is_on(side: Side) -> Result<(), EndError> {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen").unwrap_or_default();
    if fast_open_allows(&setting, side) {
        return Ok(());
    }
    Err(EndError::Impossible(format!(
        "this host {} no TCP Fast Open (net.ipv4.tcp_fastopen is {}): allow it with: sysctl -w net.ipv4.tcp_fastopen=3",
        if side == Side::Near { "opens" } else { "accepts" },
        setting.trim()
    )))
}

/// The setting is a set of bits: 1 for connections that are made, 2 for those that are accepted. One that cannot be read
/// forbids nothing.
fn fast_open_allows(setting: &str, side: Side) -> bool {
    let bit = if side == Side::Near { 1 } else { 2 };
    setting.trim().parse::<u32>().map_or(true, |bits| bits & bit != 0)
}

/// These options, where the test asks for them. They do not change after the start.
pub fn opening_granted(socket: &OwnedFd, flow: u32, options: &SocketOptions, side: Side) -> Vec<Granted> {
    let int = |option| opt::get_int(socket, option).ok();
    let both = |option, requested, granted| Granted::constant(flow, option, requested, granted);
    let fast = if side == Side::Near { opt::TCP_FASTOPEN_CONNECT } else { opt::TCP_FASTOPEN };
    let fastopen = options
        .fastopen
        .map(|asked| both("fastopen", asked.to_string(), int(fast).map(|value| (value != 0).to_string())));
    let seconds = options.defer_accept.filter(|_| side == Side::Far);
    let deferred = seconds
        .map(|asked| both("defer_accept", asked.shown(), int(opt::TCP_DEFER_ACCEPT).map(|value| value.to_string())));
    let shares = || int(opt::SO_REUSEPORT).is_some_and(|value| value != 0);
    let reuseport = options.reuseport.filter(|_| side == Side::Far).map(|asked| {
        let granted = if shares() { asked.shown() } else { "false".to_owned() };
        both("reuseport", asked.shown(), Some(granted))
    });
    fastopen.into_iter().chain(deferred).chain(reuseport).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        spec::{
            Dscp,
            quantity::{BitsPerSecond, Bytes, Bytes32, Microseconds, Milliseconds},
            socket::MtuDiscover,
        },
        sys,
    };

    fn tcp() -> OwnedFd {
        sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap()
    }

    #[test]
    fn a_congestion_control_for_root_is_told_from_one_that_is_missing() {
        let said = |errno| refused("congestion_control", "cubic", io::Error::from_raw_os_error(errno)).to_string();
        assert!(
            said(libc::EPERM).contains("sysctl net.ipv4.tcp_allowed_congestion_control='"),
            "{}",
            said(libc::EPERM)
        );
        assert!(said(libc::ENOENT).contains("modprobe tcp_cubic"), "{}", said(libc::ENOENT));
    }

    #[test]
    fn every_option_is_granted_as_asked() {
        let socket = tcp();
        let options = SocketOptions {
            send_buffer: Some(Bytes(50_000)),
            receive_buffer: Some(Bytes(60_000)),
            no_delay: Some(true),
            cork: Some(true),
            congestion_control: Some("reno".into()),
            mss: Some(Bytes32(1000)),
            dscp: Some(Dscp(46)),
            priority: Some(5),
            keepalive: Some(true),
            busy_poll: Some(Microseconds(50)),
            notsent_lowat: Some(Bytes32(1 << 17)),
            pacing_rate: Some(BitsPerSecond(80_000_000)),
            user_timeout: Some(Milliseconds(5000)),
            ttl: Some(9),
            dont_route: Some(true),
            mtu_discover: Some(MtuDiscover::Do),
            linger: Some(Linger(3)),
            device: Some("lo".into()),
            ..SocketOptions::default()
        };
        apply(&socket, &options, Transport::Tcp, false).unwrap();
        let mut list = granted(&socket, 0, &options, Transport::Tcp, false);
        read_again(&mut list, &socket, Transport::Tcp, false);
        for granted in &list {
            let asked = granted.requested.clone().unwrap();
            match granted.option.as_str() {
                // Doubled by the kernel, for its own overhead.
                "send_buffer" => assert_eq!(granted.at_start.as_deref(), Some("100000")),
                "receive_buffer" => assert_eq!(granted.at_start.as_deref(), Some("120000")),
                name => assert_eq!(granted.at_start, Some(asked), "{name}"),
            }
            assert_eq!(granted.at_end, granted.at_start);
        }
        assert_eq!(list.len(), 18);
        let asked = |name| list.iter().find(|granted| granted.option == name).and_then(|it| it.requested.as_deref());
        assert_eq!((asked("user_timeout"), asked("busy_poll")), (Some("5000ms"), Some("50us")));
    }

    #[test]
    fn what_netperf_tells_of_a_socket_is_told_unasked_and_a_refusal_as_the_plan_has_it() {
        let names = |transport| {
            let list = granted(&tcp(), 0, &SocketOptions::default(), transport, false);
            list.into_iter().map(|granted| granted.option).collect::<Vec<_>>()
        };
        let tcps =
            ["send_buffer", "receive_buffer", "no_delay", "cork", "congestion_control", "mss", "dscp", "priority"];
        assert_eq!(names(Transport::Tcp), tcps);
        assert_eq!(names(Transport::UnixStream), ["send_buffer", "receive_buffer"]);
        // A Unix socket has no code point.
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        let options = SocketOptions { dscp: Some(Dscp(46)), ..SocketOptions::default() };
        let error = apply(&socket, &options, Transport::Tcp, false).unwrap_err().to_string();
        assert!(error.contains("dscp = 46"), "{error}");
    }

    #[test]
    fn a_missing_congestion_control_names_those_there_are() {
        let options = SocketOptions { congestion_control: Some("warp".into()), ..SocketOptions::default() };
        let error = apply(&tcp(), &options, Transport::Tcp, false).unwrap_err().to_string();
        assert!(error.contains("`warp`") && error.contains("reno") && error.contains("modprobe"), "{error}");
    }

    #[test]
    fn options_without_meaning_are_not_set() {
        let options = SocketOptions { device: Some("lo".into()), keepalive: Some(true), ..SocketOptions::default() };
        let socket = sys::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap();
        apply(&socket, &options, Transport::UnixStream, false).unwrap();
        assert!(granted(&socket, 0, &options, Transport::UnixStream, false).iter().all(|it| it.requested.is_none()));
    }

    #[test]
    fn fast_open_needs_the_hosts_leave_at_both_ends() {
        for (setting, opens, accepts) in
            [("0\n", false, false), ("1\n", true, false), ("3\n", true, true), ("", true, true)]
        {
            assert_eq!(fast_open_allows(setting, Side::Near), opens, "{setting}");
            assert_eq!(fast_open_allows(setting, Side::Far), accepts, "{setting}");
        }
    }
}
