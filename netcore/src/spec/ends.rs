//! Options of one end: sockets, buffers, CPUs, addresses and ports; the number of its data threads, and the limits of a thread
//! that serves several flows.

use std::{collections::BTreeSet, fmt, net::IpAddr, path::PathBuf, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de};

use super::{
    Direction, Side, TestSpec, Transport,
    key::{self, Unsupported, refuse_if},
    quantity::{bytes, optional_bytes},
    socket::SocketOptions,
};

/// Buffers of the data threads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BufferOptions {
    /// Buffers used in turn (netperf -W); 1 keeps one warm buffer, or one for each datagram of a call.
    #[serde(deserialize_with = "ring")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>", range(min = 1)))]
    pub ring: u32,
    /// Alignment, a power of two (netperf -a); 4096, or for streams of datagrams: one after the other.
    #[serde(deserialize_with = "optional_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub alignment: Option<u64>,
    /// Offset from the alignment (netperf -o).
    #[serde(deserialize_with = "bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub offset: u64,
    /// Bytes written before each send and after each receive, after the engine's own stamp (netperf -k).
    #[serde(deserialize_with = "bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub dirty: u64,
    /// Bytes read after those (netperf -k).
    #[serde(deserialize_with = "bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<super::Bytes>"))]
    pub clean: u64,
    /// A file whose bytes are sent (netperf -F).
    pub fill_file: Option<PathBuf>,
}

/// Null is the default, 1.
fn ring<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Option::deserialize(deserializer).map(|ring| ring.unwrap_or(1))
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self { ring: 1, alignment: None, offset: 0, dirty: 0, clean: 0, fill_file: None }
    }
}

/// CPU numbers in ascending order. Plans also write `3`, `"0,2"` and `[0, "2-5"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Cpus(pub Vec<u32>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a CPU list: write 3, 0,2 or 2-5")]
pub struct CpusError(pub String);

impl FromStr for Cpus {
    type Err = CpusError;

    fn from_str(text: &str) -> Result<Self, CpusError> {
        let wrong = || CpusError(text.to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (low, high) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let low: u32 = low.trim().parse().map_err(|_| wrong())?;
            let high: u32 = high.trim().parse().map_err(|_| wrong())?;
            // glibc's CPU_SETSIZE.
            if low > high || high >= 1024 {
                return Err(wrong());
            }
            cpus.extend(low..=high);
        }
        Ok(Self(cpus.into_iter().collect()))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self.0.chunk_by(|cpu, next| *next == cpu + 1).map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            run => run.iter().map(u32::to_string).collect(),
        });
        f.write_str(&runs.collect::<Vec<_>>().join(","))
    }
}

struct CpusVisitor;

impl<'de> de::Visitor<'de> for CpusVisitor {
    type Value = Cpus;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a CPU list such as 3, 0,2 or 2-5")
    }

    fn visit_u64<E: de::Error>(self, cpu: u64) -> Result<Cpus, E> {
        self.visit_str(&cpu.to_string())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Cpus, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Cpus, A::Error> {
        let mut cpus = BTreeSet::new();
        while let Some(part) = parts.next_element::<Cpus>()? {
            cpus.extend(part.0);
        }
        if cpus.is_empty() {
            return Err(de::Error::invalid_length(0, &self));
        }
        Ok(Cpus(cpus.into_iter().collect()))
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CpusVisitor)
    }
}

#[cfg(feature = "schema")]
schemas::published!(Cpus as "Cpus", {
    "description": "CPUs: 3, \"0,2\", \"2-5\" or a list",
    "type": ["integer", "string", "array"],
    "items": {"type": ["integer", "string"]},
    "minimum": 0
});

