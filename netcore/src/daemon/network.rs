//! Networks in CIDR form; addresses to listen on, and advice about them.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::{Arc, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;

use crate::control::DEFAULT_PORT;

/// An address with a prefix length: `10.0.0.0/8`, `2001:db8::/32`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network: write an address such as 10.1.2.3, or a prefix such as 10.0.0.0/8 or 2001:db8::/32")]
pub struct NetworkError(pub String);

impl Network {
    /// Every address of both versions of IP.
    pub fn everything() -> [Self; 2] {
        [[0; 4].into(), [0; 16].into()].map(|any: IpAddr| Self(IpNet::new_assert(any, 0)))
    }

    /// Whether the network contains the address. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Networks of a daemon, to which its owner may add while it serves. Clones are the same set.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    list: Arc<RwLock<Vec<Network>>>,
    patience: Duration,
}

impl Networks {
    /// An empty set whose owner adds to it by another way than the clients come: a client may be earlier. Questions wait this
    /// long for a network before they are answered in the negative.
    pub fn awaited(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    fn holds(&self, test: impl Fn(&[Network]) -> bool) -> bool {
        let until = Instant::now() + self.patience;
        loop {
            let held = test(&self.list.read().unwrap_or_else(PoisonError::into_inner));
            if held || Instant::now() >= until {
                return held;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn add(&self, network: Network) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if !list.contains(&network) {
            list.push(network);
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.holds(|list| !list.is_empty())
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.holds(|list| list.iter().any(|network| network.contains(address)))
    }
}

impl From<Vec<Network>> for Networks {
    fn from(list: Vec<Network>) -> Self {
        Self { list: Arc::new(RwLock::new(list)), patience: Duration::ZERO }
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(address.to_canonical().into())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let single = |_| text.parse::<IpAddr>().map(IpNet::from);
        text.parse::<IpNet>().or_else(single).map(Self).map_err(|_| NetworkError(text.to_owned()))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// For [`super::Config::listen`].
    pub addresses: Vec<SocketAddr>,
    /// Sentence for the user about the consequences, where they may surprise.
    pub advice: Option<String>,
}

/// With a key, every address; without one, loopback only, unless the user `named` an address.
pub fn listen(named: Option<SocketAddr>, has_key: bool) -> Listen {
    let everywhere: [u16; 8] = [0; 8];
    match named {
        Some(address) => {
            let open = !has_key && !address.ip().is_loopback();
            let advice = open.then(|| {
                format!(
                    "no key: everybody who reaches {address} may run tests here and read the conversation; make a key with \
                     `plumb key` and give it with --key-file, or name the allowed networks with --allow"
                )
            });
            Listen { addresses: vec![address], advice }
        }
        // The first socket serves both versions of IP, and the second one then fails to bind. Without IPv6 the second one
        // serves IPv4.
        None if has_key => Listen {
            addresses: vec![(everywhere, DEFAULT_PORT).into(), ([0, 0, 0, 0], DEFAULT_PORT).into()],
            advice: None,
        },
        None => Listen {
            addresses: vec![([127, 0, 0, 1], DEFAULT_PORT).into(), ([0, 0, 0, 0, 0, 0, 0, 1], DEFAULT_PORT).into()],
            advice: Some(
                "no key: listening on loopback only. To serve other hosts: `plumb serve --listen 0.0.0.0`, which makes a key \
                 and prints it; or --key-file lab.key, with the key that `plumb key lab.key` made, at both ends"
                    .to_owned(),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_network_may_come_after_the_question_for_it() {
        let networks = Networks::awaited(Duration::from_mins(1));
        let later = networks.clone();
        let adds = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            later.add("10.0.0.0/8".parse().unwrap());
        });
        assert!(networks.contains([10, 0, 0, 2].into()));
        adds.join().unwrap();
        assert!(!Networks::default().contains([10, 0, 0, 2].into()));
    }

    #[test]
    fn addresses_are_in_their_networks() {
        let contains =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.255.1.2"));
        assert!(contains("10.0.0.0/8", "::ffff:10.255.1.2"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.1.2.3", "10.1.2.3"));
        assert!(!contains("10.1.2.3", "10.1.2.2"));
        assert!(contains("2001:db8::/32", "2001:db8:1::7"));
        assert!(!contains("2001:db8::/32", "2001:db9::"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(Network::everything().iter().any(|network| network.contains("::1".parse().unwrap())));
    }

    #[test]
    fn clones_see_what_is_added_later() {
        let networks = Networks::default();
        let clone = networks.clone();
        let address: IpAddr = "10.0.0.2".parse().unwrap();
        assert!(clone.is_empty() && !clone.contains(address));
        networks.add(address.into());
        assert!(clone.contains(address) && !clone.contains("10.0.0.3".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_named() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "lab", "10.0.0.0/-1"] {
            let error = text.parse::<Network>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn networks_read_back(address: IpAddr, cut in 0u8..=128) {
            let prefix = if address.is_ipv4() { cut.min(32) } else { cut };
            let network = Network(IpNet::new(address, prefix).unwrap());
            prop_assert_eq!(network.to_string().parse::<Network>().unwrap(), network);
        }

        #[test]
        fn any_text_is_a_network_or_an_error(text in ".{0,30}") {
            let _ = text.parse::<Network>();
        }
    }

    #[test]
    fn without_a_key_only_loopback_unless_an_address_is_named() {
        let quiet = listen(None, false);
        assert!(quiet.addresses.iter().all(|address| address.ip().is_loopback()), "{quiet:?}");
        assert!(quiet.advice.unwrap().contains("--key-file"));
        let named: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let open = listen(Some(named), false);
        assert_eq!(open.addresses, [named]);
        assert!(open.advice.unwrap().contains("10.0.0.1:9"));
        assert_eq!(listen(Some(named), true).advice, None);
        assert!(listen(None, true).addresses.iter().all(|address| address.ip().is_unspecified()));
    }
}
