//! Opens a control connection, with a deadline and from a given address.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    os::fd::AsRawFd,
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, getsockopt, socket, sockopt,
    },
};

use super::{DEFAULT_PORT, event::wait_writable};

/// The addresses of `host`, `host:port`, `address` or `[address]:port`; the port defaults to [`DEFAULT_PORT`].
pub fn resolve(control: &str) -> io::Result<Vec<SocketAddr>> {
    let bare = control.trim_matches(['[', ']']);
    // An address with a scope is refused with an error of its own.
    let scoped =
        control.split_once('%').is_some_and(|(address, _)| address.trim_matches('[').parse::<IpAddr>().is_ok());
    if let Ok(address) = control.parse::<SocketAddr>() {
        usable([address])
    } else if let Ok(address) = bare.parse::<IpAddr>() {
        usable([(address, DEFAULT_PORT).into()])
    } else if scoped {
        Err(link_local())
    } else if let Some((host, port)) = control.rsplit_once(':') {
        let port: u16 = port.parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{port}` is no port number (1 … 65535)"))
        })?;
        usable((host, port).to_socket_addrs()?)
    } else {
        usable((control, DEFAULT_PORT).to_socket_addrs()?)
    }
}

/// Those of a host's addresses that mean the same host everywhere: link-local ones mean another on each interface, and a name
/// may have them beside others.
pub fn usable(found: impl IntoIterator<Item = SocketAddr>) -> io::Result<Vec<SocketAddr>> {
    let is_local = |address: &SocketAddr| matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    let (local, usable): (Vec<_>, Vec<_>) = found.into_iter().partition(is_local);
    match (usable.is_empty(), local.is_empty()) {
        (false, _) => Ok(usable),
        (true, false) => Err(link_local()),
        (true, true) => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
    }
}

fn link_local() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "link-local addresses (fe80::…%interface) are not available: name one of its other addresses",
    )
}

/// Connects to the first of the addresses that answers. The remaining time is shared between the addresses, so that a host
/// whose IPv6 packets are lost is reached over IPv4.
pub fn dial(addresses: &[SocketAddr], from: Option<IpAddr>, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "none of its addresses is of the kind of `bind`");
    let fits = |address: &&SocketAddr| from.is_none_or(|from| from.is_ipv4() == address.is_ipv4());
    let fitting: Vec<&SocketAddr> = addresses.iter().filter(fits).collect();
    for (tried, address) in fitting.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(fitting.len() - tried).unwrap_or(u32::MAX);
        match dial_one(**address, from, Instant::now() + share) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn dial_one(address: SocketAddr, from: Option<IpAddr>, deadline: Instant) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    if let Some(from) = from {
        bind(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0)))?;
    }
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => {}
        Err(Errno::EINPROGRESS) => {
            use std::os::fd::AsFd;
            if !wait_writable(fd.as_fd(), deadline)? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer came in time"));
            }
            let error = getsockopt(&fd, sockopt::SocketError)?;
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(TcpStream::from(fd))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Duration};

    use super::*;

    #[test]
    fn the_port_has_a_default() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:12864"),
            ("127.0.0.1:5", "127.0.0.1:5"),
            ("::1", "[::1]:12864"),
            ("[::1]", "[::1]:12864"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(resolve(text).unwrap(), [address.parse().unwrap()], "{text}");
        }
        for text in ["fe80::1", "fe80::1%eth0", "[fe80::1%eth0]:7", "[fe80::1]:7", "fe80::1%2"] {
            let said = resolve(text).unwrap_err().to_string();
            assert!(said.contains("link-local"), "{text}: {said}");
        }
        let both = ["[fe80::1]:7".parse().unwrap(), "[2001:db8::1]:7".parse().unwrap()];
        assert_eq!(usable(both).unwrap(), both[1..]);
        assert!(resolve("localhost:70000").unwrap_err().to_string().contains("70000"));
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        use nix::sys::socket::{Backlog, SockaddrIn, getsockname, listen};
        // Its queue is full, and the kernel drops what comes.
        let full = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        bind(full.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        listen(&full, Backlog::new(0).unwrap()).unwrap();
        let silent: SockaddrIn = getsockname(full.as_raw_fd()).unwrap();
        let silent = SocketAddr::from(std::net::SocketAddrV4::from(silent));
        let soon = |ms| Instant::now() + Duration::from_millis(ms);
        let mut queued = Vec::new();
        let refused = loop {
            match dial(&[silent], None, soon(200)) {
                Ok(stream) => queued.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = dial(&[silent, listener.local_addr().unwrap()], None, soon(2000)).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }

    #[test]
    fn a_connection_comes_from_where_it_was_told_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let soon = Instant::now() + Duration::from_secs(5);
        let addresses = ["[::1]:1".parse().unwrap(), listener.local_addr().unwrap()];
        let from = "127.0.0.9".parse().unwrap();
        let stream = dial(&addresses, Some(from), soon).unwrap();
        assert_eq!(stream.local_addr().unwrap().ip(), from);
        drop(listener);
        assert_eq!(dial(&addresses[1..], None, soon).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
