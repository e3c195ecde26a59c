//! The address of `--metrics`, and the head of a request of HTTP/1.1 (RFC 9112). Bodies are not read: a scrape has none.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::page::Format;

/// Limit of a request's head, bytes.
pub(super) const LONGEST_HEAD: usize = 8 << 10;

/// A head, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It has no end yet.
    Partial,
    Whole(Asked),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// `GET /metrics`
    Metrics(Format),
    /// `GET /`
    Hint,
    /// `GET` of a page that only `plumb watch` has, with its query.
    OfWatch(String),
    /// It gets this status.
    Refused(u16),
}

pub(super) fn parse(bytes: &[u8]) -> Head {
    let within = &bytes[..bytes.len().min(LONGEST_HEAD)];
    let Some(end) = within.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() < LONGEST_HEAD { Head::Partial } else { Head::Whole(Asked::Refused(431)) };
    };
    Head::Whole(std::str::from_utf8(&within[..end]).map_or(Asked::Refused(400), asked))
}

fn asked(head: &str) -> Asked {
    let mut lines = head.split("\r\n");
    let request: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, target, version] = request.as_slice() else { return Asked::Refused(400) };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic()) || !target.starts_with('/') {
        return Asked::Refused(400);
    }
    match version {
        "HTTP/1.1" | "HTTP/1.0" => {}
        _ if version.starts_with("HTTP/") => return Asked::Refused(505),
        _ => return Asked::Refused(400),
    }
    let accepts = lines.filter_map(|line| line.split_once(':'));
    let accepts = accepts.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value);
    let path = target.split('?').next().unwrap_or_default();
    match (path, method) {
        ("/metrics" | "/" | "/healthz" | "/readyz" | "/probe", _) if method != "GET" => Asked::Refused(405),
        ("/metrics", _) => Asked::Metrics(format(accepts)),
        ("/", _) => Asked::Hint,
        ("/healthz" | "/readyz" | "/probe", _) => Asked::OfWatch(target.to_owned()),
        _ => Asked::Refused(404),
    }
}

/// The value of a name in a query, decoded.
pub fn parameter(target: &str, name: &str) -> Option<String> {
    let pairs = target.split_once('?')?.1.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.filter(|(own, _)| *own == name).map(|(_, value)| value).next()?;
    let (mut decoded, mut rest) = (Vec::new(), value.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        let code = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        decoded.push(code.unwrap_or(if first == b'+' { b' ' } else { first }));
        rest = &behind[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(decoded).ok()
}

/// The format that a client likes best, by the weights of its `Accept` lines. Without a preference, Prometheus' text.
fn format<'a>(accepts: impl Iterator<Item = &'a str>) -> Format {
    let (mut open, mut plain) = (0.0_f32, 0.0_f32);
    for range in accepts.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.trim().parse().ok()).unwrap_or(1.0);
        match kind.as_str() {
            "application/openmetrics-text" => open = open.max(weight),
            "text/plain" | "text/*" | "*/*" => plain = plain.max(weight),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

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
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> Asked {
        match parse(text.as_bytes()) {
            Head::Whole(asked) => asked,
            Head::Partial => panic!("{text:?} has an end"),
        }
    }

    #[test]
    fn paths_and_methods() {
        let first = |line: &str| whole(&format!("{line}\r\nHost: x\r\n\r\n"));
        assert_eq!(first("GET /metrics HTTP/1.1"), Asked::Metrics(Format::Prometheus));
        assert_eq!(first("GET /metrics?name=x HTTP/1.0"), Asked::Metrics(Format::Prometheus));
        assert_eq!(first("GET / HTTP/1.1"), Asked::Hint);
        for (line, status) in [
            ("GET /other HTTP/1.1", 404),
            ("DELETE /other HTTP/1.1", 404),
            ("POST /metrics HTTP/1.1", 405),
            ("POST /healthz HTTP/1.1", 405),
            ("HEAD / HTTP/1.1", 405),
            ("GET /metrics HTTP/2.0", 505),
            ("GET /metrics", 400),
            ("GET  /metrics HTTP/1.1", 400),
            ("GET http://x/metrics HTTP/1.1", 400),
            ("\u{16}\u{3}\u{1}", 400),
            ("", 400),
        ] {
            assert_eq!(first(line), Asked::Refused(status), "{line:?}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let of = |target: &str| parameter(target, "target");
        assert_eq!(of("/probe?module=quick&target=b.lab%3A12864").as_deref(), Some("b.lab:12864"));
        assert_eq!(of("/probe?target=%5B::1%5d&target=x").as_deref(), Some("[::1]"));
        assert_eq!(of("/probe?target=%é%2&x").as_deref(), Some("%é%2"));
        for none in ["/probe", "/probe?", "/probe?target", "/probe?a=b", "/probe?target=%ff"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn the_format_follows_the_weights() {
        let of = |accept: &str| whole(&format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
        let prometheus =
            "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        assert_eq!(of(prometheus), Asked::Metrics(Format::OpenMetrics));
        assert_eq!(of("accept: application/openmetrics-text"), Asked::Metrics(Format::OpenMetrics));
        for plain in [
            "Accept: text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.4",
            "Accept: application/openmetrics-text;q=0",
            "Accept: */*",
            "Accept: ,;q=,;;=",
            "X: application/openmetrics-text",
        ] {
            assert_eq!(of(plain), Asked::Metrics(Format::Prometheus), "{plain}");
        }
    }

    #[test]
    fn a_second_request_behind_the_first_is_left_alone() {
        assert_eq!(whole("GET / HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"), Asked::Hint);
    }

    #[test]
    fn a_head_is_bounded() {
        let long = |name: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(name));
        let rest = long(0).len();
        assert_eq!(whole(&long(LONGEST_HEAD - rest)), Asked::Hint);
        assert_eq!(whole(&long(LONGEST_HEAD - rest + 1)), Asked::Refused(431));
        assert_eq!(parse(&vec![b'a'; LONGEST_HEAD - 1]), Head::Partial);
        assert_eq!(parse(&vec![b'a'; LONGEST_HEAD]), Head::Whole(Asked::Refused(431)));
    }

    proptest! {
        /// Any bytes have an answer, or wait for more.
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300), ended in any::<bool>()) {
            let end: &[u8] = if ended { b"\r\n\r\n" } else { b"" };
            let all = [&bytes, end].concat();
            prop_assert_eq!(parse(&all) == Head::Partial, !all.windows(4).any(|four| four == b"\r\n\r\n"));
        }

        /// A head is decided by its last byte, and by no later one.
        #[test]
        fn halves_wait_for_the_rest(
            method in "[A-Z]{1,5}",
            path in "/[a-z]{0,8}",
            value in "[ -~]{0,40}",
            behind in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let head = format!("{method} {path} HTTP/1.1\r\nAccept: {value}\r\n\r\n");
            for end in 0..head.len() {
                prop_assert_eq!(parse(&head.as_bytes()[..end]), Head::Partial);
            }
            let alone = parse(head.as_bytes());
            prop_assert!(alone != Head::Partial);
            prop_assert_eq!(parse(&[head.as_bytes(), &behind].concat()), alone);
        }
    }

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
