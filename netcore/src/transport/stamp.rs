//! Packets of STAMP (RFC 8762, RFC 8972): a sender's requests and a reflector's answers, without and with authentication.
//! TWAMP Light has the same layout; its answers may be shorter.
//!
//! Numbers are big-endian. An answer is as long as its request.

use sha2::{Digest, Sha256};

use crate::spec::memory::{TLV_BYTES, reflected_bytes};

/// The port of reflectors.
pub const PORT: u16 = 862;

/// Seconds from 1900, from which NTP counts, to 1970.
const NTP_EPOCH_S: i64 = 2_208_988_800;

/// A TLV's flags: its type is unknown to the reflector (senders set it), or it runs over the packet's end.
const UNRECOGNIZED: u8 = 0x80;
const MALFORMED: u8 = 0x40;

/// Type of the TLV whose contents mean nothing.
const EXTRA_PADDING: u8 = 1;

/// Bytes of the code that authenticates a packet.
const TAG_BYTES: usize = 16;

/// A time as NTP writes it: seconds and their 2^32nd parts. The seconds wrap in February 2036.
pub fn ntp(wall_ns: i64) -> u64 {
    let (s, ns) = (wall_ns.div_euclid(1_000_000_000), wall_ns.rem_euclid(1_000_000_000).cast_unsigned());
    ((s + NTP_EPOCH_S).cast_unsigned() << 32) | ((ns << 32) / 1_000_000_000)
}

/// Nanoseconds since 1970. Times before are those after the wrap.
fn of_ntp(time: u64) -> u64 {
    let s = (time >> 32).cast_signed() - NTP_EPOCH_S;
    let s = if s < 0 { s + (1 << 32) } else { s };
    s.cast_unsigned() * 1_000_000_000 + (((time & 0xffff_ffff) * 1_000_000_000 + (1 << 31)) >> 32)
}

/// Nanoseconds since 1970 of a time as PTPv2 writes it, in the short form: seconds and nanoseconds, 32 bits each.
fn of_ptp(time: u64) -> Option<u64> {
    let ns = time & 0xffff_ffff;
    (ns < 1_000_000_000).then_some((time >> 32) * 1_000_000_000 + ns)
}

/// A host's claim about its clock: a bit for *synchronised to UTC*, one for the form of its times, and a bound of their error, as a
/// multiplier and the power of two that scales it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorEstimate(u16);

impl ErrorEstimate {
    const SYNCHRONISED: u16 = 1 << 15;
    const PTP: u16 = 1 << 14;

    /// Of times in NTP's form. The bound is rounded up, by 1 % at most from 60 ns on.
    pub fn new(bound_ns: u64, synchronised: bool) -> Self {
        let parts = ((u128::from(bound_ns.max(1)) << 32).div_ceil(1_000_000_000)).max(1);
        let scale_for = |parts: u128| (u128::BITS - parts.leading_zeros()).saturating_sub(8);
        let scale = scale_for(parts);
        // Rounding up may need a ninth bit.
        let scale = scale + scale_for(parts.div_ceil(1 << scale));
        let multiplier = parts.div_ceil(1 << scale);
        // The scale is below 60, and the multiplier below 256.
        #[expect(clippy::cast_possible_truncation)]
        let bits = (scale as u16) << 8 | multiplier as u16;
        Self(bits | if synchronised { Self::SYNCHRONISED } else { 0 })
    }

    pub fn is_synchronised(self) -> bool {
        self.0 & Self::SYNCHRONISED != 0
    }

