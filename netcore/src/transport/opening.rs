//! Options of the socket that connects or listens, not of its connections: TCP Fast Open and deferred acceptance.

use std::os::fd::OwnedFd;

use crate::{
    error::EndError,
    report::Granted,
    spec::{Side, SocketOptions, socket::OptionValue},
    sys::opt,
};

/// Makes the next connect(2) of a socket send its first data in the SYN.
pub fn fast_open(socket: &OwnedFd) -> Result<(), EndError> {
    fast_open_is_on(Side::Near)?;
    opt::set_int(socket, opt::TCP_FASTOPEN_CONNECT, 1).map_err(EndError::system("the kernel refuses fastopen"))
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

/// Fast Open and deferred acceptance, where the test asks for them. They do not change after the start.
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
    fastopen.into_iter().chain(deferred).collect()
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
