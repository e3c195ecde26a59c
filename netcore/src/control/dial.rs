//! Opens a control connection, with a deadline and from a given address.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

use super::DEFAULT_PORT;
use crate::transport::options::with_first_bytes;

/// The addresses of `host`, `host:port`, `address` or `[address]:port`; the port defaults to [`DEFAULT_PORT`].
pub fn resolve(control: &str) -> io::Result<Vec<SocketAddr>> {
    resolve_or(control, DEFAULT_PORT)
}

/// The same with another default port.
pub fn resolve_or(control: &str, default_port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = control.trim_matches(['[', ']']);
    // An address with a scope is refused with an error of its own.
    let scoped =
        control.split_once('%').is_some_and(|(address, _)| address.trim_matches('[').parse::<IpAddr>().is_ok());
    if let Ok(address) = control.parse::<SocketAddr>() {
        usable([address])
    } else if let Ok(address) = bare.parse::<IpAddr>() {
        usable([(address, default_port).into()])
    } else if scoped {
        Err(link_local())
    } else if let Some((host, port)) = control.rsplit_once(':') {
        let port: u16 = port.parse().map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{port}` is no port number (1 … 65535)"))
        })?;
        usable((host, port).to_socket_addrs()?)
    } else {
        usable((control, default_port).to_socket_addrs()?)
    }
}

/// `b.lab:12864` without its port, and the port. The colons of `fe80::1` are the address's own.
pub fn split_port(place: &str) -> (&str, Option<u16>) {
    let with_port = place.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let (host, port) = match with_port.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

/// The addresses of a host that mean it everywhere: link-local ones mean another host on each interface, and a name may have
/// them beside others.
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
    let mut last =
        io::Error::new(io::ErrorKind::AddrNotAvailable, "all its addresses are of another IP version than `bind`");
    let fits = |address: &&SocketAddr| from.is_none_or(|from| from.is_ipv4() == address.is_ipv4());
    let fitting: Vec<&SocketAddr> = addresses.iter().filter(fits).collect();
    for (tried, address) in fitting.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(fitting.len() - tried).unwrap_or(u32::MAX);
        match dial_one(**address, from, share) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn dial_one(address: SocketAddr, from: Option<IpAddr>, within: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    with_first_bytes(&socket);
    socket.connect_timeout(&address.into(), within)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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
        // Its queue is full, so the kernel drops further connections. Those that hold back the end of their handshake, as ours do,
        // would not fill it: with SYN cookies the kernel answers any number of them.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        full.listen(0).unwrap();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let soon = |ms| Instant::now() + Duration::from_millis(ms);
        let queued: Vec<TcpStream> =
            std::iter::from_fn(|| TcpStream::connect_timeout(&silent, Duration::from_millis(200)).ok()).collect();
        let refused = dial(&[silent], None, soon(200)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}, after {} connections", queued.len());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = dial(&[silent, listener.local_addr().unwrap()], None, soon(6000)).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }

    #[test]
    fn a_connection_comes_from_the_given_address() {
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