    /// The bound, nanoseconds. `None`: a multiplier of 0 says nothing. No figure rests on such a claim.
    #[cfg(test)]
    fn bound_ns(self) -> Option<u64> {
        let (scale, multiplier) = (self.0 >> 8 & 63, u128::from(self.0 & 255));
        let ns = ((multiplier << scale) * 1_000_000_000).div_ceil(1 << 32);
        (multiplier > 0).then_some(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since 1970 of a time in the form that it tells.
    fn read(self, time: u64) -> Option<u64> {
        if self.0 & Self::PTP != 0 { of_ptp(time) } else { Some(of_ntp(time)) }
    }
}

/// A key for HMAC-SHA-256 (RFC 2104): its two hashes, each after a block of the key.
#[derive(Clone)]
pub struct Secret {
    inner: Sha256,
    outer: Sha256,
}

impl Secret {
    /// Of a key of at most 64 bytes.
    pub fn new(key: &[u8]) -> Self {
        let mut block = [0; 64];
        block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        let padded = |pad: u8| Sha256::new_with_prefix(block.map(|byte| byte ^ pad));
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let inner = self.inner.clone().chain_update(bytes).finalize();
        let whole: [u8; 32] = self.outer.clone().chain_update(inner).finalize().into();
        std::array::from_fn(|at| whole[at])
    }
}

/// Places of the fields in a packet, bytes from its begin. The number is at 0.
#[derive(Debug)]
struct Layout {
    sent: usize,
    error: usize,
    ssid: usize,
    received: usize,
    request_number: usize,
    request_sent: usize,
    request_error: usize,
    ttl: usize,
    /// Behind the last field, where a tag or the first TLV is.
    end: usize,
}

const OPEN: Layout = Layout {
    sent: 4,
    error: 12,
    ssid: 14,
    received: 16,
    request_number: 24,
    request_sent: 28,
    request_error: 36,
    ttl: 40,
    end: 44,
};

const AUTHENTICATED: Layout = Layout {
    sent: 16,
    error: 24,
    ssid: 26,
    received: 32,
    request_number: 48,
    request_sent: 64,
    request_error: 72,
    ttl: 80,
    end: 96,
};

/// The packets of a session, with a secret in the authenticated mode.
#[derive(Clone)]
pub struct Packets {
    layout: &'static Layout,
    secret: Option<Secret>,
}

/// A sender's part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub number: u32,
    /// As it is written.
    pub sent: u64,
    pub error: ErrorEstimate,
    /// Identifier of the session.
    pub ssid: u16,
}

/// A reflector's own part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// Number of its answer in the session.
    pub number: u32,
    /// When the request came and when the answer leaves, as it is written.
    pub received: u64,
    pub sent: u64,
    pub error: ErrorEstimate,
    /// TTL or hop limit with which the request came.
    pub ttl: u8,
}

/// An answer as its sender reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The reflector's own number.
    pub number: u32,
    /// When the request came and when the answer left, nanoseconds of the reflector's wall clock.
    pub received_ns: u64,
    pub sent_ns: u64,
    pub error: ErrorEstimate,
    /// 0: the reflector knows no sessions.
    pub ssid: u16,
    pub request_number: u32,
    pub request_sent: u64,
    /// TTL or hop limit with which the request came; `None`: a short packet without it.
    pub ttl: Option<u8>,
}

/// Why a packet is refused as an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Short,
    /// It lacks the proof of the key.
    Tag,
    /// Its times cannot be.
    Times,
}

impl Packets {
    pub fn new(secret: Option<Secret>) -> Self {
        Self { layout: if secret.is_some() { &AUTHENTICATED } else { &OPEN }, secret }
    }

    /// Length of the shortest request, bytes.
    pub fn least_bytes(&self) -> usize {
        reflected_bytes(self.secret.is_some())
    }

    /// Writes a request of this length: the shortest one, or one with room for the header of a TLV.
    pub fn write_request(&self, packet: &mut [u8], request: &Request) {
        let (at, least) = (self.layout, self.least_bytes());
        let Some((base, rest)) = packet.split_at_mut_checked(least) else { return };
        base.fill(0);
        put(base, 0, request.number.to_be_bytes());
        put(base, at.sent, request.sent.to_be_bytes());
        put(base, at.error, request.error.0.to_be_bytes());
        put(base, at.ssid, request.ssid.to_be_bytes());
        self.authenticate(base);
        if let (Some(padding), Some(header)) = (rest.len().checked_sub(TLV_BYTES), rest.first_chunk_mut()) {
            let [high, low] = u16::try_from(padding).unwrap_or(u16::MAX).to_be_bytes();
            *header = [UNRECOGNIZED, EXTRA_PADDING, high, low];
        }
    }

