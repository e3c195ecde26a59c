//! Output from plain figures, compared with what netperf 2.7.0 printed for the same figures.

mod output;

use netcore::report::CpuUse;

use super::{
    facts::{Facts, Iterations},
    figures::{Buffer, EndFigures, Figures, Latency},
    mapping::{DefaultSizes, test_spec},
    selection::{self, CommandLine},
    table,
};

fn read(line: &str) -> CommandLine {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    CommandLine::parse("netperf", &words).unwrap()
}

/// Everything that a run prints before its end, without interim results.
fn printed(line: &str, figures: &Figures) -> String {
    let CommandLine { request, output } = read(line);
    let size = if request.shape.transport.is_datagram() { 212_992 } else { 16_384 };
    let mut spec = test_spec(&request, DefaultSizes { send_buffer: size, receive_buffer: size }).unwrap();
    // netperf's own default.
    spec.near.buffers.alignment = Some(8);
    spec.far.buffers.alignment = Some(8);
    let mut iterations = Iterations::default();
    iterations.push(figures, request.shape, request.unit);
    let facts = Facts {
        request: &request,
        spec: &spec,
        figures,
        iterations: &iterations,
        widths: iterations.widths(99),
        uuid: "3e1a578a-e6eb-11f1-9263-633e03bd5b84".to_owned(),
        is_ipv6: false,
    };
    let headers = request.globals.headers;
    let banner = if headers { table::banner(&request, [127, 0, 0, 1].into()) } else { String::new() };
    let results = match &output {
        Some((form, selection)) => selection::render(*form, selection, &facts, headers),
        None => table::render(&facts) + &table::blocks(&facts),
    };
    banner + &results
}

fn buffer(initial: u64, last: u64) -> Buffer {
    Buffer { initial: Some(initial), last: Some(last) }
}

const TCP_SEND: (u64, u64) = (16_384, 4_194_304);
const TCP_RECEIVE: (u64, u64) = (131_072, 1_026_899);

fn tcp_end() -> EndFigures {
    EndFigures {
        send_buffer: buffer(TCP_SEND.0, TCP_SEND.1),
        receive_buffer: buffer(TCP_RECEIVE.0, TCP_RECEIVE.1),
        retransmits: Some(0),
        congestion_control: Some("cubic".to_owned()),
        ..EndFigures::default()
    }
}

/// A second of TCP_STREAM at 8004.68 Mbit/s.
fn tcp_stream() -> Figures {
    Figures {
        elapsed_s: 1.000_86,
        local: EndFigures { bytes_sent: 1_001_439_232, sends: 61_123, ..tcp_end() },
        remote: Some(EndFigures { bytes_received: 1_001_446_001, receives: 10_214, ..tcp_end() }),
        mss: Some(65_483),
        ..Figures::default()
    }
}

/// The same of TCP_MAERTS at 14389.21 Mbit/s.
fn tcp_maerts() -> Figures {
    Figures {
        elapsed_s: 1.000_152,
        local: EndFigures { bytes_received: 1_798_924_517, receives: 13_736, ..tcp_end() },
        remote: Some(EndFigures { bytes_sent: 1_803_730_944, sends: 110_091, ..tcp_end() }),
        mss: Some(32_768),
        ..Figures::default()
    }
}

/// A second of TCP_RR at 48160.53 transactions per second.
fn tcp_rr() -> Figures {
    let end = EndFigures { bytes_sent: 48_165, bytes_received: 48_165, sends: 48_165, receives: 48_165, ..tcp_end() };
    Figures {
        elapsed_s: 48_165.0 / 48_160.526,
        transactions: 48_165,
        local: end.clone(),
        remote: Some(end),
        mss: Some(32_768),
        latency: Some(Latency { min: 12.9, max: 5431.2, p50: 14.0, p90: 18.7, p99: 34.0, mean: 18.24, stddev: 108.26 }),
        ..Figures::default()
    }
}

/// A second of UDP_STREAM: 86640 datagrams sent, 42268 received.
fn udp_stream() -> Figures {
    let end = EndFigures {
        send_buffer: buffer(212_992, 212_992),
        receive_buffer: buffer(212_992, 212_992),
        ..EndFigures::default()
    };
    Figures {
        elapsed_s: 86_640.0 * 65_507.0 * 8.0 / 1e6 / 45_399.40,
        local: EndFigures { bytes_sent: 86_640 * 65_507, sends: 86_640, ..end.clone() },
        remote: Some(EndFigures { bytes_received: 42_268 * 65_507, receives: 42_268, ..end }),
        ..Figures::default()
    }
}

/// Both ends' CPUs, two at 100 % each.
fn busy(figures: Figures) -> Figures {
    let used =
        CpuUse { cpus: 2, busy: 1.0, user: 0.3781, system: 0.4976, softirq: 0.1243, peak: 1.0, ..CpuUse::default() };
    let cpu = Some(used);
    let remote = figures.remote.map(|remote| EndFigures { cpu: cpu.clone(), ..remote });
    Figures { local: EndFigures { cpu, ..figures.local }, remote, ..figures }
}
