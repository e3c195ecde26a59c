//! Addresses to listen on, and advice about them.

use std::net::SocketAddr;

use crate::control::DEFAULT_PORT;

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
    use super::*;

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
