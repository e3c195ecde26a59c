//! Options of the socket that connects or listens, not of its connections: TCP Fast Open, deferred acceptance, and a port
//! that several sockets listen on.

use std::os::fd::{AsFd, OwnedFd};

use crate::{
    error::EndError,
    report::Granted,
    spec::{Side, SocketOptions, TestSpec, socket::OptionValue},
    sys::opt,
};

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
pub fn granted(socket: &OwnedFd, flow: u32, options: &SocketOptions, side: Side) -> Vec<Granted> {
    let int = |option| opt::get_int(socket, option).ok();
    let both = |option: &str, requested: String, granted: Option<String>| Granted {
        flow,
        option: option.to_owned(),
        requested: Some(requested),
        at_start: granted.clone(),
        at_end: granted,
    };
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
