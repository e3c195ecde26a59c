//! The datagrams by which a UDP stream begins: the client's hello, the server's reply.

/// Length of both.
pub const HELLO_BYTES: usize = 4;

/// Since version 3.12.
pub const HELLO: [u8; HELLO_BYTES] = *b"9876";
pub const REPLY: [u8; HELLO_BYTES] = *b"6789";

/// Of older versions. Its bytes are those of a little-endian host.
const OLD_REPLY: [u8; HELLO_BYTES] = 987_654_321u32.to_le_bytes();

/// Whether a datagram begins a stream. Servers accept any, but a late datagram of an earlier test must not: those have at
/// least 16 bytes.
pub fn is_hello(datagram: &[u8]) -> bool {
    datagram.len() == HELLO_BYTES
}

/// Whether a datagram answers a hello: either form, as a host of either byte order writes it.
pub fn is_reply(datagram: &[u8]) -> bool {
    let reversed: Vec<u8> = datagram.iter().rev().copied().collect();
    [REPLY, OLD_REPLY].iter().any(|reply| datagram == reply) || reversed == OLD_REPLY
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from iperf3 3.12, and from the reference for older ones.
    #[test]
    fn both_forms_are_known() {
        assert_eq!((HELLO, REPLY), ([0x39, 0x38, 0x37, 0x36], [0x36, 0x37, 0x38, 0x39]));
        assert!(is_hello(b"9876") && is_hello(&[0x15, 0xCD, 0x5B, 0x07]));
        assert!(is_reply(b"6789") && is_reply(&[0xB1, 0x68, 0xDE, 0x3A]) && is_reply(&[0x3A, 0xDE, 0x68, 0xB1]));
        assert!(!is_hello(&[]) && !is_hello(&[0; 16]) && !is_reply(b"9876") && !is_reply(b"67890"));
    }
}
