//! The payload that an Ethernet link can carry. `plumb fit --wire` and the rows of `plumb run` use this one formula.
//!
//! A packet on the wire has, around its IP bytes (IEEE 802.3, clauses 3 and 4): preamble and start delimiter, header, tags
//! (IEEE 802.1Q), frame check sequence and the gap before the next frame. A short frame is padded. So the share of a link
//! that can be payload is the payload of a packet over these bytes.

/// Preamble and start-of-frame delimiter.
const PREAMBLE: u64 = 7 + 1;
/// Destination, source and type.
const HEADER: u64 = 14;
const TAG: u64 = 4;
/// Frame check sequence.
const CHECK: u64 = 4;
/// Gap between frames.
const GAP: u64 = 12;
/// The shortest frame, from its header to its check sequence.
const SHORTEST_FRAME: u64 = 64;

const TCP: u64 = 20;
/// The timestamps option and its padding (RFC 7323, appendix A).
pub const TIMESTAMPS: u64 = 12;
const UDP: u64 = 8;
/// The header of an IPv6 fragment (RFC 8200, section 4.5).
const FRAGMENT6: u64 = 8;

/// Packets of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packets {
    pub ipv6: bool,
    /// Largest IP packet, bytes.
    pub mtu: u64,
    /// VLAN tags of a frame: 1, or 2 with QinQ.
    pub tags: u64,
}

/// Payload, and the bytes that it takes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub payload: u64,
    pub wire: u64,
}

impl Load {
    /// The payload rate of a full link of this speed.
    pub fn at(self, bits_per_s: f64) -> f64 {
        bits_per_s * self.payload as f64 / self.wire as f64
    }
}

/// Share of the payload in records of TLS 1.3: each has at most 16 KiB of a message, a header (5 bytes), the kind of its content (1)
/// and a seal (16): RFC 8446, section 5.2.
pub fn in_records(message_bytes: u64) -> f64 {
    let bytes = message_bytes.max(1);
    bytes as f64 / (bytes + 22 * bytes.div_ceil(16_384)) as f64
}

/// Bytes of a packet of QUIC that are none of its stream's: flags (1), the identifier of the connection (8), the packet's number (2), a
/// STREAM frame with its type (1), the number of the stream (1) and an offset of up to 2^30 (4), and the seal (16): RFC 9000, sections 17.3
/// and 19.8. Our library chooses their lengths; a longer offset has 4 more.
const QUIC: u64 = 1 + 8 + 2 + 1 + 1 + 4 + 16;

/// UDP payload of a packet of QUIC, where nothing else is known: the longest that our ends search for by default.
pub const QUIC_DATAGRAM: u64 = 1452;

impl Packets {
    /// Full packets of QUIC of one stream, in UDP datagrams with a payload of so many bytes. `None`: they have no room for a byte.
    pub fn quic(self, datagram: u64) -> Option<Load> {
        let payload = datagram.checked_sub(QUIC).filter(|bytes| *bytes > 0)?;
        Some(Load { payload, wire: self.udp(datagram)?.wire })
    }

    fn ip(self) -> u64 {
        if self.ipv6 { 40 } else { 20 }
    }

    /// Bytes on the wire of an IP packet.
    fn frame(self, packet: u64) -> u64 {
        let bytes = HEADER + self.tags * TAG + packet + CHECK;
        PREAMBLE + bytes.max(SHORTEST_FRAME) + GAP
    }

    /// Headers of a TCP segment, from IP on.
    pub fn tcp_headers(self, options: u64) -> u64 {
        self.ip() + TCP + options
    }

    /// Full segments of TCP. `None`: the MTU has no room for a byte beside the headers.
    pub fn tcp(self, options: u64) -> Option<Load> {
        let payload = self.mtu.checked_sub(self.tcp_headers(options))?;
        self.segments(payload, options)
    }

    /// Segments with this payload.
    pub fn segments(self, payload: u64, options: u64) -> Option<Load> {
        (payload > 0).then(|| Load { payload, wire: self.frame(payload + self.tcp_headers(options)) })
    }

    /// The largest UDP message of one packet.
    pub fn largest_message(self) -> Option<u64> {
        self.mtu.checked_sub(self.ip() + UDP).filter(|bytes| *bytes > 0)
    }

