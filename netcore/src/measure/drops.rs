//! Packets that were dropped on this host: by the queueing disciplines of the interface, by the interface, by the queues of
//! received packets (softnet), and by the test's own sockets.
//!
//! The counters are the kernel's, since boot. A place that cannot be looked at is `None`, never zero.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use super::{
    kernel::again,
    netlink::{Netlink, QdiscDrops},
};
use crate::{
    report::{Drops, grown},
    sys::opt,
};

/// Place of the drops among the words of SO_MEMINFO.
const SK_MEMINFO_DROPS: usize = 8;
const WORD: usize = size_of::<u32>();

/// Counters at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropSample {
    qdiscs: Option<Vec<QdiscDrops>>,
    interface: Option<u64>,
    /// A word of the kernel, which wraps, for each CPU.
    softnet: Option<Vec<u32>>,
    /// The same for each socket.
    sockets: Option<Vec<u32>>,
}

impl DropSample {
    /// Growth of the counters between two samples.
    pub fn since(&self, before: &Self) -> Drops {
        let qdiscs = self.qdiscs.as_ref().zip(before.qdiscs.as_ref());
        let of_qdisc = |after: &QdiscDrops, before: &[QdiscDrops]| {
            let same = before.iter().find(|before| before.parent == after.parent);
            same.map_or(u64::from(after.dropped), |before| grown(after.dropped.into(), before.dropped.into()))
        };
        let of_words = |after: &Option<Vec<u32>>, before: &Option<Vec<u32>>| {
            let (after, before) = after.as_ref().zip(before.as_ref())?;
            Some(after.iter().zip(before).map(|(after, before)| grown((*after).into(), (*before).into())).sum())
        };
        let difference = |(after, before): (u64, u64)| after.saturating_sub(before);
        Drops {
            qdisc: qdiscs.map(|(after, before)| after.iter().map(|one| of_qdisc(one, before)).sum()),
            interface: self.interface.zip(before.interface).map(difference),
            softnet: of_words(&self.softnet, &before.softnet),
            socket: of_words(&self.sockets, &before.sockets),
        }
    }
}

/// Reads the counters repeatedly, through open descriptors. It belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct DropReader {
    netlink: Option<Netlink>,
    /// Index of the route's interface.
    interface: Option<u32>,
    softnet: Option<File>,
    sockets: Vec<Arc<OwnedFd>>,
    buffer: Vec<u8>,
}

impl DropReader {
    /// `interface`: the name of the one that the route uses; `sockets`: those of this end's flows. `has_interface`: whether
    /// the transport uses one at all.
    pub fn open(interface: Option<&str>, has_interface: bool, sockets: Vec<Arc<OwnedFd>>) -> Self {
        let index = interface.and_then(|name| nix::net::if_::if_nametoindex(name).ok());
        Self {
            netlink: index.and_then(|_| Netlink::open().ok()),
            interface: index,
            softnet: has_interface.then(|| File::open("/proc/thread-self/net/softnet_stat").ok()).flatten(),
            sockets,
            buffer: Vec::new(),
        }
    }

    /// Whether the flows have sockets.
    pub fn has_sockets(&self) -> bool {
        !self.sockets.is_empty()
    }

    pub fn read(&mut self) -> DropSample {
        let link = self.netlink.as_mut().zip(self.interface);
        let (qdiscs, interface) = link.map_or((None, None), |(netlink, index)| {
            let links = netlink.links(Some(index));
            (netlink.qdisc_drops(index).ok(), links.ok().and_then(|links| links.first()?.dropped))
        });
        let sockets: Option<Vec<u32>> = self.sockets.iter().map(socket_drops).collect();
        DropSample {
            qdiscs,
            interface,
            softnet: self.softnet.as_ref().and_then(|file| softnet_drops(again(file, &mut self.buffer)?)),
            sockets: sockets.filter(|sockets| !sockets.is_empty()),
        }
    }
}

