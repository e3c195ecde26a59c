//! The number of data threads, and the limits of a thread that serves several flows.

use super::{
    Direction, Side, TestSpec, Transport,
    key::{self, Unsupported, refuse_if},
};

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

pub(super) fn check(spec: &TestSpec) -> Result<(), Unsupported> {
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
