//! ADDR of `--metrics`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// `9464` is that port on loopback; `10.0.0.2:9464` and `[2001:db8::1]:9464` are as they stand. Port 0 is a free one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    Err(match (bare.parse::<IpAddr>(), text.strip_prefix(':')) {
        (Ok(ip), _) => format!("`{text}` has no port: write {}", SocketAddr::new(ip, 9464)),
        (_, Some(port)) => format!(
            "`{text}` has no address: write {port} for loopback, or 0.0.0.0:{port} for every address of this machine"
        ),
        _ => format!("`{text}` is not an address: write 9464 (on loopback), 10.0.0.2:9464 or [2001:db8::1]:9464"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_loopback() {
        assert_eq!(address("9464").unwrap().to_string(), "127.0.0.1:9464");
        assert_eq!(address("0").unwrap().to_string(), "127.0.0.1:0");
        for text in ["10.0.0.2:9464", "[2001:db8::1]:9464", "0.0.0.0:0"] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        assert!(address(":9464").unwrap_err().contains("write 9464 for loopback, or 0.0.0.0:9464"));
        assert!(address("10.0.0.2").unwrap_err().contains("write 10.0.0.2:9464"));
        assert!(address("[::1]").unwrap_err().contains("write [::1]:9464"));
        for text in ["", "localhost:9464", "70000", "10.0.0.2:", "-1", "1.2.3.4.5:1"] {
            assert!(address(text).unwrap_err().contains("is not an address"), "{text}");
        }
    }
}