    /// UDP messages of this size. A larger one than the MTU leaves in fragments: each but the last has as many multiples of
    /// 8 bytes as fit (RFC 791, section 3.2; RFC 8200, section 4.5). `None`: the MTU has no room for them.
    pub fn udp(self, message: u64) -> Option<Load> {
        let datagram = message + UDP;
        let room = self.mtu.checked_sub(self.ip())?;
        if datagram <= room {
            return Some(Load { payload: message, wire: self.frame(self.ip() + datagram) });
        }
        let headers = self.ip() + if self.ipv6 { FRAGMENT6 } else { 0 };
        let each = self.mtu.checked_sub(headers)? / 8 * 8;
        if each == 0 {
            return None;
        }
        // The last one may fill its packet.
        let whole = (datagram + headers - self.mtu).div_ceil(each);
        let rest = datagram - whole * each;
        Some(Load { payload: message, wire: whole * self.frame(headers + each) + self.frame(headers + rest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: Packets = Packets { ipv6: false, mtu: 1500, tags: 0 };

    fn share(load: Option<Load>) -> f64 {
        load.unwrap().at(100.0)
    }

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.005
    }

    /// Figures that are known from elsewhere: 94.15 and 94.93 Mbit/s of Fast Ethernet, 95.71 for UDP, 99.1 with jumbo frames.
    #[test]
    fn known_ceilings() {
        assert_eq!(V4.tcp(TIMESTAMPS), Some(Load { payload: 1448, wire: 1538 }));
        assert!(near(share(V4.tcp(TIMESTAMPS)), 94.15));
        assert!(near(share(V4.tcp(0)), 94.93));
        assert!(near(share(V4.udp(1472)), 95.71));
        let v6 = Packets { ipv6: true, ..V4 };
        assert!(near(share(v6.tcp(TIMESTAMPS)), 92.85));
        assert!(near(share(v6.udp(1452)), 94.41));
        let jumbo = Packets { mtu: 9000, ..V4 };
        assert!(near(share(jumbo.tcp(TIMESTAMPS)), 99.00));
        assert!(near(share(jumbo.tcp(0)), 99.14));
        assert_eq!(Packets { tags: 1, ..V4 }.tcp(0).unwrap().wire, 1542);
        assert_eq!(Packets { tags: 2, ..V4 }.tcp(0).unwrap().wire, 1546);
    }

    /// 322.7 MB over loopback took 330.2 MB of UDP payload in datagrams of 1452 bytes, acknowledgements among them: 0.9774.
    #[test]
    fn a_seal_and_two_headers_take_their_part_of_a_packet() {
        let load = V4.quic(1452).unwrap();
        assert_eq!(load, Load { payload: 1419, wire: 1518 });
        assert!((load.payload as f64 / 1452.0 - 0.9774).abs() < 0.0005);
        assert_eq!(Packets { ipv6: true, ..V4 }.quic(1200), Some(Load { payload: 1167, wire: 1286 }));
        assert_eq!(V4.quic(33), None);
        for (message, records) in [(1, 1), (16_384, 1), (16_385, 2)] {
            assert!((in_records(message) * (message + 22 * records) as f64 / message as f64 - 1.0).abs() < 1e-12);
        }
    }

    /// The most 64-byte frames of a gigabit are 1 488 095 per second; such a frame has room for 18 bytes of UDP over IPv4.
    #[test]
    fn short_frames_are_padded() {
        for message in [1, 18] {
            let load = V4.udp(message).unwrap();
            assert_eq!(load.wire, 84);
            assert!((load.at(1e9) / 8.0 / message as f64 - 1_488_095.0).abs() < 1.0);
        }
        assert_eq!(V4.udp(19).unwrap().wire, 85);
        assert_eq!(Packets { tags: 1, ..V4 }.udp(14).unwrap().wire, 84);
        assert_eq!(Packets { tags: 1, ..V4 }.udp(15).unwrap().wire, 85);
    }

    /// Each fragment is added up by itself.
    #[test]
    fn long_messages_leave_in_fragments() {
        let fragments = |packets: Packets, message: u64| {
            let headers = packets.ip() + if packets.ipv6 { 8 } else { 0 };
            let (mut left, mut wire) = (message + 8, 0);
            while left > 0 {
                let room = packets.mtu - headers;
                let here = if left > room { room / 8 * 8 } else { left };
                wire += packets.frame(headers + here);
                left -= here;
            }
            wire
        };
        for (ipv6, mtu) in [(false, 1500), (true, 1500), (false, 9000), (true, 1280), (false, 577)] {
            let packets = Packets { ipv6, mtu, tags: 0 };
            let largest = packets.largest_message().unwrap();
            for message in (largest + 1..largest + 3000).chain([65_507]) {
                assert_eq!(packets.udp(message).unwrap().wire, fragments(packets, message), "{packets:?} {message}");
            }
            assert_eq!(packets.udp(largest).unwrap().wire, packets.frame(mtu));
        }
    }

    #[test]
    fn an_mtu_without_room_has_no_load() {
        let small = |mtu| Packets { mtu, ..V4 };
        assert_eq!((small(40).tcp(0), small(41).tcp(0).map(|load| load.payload)), (None, Some(1)));
        assert_eq!((small(28).largest_message(), small(27).udp(100)), (None, None));
    }
}
