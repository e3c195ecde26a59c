//! Messages between netperf 2.7.0 and its netserver, as they were on the wire.

use std::net::Ipv6Addr;

use super::*;
use crate::peers::netperf::{asked::Form, messages::Test, wire::Text};

/// A message from its words.
pub fn message(words: &str) -> Message {
    let mut bytes = Vec::new();
    for word in words.split_whitespace() {
        match word.split_once('*') {
            Some((_, count)) => bytes.resize(bytes.len() + 4 * count.parse::<usize>().unwrap(), 0),
            None => bytes.extend(u32::from_str_radix(word, 16).unwrap().to_be_bytes()),
        }
    }
    bytes.resize(MESSAGE_BYTES, 0);
    Message(bytes.try_into().unwrap())
}

/// The messages of the client and of the server in the recording of a command.
fn recorded(command: &str) -> (Vec<Message>, Vec<Message>) {
    let all = include_str!("recorded.txt");
    let part = all.split("\n\n").find(|part| part.lines().next() == Some(&format!("# {command}"))).expect(command);
    let of = |side: &str| part.lines().filter_map(|line| line.strip_prefix(side)).map(message).collect();
    (of("> "), of("< "))
}

/// The only request of a command, as OMNI.
fn request_of(command: &str) -> (messages::OmniRequest, Asked) {
    let (sent, _) = recorded(command);
    let message = sent.last().unwrap();
    assert_eq!(message.kind(), kind::OMNI);
    let request = messages::OmniRequest::read(message);
    let mut again = Message::new(kind::OMNI, message.second());
    request.write(&mut again);
    assert_eq!(&again, message, "the fields are the whole message");
    (request, understood(message).unwrap().unwrap())
}

#[test]
fn a_stream_is_received_here() {
    let (request, asked) = request_of("netperf -l 1 -t TCP_STREAM");
    assert_eq!((request.client_port, request.tos, request.send_buffer), (0x81d5, -1, -1));
    assert_eq!((asked.spec.pattern, asked.spec.direction), (Pattern::Stream, Direction::Forward));
    assert_eq!((asked.form, asked.length), (Form::Omni, Length::Seconds(1)));
    assert_eq!(asked.spec.phases.stop, Stop::AfterNs(5_000_000_000));
    assert!(asked.wants_congestion_control && !asked.spec.collect.cpu && asked.spec.far.socket.dont_route.is_none());
    let (_, answers) = recorded("netperf -l 1 -t TCP_STREAM");
    let response = messages::OmniResponse::read(&answers[0]);
    assert_eq!((response.data_port, response.receive_buffer, response.receive_size), (0x80bb, 131_072, 131_072));
    let results = messages::OmniResults::read(&answers[1]);
    assert_eq!((answers[1].kind(), answers[1].second()), (0x6200_0000, 0), "its type is reversed");
    assert_eq!((results.bytes_received, results.receives, results.retransmits), (0x85d1_176c, 0x59f7, 0));
    assert_eq!(results.congestion_control, Text::new("bbr").unwrap());
}

#[test]
fn a_reverse_stream_is_sent_here_and_has_cpu_figures() {
    let command = "netperf -l 1 -t TCP_MAERTS -c -C";
    let (_, asked) = request_of(command);
    assert_eq!((asked.spec.direction, asked.spec.phases.stop), (Direction::Reverse, Stop::AfterNs(1_000_000_000)));
    assert!(asked.spec.collect.cpu);
    let (_, answers) = recorded(command);
    assert_eq!(messages::OmniResponse::read(&answers[0]).send_size, 16_384);
    let results = messages::OmniResults::read(&answers[1]);
    assert_eq!((results.bytes_sent, results.sends, results.bytes_received), (0x6ada_0000, 0x1_ab68, 0));
    assert_eq!((results.cpu_method, results.cpus, results.peak_cpu, results.retransmits), (8, 2, 1, 2));
    assert_eq!((results.cpu_percent, results.peak_percent), (99.5, 100.0));
    let states = results.user_percent + results.system_percent + results.softirq_percent;
    assert!((states - results.cpu_percent).abs() < 0.1, "{states}");
}

#[test]
fn requests_have_sizes_and_counts() {
    let (_, asked) = request_of("netperf -l 1 -t TCP_RR -- -r 100,200 -D");
    assert_eq!((asked.spec.sizes.request_bytes, asked.spec.sizes.response_bytes), (100, 200));
    assert_eq!(asked.spec.far.socket.no_delay, Some(true));
    let (_, answers) = recorded("netperf -l 1 -t TCP_RR -- -r 100,200 -D");
    assert_eq!(messages::OmniResponse::read(&answers[0]).flags, messages::flag::NO_DELAY);
    assert_eq!(messages::OmniResults::read(&answers[1]).transactions, 68_188);
    let (request, asked) = request_of("netperf -l -100 -t TCP_RR -- -s 32768 -S 65536");
    assert_eq!((request.test_length, asked.length), (-100, Length::Count(100)));
    assert_eq!(asked.spec.far.socket.receive_buffer, Some(Bytes(65_536)));
    let (_, asked) = request_of("netperf -l 1 -t TCP_CRR");
    assert_eq!(asked.spec.pattern, Pattern::ConnectRequestResponse);
}

