//! Programs that print tables with headings: the OSU micro-benchmarks, the Intel MPI Benchmarks, nccl-tests, perftest.

use super::{
    format::{
        Format, Heading, Line,
        Place::{Alone, Begins, Ends, Inside},
        Table,
    },
    imported::{ImportedRows, double_latencies, set_latency},
};
use crate::error::ParseError;
use schemas::{
    columns::Row,
    words::{Control, LatencyKind},
};

/// Operations between ranks: the programs' names, without `-` and `_`, and ours.
const OPERATIONS: [(&str, &str); 19] = [
    ("allgather", "allgather"),
    ("allgatherv", "allgatherv"),
    ("allreduce", "allreduce"),
    ("alltoall", "alltoall"),
    ("alltoallv", "alltoallv"),
    ("alltoallw", "alltoallw"),
    ("barrier", "barrier"),
    ("bcast", "bcast"),
    ("broadcast", "bcast"),
    ("exchange", "exchange"),
    ("gather", "gather"),
    ("gatherv", "gatherv"),
    ("reduce", "reduce"),
    ("reducelocal", "reduce_local"),
    ("reducescatter", "reduce_scatter"),
    ("reducescatterblock", "reduce_scatter_block"),
    ("scatter", "scatter"),
    ("scatterv", "scatterv"),
    ("sendrecv", "ring"),
];

/// Names the operation of a row whose test is between ranks.
fn name_operation(row: &mut Row) -> Result<(), String> {
    let Some(test) = row.test.as_deref().filter(|_| row.operation.is_none() && is_collective(row)) else {
        return Ok(());
    };
    let name = test.to_ascii_lowercase().replace(['-', '_'], "");
    let name = name.trim_end_matches("perf").trim_end_matches("pure");
    // The names of operations that do not block begin with an i.
    let names = [Some(name), name.strip_prefix('i')];
    let found = OPERATIONS.iter().find(|(theirs, _)| names.contains(&Some(theirs)));
    let (_, ours) = found.ok_or_else(|| format!("the test `{test}` has no workload here"))?;
    (row.operation, row.direction) = (Some((*ours).to_owned()), None);
    Ok(())
}

fn is_collective(row: &Row) -> bool {
    row.workload.as_deref().is_some_and(|workload| workload.ends_with("_collective"))
}

/// Completes the latencies of a row. Those of ping-pongs are half a round trip in all of these programs.
fn complete_latency(row: &mut Row, imported: &mut ImportedRows) {
    let workload = row.workload.clone().unwrap_or_default();
    if workload.ends_with("_pingpong") {
        double_latencies(row);
        imported.note("latencies of OSU, IMB and perftest are half a round trip: doubled");
    }
    row.latency_kind = row.latency_mean_us.or(row.latency_p50_us).map(|_| LatencyKind::Operation);
    if workload.ends_with("_pingpong") || workload.ends_with("_rr") {
        row.latency_mean_us.into_iter().for_each(|mean| set_latency(row, LatencyKind::RoundTrip, mean));
    }
}