/// Options of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndSpec {
    pub socket: SocketOptions,
    pub buffers: BufferOptions,
    /// Data thread i is pinned to the i-th CPU of the set, cyclically. `None`: not pinned.
    pub cpus: Option<Cpus>,
    /// Source addresses of the data sockets, cyclically. Empty: the route chooses.
    pub bind: Vec<IpAddr>,
    /// First data port; `None`: the kernel chooses. Flow i uses port + i if each flow needs its own.
    pub port: Option<u16>,
    /// Number of ports, from `port`, that connect tests cycle through; `None`: the kernel chooses.
    pub port_count: Option<u16>,
}

impl EndSpec {
    /// The CPU that the `thread`-th data thread is pinned to, if any.
    pub fn cpu_of(&self, thread: usize) -> Option<u32> {
        let cpus = &self.cpus.as_ref()?.0;
        cpus.get(thread % cpus.len().max(1)).copied()
    }

    /// The port of a flow's own socket; 0: the kernel chooses.
    pub fn port_of(&self, flow: u32) -> u16 {
        // Tests whose range goes beyond the last port are refused.
        self.port.map_or(0, |first| first.saturating_add(u16::try_from(flow).unwrap_or(u16::MAX)))
    }
}

/// After the peer has ended the association, non-blocking receives return EAGAIN for ever (seen on 6.1).
pub(super) const NO_END_OF_SCTP: &str = "over sctp only a blocking call learns that the peer has ended the association";

impl TestSpec {
    /// Whether a thread serves several flows: the test asks for fewer threads than there are loops.
    ///
    /// A library of MPI is called by one thread, which serves all flows.
    pub fn shares_threads(&self) -> bool {
        let threads = if self.transport == Transport::Mpi { Some(1) } else { self.threads };
        threads.is_some_and(|threads| threads < self.loops())
    }

    /// The CPU that the plan pins both a worker and its peer to, where each has a thread of its own. It tells something only
    /// where both ends are on one host.
    pub fn common_cpu(&self, side: Side, worker: usize) -> Option<u32> {
        // A listener of a port serves connections of any flow.
        if self.shares_threads() || self.transport == Transport::Icmp || self.shares_port() {
            return None;
        }
        // Of the two workers of a duplex connection, one sends to the other end's other one.
        let peer = if self.direction == Direction::Duplex { worker ^ 1 } else { worker };
        let there = if side == Side::Near { &self.far } else { &self.near };
        self.end(side).cpu_of(worker).filter(|cpu| there.cpu_of(peer) == Some(*cpu))
    }

    /// Loops at an end: one per flow, two where a connection carries both directions.
    pub(super) fn loops(&self) -> u32 {
        if self.direction == Direction::Duplex { self.flows().saturating_mul(2) } else { self.flows() }
    }
}

