//! The codec and the mapping against messages of the real programs, and against any others.

mod recorded;

use proptest::prelude::*;

use super::{
    answer,
    asked::{Asked, Length, Policy, asked},
    messages,
    request::{Place, check, request},
    wire::{MESSAGE_BYTES, Message, kind},
};
use crate::{
    report::{Ending, SideReport},
    spec::{Bytes, Direction, Dscp, Pattern, Side, Stop, TestSpec, Transport, memory},
};

const HOUR_NS: u64 = 3_600_000_000_000;

/// A message as a daemon understands it.
fn understood(message: &Message) -> Option<Result<Asked, super::asked::Refused>> {
    let known = ["cubic".to_owned(), "reno".to_owned()];
    asked(message, &Policy { longest_ns: HOUR_NS, congestion_controls: &known })
}

/// Requests that begin like known ones, and then have random words, most of them small.
fn message() -> impl Strategy<Value = Message> {
    let word = prop_oneof![
        4 => Just(u32::MAX),
        4 => 0u32..8,
        2 => 0u32..70_000,
        1 => Just(17),
        1 => any::<u32>(),
    ];
    (0u32..=1000, prop_oneof![Just(97u32), Just(10), Just(13), Just(16), Just(34), Just(94), Just(300)], any::<bool>())
        .prop_map(|(any, known, is_known)| if is_known { known } else { any })
        .prop_flat_map(move |kind| (Just(kind), prop::collection::vec(word.clone(), 162)))
        .prop_map(|(kind, words)| {
            let mut message = Message::new(kind, u32::MAX);
            words.iter().enumerate().for_each(|(number, word)| message.put(number, word));
            message
        })
}

proptest! {
    /// Reading takes nothing away: what is read and written again is the same message.
    #[test]
    fn any_message_reads_back(bytes in prop::collection::vec(any::<u8>(), MESSAGE_BYTES)) {
        let message = Message(bytes.try_into().unwrap());
        macro_rules! read_back {
            ($($layout:ty),*) => {$(
                let mut written = message.clone();
                <$layout>::read(&message).write(&mut written);
                prop_assert_eq!(&written, &message, "{}", stringify!($layout));
            )*};
        }
        read_back!(
            messages::OmniRequest, messages::OmniResponse, messages::OmniResults, messages::StreamRequest, messages::StreamResponse,
            messages::StreamResults, messages::ExchangeRequest, messages::ExchangeResponse, messages::ExchangeResults,
            messages::DatagramRequest, messages::DatagramResponse, messages::DatagramResults
        );
    }

    /// An accepted request can be run, and its memory is bounded.
    #[test]
    fn an_accepted_request_is_a_test_of_bounded_cost(message in message()) {
        let Some(Ok(asked)) = understood(&message) else { return Ok(()) };
        let spec = &asked.spec;
        prop_assert_eq!(spec.flows(), 1);
        prop_assert!(memory::buffer_bytes(spec, Side::Far) <= 128 << 20, "{:?}", spec.sizes);
        prop_assert!(spec.far.port.is_none_or(|port| port >= 1024));
        prop_assert!(spec.far.buffers.fill_file.is_none());
        match spec.phases.stop {
            Stop::AfterNs(longest_ns) => prop_assert!(longest_ns <= HOUR_NS + super::asked::PAD_NS),
            Stop::AfterBytes(bytes) => prop_assert!(bytes <= 1 << 31),
            Stop::AfterTransactions(_) => prop_assert!(false),
        }
        // Its answers are for the same test.
        let opened = answer::Opened { data_port: 4711, receive_buffer: 1, send_buffer: 2 };
        let response = answer::response(&asked, &opened);
        prop_assert_eq!((response.kind(), response.second()), (message.kind() + 1, 0));
        let results = answer::results(&asked, &opened, &SideReport::empty(Side::Far, Ending::Complete));
        prop_assert_eq!((results.kind(), results.second()), (message.kind() + 2, 0));
    }

    /// Our own request means the same test to our own server.
    #[test]
    fn our_request_is_understood_by_our_server(spec in spec(), v6 in any::<bool>(), near_port in any::<u16>()) {
        check(&spec).unwrap();
        let place = Place { v6, near_port, near: None, far: Some(if v6 { [1u16; 8].into() } else { [1; 4].into() }) };
        let asked = understood(&request(&spec, &place)).unwrap().unwrap();
        let it = &asked.spec;
        prop_assert_eq!((it.pattern, it.transport, it.direction), (spec.pattern, spec.transport, spec.direction));
        prop_assert_eq!(it.collect.cpu, spec.collect.cpu);
        match spec.pattern {
            Pattern::RequestResponse | Pattern::ConnectRequestResponse => {
                prop_assert_eq!(it.sizes.request_bytes, spec.sizes.request_bytes);
                prop_assert_eq!(it.sizes.response_bytes, spec.sizes.response_bytes);
            }
            Pattern::Stream if spec.direction == Direction::Reverse => {
                prop_assert_eq!(it.sizes.message_bytes, spec.sizes.message_bytes);
            }
            Pattern::Stream if spec.transport == Transport::Tcp => {
                prop_assert_eq!(it.sizes.receive_bytes, spec.sizes.receive_bytes);
            }
            _ => {}
        }
        prop_assert_eq!(it.far.socket.send_buffer, spec.far.socket.send_buffer);
        prop_assert_eq!(it.far.port, spec.far.port);
        let length = match spec.phases.stop {
            Stop::AfterNs(ns) => Length::Seconds(u32::try_from(ns.div_ceil(1_000_000_000)).unwrap()),
            Stop::AfterBytes(count) | Stop::AfterTransactions(count) => Length::Count(u32::try_from(count).unwrap()),
        };
        prop_assert_eq!(asked.length, length);
        if spec.pattern != Pattern::Connect {
            prop_assert_eq!(it.far.socket.dscp, spec.far.socket.dscp);
            prop_assert_eq!(&it.far.socket.congestion_control, &spec.far.socket.congestion_control);
            prop_assert_eq!((asked.client_port, asked.server), (near_port, place.far));
        }
    }
}

