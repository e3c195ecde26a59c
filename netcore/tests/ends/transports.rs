//! Every transport that has connections, as far as this machine's kernel has it.

use netcore::{
    end::EndError,
    report::Ending,
    spec::{Direction, Io, Pattern, Stop, TestSpec, Transport},
};

use crate::pair::{V4, connect, finish, lasting, run, start, sum};

/// Runs the test, or says why this kernel cannot.
fn try_run(spec: &TestSpec) -> Option<(netcore::report::SideReport, netcore::report::SideReport)> {
    match connect(spec, V4) {
        Ok(ends) => Some(finish(start(ends))),
        Err(EndError::System { what, source }) if spec.transport != Transport::UnixStream => {
            eprintln!("skipped: {what}: {source}");
            assert!(what.contains("modprobe") || what.contains("sysctl"), "{what}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn streams_arrive_whole_in_both_directions() {
    for transport in
        [Transport::UnixStream, Transport::UnixSeqpacket, Transport::Mptcp, Transport::Sctp, Transport::Vsock]
    {
        for direction in [Direction::Forward, Direction::Reverse, Direction::Bidirectional] {
            let mut spec = lasting(Pattern::Stream, transport, 50);
            (spec.direction, spec.streams, spec.integrity) = (direction, 2, true);
            (spec.sizes.message_bytes, spec.sizes.receive_bytes) = (30_000, 40_000);
            let Some((near, far)) = try_run(&spec) else { break };
            assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete));
            for (a, b) in near.totals.iter().zip(&far.totals) {
                assert_eq!(a.counts.bytes_sent, b.counts.bytes_received, "{transport:?}");
                assert_eq!(a.counts.bytes_received, b.counts.bytes_sent, "{transport:?}");
                assert!(a.counts.bytes_sent + a.counts.bytes_received > 0, "{transport:?}");
            }
        }
    }
}

#[test]
fn requests_are_answered() {
    for transport in
        [Transport::UnixStream, Transport::UnixSeqpacket, Transport::Mptcp, Transport::Sctp, Transport::Vsock]
    {
        for inflight in [1, 8] {
            let mut spec = lasting(Pattern::RequestResponse, transport, 0);
            (spec.inflight, spec.phases.stop) = (inflight, Stop::AfterTransactions(300));
            (spec.sizes.request_bytes, spec.sizes.response_bytes) = (100, 2000);
            let Some((near, far)) = try_run(&spec) else { break };
            assert_eq!((&near.ending, &far.ending), (&Ending::Complete, &Ending::Complete), "{transport:?}");
            assert_eq!(sum(&near.totals).transactions, 300);
            assert_eq!(sum(&far.totals).transactions, 300);
        }
    }
}

#[test]
fn a_unix_socket_leaves_nothing_behind() {
    let spec = lasting(Pattern::Stream, Transport::UnixStream, 20);
    let (near, far) = connect(&spec, V4).unwrap();
    let path = far.endpoints().paths[0].clone();
    assert!(path.exists());
    let _ = finish(start((near, far)));
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn sendfile_and_nonblocking_over_unix_sockets() {
    for io in [Io::Sendfile, Io::Nonblocking, Io::Spin] {
        let mut spec = lasting(Pattern::Stream, Transport::UnixStream, 30);
        (spec.io, spec.integrity) = (io, true);
        let (near, far) = run(&spec, V4);
        assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
    }
}
