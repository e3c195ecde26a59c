//! Networks in CIDR form.

use std::{fmt, net::IpAddr, str::FromStr};

/// An address with a prefix length: `10.0.0.0/8`, `2001:db8::/32`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a network was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no network: write an address such as 10.1.2.3, or a prefix such as 10.0.0.0/8 or 2001:db8::/32")]
pub struct NetworkError(pub String);

impl Network {
    /// Every address of both versions.
    #[must_use]
    pub fn everything() -> [Self; 2] {
        [[0; 4].into(), [0; 16].into()].map(|address| Self { address, prefix: 0 })
    }

    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = u32::from(ours) ^ u32::from(theirs);
                u32::from(self.prefix) <= differ.leading_zeros()
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = u128::from(ours) ^ u128::from(theirs);
                u32::from(self.prefix) <= differ.leading_zeros()
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let fault = || NetworkError(text.to_owned());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u8>().map_err(|_| fault())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(longest);
        if prefix > longest {
            return Err(fault());
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            let network = Network { address, prefix };
            prop_assert_eq!(network.to_string().parse::<Network>().unwrap(), network);
        }

        #[test]
        fn any_text_is_a_network_or_an_error(text in ".{0,30}") {
            let _ = text.parse::<Network>();
        }
    }
}
