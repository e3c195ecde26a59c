//! The network interface that carries a test's packets, and the properties that its driver reports.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::{kernel::line, netlink};
use crate::{
    report::{NicFacts, WireFacts},
    spec::{Direction, Pattern, Side, TestSpec, Transport},
};

/// A command of `linux/ethtool.h`.
#[derive(Clone, Copy)]
struct Command {
    number: u32,
    /// Room for its structure, bytes: the driver writes no more.
    room: usize,
}

impl Command {
    const fn new(number: u32, room: usize) -> Self {
        Self { number, room }
    }
}

const GSET: Command = Command::new(0x01, 44);
const GDRVINFO: Command = Command::new(0x03, 196);
const GCOALESCE: Command = Command::new(0x0e, 92);
const GRINGPARAM: Command = Command::new(0x10, 36);
/// The kernel writes as many counters as the driver has by then, whatever number is asked for. Queues may be added to the card
/// at that moment, so there is room for four times as many as are accepted.
const GSTRINGS: Command = Command::new(0x1b, 12 + 4 * MOST_STATS * NAME_LENGTH);
const GSTATS: Command = Command::new(0x1d, 8 + 4 * MOST_STATS * size_of::<u64>());
const GFLAGS: Command = Command::new(0x25, 8);
/// Offloads that have a command of their own.
const OFFLOADS: [(&str, Command); 6] = [
    ("generic_receive_offload", Command::new(0x2b, 8)),
    ("generic_segmentation_offload", Command::new(0x23, 8)),
    ("rx_checksum", Command::new(0x14, 8)),
    ("scatter_gather", Command::new(0x18, 8)),
    ("tcp_segmentation_offload", Command::new(0x1e, 8)),
    ("tx_checksum", Command::new(0x16, 8)),
];
/// Bit of large receive offload in the answer to GFLAGS.
const FLAG_LRO: u32 = 1 << 15;
/// Set of names: the driver's statistics.
const SS_STATS: u32 = 1;
const NAME_LENGTH: usize = 32;
/// Drivers with more counters than this are not asked.
const MOST_STATS: usize = 8192;
/// Drivers of virtual machines: the speed is a constant of the driver, or a word of the hypervisor.
const EMULATED: [&str; 4] = ["virtio_net", "vmxnet3", "hv_netvsc", "vif"];
/// Vendors of emulated cards: QEMU, VMware and Hyper-V.
const EMULATED_CARDS: [&str; 3] = ["0x1af4", "0x15ad", "0x1414"];

impl NicFacts {
    /// The interface that routes to `peer` in the calling thread's network namespace, as `ip route get` prints it.
    /// `None`: there is no route.
    pub fn towards(peer: IpAddr) -> Option<Self> {
        let index = netlink::interface_towards(peer).ok()?;
        let link = netlink::links(Some(index)).ok()?.into_iter().next()?;
        Some(Self::of(&link))
    }

    /// The interface that routes to `peer`, and the kinds of all its queueing disciplines.
    pub fn qdiscs_towards(peer: IpAddr) -> Option<(String, Vec<String>)> {
        let index = netlink::interface_towards(peer).ok()?;
        let link = netlink::links(Some(index)).ok()?.into_iter().next()?;
        Some((link.name, netlink::qdiscs(index).ok()?))
    }

    pub fn named(name: &str) -> Option<Self> {
        netlink::links(None).ok()?.into_iter().find(|l| l.name == name).map(|link| Self::of(&link))
    }

    fn of(link: &netlink::Link) -> Self {
        let mut facts = Self::plain(link);
        // Most virtual interfaces have no speed, or one that means nothing (veth: 10 Gbit/s).
        facts.wire = facts.speed_mbit_per_s.and_then(|mbit_per_s| {
            let links = netlink::links(None).unwrap_or_default();
            let is_hardware = |link: &netlink::Link| Self::plain(link).is_hardware();
            Some(WireFacts { mbit_per_s, vlan_tags: vlan_tags(link, &links, &is_hardware, DEEPEST)? })
        });
        facts
    }

