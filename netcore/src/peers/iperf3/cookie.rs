//! The secret by which the connections of a test know each other.

use std::fmt;

/// Length of a cookie with the zero byte at its end.
pub const COOKIE_BYTES: usize = 37;

/// The letters of a cookie: base 32.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// 36 letters and a zero byte.
#[derive(Clone)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; COOKIE_BYTES];
        getrandom::fill(&mut bytes[..COOKIE_BYTES - 1])?;
        for byte in &mut bytes[..COOKIE_BYTES - 1] {
            *byte = LETTERS[usize::from(*byte) % LETTERS.len()];
        }
        Ok(Self(bytes))
    }

    /// `None`: no cookie has this form.
    pub fn parse(bytes: [u8; COOKIE_BYTES]) -> Option<Self> {
        let (letters, end) = bytes.split_at(COOKIE_BYTES - 1);
        (letters.iter().all(|byte| LETTERS.contains(byte)) && end == [0]).then_some(Self(bytes))
    }

    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

/// Compares in constant time, so that a stranger learns nothing from the time taken.
impl PartialEq for Cookie {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

/// A cookie is a secret while its test begins, so it is not shown.
impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from iperf3 3.12.
    #[test]
    fn a_recorded_cookie_is_one() {
        let bytes = *b"tvgnpbhyp5zv2hz5grful7cwefivxlihdgs4\0";
        let cookie = Cookie::parse(bytes).unwrap();
        assert_eq!(cookie.bytes(), &bytes);
        for (at, wrong) in [(0, b'A'), (5, b'1'), (35, 0), (36, b'a')] {
            let mut other = bytes;
            other[at] = wrong;
            assert!(Cookie::parse(other).is_none(), "byte {at}");
        }
    }

    #[test]
    fn random_cookies_are_valid_and_differ() {
        let (one, other) = (Cookie::random().unwrap(), Cookie::random().unwrap());
        assert!(Cookie::parse(*one.bytes()) == Some(one.clone()));
        assert!(one != other);
        assert_eq!(format!("{one:?}"), "Cookie");
    }
}
