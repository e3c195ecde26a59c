//! Every connection-oriented transport that this machine's kernel offers.

use netcore::{
    error::EndError,
    report::Ending,
    spec::{Bytes, Direction, Io, Pattern, Stop, TestSpec, Transport, quantity::Seconds},
};

use crate::pair::{V4, connect, finish, lasting, run, start, sum};

/// Runs the test; `None`: this kernel cannot.
fn try_run(spec: &TestSpec) -> Option<(netcore::report::SideReport, netcore::report::SideReport)> {
    match connect(spec, V4) {
        Ok(ends) => {
            drop(ends);
            Some(run(spec, V4))
        }
        Err(EndError::System { what, source }) if spec.transport != Transport::UnixStream => {
            crate::needs::skip(&format!("{what}: {source}"));
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
            for (a, b) in near.totals.iter().zip(&far.totals) {
                assert_eq!(a.counts.bytes_sent, b.counts.bytes_received, "{transport:?}");
                assert_eq!(a.counts.bytes_received, b.counts.bytes_sent, "{transport:?}");
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
fn sendfile_and_nonblocking_over_unix_sockets() {
    for io in [Io::Sendfile, Io::Nonblocking, Io::Spin] {
        let mut spec = lasting(Pattern::Stream, Transport::UnixStream, 30);
        (spec.io, spec.integrity) = (io, true);
        let (near, far) = run(&spec, V4);
        assert_eq!(sum(&near.totals).bytes_sent, sum(&far.totals).bytes_received);
    }
}

#[test]
fn accepted_connections_have_the_options_of_their_end() {
    let (tcp, unix, packets) = (Transport::Tcp, Transport::UnixStream, Transport::UnixSeqpacket);
    for (pattern, transport) in [
        (Pattern::Stream, tcp),
        (Pattern::Stream, unix),
        (Pattern::Stream, packets),
        (Pattern::ConnectRequestResponse, tcp),
        (Pattern::ConnectRequestResponse, unix),
    ] {
        let mut spec = lasting(pattern, transport, 30);
        (spec.far.socket.priority, spec.far.socket.send_buffer) = (Some(5), Some(Bytes(50_000)));
        let (_, far) = run(&spec, V4);
        // A Unix socket has no packets, hence no priority.
        let priority = (transport == tcp).then_some(("priority", "5"));
        for (option, value) in priority.into_iter().chain([("send_buffer", "100000")]) {
            let granted = far.options.iter().find(|granted| granted.option == option).unwrap();
            assert_eq!(granted.at_start.as_deref(), Some(value), "{pattern:?} {transport:?} {option}");
        }
    }
}

#[test]
fn a_message_that_does_not_fit_a_unix_socket_says_what_to_ask_for() {
    for transport in [Transport::UnixDatagram, Transport::UnixSeqpacket] {
        let mut spec = lasting(Pattern::Stream, transport, 0);
        spec.phases.stop = Stop::AfterBytes(1_000_000);
        (spec.sizes.message_bytes, spec.sizes.receive_bytes) = (50_000, 50_000);
        spec.near.socket.send_buffer = Some(Bytes(10_000));
        let (near, _) = finish(start(connect(&spec, V4).unwrap()));
        let Ending::Failed(sentence) = near.ending else { panic!("{:?}", near.ending) };
        assert!(sentence.contains("socket.send_buffer"), "{sentence}");
    }
}

#[test]
fn deferred_acceptance_is_reported_by_the_end_that_accepts() {
    let mut spec = lasting(Pattern::ConnectRequestResponse, Transport::Tcp, 30);
    (spec.near.socket.defer_accept, spec.far.socket.defer_accept) = (Some(Seconds(1)), Some(Seconds(1)));
    let (near, far) = run(&spec, V4);
    assert!(near.options.iter().all(|granted| granted.option != "defer_accept"));
    let granted = far.options.iter().find(|granted| granted.option == "defer_accept").unwrap();
    assert_eq!((granted.requested.as_deref(), granted.at_end.as_deref()), (Some("1"), Some("1")));
}