    /// Whether it is a card, as far as its machine knows.
    fn is_hardware(&self) -> bool {
        let among = |list: &[&str], fact: &Option<String>| fact.as_deref().is_some_and(|fact| list.contains(&fact));
        self.kind.is_none()
            && self.bus.is_some()
            && !among(&EMULATED, &self.driver)
            && !among(&EMULATED_CARDS, &self.pci_subvendor)
    }

    fn plain(link: &netlink::Link) -> Self {
        let mut facts = Self {
            kind: link.kind.clone(),
            mtu_bytes: link.mtu_bytes,
            qdisc: link.qdisc.clone(),
            rx_queues: link.rx_queues,
            tx_queues: link.tx_queues,
            name: link.name.clone(),
            ..Self::default()
        };
        if let Ok(ethtool) = Ethtool::open(&facts.name) {
            ethtool.fill(&mut facts);
        }
        if let Some(bus) = &facts.bus {
            let pci = |name: &str| line(format!("/sys/bus/pci/devices/{bus}/{name}"));
            facts.pci_vendor = pci("vendor");
            facts.pci_device = pci("device");
            facts.pci_subvendor = pci("subsystem_vendor");
            facts.pci_subdevice = pci("subsystem_device");
            facts.pci_link = match (pci("current_link_speed"), pci("current_link_width")) {
                (Some(speed), Some(width)) => Some(format!("{speed} x{width}")),
                _ => None,
            };
            // -1 means none.
            facts.numa_node = pci("numa_node").and_then(|n| n.parse().ok());
        }
        facts
    }
}

/// Interfaces on top of each other that are looked through.
const DEEPEST: u32 = 4;

/// VLAN tags of the frames of an interface; `None`: there is something else than hardware at the bottom.
fn vlan_tags(
    link: &netlink::Link,
    all: &[netlink::Link],
    is_hardware: &dyn Fn(&netlink::Link) -> bool,
    depth: u32,
) -> Option<u32> {
    let below = |link: &netlink::Link| vlan_tags(link, all, is_hardware, depth.checked_sub(1)?);
    let lower = || below(all.iter().find(|other| Some(other.index) == link.lower)?);
    match link.kind.as_deref() {
        None => is_hardware(link).then_some(0),
        Some("vlan") => Some(lower()? + 1),
        Some("macvlan" | "macvtap" | "ipvlan") => lower(),
        Some("bond" | "team") => {
            let ports = all.iter().filter(|other| other.master == Some(link.index));
            ports.map(below).reduce(|a, b| Some(a?.max(b?))).flatten()
        }
        Some(_) => None,
    }
}

/// The driver's own counters by name, as `ethtool -S` shows them; empty where it has none.
pub fn driver_counters(name: &str) -> BTreeMap<String, u64> {
    Ethtool::open(name).ok().and_then(|e| e.counters()).unwrap_or_default()
}

/// Bus address of an interface's hardware; `None` for a virtual one.
pub(super) fn bus(name: &str) -> Option<String> {
    let mut facts = NicFacts::default();
    Ethtool::open(name).ok()?.fill_driver(&mut facts);
    facts.bus
}

/// An interface, and a socket to ask its driver by.
struct Ethtool {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Ethtool {
    fn open(interface: &str) -> io::Result<Self> {
        if interface.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            // Signed or not, by architecture.
            *to = libc::c_char::from_ne_bytes([from]);
        }
        Ok(Self { socket: socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?, name })
    }