pub(super) fn check_threads(spec: &TestSpec) -> Result<(), Unsupported> {
    refuse_if! {
        spec.transport == Transport::Mpi && spec.threads.is_some_and(|threads| threads != 1) => key::threads,
            "the library of a rank is called by one thread: leave `threads` out";
        spec.transport == Transport::Mpi && spec.loops() > 1 && !spec.io.facts().shares_threads => key::io,
            "one thread calls the library of a rank, and with several flows it must not wait for one of them: leave `io` out, \
             or write nonblocking";
    }
    let Some(threads) = spec.threads else { return Ok(()) };
    let (flows, loops, io) = (spec.flows(), spec.loops(), spec.io.name());
    refuse_if! {
        threads == 0 => key::threads, "threads: at least 1";
        threads > loops => key::threads,
            "a flow has at most one thread (duplex: two), so at most {loops} here and not {threads}: leave `threads` \
             out, or raise `streams`";
    }
    if !spec.shares_threads() {
        return Ok(());
    }
    let instead = format!("leave `threads` out, or set it to {loops}");
    refuse_if! {
        threads > flows => key::threads,
            "each connection of a duplex test has two threads ({loops} in all), or shares one: {flows} at most, not \
             {threads}";
        spec.transport == Transport::Pipe => key::threads,
            "calls on a pipe block, and a thread of several flows must not: {instead}";
        spec.transport == Transport::Sctp => key::threads,
            "{NO_END_OF_SCTP}, and a thread of several flows must not block: {instead}";
        !spec.io.facts().shares_threads => key::io,
            "io: {io} needs a thread for each loop, and here {loops} loops share {threads}: leave `io` out, or {instead}";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Io, Pattern, support};

    #[test]
    fn cpu_lists_read_back() {
        for (text, shown) in [("3", "3"), ("0,2", "0,2"), ("2-5", "2-5"), ("5,1-3,2", "1-3,5")] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), shown);
        }
        assert!("5-2".parse::<Cpus>().is_err());
        assert!("".parse::<Cpus>().is_err());
        assert!("0-9999".parse::<Cpus>().is_err());
        let mixed: Cpus = serde_json::from_str(r#"[5, "1-3", 2]"#).unwrap();
        assert_eq!(serde_json::to_string(&mixed).unwrap(), "[1,2,3,5]");
    }

    /// A test of so many streams on so many threads.
    fn on_threads(pattern: Pattern, transport: Transport, streams: u32, threads: u32) -> TestSpec {
        let mut spec = TestSpec::new(pattern, transport);
        (spec.streams, spec.threads) = (streams, Some(threads));
        spec
    }

    #[track_caller]
    fn refused(spec: &TestSpec, key: &str, word: &str) {
        let error = support::check(spec).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert!(error.reason.contains(word), "{error}");
    }

    #[test]
    fn threads_are_shared_where_there_are_fewer_than_loops() {
        for (direction, threads, shares) in [
            (Direction::Forward, 4, false),
            (Direction::Forward, 3, true),
            (Direction::Bidirectional, 8, false),
            (Direction::Bidirectional, 1, true),
            (Direction::Duplex, 8, false),
            (Direction::Duplex, 4, true),
        ] {
            let mut spec = on_threads(Pattern::Stream, Transport::Tcp, 4, threads);
            spec.direction = direction;
            support::check(&spec).unwrap();
            assert_eq!(spec.shares_threads(), shares, "{direction:?} {threads}");
        }
        assert!(!TestSpec::new(Pattern::Stream, Transport::Tcp).shares_threads());
    }

    #[test]
    fn what_threads_cannot_be_has_a_sentence() {
        refused(&on_threads(Pattern::Stream, Transport::Tcp, 4, 0), "threads", "at least 1");
        refused(&on_threads(Pattern::Stream, Transport::Tcp, 4, 5), "threads", "raise `streams`");
        let mut duplex = on_threads(Pattern::Stream, Transport::Tcp, 4, 5);
        duplex.direction = Direction::Duplex;
        refused(&duplex, "threads", "4 at most, not 5");
        refused(&on_threads(Pattern::RequestResponse, Transport::Sctp, 4, 1), "threads", "association");
        refused(&on_threads(Pattern::Stream, Transport::Pipe, 4, 1), "threads", "pipe");
    }

    #[test]
    fn calls_that_keep_a_thread_to_themselves_are_refused_by_name() {
        let mut spec = on_threads(Pattern::Stream, Transport::Tcp, 4, 2);
        for io in [Io::Blocking, Io::Spin, Io::Sendfile] {
            spec.io = io;
            refused(&spec, "io", io.name());
            let alone = TestSpec { threads: Some(4), ..spec.clone() };
            support::check(&alone).unwrap();
        }
        spec.io = Io::Nonblocking;
        support::check(&spec).unwrap();
        let mut datagrams = on_threads(Pattern::Stream, Transport::Udp, 4, 2);
        for io in [Io::Auto, Io::Batch, Io::Nonblocking] {
            datagrams.io = io;
            support::check(&datagrams).unwrap();
        }
        let alone = TestSpec { threads: None, ..datagrams };
        refused(&alone, "io", "nonblocking");
    }
}