#[test]
fn datagrams_are_received_whole() {
    let (request, asked) = request_of("netperf -l 1 -t UDP_STREAM -- -R 1 -m 1400");
    assert_eq!((asked.spec.transport, asked.spec.sizes.receive_bytes), (Transport::Udp, 65_507));
    assert_eq!((request.client_port, asked.client_port), (0xdf29, 0xdf29));
    let (_, asked) = request_of("netperf -l 1 -t UDP_RR");
    assert_eq!((asked.spec.pattern, asked.spec.transport), (Pattern::RequestResponse, Transport::Udp));
}

#[test]
fn addresses_options_and_ports_are_read() {
    let (_, asked) = request_of("netperf -H ::1 -l 1 -t TCP_STREAM -- -H ::1");
    assert_eq!((asked.server, asked.client), (Some(Ipv6Addr::LOCALHOST.into()), None));
    let (request, asked) = request_of("netperf -l -1000000 -t TCP_STREAM -- -H 127.0.0.1 -K reno,cubic -P ,42424");
    assert_eq!((asked.server, asked.spec.far.port), (Some([127, 0, 0, 1].into()), Some(42_424)));
    assert_eq!((asked.length, request.congestion_control.text()), (Length::Count(1_000_000), "cubic"));
    assert_eq!(asked.spec.far.socket.congestion_control.as_deref(), Some("cubic"));
    let command = "netperf -Z secret -l 1 -T ,1 -Y 0xb8,0xb8 -y 2,3";
    let (sent, _) = recorded(command);
    assert_eq!((sent[0].kind(), sent[0].get::<Text<648>>(0).text()), (kind::PASSPHRASE, "secret"));
    assert_eq!(sent[1].second(), 1, "the CPU");
    let (_, asked) = request_of(command);
    assert_eq!((asked.tos, asked.priority, asked.spec.far.socket.dscp), (0xb8, 3, Some(Dscp(46))));
}

#[test]
fn classic_tests_are_read_and_answered() {
    let (sent, answers) = recorded("netperf -l 1 -t TCP_CC");
    let asked = understood(&sent[0]).unwrap().unwrap();
    assert_eq!((asked.form, asked.spec.pattern), (Form::Classic(Test::TcpCc), Pattern::Connect));
    assert_eq!(messages::ExchangeResponse::read(&answers[0]).data_port, 0x8e23);
    let results = messages::ExchangeResults::read(&answers[1]);
    assert_eq!((results.transactions, answers[1].kind()), (0x378d, 0x2d01_0000));
    let mut spec = TestSpec::new(Pattern::Connect, Transport::Tcp);
    (spec.phases.stop, spec.collect.cpu) = (Stop::AfterNs(1_000_000_000), false);
    assert_eq!(request(&spec, &Place::default()), sent[0], "we ask as netperf does");
    for command in ["netperf -l 1 -t TCP_SENDFILE -F fill", "netperf -l 1 -t TCP_MSS"] {
        let (sent, answers) = recorded(command);
        let asked = understood(&sent[0]).unwrap().unwrap();
        assert_eq!((asked.form, asked.spec.direction), (Form::Classic(Test::TcpStream), Direction::Forward));
        assert_eq!(messages::StreamResponse::read(&answers[0]).size, 131_072);
    }
    let (_, answers) = recorded("netperf -l 1 -t TCP_SENDFILE -F fill");
    let results = messages::StreamResults::read(&answers[1]);
    assert_eq!((results.bytes, results.calls), (1_396_830_965.0, 0x3dec));
}

/// A test of ours asks for nearly the same as netperf's own: it names the sizes that netperf leaves to the server.
#[test]
fn our_requests_look_like_those_of_netperf() {
    let cases = [
        ("netperf -l 1 -t TCP_STREAM", Pattern::Stream, Direction::Forward),
        ("netperf -l 1 -t TCP_CRR", Pattern::ConnectRequestResponse, Direction::Forward),
    ];
    for (command, pattern, direction) in cases {
        let (theirs, _) = request_of(command);
        let mut spec = TestSpec::new(pattern, Transport::Tcp);
        (spec.direction, spec.collect.cpu) = (direction, false);
        spec.phases.stop = Stop::AfterNs(1_000_000_000);
        let mut ours = messages::OmniRequest::read(&request(&spec, &Place::default()));
        assert_eq!(ours.receive_size, if pattern == Pattern::Stream { 131_072 } else { -1 });
        ours.receive_size = theirs.receive_size;
        (ours.send_width, ours.receive_width) = (theirs.send_width, theirs.receive_width);
        ours.client_port = theirs.client_port;
        assert_eq!(ours, theirs, "{command}");
    }
}