/// Tests that netperf has.
fn spec() -> impl Strategy<Value = TestSpec> {
    let kinds = prop_oneof![
        Just((Pattern::Stream, Transport::Tcp, Direction::Forward)),
        Just((Pattern::Stream, Transport::Tcp, Direction::Reverse)),
        Just((Pattern::Stream, Transport::Udp, Direction::Forward)),
        Just((Pattern::RequestResponse, Transport::Tcp, Direction::Forward)),
        Just((Pattern::RequestResponse, Transport::Udp, Direction::Forward)),
        Just((Pattern::ConnectRequestResponse, Transport::Tcp, Direction::Forward)),
        Just((Pattern::Connect, Transport::Tcp, Direction::Forward)),
    ];
    (kinds, 1u64..10_000, 1u64..10_000, 1u64..3600, any::<bool>(), any::<bool>(), prop::option::of(1024u16..)).prop_map(
        |((pattern, transport, direction), one, other, length, counts, cpu, port)| {
            let mut spec = TestSpec::new(pattern, transport);
            spec.direction = direction;
            (spec.sizes.request_bytes, spec.sizes.response_bytes) = (one, other);
            (spec.sizes.message_bytes, spec.sizes.receive_bytes) = (one, other);
            spec.phases.stop = match (counts, pattern) {
                (false, _) => Stop::AfterNs(length * 1_000_000_000),
                (true, Pattern::Stream) => Stop::AfterBytes(length),
                (true, _) => Stop::AfterTransactions(length),
            };
            spec.collect.cpu = cpu;
            spec.far.port = port;
            spec.far.socket.send_buffer = (one % 2 == 0).then_some(Bytes(other));
            spec.far.socket.dscp = (one % 3 == 0).then_some(Dscp(46));
            spec.far.socket.congestion_control = (one % 5 == 0).then(|| "reno".to_owned());
            spec
        },
    )
}

#[test]
fn fixed_answers_are_those_of_netserver() {
    let message = answer::refusal(kind::OMNI, 22);
    assert_eq!((message.kind(), message.second()), (98, 22));
    assert!(answer::sysinfo().0[8..].starts_with(b",Deprecated,Deprecated,Deprecated,Deprecated\0"));
    assert_eq!(answer::calibration(2), recorded::message("00000005 0*1 42c80000 00000002"));
}