    /// Sends a command. `words`: the 32-bit words behind its number.
    #[expect(unsafe_code, reason = "how much a command writes is known here only")]
    fn ask(&self, command: Command, words: &[u32]) -> io::Result<Answer> {
        let mut block = vec![0_u8; command.room];
        for (to, word) in block.as_chunks_mut::<4>().0.iter_mut().zip([command.number].iter().chain(words)) {
            *to = word.to_ne_bytes();
        }
        let mut request = libc::ifreq {
            ifr_name: self.name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: block.as_mut_ptr().cast() },
        };
        // SAFETY: SIOCETHTOOL reads an `ifreq` whose data pointer leads to the structure of the command in its first word, and
        // writes that structure. `block` has the command's room. Both live until the call returns, and the kernel keeps no
        // pointer.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Answer(block))
    }

    fn fill_driver(&self, facts: &mut NicFacts) {
        if let Ok(info) = self.ask(GDRVINFO, &[]) {
            facts.driver = info.text(4);
            facts.driver_version = info.text(36);
            facts.firmware = info.text(68).filter(|f| f != "N/A");
            facts.bus = info.text(100).filter(|b| b != "N/A");
        }
    }

    fn fill(&self, facts: &mut NicFacts) {
        self.fill_driver(facts);
        if let Ok(link) = self.ask(GSET, &[]) {
            let speed = u32::from(link.u16(12)) | (u32::from(link.u16(28)) << 16);
            // A link that is down, or has no speed, answers 0 or all ones (the lower half alone on old drivers).
            facts.speed_mbit_per_s = Some(speed).filter(|s| ![0, 0xffff, u32::MAX].contains(s));
            facts.duplex = match link.0[14] {
                0 => Some("half".to_owned()),
                1 => Some("full".to_owned()),
                _ => None,
            };
        }
        if let Ok(rings) = self.ask(GRINGPARAM, &[]) {
            (facts.rx_ring, facts.tx_ring) = (Some(rings.u32(20)), Some(rings.u32(32)));
        }
        if let Ok(delay) = self.ask(GCOALESCE, &[]) {
            (facts.rx_coalesce_us, facts.tx_coalesce_us) = (Some(delay.u32(4)), Some(delay.u32(20)));
        }
        for (name, command) in OFFLOADS {
            if let Ok(answer) = self.ask(command, &[]) {
                facts.offloads.insert(name.to_owned(), answer.u32(4) != 0);
            }
        }
        if let Ok(flags) = self.ask(GFLAGS, &[]) {
            facts.offloads.insert("large_receive_offload".to_owned(), flags.u32(4) & FLAG_LRO != 0);
        }
    }

    fn counters(&self) -> Option<BTreeMap<String, u64>> {
        let count = self.ask(GDRVINFO, &[]).ok()?.u32(180) as usize;
        if count == 0 || count > MOST_STATS {
            return None;
        }
        let asked = u32::try_from(count).ok()?;
        let names = self.ask(GSTRINGS, &[SS_STATS, asked]).ok()?;
        let values = self.ask(GSTATS, &[asked]).ok()?;
        if names.u32(8) as usize != count || values.u32(4) as usize != count {
            return None;
        }
        Some((0..count).filter_map(|i| Some((names.text(12 + i * NAME_LENGTH)?, values.u64(8 + i * 8)))).collect())
    }
}

/// The answer: the bytes of the command's structure. Offsets are those of `linux/ethtool.h` and lie within it.
struct Answer(Vec<u8>);