    /// The sender's part of a request. `None`: it is too short, or lacks the proof of the key. A request has zeros where an answer
    /// has its times; other packets are also read, since the padding of TWAMP Light is there ([`Self::has_times`]).
    pub fn read_request(&self, packet: &[u8]) -> Option<Request> {
        let at = self.layout;
        (packet.len() >= self.least_bytes() && self.is_authentic(packet)).then_some(())?;
        Some(Request {
            number: u32::from_be_bytes(get(packet, 0)?),
            sent: u64::from_be_bytes(get(packet, at.sent)?),
            error: ErrorEstimate(u16::from_be_bytes(get(packet, at.error)?)),
            ssid: u16::from_be_bytes(get(packet, at.ssid)?),
        })
    }

    /// Whether there is something where an answer has the time of its request's arrival.
    pub fn has_times(&self, packet: &[u8]) -> bool {
        get(packet, self.layout.received).is_some_and(|time| u64::from_be_bytes(time) != 0)
    }

    /// Makes the answer out of the packet with this request.
    pub fn reflect(&self, packet: &mut [u8], request: &Request, own: &Reflection) {
        let (at, least) = (self.layout, self.least_bytes());
        let Some((base, rest)) = packet.split_at_mut_checked(least) else { return };
        base.fill(0);
        put(base, 0, own.number.to_be_bytes());
        put(base, at.sent, own.sent.to_be_bytes());
        put(base, at.error, own.error.0.to_be_bytes());
        put(base, at.ssid, request.ssid.to_be_bytes());
        put(base, at.received, own.received.to_be_bytes());
        put(base, at.request_number, request.number.to_be_bytes());
        put(base, at.request_sent, request.sent.to_be_bytes());
        put(base, at.request_error, request.error.0.to_be_bytes());
        put(base, at.ttl, [own.ttl]);
        self.authenticate(base);
        reflect_extensions(rest);
    }

    pub fn read_answer(&self, packet: &[u8]) -> Result<Answer, Wrong> {
        let at = self.layout;
        if !self.is_authentic(packet) {
            return Err(Wrong::Tag);
        }
        let time = |at| get(packet, at).map(u64::from_be_bytes);
        let fields = || {
            let error = ErrorEstimate(u16::from_be_bytes(get(packet, at.error)?));
            Some((error, time(at.received)?, time(at.sent)?, time(at.request_sent)?))
        };
        let (error, received, sent, request_sent) = fields().ok_or(Wrong::Short)?;
        let times = error.read(received).zip(error.read(sent)).filter(|(received, sent)| received <= sent);
        let (received_ns, sent_ns) = times.ok_or(Wrong::Times)?;
        Ok(Answer {
            number: u32::from_be_bytes(get(packet, 0).ok_or(Wrong::Short)?),
            received_ns,
            sent_ns,
            error,
            ssid: u16::from_be_bytes(get(packet, at.ssid).ok_or(Wrong::Short)?),
            request_number: u32::from_be_bytes(get(packet, at.request_number).ok_or(Wrong::Short)?),
            request_sent,
            ttl: packet.get(at.ttl).copied(),
        })
    }

    /// The number of the request that an answer names.
    #[inline]
    pub fn named(&self, packet: &[u8]) -> Option<u32> {
        get(packet, self.layout.request_number).map(u32::from_be_bytes)
    }

    fn authenticate(&self, base: &mut [u8]) {
        if let (Some(secret), Some((fields, tag))) = (&self.secret, base.split_at_mut_checked(self.layout.end)) {
            tag.copy_from_slice(&secret.tag(fields));
        }
    }