/// The OSU micro-benchmarks over MPI. Nothing marks the end of a table.
pub(super) const OSU: Format = Format {
    name: "osu",
    failures: &["This test requires "],
    wanted: "a test of OSU with a workload here",
    lines: &[
        Line(Begins, "# OSU MPI_Put Latency Test …", "workload=mpi_put test=osu_put_latency"),
        Line(Begins, "# OSU MPI_Get latency Test …", "workload=mpi_get test=osu_get_latency"),
        Line(Begins, "# OSU MPI_Put Bandwidth Test …", "workload=mpi_put_stream test=osu_put_bw"),
        Line(Begins, "# OSU MPI_Get Bandwidth Test …", "direction=reverse workload=mpi_get_stream test=osu_get_bw"),
        Line(Begins, "# OSU MPI_Put Bi-directional Bandwidth Test …", "workload=mpi_put_duplex test=osu_put_bibw"),
        // MPI, or MPI-CUDA and others for buffers on a device.
        Line(Begins, "# OSU {} Latency Test …", "workload=mpi_pingpong test=osu_latency"),
        Line(Begins, "# OSU {} Multi Latency Test …", "workload=mpi_pingpong test=osu_multi_lat"),
        Line(Begins, "# OSU {} Multi-threaded Latency Test …", "workload=mpi_pingpong test=osu_latency_mt"),
        Line(Begins, "# OSU {} Multi-process Latency Test …", "workload=mpi_pingpong test=osu_latency_mp"),
        Line(Begins, "# OSU {} Bandwidth Test …", "workload=mpi_stream test=osu_bw"),
        Line(Begins, "# OSU {} Multiple Bandwidth / Message Rate Test …", "workload=mpi_stream test=osu_mbw_mr"),
        Line(Begins, "# OSU {} Bi-Directional Bandwidth Test …", "workload=mpi_duplex test=osu_bibw"),
        Line(Begins, "# OSU {} {test} Latency Test …", "workload=mpi_collective"),
        Line(Begins, "# OSU {} {test} Personalized Exchange Latency Test …", "workload=mpi_collective"),
        Line(Begins, "# OSU {} Non-blocking {test} Latency Test …", "workload=mpi_collective io=nonblocking"),
        Line(Begins, "# OSU {} Non-Blocking {test} Latency Test …", "workload=mpi_collective io=nonblocking"),
        Line(
            Begins,
            "# OSU {} Non-blocking {test} Personalized Exchange Latency Test …",
            "workload=mpi_collective io=nonblocking",
        ),
        Line(Inside, "# [ pairs: {streams} ] [ window size: {inflight} ]", ""),
    ],
    table: Some(Table {
        headings: &[
            Heading("Size", "message_bytes", "message_bytes"),
            Heading("Latency (us)", "latency_mean_us", ""),
            Heading("Avg Latency(us)", "latency_mean_us", "operation_time_mean_us"),
            Heading("Min Latency(us)", "latency_min_us", "operation_time_min_us"),
            Heading("Max Latency(us)", "latency_max_us", "operation_time_us"),
            Heading("P50 Tail Lat(us)", "latency_p50_us", "latency_p50_us"),
            Heading("P90 Tail Lat(us)", "latency_p90_us", "latency_p90_us"),
            Heading("P95 Tail Lat(us)", "latency_p95_us", "latency_p95_us"),
            Heading("P99 Tail Lat(us)", "latency_p99_us", "latency_p99_us"),
            Heading("Bandwidth (MB/s)", "throughput_bits_per_s*8e6", ""),
            Heading("MB/s", "throughput_bits_per_s*8e6", ""),
            Heading("Messages/s", "", ""),
            Heading("Iterations", "", ""),
            Heading("Validation", "", ""),
            // Of operations that do not block. The other times are those of parts.
            Heading("Overall(us)", "", ""),
            Heading("Compute(us)", "", ""),
            Heading("Coll. Init(us)", "", ""),
            Heading("MPI_Test(us)", "", ""),
            Heading("MPI_Wait(us)", "", ""),
            Heading("Pure Comm.(us)", "", "operation_time_mean_us"),
            Heading("Min Comm.(us)", "", "operation_time_min_us"),
            Heading("Max Comm.(us)", "", "operation_time_us"),
            Heading("Overlap(%)", "", ""),
        ],
        title: "the line `# OSU MPI … Test`",
    }),
    check: |row, line| {
        let word = line.strip_prefix("# OSU ").and_then(|title| title.split(' ').next()).unwrap_or("MPI");
        let is_one_sided =
            row.workload.as_deref().is_some_and(|w| w.starts_with("mpi_put") || w.starts_with("mpi_get"));
        if !word.starts_with("MPI") || word.starts_with("MPI_") != is_one_sided && word != "MPI" {
            return Err(format!("expected {}, found `{line}`", OSU.wanted));
        }
        if line.ends_with(" Fail") {
            return Err("what arrived is wrong (Validation: Fail), so that its speed says nothing".to_owned());
        }
        name_operation(row)
    },
    finish: |mut row, _, imported| {
        if let Some(operation) = &row.operation {
            let name = operation.replace('_', if operation.starts_with("reduce") { "_" } else { "" });
            row.test = Some(format!("osu_{}{name}", if row.io.is_some() { "i" } else { "" }));
            imported.note("OSU does not print the number of ranks: add --set ranks=N");
        }
        note_reduce_scatter(&row, imported);
        complete_latency(&mut row, imported);
        Ok(Some(row))
    },
};

fn note_reduce_scatter(row: &Row, imported: &mut ImportedRows) {
    if row.operation.as_deref() == Some("reduce_scatter") {
        imported.note("the size of OSU's and IMB's Reduce_scatter is that of all blocks, in a run that of one");
    }
}