impl Answer {
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[offset..offset + N]);
        bytes
    }

    fn u16(&self, offset: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(offset))
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(offset))
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(offset))
    }

    fn text(&self, offset: usize) -> Option<String> {
        let field = &self.0[offset..offset + NAME_LENGTH];
        let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
        let text = std::str::from_utf8(&field[..end]).ok()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// Header of UDP, UDP-Lite or an ICMP echo, bytes.
const HEADER: u64 = 8;

/// The note on messages that leave in several fragments, if this end's messages to `peer` exceed the MTU of the interface that
/// routes there: such a test measures the network's handling of fragments.
pub fn fragments_note(spec: &TestSpec, side: Side, peer: IpAddr, nic: &NicFacts) -> Option<String> {
    let mtu = u64::from(nic.mtu_bytes?);
    let (key, bytes) = sent(spec, side)?;
    let fragments = fragments(bytes, mtu, peer)?;
    let fits = mtu.checked_sub(ip_header(peer) + HEADER)?;
    Some(format!(
        "each {key} of {bytes} bytes leaves {} in {fragments} fragments, and is lost with any of them: its MTU of {mtu} bytes has \
         room for {fits}",
        nic.name
    ))
}

/// Key in a plan, and size in bytes, of the IP datagrams that this end sends.
fn sent(spec: &TestSpec, side: Side) -> Option<(&'static str, u64)> {
    if !matches!(spec.transport, Transport::Udp | Transport::UdpLite | Transport::Icmp) {
        return None;
    }
    let sizes = &spec.sizes;
    match (spec.pattern, side) {
        (Pattern::RequestResponse, Side::Near) => Some(("request_size", sizes.request_bytes)),
        (Pattern::RequestResponse, Side::Far) => Some(("response_size", sizes.response_bytes)),
        (Pattern::Stream, Side::Near) if spec.direction == Direction::Reverse => None,
        (Pattern::Stream, Side::Far) if spec.direction == Direction::Forward => None,
        _ => Some(("message_size", sizes.message_bytes)),
    }
}

/// Number of fragments of a message; `None` if it fits one packet. Each but the last has a multiple of 8 bytes (RFC
/// 791, section 3.2; RFC 8200, section 4.5, with 8 bytes for the fragment header).
fn fragments(bytes: u64, mtu: u64, peer: IpAddr) -> Option<u64> {
    let room = mtu.checked_sub(ip_header(peer))?;
    let own_header = if peer.is_ipv4() { 0 } else { 8 };
    let each = room.checked_sub(own_header)? / 8 * 8;
    (bytes + HEADER > room && each > 0).then(|| (bytes + HEADER).div_ceil(each))
}

fn ip_header(peer: IpAddr) -> u64 {
    if peer.is_ipv4() { 20 } else { 40 }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, process};

    use super::*;

    #[test]
    fn loopback_traffic_uses_lo_which_has_no_hardware() {
        let lo = NicFacts::towards("127.0.0.1".parse().unwrap()).unwrap();
        assert_eq!(lo.name, "lo");
        assert_eq!(lo.mtu_bytes.unwrap().to_string(), line("/sys/class/net/lo/mtu").unwrap());
        assert_eq!((&lo.bus, &lo.pci_vendor, lo.speed_mbit_per_s), (&None, &None, None));
        assert!(lo.offloads["tcp_segmentation_offload"]);
        assert_eq!(NicFacts::named("lo"), Some(lo));
        assert_eq!(NicFacts::named("no-such-nic"), None);
        assert!(driver_counters("a-name-that-is-too-long-for-one").is_empty());
    }

    #[test]
    fn a_wire_is_hardware_below_tags_and_bonds() {
        let link = |index, name: &str, kind: Option<&str>, lower, master| netlink::Link {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            lower,
            master,
            ..netlink::Link::default()
        };
        let all = [
            link(1, "eth0", None, None, Some(3)),
            link(2, "eth1", None, None, Some(3)),
            link(3, "bond0", Some("bond"), None, None),
            link(4, "bond0.7", Some("vlan"), Some(3), None),
            link(5, "q", Some("vlan"), Some(4), None),
            link(6, "m", Some("macvlan"), Some(5), None),
            // The number of a veth's peer means an interface of another namespace.
            link(7, "v", Some("veth"), Some(1), None),
            link(8, "v.7", Some("vlan"), Some(7), None),
            link(9, "empty", Some("bond"), None, None),
            link(10, "loop", Some("vlan"), Some(10), None),
            link(11, "elsewhere", Some("macvlan"), Some(99), None),
            link(12, "mixed", Some("bond"), None, None),
            link(13, "eth2", None, None, Some(12)),
            link(14, "v2", Some("veth"), None, Some(12)),
            link(15, "virtual0", None, None, None),
        ];
        let tags = |name: &str| {
            let link = all.iter().find(|link| link.name == name).unwrap();
            vlan_tags(link, &all, &|link| link.name.starts_with("eth"), DEEPEST)
        };
        assert_eq!(["eth0", "bond0", "bond0.7", "q", "m"].map(tags), [Some(0), Some(0), Some(1), Some(2), Some(2)]);
        for name in ["v", "v.7", "empty", "loop", "elsewhere", "mixed", "virtual0"] {
            assert_eq!(tags(name), None, "{name}");
        }
        let card = |driver: &str, subvendor: &str| NicFacts {
            driver: Some(driver.to_owned()),
            bus: Some("0000:01:00.0".to_owned()),
            pci_subvendor: Some(subvendor.to_owned()),
            ..NicFacts::default()
        };
        assert!(card("mlx5_core", "0x15b3").is_hardware());
        assert!(!card("virtio_net", "0x1af4").is_hardware() && !card("e1000", "0x1af4").is_hardware());
        assert!(!NicFacts { kind: Some("veth".to_owned()), ..card("veth", "0x0") }.is_hardware());
        assert!(!NicFacts { bus: None, ..card("dummy", "0x0") }.is_hardware());
    }

    #[test]
    fn an_own_address_is_reached_over_lo_whatever_interface_bears_it() {
        // A documentation address: connecting a datagram socket sends nothing.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("192.0.2.1:9").is_err() {
            return crate::needs::skip("this machine has no default route");
        }
        let own = socket.local_addr().unwrap().ip();
        assert_eq!(NicFacts::towards(own).unwrap().name, "lo");
        let outward = NicFacts::towards("192.0.2.1".parse().unwrap()).unwrap();
        assert_ne!(outward.name, "lo");
        assert_eq!(
            outward.mtu_bytes.unwrap().to_string(),
            line(format!("/sys/class/net/{}/mtu", outward.name)).unwrap()
        );
        let device = format!("/sys/class/net/{}/device", outward.name);
        if std::path::Path::new(&device).exists() {
            let driver = std::fs::read_link(format!("{device}/driver")).unwrap();
            assert_eq!(outward.driver.as_deref(), driver.file_name().and_then(|n| n.to_str()));
        }
    }

    #[test]
    fn ethtool_the_program_agrees() {
        let Ok(links) = netlink::links(None) else { return };
        if !crate::needs::has_program("ethtool", "ethtool") {
            return;
        }
        let mut compared = 0;
        for name in links.iter().map(|l| l.name.as_str()) {
            let output = process::Command::new("ethtool").args(["-S", name]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let theirs: Vec<&str> =
                text.lines().skip(1).filter_map(|l| l.trim().rsplit_once(": ")).map(|(name, _)| name).collect();
            let ours = driver_counters(name);
            if output.status.success() {
                for key in &theirs {
                    assert!(ours.contains_key(*key), "{name}: ethtool -S has {key}, we have {ours:?}");
                }
                compared += theirs.len();
            }
        }
        println!("{compared} counters compared");
    }

    const V4: &str = "192.0.2.1";
    const V6: &str = "2001:db8::1";

    #[test]
    fn a_message_is_cut_into_multiples_of_eight_bytes() {
        for (bytes, mtu, peer, expected) in [
            (1472, 1500, V4, None),
            (1473, 1500, V4, Some(2)),
            (1472, 1500, V6, Some(2)),
            (1452, 1500, V6, None),
            (2952, 1500, V4, Some(2)),
            (2953, 1500, V4, Some(3)),
            // 1481 bytes have room for as much as 1480 in a fragment.
            (2953, 1501, V4, Some(3)),
            (2888, 1500, V6, Some(2)),
            (2889, 1500, V6, Some(3)),
            (65_507, 65_536, V4, None),
        ] {
            assert_eq!(fragments(bytes, mtu, peer.parse().unwrap()), expected, "{bytes} over {mtu} to {peer}");
        }
    }

    #[test]
    fn only_who_sends_datagrams_of_ip_says_it() {
        let nic = NicFacts { name: "eth7".to_owned(), mtu_bytes: Some(1500), ..NicFacts::default() };
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        spec.sizes.message_bytes = 1472;
        let said = |spec: &TestSpec, side, peer: &str| {
            fragments_note(spec, side, peer.parse().unwrap(), &nic).unwrap_or_default()
        };
        assert_eq!(said(&spec, Side::Near, V4), "");
        let note = said(&spec, Side::Near, V6);
        assert!(
            note.contains("message_size of 1472 bytes leaves eth7 in 2 fragments") && note.ends_with("1452"),
            "{note}"
        );
        assert_eq!(said(&spec, Side::Far, V6), "");
        spec.direction = Direction::Bidirectional;
        assert!(!said(&spec, Side::Far, V6).is_empty());
        let mut requests = TestSpec::new(Pattern::RequestResponse, Transport::Udp);
        (requests.sizes.request_bytes, requests.sizes.response_bytes) = (1, 2000);
        assert_eq!(said(&requests, Side::Near, V4), "");
        assert!(said(&requests, Side::Far, V4).contains("response_size of 2000 bytes"));
        spec.transport = Transport::UnixDatagram;
        assert_eq!(said(&spec, Side::Near, V6), "");
    }
}