    fn is_authentic(&self, packet: &[u8]) -> bool {
        let Some(secret) = &self.secret else { return true };
        let Some((fields, rest)) = packet.split_at_checked(self.layout.end) else { return false };
        let tag = secret.tag(fields);
        // All bytes are compared, so that the time says nothing of the first wrong one.
        rest.len() >= TAG_BYTES && tag.iter().zip(rest).fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
    }
}

/// Marks the TLVs of a request in its answer: the unknown ones, and one that is cut off, behind which nothing can be read.
fn reflect_extensions(mut rest: &mut [u8]) {
    // Zeros are the padding of a sender of TWAMP Light.
    while rest.iter().any(|byte| *byte != 0)
        && let Some((header, behind)) = rest.split_first_chunk_mut::<TLV_BYTES>()
    {
        let [flags, kind, high, low] = header;
        *flags = if *kind == EXTRA_PADDING { 0 } else { UNRECOGNIZED };
        let Some((_, next)) = behind.split_at_mut_checked(u16::from_be_bytes([*high, *low]).into()) else {
            *flags |= MALFORMED;
            return;
        };
        rest = next;
    }
}

fn get<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..)?.first_chunk().copied()
}

/// Writes a field; a packet has room for all of them.
fn put<const N: usize>(packet: &mut [u8], at: usize, field: [u8; N]) {
    if let Some(place) = packet.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = field;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets() -> [Packets; 2] {
        [Packets::new(None), Packets::new(Some(Secret::new(&[7; 32])))]
    }

    /// RFC 4231, test cases 1, 2 and 5, the last one truncated there, too.
    #[test]
    fn tags_are_those_of_the_standard() {
        let tag = |key: &[u8], text: &[u8]| format!("{:032x}", u128::from_be_bytes(Secret::new(key).tag(text)));
        assert_eq!(tag(&[0x0b; 20], b"Hi There"), "b0344c61d8db38535ca8afceaf0bf12b");
        assert_eq!(tag(b"Jefe", b"what do ya want for nothing?"), "5bdcc146bf60754e6a042426089575c7");
        assert_eq!(tag(&[0x0c; 20], b"Test With Truncation"), "a3b6167473100ee06e0c796c2955552b");
    }

    #[test]
    fn times_go_on_behind_the_wrap_of_ntp() {
        // The first second of 1970, one of today, and one of 2100.
        for (s, ntp_s) in [(0, 2_208_988_800u64), (1_795_469_129, 4_004_457_929), (4_102_444_800, 2_016_466_304)] {
            assert_eq!(ntp(s * 1_000_000_000) >> 32, ntp_s);
            for ns in [0, 1, 499_999_999, 999_999_999] {
                assert_eq!(of_ntp(ntp(s * 1_000_000_000 + ns)), (s * 1_000_000_000 + ns).cast_unsigned());
            }
        }
        assert_eq!(of_ptp((5 << 32) + 999_999_999), Some(5_999_999_999));
        assert_eq!(of_ptp((5 << 32) + 1_000_000_000), None);
    }

    /// Bytes that scapy's layers for STAMP (contrib/stamp.py of version 2.8.0) wrote; `tests/e2e/stamp.rs` asks it again.
    #[test]
    fn packets_are_read_and_written_as_by_scapy() {
        let bytes = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let request =
            Request { number: 0x0102_0304, sent: 0x0506_0708_090a_0b0c, error: ErrorEstimate(0x8e84), ssid: 0x4242 };
        let mut packet = [9; 44];
        packets()[0].write_request(&mut packet, &request);
        assert_eq!(packet[..], bytes(&format!("0102030405060708090a0b0c8e844242{}", "00".repeat(28)))[..]);
        let answer = bytes(
            "00000007eb6d2b00000000008e844242eb6d2aff80000000010203040506070809\
             0a0b0c8e8400003d000000"
                .replace(' ', "")
                .as_str(),
        );
        let own = Reflection {
            number: 7,
            sent: 0xeb6d_2b00_0000_0000,
            received: 0xeb6d_2aff_8000_0000,
            error: ErrorEstimate(0x8e84),
            ttl: 61,
        };
        packets()[0].reflect(&mut packet, &request, &own);
        assert_eq!(packet[..], answer[..]);
        let read = packets()[0].read_answer(&answer).unwrap();
        assert_eq!((read.sent_ns - read.received_ns, read.ttl, read.ssid), (500_000_000, Some(61), 0x4242));
        assert_eq!(read.error.bound_ns().map(|ns| ns / 1000), Some(503));
    }

    #[test]
    fn extensions_come_back_marked() {
        let of = |rest: &[u8]| {
            let mut rest = rest.to_vec();
            reflect_extensions(&mut rest);
            rest
        };
        assert_eq!(of(&[0x80, 1, 0, 2, 9, 9]), [0, 1, 0, 2, 9, 9], "padding");
        assert_eq!(of(&[0, 200, 0, 0, 0x80, 1, 0, 0]), [0x80, 200, 0, 0, 0, 1, 0, 0], "an unknown one before it");
        assert_eq!(of(&[0x80, 1, 0, 3, 9, 9]), [0x40, 1, 0, 3, 9, 9], "cut off");
        assert_eq!(of(&[0x80, 200, 0, 3, 9, 9]), [0xc0, 200, 0, 3, 9, 9]);
        assert_eq!((of(&[0; 9]), of(&[5, 6])), (vec![0; 9], vec![5, 6]), "padding of TWAMP Light");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number: u32, sent: u64, ssid: u16, own_number: u32, received in 0i64..1 << 61, stay in 0i64..1 << 40,
            bound: u64, synchronised: bool, ttl: u8, more in 0usize..100) {
            for packets in packets() {
                let length = packets.least_bytes() + if more < TLV_BYTES { 0 } else { more };
                let request = Request { number, sent, error: ErrorEstimate::new(bound, synchronised), ssid };
                let mut packet = vec![0xa5; length];
                packets.write_request(&mut packet, &request);
                prop_assert_eq!(packets.read_request(&packet), Some(request));
                let error = ErrorEstimate::new(5, true);
                let own = Reflection { number: own_number, received: ntp(received), sent: ntp(received + stay), error, ttl };
                packets.reflect(&mut packet, &request, &own);
                let read = packets.read_answer(&packet).unwrap();
                prop_assert_eq!((read.request_number, read.request_sent, read.ssid), (number, sent, ssid));
                prop_assert_eq!((read.number, read.ttl, read.error), (own_number, Some(ttl), error));
                prop_assert_eq!(packets.named(&packet), Some(number));
                let era = |ns: i64| ns.cast_unsigned() % ((1u64 << 32) * 1_000_000_000);
                prop_assert_eq!(era(read.sent_ns.cast_signed()), era(received + stay));
                prop_assert_eq!(packet.get(packets.least_bytes()).copied().unwrap_or(0), 0, "padding is known");
            }
        }

        #[test]
        fn bounds_are_rounded_up_by_a_hundredth(ns: u64, synchronised: bool) {
            let estimate = ErrorEstimate::new(ns, synchronised);
            let bound = estimate.bound_ns().unwrap();
            prop_assert!(bound >= ns && bound - ns <= ns / 100 + 1, "{ns} {bound}");
            prop_assert_eq!(estimate.is_synchronised(), synchronised);
        }

        #[test]
        fn a_byte_that_was_changed_is_noticed(at in 0usize..112, bit in 0u8..8) {
            let [_, packets] = packets();
            let mut packet = [0; 112];
            packets.write_request(&mut packet, &Request { number: 1, sent: 2, error: ErrorEstimate(3), ssid: 4 });
            packet[at] ^= 1 << bit;
            prop_assert_eq!(packets.read_request(&packet), None);
        }
    }
}
