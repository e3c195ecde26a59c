//! Requests of the tests that netperf had before OMNI. netperf 2.7 still sends some of them; one that was built without OMNI
//! sends them all.

use super::wire::{Message, kind, layout};

layout! {
    /// TCP_STREAM, also by sendfile.
    StreamRequest {
        0 send_buffer: i32,
        1 receive_buffer: i32,
        /// Bytes that a receive call of the server asks for; 0: its default. TCP_MAERTS: bytes per send call.
        2 size: i32,
        3 alignment: i32,
        4 offset: i32,
        5 no_delay: i32,
        6 measure_cpu: i32,
        7 cpu_rate: f32,
        8 test_length: i32,
        9 receive_avoidance: i32,
        10 send_avoidance: i32,
        11 dirty: i32,
        12 clean: i32,
        13 data_port: u32,
        14 family: u32,
    }

    StreamResponse {
        0 receive_buffer: i32,
        /// As in the request.
        1 size: i32,
        2 no_delay: i32,
        3 measure_cpu: i32,
        4 test_length: i32,
        5 send_buffer: i32,
        6 data_port: u32,
        7 cpu_rate: f32,
        8 receive_avoidance: i32,
        9 send_avoidance: i32,
    }

    StreamResults {
        /// TCP_MAERTS: bytes sent.
        0 bytes: f64,
        2 calls: u32,
        3 elapsed_s: f32,
        4 cpu_percent: f32,
        5 service_demand: f32,
        6 cpu_method: u32,
        7 cpus: u32,
        /// This word and the next: TCP_STREAM only.
        8 receive_buffer: i32,
        9 send_buffer: i32,
    }

    /// TCP_RR, TCP_CRR, TCP_CC and UDP_RR.
    ExchangeRequest {
        0 receive_buffer: i32,
        1 send_buffer: i32,
        2 receive_alignment: i32,
        3 receive_offset: i32,
        4 send_alignment: i32,
        5 send_offset: i32,
        6 request_size: i32,
        7 response_size: i32,
        8 no_delay: i32,
        9 measure_cpu: i32,
        10 cpu_rate: f32,
        11 test_length: i32,
        12 receive_avoidance: i32,
        13 send_avoidance: i32,
        14 data_port: u32,
        15 family: u32,
    }

    ExchangeResponse {
        0 receive_buffer: i32,
        1 no_delay: i32,
        2 measure_cpu: i32,
        3 test_length: i32,
        4 send_buffer: i32,
        5 data_port: u32,
        6 cpu_rate: f32,
        7 receive_avoidance: i32,
        8 send_avoidance: i32,
    }

    ExchangeResults {
        /// It wraps.
        0 bytes_received: u32,
        1 receives: u32,
        2 transactions: u32,
        3 elapsed_s: f32,
        4 cpu_percent: f32,
        5 service_demand: f32,
        6 cpu_method: u32,
        7 cpus: u32,
    }

    /// UDP_STREAM.
    DatagramRequest {
        0 receive_buffer: i32,
        1 message_size: i32,
        2 connected: i32,
        3 alignment: i32,
        4 offset: i32,
        5 no_checksum: i32,
        6 measure_cpu: i32,
        7 cpu_rate: f32,
        8 test_length: i32,
        9 receive_avoidance: i32,
        10 send_avoidance: i32,
        11 data_port: u32,
        12 family: u32,
    }

    DatagramResponse {
        0 receive_buffer: i32,
        1 send_buffer: i32,
        2 measure_cpu: i32,
        3 test_length: i32,
        4 data_port: u32,
        5 cpu_rate: f32,
        6 receive_avoidance: i32,
        7 send_avoidance: i32,
    }

    DatagramResults {
        0 messages: u32,
        /// It wraps.
        1 bytes_received: u32,
        2 elapsed_s: f32,
        /// -1: not measured.
        3 cpu_percent: f32,
        4 cpu_method: u32,
        5 cpus: u32,
    }
}

/// A classic test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    TcpStream,
    TcpMaerts,
    TcpRr,
    TcpCrr,
    TcpCc,
    UdpStream,
    UdpRr,
}

/// All of them, by the type of their request.
pub const TESTS: [(u32, Test); 7] = [
    (kind::TCP_STREAM, Test::TcpStream),
    (kind::TCP_MAERTS, Test::TcpMaerts),
    (kind::TCP_RR, Test::TcpRr),
    (kind::TCP_CRR, Test::TcpCrr),
    (kind::TCP_CC, Test::TcpCc),
    (kind::UDP_STREAM, Test::UdpStream),
    (kind::UDP_RR, Test::UdpRr),
];

impl Test {
    /// The test that a message asks for.
    pub fn of(message: &Message) -> Option<Self> {
        TESTS.iter().find(|(kind, _)| *kind == message.kind()).map(|(_, test)| *test)
    }

    /// Type of its request.
    pub fn kind(self) -> u32 {
        TESTS.iter().find(|(_, test)| *test == self).map_or(0, |(kind, _)| *kind)
    }
}
