//! Opening a control connection: with a deadline, and from an address that may be chosen.

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

/// The addresses of `host`, `host:port`, `address` or `[address]:port`; the port is [`DEFAULT_PORT`] where none is named.
pub fn resolve(control: &str) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = control.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    if let Ok(address) = control.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![(address, DEFAULT_PORT).into()]);
    }
    let found: Vec<SocketAddr> = match control.rsplit_once(':') {
        Some((host, port)) => {
            let port: u16 = port.parse().map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("`{port}` is no port number (1 … 65535)"))
            })?;
            (host, port).to_socket_addrs()?.collect()
        }
        None => (control, DEFAULT_PORT).to_socket_addrs()?.collect(),
    };
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(found)
}

/// Connects to the first of the addresses that answers.
pub fn dial(addresses: &[SocketAddr], from: Option<IpAddr>, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "none of its addresses is of the kind of `bind`");
    for address in addresses.iter().filter(|address| from.is_none_or(|from| from.is_ipv4() == address.is_ipv4())) {
        match dial_one(*address, from, deadline) {
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
        assert!(resolve("localhost:70000").unwrap_err().to_string().contains("70000"));
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
