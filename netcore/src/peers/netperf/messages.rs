//! Requests, responses and results of the tests: of OMNI, by which netperf 2.7 runs nearly all of its tests, and of those that it
//! had before. netperf 2.7 still sends some of these; one that was built without OMNI sends them all.

use super::wire::{Message, Text, WireIp, kind, layout};

/// Flags of a request. The response repeats the first two and [`flag::MEASURE_CPU`].
pub mod flag {
    pub const NO_DELAY: u32 = 0x1;
    pub const SENDFILE: u32 = 0x2;
    /// A connection per transaction.
    pub const CONNECT: u32 = 0x4;
    pub const MEASURE_CPU: u32 = 0x8;
    pub const NO_CHECKSUM: u32 = 0x10;
    /// Without it the server sets `SO_DONTROUTE`. It also asks for the server's congestion control.
    pub const ROUTING_ALLOWED: u32 = 0x20;
    pub const FAST_OPEN: u32 = 0x800;
    pub const KEEPALIVE: u32 = 0x8000_0000;
}

/// Directions as the server sees them.
pub mod direction {
    pub const SEND: u32 = 2;
    pub const RECEIVE: u32 = 4;
}

/// netperf's own numbers for the types of sockets.
pub mod socket_type {
    pub const STREAM: u32 = 1;
    pub const DATAGRAM: u32 = 2;
}

layout! {
    /// -1 in a size or an option: the server's default.
    OmniRequest {
        0 send_buffer: i32,
        /// Bytes per send call of the server.
        1 send_size: i32,
        2 send_alignment: i32,
        3 send_offset: i32,
        /// Buffers that the server sends from in turn; 0: its default.
        4 send_width: i32,
        5 request_size: i32,
        6 receive_buffer: i32,
        /// Bytes that a receive call of the server asks for.
        7 receive_size: i32,
        8 receive_alignment: i32,
        9 receive_offset: i32,
        10 receive_width: i32,
        11 response_size: i32,
        12 flags: u32,
        /// Rate of the server's CPU by an earlier calibration; 0: unknown.
        13 cpu_rate: f32,
        /// Seconds; less than 0: bytes of a stream, or transactions; 0: no end of its own.
        14 test_length: i32,
        15 receive_avoidance: i32,
        16 send_avoidance: i32,
        17 send_dirty: i32,
        18 receive_dirty: i32,
        19 receive_clean: i32,
        /// The port that the server shall listen on; 0: any.
        20 data_port: u32,
        21 family: u32,
        22 socket_type: u32,
        /// IP protocol number.
        23 protocol: u32,
        /// [`direction`] from the server's view: both for requests and responses, 0 for connections without data.
        24 direction: u32,
        /// The client's data port, if it is bound already.
        25 client_port: u32,
        26 interval_burst: i32,
        27 interval_us: i32,
        /// The client's data address.
        28 client_address: WireIp,
        /// The server's address that the client wants to reach, if it says so.
        32 server_address: WireIp,
        36 priority: i32,
        37 tos: i32,
        38 congestion_control: Text<16>,
        /// A file on the server to fill the buffers from. It is never read here.
        42 fill_file: Text<32>,
    }

    OmniResponse {
        0 receive_buffer: i32,
        1 receive_size: i32,
        2 receive_width: i32,
        3 send_buffer: i32,
        4 send_size: i32,
        5 send_width: i32,
        6 flags: u32,
        7 cpu_rate: f32,
        8 test_length: i32,
        9 receive_avoidance: i32,
        10 send_avoidance: i32,
        /// Destination of the client's connections or datagrams.
        11 data_port: u32,
        12 interval_burst: i32,
        13 interval_us: i32,
        16 priority: i32,
        17 tos: i32,
    }

    /// netperf 2.6 has other fields from the twelfth word on. Without [`flag::MEASURE_CPU`] the words about CPUs hold anything.
    OmniResults {
        0 bytes_received: u64,
        2 receives: u32,
        /// At the end of the test.
        3 receive_buffer: i32,
        4 bytes_sent: u64,
        6 sends: u32,
        /// At the end of the test.
        7 send_buffer: i32,
        9 transactions: u32,
        10 elapsed_s: f32,
        /// Percent of all CPUs.
        11 cpu_percent: f32,
        12 user_percent: f32,
        13 system_percent: f32,
        14 iowait_percent: f32,
        15 irq_percent: f32,
        16 softirq_percent: f32,
        /// 8: from `/proc/stat`.
        18 cpu_method: u32,
        19 cpus: u32,
        20 peak_cpu: i32,
        21 peak_percent: f32,
        /// -1: not TCP.
        26 retransmits: i32,
        67 congestion_control: Text<16>,
    }
}

/// [`OmniResults::cpu_method`] of figures from `/proc/stat`.
pub const CPU_BY_PROC_STAT: u32 = 8;

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