/// Packets that a socket dropped because its buffer was full, and other packets that it was given and could not use.
fn socket_drops(socket: &impl AsFd) -> Option<u32> {
    let mut words = [0; (SK_MEMINFO_DROPS + 1) * WORD];
    // Kernels before 4.12 lack the option.
    let length = opt::get(socket, opt::SO_MEMINFO, &mut words).ok()?;
    let word = words[..length].get(SK_MEMINFO_DROPS * WORD..)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// The second column of `softnet_stat`: a line of hexadecimal words for each CPU.
fn softnet_drops(text: &str) -> Option<Vec<u32>> {
    let dropped = text.lines().map(|line| u32::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok());
    dropped.collect::<Option<Vec<u32>>>().filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::AsFd as _};

    use super::{
        super::namespace::{inside, run},
        *,
    };

    #[test]
    fn a_receivers_full_buffer_drops_what_the_kernel_lists() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (socket, port) =
            (Arc::new(OwnedFd::from(receiver.try_clone().unwrap())), receiver.local_addr().unwrap().port());
        opt::set_int(&socket, opt::SO_RCVBUF, 4096).unwrap();
        let mut reader = DropReader::open(Some("lo"), true, vec![socket.clone()]);
        let before = reader.read();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..1000 {
            sender.send_to(&[0; 500], ("127.0.0.1", port)).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let arrived = std::iter::from_fn(|| receiver.recv(&mut [0; 500]).ok()).count() as u64;
        let since = reader.read().since(&before);
        assert_eq!(since.socket, Some(1000 - arrived), "{since:?}");
        assert!(arrived < 100, "{arrived}");
        // The last column of the socket's line, whose second has the port in hexadecimal digits.
        let table = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let line = table.lines().find(|line| line.contains(&format!(":{port:04X} 00000000:0000"))).unwrap();
        assert_eq!(line.split_whitespace().last().unwrap().parse(), Ok(1000 - arrived));
        assert!(since.interface.is_some() && since.softnet.is_some() && since.qdisc.is_some(), "{since:?}");
        // A pipe has no memory to ask about.
        let (pipe, _other) = nix::unistd::pipe().unwrap();
        assert_eq!(socket_drops(&pipe.as_fd()), None);
        assert_eq!(DropReader::open(None, false, Vec::new()).read(), DropSample::default());
    }

    /// Drops of the queueing disciplines that an interface itself has, by `tc`.
    fn by_tc(interface: &str) -> u64 {
        let list: serde_json::Value =
            serde_json::from_str(&run(&format!("tc -s -j qdisc show dev {interface}"))).unwrap();
        let own = list.as_array().unwrap().iter().filter(|one| one["root"] == true || one["parent"] == "ffff:fff1");
        own.map(|one| one["drops"].as_u64().unwrap()).sum()
    }

    #[test]
    fn queueing_disciplines_drop_what_tc_lists() {
        inside(|| {
            for line in [
                "ip link add name v0 numtxqueues 2 type veth peer name v1",
                "ip addr add 10.98.0.1/24 dev v0",
                "ip link set v0 up",
                "ip link set v1 up",
                "ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:02 dev v0",
            ] {
                run(line);
            }
            let sender = UdpSocket::bind("10.98.0.1:0").unwrap();
            let mut reader = DropReader::open(Some("v0"), true, Vec::new());
            let tbf = "tbf rate 1mbit burst 3kb limit 6kb";
            let trees: [&[String]; 4] = [
                &[format!("root {tbf}")],
                &[
                    "root handle 1: htb default 1".into(),
                    "parent 1: classid 1:1 htb rate 1mbit burst 3kb".into(),
                    "parent 1:1 pfifo limit 3".into(),
                ],
                // The root of several queues does not drop by itself.
                &["root handle 1: mq".into(), format!("parent 1:1 {tbf}"), format!("parent 1:2 {tbf}")],
                &["clsact".into()],
            ];
            for tree in trees {
                let before = reader.read();
                for part in tree {
                    let object = if part.contains("classid") { "class" } else { "qdisc" };
                    run(&format!("tc {object} add dev v0 {part}"));
                }
                for _ in 0..50 {
                    // A full queue may be reported as an error.
                    let _ = sender.send_to(&[0; 1000], "10.98.0.2:9");
                }
                let (tc, now) = (by_tc("v0"), reader.read());
                assert_eq!(now.since(&before).qdisc, Some(tc), "{tree:?}");
                assert_eq!(tc > 0, tree[0] != "clsact", "{tree:?}: {tc}");
                let _ = sender.send_to(&[0; 1000], "10.98.0.2:9");
                assert_eq!(reader.read().since(&now).qdisc, Some(by_tc("v0") - tc), "{tree:?}");
                run(&format!("tc qdisc del dev v0 {}", if tc > 0 { "root" } else { "clsact" }));
            }
        });
    }

    #[test]
    fn an_interface_drops_what_its_list_says() {
        inside(|| {
            run("ip link add name v0 type veth peer name v1");
            run("ip addr add 10.98.0.1/24 dev v0");
            run("ip link set v0 up");
            run("ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent");
            let mut reader = DropReader::open(Some("v0"), true, Vec::new());
            let before = reader.read();
            let sender = UdpSocket::bind("10.98.0.1:0").unwrap();
            for _ in 0..50 {
                let _ = sender.send_to(&[0; 100], "10.98.0.2:9");
            }
            let dropped = reader.read().since(&before).interface.unwrap();
            let list: serde_json::Value = serde_json::from_str(&run("ip -s -s -j link show v0")).unwrap();
            let of = |way: &str| &list[0]["stats64"][way];
            let theirs = [
                &of("tx")["dropped"],
                &of("tx")["fifo_errors"],
                &of("rx")["dropped"],
                &of("rx")["missed_errors"],
                &of("rx")["over_errors"],
                &of("rx")["fifo_errors"],
            ];
            let theirs: u64 = theirs.iter().filter_map(|count| count.as_u64()).sum();
            assert_eq!(dropped, theirs, "{list}");
        });
    }

    #[test]
    fn softnet_has_a_word_of_each_cpu() {
        let text = "20f032fa 00000001 0000002f 00000000\n154a45a4 000000ff 0000001a 00000000\n";
        assert_eq!(softnet_drops(text), Some(vec![1, 255]));
        assert_eq!(softnet_drops(""), None, "a file that is masked says nothing");
        assert_eq!(softnet_drops("1\n"), None);
        let mut buffer = Vec::new();
        let all = || {
            let text = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
            text.lines().map(|line| u64::from_str_radix(&line[9..17], 16).unwrap()).sum::<u64>()
        };
        let (before, file) = (all(), File::open("/proc/thread-self/net/softnet_stat").unwrap());
        let ours = softnet_drops(again(&file, &mut buffer).unwrap()).unwrap();
        assert!((before..=all()).contains(&ours.into_iter().map(u64::from).sum::<u64>()));
    }

    #[test]
    fn growth_crosses_the_end_of_a_word_and_a_new_discipline_begins_at_0() {
        assert_eq!(grown(5, 3), 2);
        assert_eq!(grown(1, u32::MAX.into()), 2);
        assert_eq!(grown(7, 100), 7);
        let softnet = |words: &[u32]| DropSample { softnet: Some(words.to_vec()), ..DropSample::default() };
        assert_eq!(
            softnet(&[3, 5]).since(&softnet(&[u32::MAX, 4])).softnet,
            Some(5),
            "each CPU's word wraps by itself"
        );
        let qdiscs = |list: &[(u32, u32)]| DropSample {
            qdiscs: Some(
                list.iter().map(|(parent, dropped)| QdiscDrops { parent: *parent, dropped: *dropped }).collect(),
            ),
            ..DropSample::default()
        };
        assert_eq!(qdiscs(&[(1, 10), (2, 4)]).since(&qdiscs(&[(1, 7)])).qdisc, Some(7));
        assert_eq!(qdiscs(&[]).since(&qdiscs(&[])).qdisc, Some(0), "no discipline drops nothing");
        assert_eq!(DropSample::default().since(&DropSample::default()), Drops::default());
    }
}