/// The Intel MPI Benchmarks from 2018 on, whose MB are 10^6 bytes: MPI-1 and NBC.
pub(super) const IMB: Format = Format {
    name: "imb",
    failures: &[],
    wanted: "a line of IMB",
    lines: &[
        Line(Begins, "# Benchmarking PingPong", "workload=mpi_pingpong test=PingPong"),
        Line(Begins, "# Benchmarking PingPongSpecificSource", "workload=mpi_pingpong test=PingPongSpecificSource"),
        Line(Begins, "# Benchmarking PingPongAnySource", "workload=mpi_pingpong test=PingPongAnySource"),
        Line(Begins, "# Benchmarking PingPing", "workload=mpi_duplex test=PingPing"),
        Line(Begins, "# Benchmarking PingPingSpecificSource", "workload=mpi_duplex test=PingPingSpecificSource"),
        Line(Begins, "# Benchmarking PingPingAnySource", "workload=mpi_duplex test=PingPingAnySource"),
        Line(Begins, "# Benchmarking Uniband", "workload=mpi_stream test=Uniband"),
        Line(Begins, "# Benchmarking Biband", "workload=mpi_duplex test=Biband"),
        Line(Begins, "# Benchmarking {test}", "workload=mpi_collective"),
        Line(Inside, "# #processes = {ranks}", ""),
        Line(Alone, "{message_bytes} out-of-mem.; …", "status=failed error=out-of-mem."),
        Line(Alone, "{message_bytes} int-overflow; …", "status=failed error=int-overflow"),
        Line(Alone, "{message_bytes} time-out.; …", "status=failed error=time-out."),
        Line(Ends, "# All processes entering MPI_Finalize", ""),
    ],
    table: Some(Table {
        headings: &[
            Heading("#bytes", "message_bytes", "message_bytes"),
            Heading("#repetitions", "", ""),
            Heading("t[usec]", "latency_mean_us", "operation_time_us"),
            Heading("t_min[usec]", "", "operation_time_min_us"),
            Heading("t_max[usec]", "", "operation_time_us"),
            Heading("t_avg[usec]", "", "operation_time_mean_us"),
            // NBC: with computation, without it, the computation.
            Heading("t_ovrl[usec]", "", ""),
            Heading("t_pure[usec]", "", "operation_time_us"),
            Heading("t_CPU[usec]", "", ""),
            Heading("overlap[%]", "", ""),
            Heading("Mbytes/sec", "throughput_bits_per_s*8e6", ""),
            Heading("Msg/sec", "", ""),
            Heading("defects", "", ""),
        ],
        title: "the line `# Benchmarking NAME`",
    }),
    check: |row, _| name_operation(row),
    finish: |mut row, _, imported| {
        if !is_collective(&row) {
            // Uniband and Biband measure several pairs.
            row.streams = row.ranks.take().map(|ranks| ranks / 2);
            row.throughput_bits_per_s = row.throughput_bits_per_s.filter(|_| row.message_bytes != Some(0));
        }
        if row.test.as_deref().is_some_and(|test| test.starts_with("PingPing")) {
            row.latency_mean_us = None;
            row.throughput_bits_per_s = row.throughput_bits_per_s.map(|rate| rate * 2.0);
            imported.note("IMB's PingPing sends both ways at once, and its Mbytes/sec are one of them: doubled");
        }
        note_reduce_scatter(&row, imported);
        complete_latency(&mut row, imported);
        Ok(Some(row))
    },
};

