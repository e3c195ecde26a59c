//! The messages of netperf, iperf3 and STAMP, as a server and as a client read them.

use crate::{
    peers::{
        iperf3::{self, parameters::Parameters, results::Results},
        netperf::{
            answer::{self, Opened},
            asked::{Policy, asked},
            client::report,
            wire::{MESSAGE_BYTES, Message},
        },
    },
    report::{Ending, SideReport},
    spec::{Pattern, Side, TestSpec, Transport},
    transport::stamp::{ErrorEstimate, Packets, Reflection, Secret},
};

/// The longest test that a daemon grants here, nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The largest request or response that a client may ask for, bytes.
const LARGEST: u64 = 64 << 20;

fn message(bytes: &[u8]) -> Message {
    let mut message = [0; MESSAGE_BYTES];
    let length = bytes.len().min(MESSAGE_BYTES);
    message[..length].copy_from_slice(&bytes[..length]);
    Message(message)
}

/// A netperf's request at a daemon, and a netserver's answers at a client.
pub fn netperf(bytes: &[u8]) {
    let (first, second) = (message(bytes), message(bytes.get(MESSAGE_BYTES..).unwrap_or_default()));
    let names = ["reno".to_owned(), "cubic".to_owned()];
    let policy = Policy { longest_ns: LONGEST_NS, congestion_controls: &names };
    if let Some(Ok(asked)) = asked(&first, &policy) {
        bounded(&asked.spec);
        let opened = Opened { data_port: 1024, receive_buffer: 1, send_buffer: 1 };
        let _ = answer::response(&asked, &opened);
        let _ = answer::results(&asked, &opened, &SideReport::empty(Side::Far, Ending::Complete));
    }
    for (pattern, transport) in [
        (Pattern::Stream, Transport::Tcp),
        (Pattern::Stream, Transport::Udp),
        (Pattern::RequestResponse, Transport::Tcp),
        (Pattern::Connect, Transport::Tcp),
    ] {
        let near = SideReport::empty(Side::Near, Ending::Complete);
        let _ = report(&TestSpec::new(pattern, transport), &first, &second, &near, LONGEST_NS);
    }
}

/// The texts of iperf3: a client's parameters and both ends' results.
pub fn iperf3(bytes: &[u8]) {
    if let Ok(parameters) = Parameters::decode(bytes)
        && let Ok(spec) = iperf3::mapping::test(&parameters, LONGEST_NS)
    {
        bounded(&spec);
    }
    if let Ok(results) = Results::decode(bytes) {
        let again = serde_json::to_vec(&results.encode()).expect("a value");
        assert_eq!(Results::decode(&again).as_ref(), Ok(&results), "what is written is read");
    }
}

/// A packet at a reflector of STAMP, and at a sender: an answer is as long as its request, and names it.
pub fn stamp(bytes: &[u8]) {
    for packets in [Packets::new(None), Packets::new(Some(Secret::new(&[7; 32])))] {
        let _ = packets.read_answer(bytes);
        let Some(request) = packets.read_request(bytes) else { continue };
        assert!(bytes.len() >= packets.least_bytes());
        let mut packet = bytes.to_vec();
        let own = Reflection { number: 1, received: 2, sent: 3, error: ErrorEstimate::new(4, true), ttl: 5 };
        packets.reflect(&mut packet, &request, &own);
        let answer = packets.read_answer(&packet).expect("its own answer");
        assert_eq!((answer.request_number, answer.request_sent), (request.number, request.sent));
    }
}

fn bounded(spec: &TestSpec) {
    assert!(spec.flows() <= 256, "{} flows", spec.flows());
    assert!(spec.phases.length_ns().unwrap_or(0) <= LONGEST_NS + 3_600_000_000_000, "{:?}", spec.phases);
    let sizes = &spec.sizes;
    for bytes in [sizes.message_bytes, sizes.receive_bytes, sizes.request_bytes, sizes.response_bytes] {
        assert!((1..=LARGEST).contains(&bytes), "{sizes:?}");
    }
}
