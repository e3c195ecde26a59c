//! Places of the two ends of a test, and the way from this one to the other.

use std::net::{IpAddr, SocketAddr};

use netcore::{
    client::{ClientError, DataAddresses, Far, Peer, PeerTarget, Timeouts},
    peers::Program,
    spec::Family,
};

use super::request::Request;

/// The addresses of a test, by the names that were given.
pub struct Ends {
    /// Of the control connection, in the order of trying; at least one.
    controls: Vec<IpAddr>,
    /// Local address of the control connection.
    bind: Option<IpAddr>,
    data: DataAddresses,
}

/// A far end that was reached.
pub struct Reached {
    /// `None`: a service without a control connection (`-N`).
    peer: Option<Peer>,
    /// Destination of the data.
    pub address: IpAddr,
    pub data: DataAddresses,
}

impl Reached {
    pub fn far(&mut self) -> Far<'_> {
        self.peer.as_mut().map_or(Far::Service, Far::Peer)
    }

    pub fn peer(&mut self) -> Option<&mut Peer> {
        self.peer.as_mut()
    }
}

impl Ends {
    /// Looks the names up. The error is a sentence.
    pub fn of(request: &Request) -> Result<Self, String> {
        let globals = &request.globals;
        let data_family = request.specifics.family.unwrap_or(Family::Any);
        let one =
            |name: Option<&String>, family| name.map(|name| resolve(name, family).map(|found| found[0])).transpose();
        let controls = resolve(request.host(), globals.family)?;
        let bind = one(globals.local.as_ref(), globals.family)?;
        let near = one(request.specifics.local.as_ref(), data_family)?.or(bind);
        let near = near.filter(|address| !address.is_unspecified());
        let far = one(request.specifics.host.as_ref(), data_family)?;
        Ok(Self { controls, bind, data: DataAddresses { near, far, near_netns: None } })
    }

    /// Reaches the far end, by its addresses in turn.
    pub fn reach(&self, request: &Request) -> Result<Reached, ClientError> {
        let (first, others) = self.controls.split_first().expect("a name has an address");
        if request.globals.no_control {
            let address = self.data.far.unwrap_or(*first);
            let data = DataAddresses { far: Some(address), ..self.data.clone() };
            return Ok(Reached { peer: None, address, data });
        }
        let mut control = *first;
        let mut peer = self.connect(request, control);
        for other in others {
            if peer.is_ok() {
                break;
            }
            control = *other;
            peer = self.connect(request, control);
        }
        let mut peer = peer?;
        if let Some(passphrase) = &request.globals.passphrase {
            peer.introduce(passphrase)?;
        }
        Ok(Reached { peer: Some(peer), address: self.data.far.unwrap_or(control), data: self.data.clone() })
    }

    fn connect(&self, request: &Request, control: IpAddr) -> Result<Peer, ClientError> {
        Peer::connect(&PeerTarget {
            name: request.host().to_owned(),
            program: Program::Netperf,
            control: SocketAddr::new(control, request.globals.port).to_string(),
            bind: self.bind,
            netns: None,
            timeouts: Timeouts::default(),
        })
    }
}

/// The addresses of a host in a family: one at least. The error is a sentence.
fn resolve(host: &str, family: Family) -> Result<Vec<IpAddr>, String> {
    let unknown = |why: &str| format!("Could not resolve the host {host}: {why}");
    let name = host.trim_start_matches('[').trim_end_matches(']');
    // netperf's name of the wildcard.
    let name = if name == "::0" { "::" } else { name };
    let fits = |address: &IpAddr| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(name, 0)).map_err(|error| unknown(&error.to_string()))?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).filter(fits).collect();
    match (found.is_empty(), family) {
        (false, _) => Ok(found),
        (true, Family::V6) => Err(unknown("it has no IPv6 address")),
        (true, _) => Err(unknown("it has no IPv4 address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_resolve_in_their_family() {
        let first = |host, family| resolve(host, family).map(|found| found[0].to_string());
        assert_eq!(first("127.0.0.1", Family::Any).unwrap(), "127.0.0.1");
        assert_eq!(first("[::1]", Family::V6).unwrap(), "::1");
        assert_eq!(first("::0", Family::V6).unwrap(), "::");
        assert!(first("127.0.0.1", Family::V6).unwrap_err().contains("127.0.0.1: it has no IPv6 address"));
        assert!(
            first("no such host", Family::Any).unwrap_err().starts_with("Could not resolve the host no such host: ")
        );
    }
}