/// nccl-tests from 2.17 on, which name the test.
pub(super) const NCCL: Format = Format {
    name: "nccl",
    failures: &["Test NCCL failure", "Test CUDA failure"],
    wanted: "a line of nccl-tests",
    lines: &[
        Line(Begins, "# Collective test starting: {test}", "workload=nccl_collective"),
        Line(Ends, "# Out of bounds values : …", ""),
    ],
    table: Some(Table {
        headings: &[
            Heading("size", "", "message_bytes"),
            Heading("count", "", ""),
            Heading("type", "", ""),
            Heading("redop", "", ""),
            Heading("root", "", ""),
            Heading("time", "", "operation_time_us"),
            Heading("algbw", "", ""),
            Heading("busbw", "", "bus_bits_per_s*8e9"),
            Heading("#wrong", "", ""),
            Heading("time", "", "operation_time_us tag=in-place"),
            Heading("algbw", "", ""),
            Heading("busbw", "", "bus_bits_per_s*8e9"),
            Heading("#wrong", "", ""),
        ],
        title: "the line `# Collective test starting: all_reduce_perf` (versions before 2.17 do not print it: add it)",
    }),
    check: |row, line| {
        if line.starts_with("# Out of bounds values") && line.ends_with("FAILED") {
            return Err("results of this test are wrong, so that its speed says nothing".to_owned());
        }
        if let Some(rank) = line.strip_prefix("# Rank ") {
            let mut words = rank.split(' ');
            let is_next = words.next().and_then(|w| w.parse().ok()) == Some(row.ranks.unwrap_or(0));
            if !is_next || (words.next(), words.next()) != (Some("Group"), Some("0")) {
                return Err("expected the ranks of one group, from 0 on".to_owned());
            }
            row.ranks = row.ranks.or(Some(0)).map(|ranks| ranks + 1);
        }
        name_operation(row)
    },
    finish: |mut row, _, imported| {
        let (Some(ranks), Some(size), Some(operation)) = (row.ranks, row.message_bytes, row.operation.as_deref())
        else {
            return Err("the lines `# Rank N …` are missing above: import the whole output of nccl-tests".to_owned());
        };
        // nccl-tests' sizes of these are those of all blocks.
        let n = ranks as f64;
        let (formula, size, messages) = match operation {
            "bcast" | "reduce" | "ring" => ("m/t", size, 1.0),
            "allreduce" => ("2(n-1)/n*m/t", size, 2.0 * (n - 1.0) / n),
            "allgather" | "alltoall" | "gather" | "reduce_scatter" | "scatter" => {
                if size % ranks != 0 {
                    return Err(format!(
                        "{size} bytes are no blocks of {ranks} ranks: the lines of ranks are not whole"
                    ));
                }
                ("(n-1)*m/t", size / ranks, n - 1.0)
            }
            other => return Err(format!("nccl-tests' {other} has no bus bandwidth here")),
        };
        row.message_bytes = Some(size);
        row.bus_formula = Some(formula.to_owned());
        if let (Some(time), Some(bus)) = (row.operation_time_us, row.bus_bits_per_s) {
            let wanted = messages * size as f64 * 8e6 / time;
            // Both are printed with two decimals, or three digits.
            if (bus - wanted).abs() > 0.02 * wanted + 0.01 * 8e9 {
                return Err(format!("busbw is not that of {ranks} ranks: the lines of ranks are not whole"));
            }
        }
        if row.tag.is_some() {
            row.test = row.test.map(|test| format!("{test}-in-place"));
        }
        imported
            .note("nccl-tests' time is the mean of its ranks (-a); its sizes of blocks are those of one block here");
        Ok(Some(row))
    },
};

/// perftest: what it prints, and its JSON (`--out_json`), which up to version 4.5 lacks the quotes.
pub(super) const PERFTEST: Format = Format {
    name: "perftest",
    failures: &[
        "Couldn't connect to ",
        "Unable to init the socket connection",
        "Parser function exited with Error",
        "Can't produce a report",
        "Completion with error at ",
    ],
    wanted: "a line of perftest",
    // As `plain` leaves them.
    lines: &[
        Line(Begins, "Send BW Test", "workload=rdma_stream test=ib_send_bw"),
        Line(Begins, "RDMA Write BW Test", "workload=rdma_stream test=ib_write_bw"),
        Line(Begins, "RDMA Read BW Test", "direction=reverse workload=rdma_stream test=ib_read_bw"),
        Line(Begins, "Send Bidirectional BW Test", "workload=rdma_duplex test=ib_send_bw-b"),
        Line(Begins, "RDMA Write Bidirectional BW Test", "workload=rdma_duplex test=ib_write_bw-b"),
        Line(Begins, "RDMA Read Bidirectional BW Test", "workload=rdma_duplex test=ib_read_bw-b"),
        Line(Begins, "Send Latency Test", "workload=rdma_pingpong test=ib_send_lat"),
        Line(Begins, "RDMA Write Latency Test", "workload=rdma_pingpong test=ib_write_lat"),
        Line(Begins, "RDMA Read Latency Test", "workload=rdma_rr test=ib_read_lat"),
        Line(Begins, "Atomic FETCH AND ADD Latency Test", "workload=rdma_rr test=ib_atomic_lat"),
        Line(Begins, "Atomic CMP AND SWAP Latency Test", "workload=rdma_rr test=ib_atomic_lat"),
        Line(Inside, "Number of qps: {streams}…", ""),
        // A sender of datagrams does not know what arrived; a receiver does.
        Line(Inside, "Connection type: UD…", "control=none"),
        Line(Inside, "RX depth: …", "control=session"),
        // The lines of its JSON.
        Line(Inside, "MsgSize: {message_bytes}", ""),
        Line(Inside, "BW average: {throughput_bits_per_s}", ""),
        Line(Alone, "MsgRate: {transactions_per_s*1e6}", ""),
        Line(Inside, "t min: {latency_min_us}", ""),
        Line(Inside, "t max: {latency_max_us}", ""),
        Line(Inside, "t typical: {latency_p50_us}", ""),
        Line(Inside, "t avg: {latency_mean_us}", ""),
        Line(Inside, "percentile 99: {latency_p99_us}", ""),
        Line(Alone, "percentile 99.9: {latency_p999_us}", ""),
        Line(Alone, "tps average: {transactions_per_s}", ""),
    ],
    table: Some(Table {
        headings: &[
            Heading("#bytes", "message_bytes", ""),
            Heading("#iterations", "", ""),
            // MB of 2^20 bytes, which later versions call MiB.
            Heading("BW peak[MB/sec]", "", ""),
            Heading("BW peak[MiB/sec]", "", ""),
            Heading("BW peak[Gb/sec]", "", ""),
            Heading("BW average[MB/sec]", "throughput_bits_per_s*8388608", ""),
            Heading("BW average[MiB/sec]", "throughput_bits_per_s*8388608", ""),
            Heading("BW average[Gb/sec]", "throughput_bits_per_s*1e9", ""),
            Heading("MsgRate[Mpps]", "", ""),
            Heading("CPU Util[%]", "", ""),
            Heading("t min[usec]", "latency_min_us", ""),
            Heading("t max[usec]", "latency_max_us", ""),
            Heading("t typical[usec]", "latency_p50_us", ""),
            Heading("t avg[usec]", "latency_mean_us", ""),
            // Computed from whole microseconds.
            Heading("t stdev[usec]", "", ""),
            Heading("99% percentile[usec]", "latency_p99_us", ""),
            Heading("99.9% percentile[usec]", "latency_p999_us", ""),
            Heading("tps average", "", ""),
        ],
        title: "the test's name (`RDMA_Write BW Test`)",
    }),
    check: |_, _| Ok(()),
    finish: |mut row, _, imported| {
        if let (Some(printed), Some(rate), Some(size)) =
            (row.throughput_bits_per_s, row.transactions_per_s.take(), row.message_bytes)
        {
            // JSON has no unit: its rate of messages tells.
            let bits = rate * size as f64 * 8.0;
            let fits = |unit: &&f64| (printed * **unit / bits - 1.0).abs() < 0.1;
            let unit = [8_388_608.0, 1e9].iter().find(fits);
            let unit = unit.ok_or("BW_average has no unit, and fits MsgRate in none: import the text of perftest")?;
            row.throughput_bits_per_s = Some(printed * unit);
        }
        if row.control.take() == Some(Control::None) {
            row.sent_bits_per_s = row.throughput_bits_per_s.take();
        }
        imported.note("perftest's MB are 2^20 bytes; it counts completions");
        if row.workload.as_deref() == Some("rdma_rr") {
            row.request_bytes = Some(0);
            row.response_bytes = row.message_bytes.take();
        }
        complete_latency(&mut row, imported);
        Ok(Some(row))
    },
};

/// perftest's text and JSON in one form.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let bare = line.replace('"', "").replace(['{', '}', ',', '_'], " ");
        let bare = bare.split_whitespace().collect::<Vec<_>>().join(" ").replace(" :", ":");
        plain.push_str(["test: ", "results: "].iter().find_map(|key| bare.strip_prefix(key)).unwrap_or(&bare));
        plain.push_str(if line.ends_with('\n') { "\n" } else { "" });
    }
    plain
}

pub(super) fn looks_like_perftest(text: &str) -> bool {
    PERFTEST.looks_like(&plain(text))
}

pub(super) fn read_perftest(text: &str, imported: &mut ImportedRows) -> Result<(), ParseError> {
    PERFTEST.read(&plain(text), imported)
}
