//! The wide results table.

use super::{
    columns,
    may_be_empty::{Boolean, Integer, Number, Text, Time},
};
use crate::words::{
    CodePoint, Confidence, Control, DemandUnit, EcnPath, LatencyKind, LimitedBy, OfferedUnit, OneWayClock, Phase,
    Record, Search, Status, Way,
};

columns! {
    /// One row, a field per column. What is `None` is written as an empty cell. `axes` holds the cells of the
    /// `axis_<path>` columns, in the order of [`super::header`]'s axes.
    #[derive(Clone, Debug, Default, PartialEq)]
    Row, COLUMNS, METRICS, axes: Vec<String>;

    "identity" {
        run_id: Text = "UUIDv7 of the run that wrote the row.";
        plan: Text = "Name of the plan.";
        test: Text = "Name of the test within the plan.";
        case_id: Text = "`c` and a hash of everything that affects the workload; stable across renames of files and hosts.";
        case: Text = "The test and its swept values, readable: `bulk[message_size=65536]`.";
        member: Text = "Name of the member of a concurrent group.";
        round: Integer = "Round of a survey (`pairs`) in which the pair was measured, from 1: the pairs of a round run at the same time.";
        tag: Text = "The test's tags, separated by spaces.";
    }
    "kind" {
        record: Option<Record> = "The kind of row: {words}.";
        iteration: Integer = "Number of the iteration, from 1.";
        phase: Option<Phase> = "{words}.";
        stream: Integer = "Number of the stream (flow) or rank, from 0, where the row is about one.";
        status: Option<Status> = "{words}.";
        error: Text = "Why, where the status is not `ok`.";
    }
    "place and time" {
        from: Text = "Name of the host that opens the connections.";
        to: Text = "Name of the host that accepts them.";
        direction: Option<Way> = "{words}.";
        time: Time = "Wall-clock end of what the row counts.";
        start_s: Number = "Start of what the row counts, seconds after the measure phase's start; warm-up is negative.";
        elapsed_s: Number = "Actual length of what the row counts, seconds."
            => ("elapsed", Seconds, Neither, Gauge, "elapsed time");
        start_skew_us: Number = "Largest difference between the instants at which the ends, or members, were measured under their whole load (the last of their threads had begun), microseconds."
            => ("start_skew", Microseconds, Lower, Gauge, "start skew");
        settled: Boolean = "Whether the load was flat when a warm-up ended that ends by itself (`warmup: auto`); empty where it was to last a given time. How long it lasted is the `elapsed_s` of its row.";
    }
    "what ran" {
        workload: Text = "Workload name.";
        transport: Text = "Transport protocol.";
        control: Option<Control> = "{words}.";
        io: Text = "The way in which bytes crossed the socket, as granted.";
        receive: Text = "The receiver's use of a stream's bytes: `copy` to its buffers, or `discard` (counted and not copied).";
        streams: Integer = "Parallel streams in each direction.";
        threads: Integer = "Threads that moved data at each end.";
        message_bytes: Integer = "Bytes per send call of a stream; of a ping-pong its size, which is also that of request and response."
            => ("message_size", Bytes, Neither, Gauge, "message size");
        receive_bytes: Integer = "Bytes asked for per receive call of a stream.";
        request_bytes: Integer = "Bytes of a request."
            => ("request_size", Bytes, Neither, Gauge, "request size");
        response_bytes: Integer = "Bytes of a response."
            => ("response_size", Bytes, Neither, Gauge, "response size");
        inflight: Integer = "Outstanding transactions per stream.";
        coalesce: Boolean = "Whether all replies at hand are drained by one read and refilled by one send: other semantics than one call per request.";
        offered_per_s: Number = "Offered load asked for, of each direction, in `offered_unit` per second.";
        offered_unit: Option<OfferedUnit> = "{words}.";
        congestion_control: Text = "Congestion control in use at the sender, of TCP or QUIC; empty for both directions together where the two senders differ.";
        no_delay: Boolean = "Whether TCP_NODELAY was set.";
        tls_cipher: Text = "Cipher of the records of TLS 1.3, or the packets of QUIC, that both ends agreed on.";
        tls_records: Text = "Place where the sender's records of TLS are sealed: `user`, in the data threads, or `kernel`.";
        @ends {
            send_buffer_bytes (local_send_buffer_bytes remote_send_buffer_bytes): Integer = "SO_SNDBUF at the end of the run at `{end}`, as the kernel reports it.";
            receive_buffer_bytes (local_receive_buffer_bytes remote_receive_buffer_bytes): Integer = "SO_RCVBUF at the end of the run at `{end}`, as the kernel reports it.";
        }
        gso: Integer = "Messages that the sender hands to the kernel as one datagram (UDP_SEGMENT), as granted; empty: each by itself.";
        gro: Boolean = "Whether the receiver accepts several messages as one datagram (UDP_GRO), as granted; empty: not asked for.";
        mss_bytes: Integer = "Maximum segment size in use at the end.";
        @ends {
            cpu (local_cpu remote_cpu): Text = "CPU affinity of the data threads at `{end}`; empty: not pinned.";
        }
    }
    "volume" {
        throughput_bits_per_s: Number = "Arrivals, as the receiver counted them: payload bits over the receiver's own elapsed time."
            => ("throughput", BitsPerSecond, Higher, Rate, "throughput");
        sent_bits_per_s: Number = "Data handed to the kernel, or with QUIC to its library, as the sender counted it: payload bits over the sender's own elapsed time."
            => ("sent", BitsPerSecond, Higher, Rate, "sent");
        transactions_per_s: Number = "Completed transactions per second, as the requester counted them."
            => ("transaction_rate", PerSecond, Higher, Rate, "transaction rate");
        bytes_sent: Integer = "Payload bytes the senders handed to the kernel, or with QUIC to its library."
            => ("bytes_sent", Bytes, Higher, Count, "bytes sent");
        bytes_received: Integer = "Payload bytes the receivers got."
            => ("bytes_received", Bytes, Higher, Count, "bytes received");
        sends: Integer = "Send calls that moved data.";
        receives: Integer = "Receive calls that moved data.";
        transactions: Integer = "Completed transactions."
            => ("transactions", Count, Higher, Count, "transactions");
        connections: Integer = "Connections opened for the data."
            => ("connections", Count, Higher, Count, "connections");
        remote_connections: Integer = "Connections that `to` has accepted. In a row of one stream: by the listener of that stream, which with `reuseport` serves connections of every stream; the row's bytes are left out then.";
        errors: Integer = "Operations that failed without ending the measurement (timeouts of requests, refused connections, …)."
            => ("errors", Count, Lower, Count, "errors");
        handshake_p50_us: Number = "Duration of the handshakes of `tls_cc`, `tls_crr`, `quic_cc` and `quic_crr` at `from`, of TLS without TCP's part, median, microseconds; in a summary the mean over the iterations, as of the next column and the two ratios."
            => ("handshake.p50", Microseconds, Lower, Gauge, "handshake, median");
        handshake_p99_us: Number = "The same, 99th percentile."
            => ("handshake.p99", Microseconds, Lower, Gauge, "handshake, 99th percentile");
        handshake_histogram: Text = "All of these durations, as in `latency_histogram`; empty in summaries.";
        resumed_ratio: Number = "Share of these handshakes that a ticket of an earlier connection began, in the place of the certificate, 0 … 1."
            => ("resumed_ratio", Ratio, Neither, Gauge, "handshakes resumed");
        early_ratio: Number = "Share of these handshakes with which the far end took the request (0-RTT), 0 … 1."
            => ("early_ratio", Ratio, Neither, Gauge, "requests in the first flight");
        tls_record_bytes: Number = "Data of a record of TLS, mean over the records that the row's senders sealed in the window, bytes; of requests in `tls_rr`. Empty where the kernel seals them, which counts none, and for `tls_cc` and `tls_crr`, whose library does not tell."
            => ("tls_record", Bytes, Neither, Gauge, "data of a TLS record");
        zerocopy_copied_ratio: Number = "Share of the zero-copy sends (`io: zerocopy`) whose bytes the kernel copied after all, of the sends whose completions the sender read in the window, 0 … 1; on loopback 1."
            => ("zerocopy_copied_ratio", Ratio, Lower, Gauge, "zero-copy sends copied");
    }
    "datagrams" {
        messages_sent: Integer = "Messages sent."
            => ("messages_sent", Count, Higher, Count, "messages sent");
        messages_received: Integer = "Messages received, duplicates not counted."
            => ("messages_received", Count, Higher, Count, "messages received");
        lost: Integer = "Messages sent in the window that never arrived; empty where they are shorter than a number (8 bytes)."
            => ("lost", Count, Lower, Count, "messages lost");
        loss_ratio: Number = "`lost` over `messages_sent`, 0 … 1."
            => ("loss_ratio", Ratio, Lower, Gauge, "loss");
        loss_runs: Integer = "Runs of consecutive messages that were lost (RFC 3357), by the numbers of those sent in the measure phase. A message counts as lost here if it had not come when 4096 later ones were numbered."
            => ("loss_runs", Count, Lower, Count, "runs of loss");
        loss_run_mean: Number = "Messages in such a run, as a mean; empty without loss."
            => ("loss_run.mean", Count, Lower, Gauge, "run of loss, mean");
        loss_run_max: Integer = "Messages in the longest such run."
            => ("loss_run.max", Count, Lower, Gauge, "run of loss, longest");
        reordered: Integer = "Messages that arrived after one with a higher sequence number."
            => ("reordered", Count, Lower, Count, "messages reordered");
        duplicated: Integer = "Messages that arrived more than once, beyond the first."
            => ("duplicated", Count, Lower, Count, "messages duplicated");
        messages_per_send: Number = "Messages of a send call, or UDP datagrams of a send call of QUIC, as a mean: `io: batch` and `gso` hand over several.";
        messages_per_receive: Number = "Messages of a receive call, or UDP datagrams of a receive call of QUIC, as a mean: `io: batch` and `gro` take several.";
        jitter_us: Number = "Interarrival jitter by RFC 3550, microseconds."
            => ("jitter", Microseconds, Lower, Gauge, "jitter");
    }
    "wire" {
        wire_bits_per_s: Number = "Speed of the path: the plan's `wire`, or the smaller speed of the two ends' interfaces where hardware is behind both; empty: unknown.";
        wire_ratio: Number = "Throughput of a stream over the payload that a wire of that speed can carry in such segments or datagrams, with preamble, gap, headers and tags; of both directions together, over both ceilings."
            => ("wire_ratio", Ratio, Neither, Gauge, "share of the wire");
    }
    "pacing" {
        rate_error_ratio: Number = "(sent rate − offered rate) over the offered rate."
            => ("rate_error", Ratio, Neither, Gauge, "rate error", at_least(-1.0));
        rate_quantum_ratio: Number = "What each stream sends at one due time as a share of its offered load of the window: the rates of a paced test are no more exact."
            => ("rate_quantum", Ratio, Neither, Gauge, "quantum of the rate");
        gap_p50_us: Number = "Median gap between sends, microseconds."
            => ("gap.p50", Microseconds, Neither, Distribution, "gap between sends, median");
        gap_p99_us: Number = "99th percentile of the gap between sends, microseconds."
            => ("gap.p99", Microseconds, Lower, Distribution, "gap between sends, 99th percentile");
        gap_max_us: Number = "Largest gap between sends, microseconds."
            => ("gap.max", Microseconds, Lower, Distribution, "gap between sends, largest");
        gap_within_tenth_ratio: Number = "Share of the gaps within a tenth of the scheduled gap, 0 … 1.";
    }
    "latency" {
        latency_min_us: Number = "Smallest, microseconds."
            => ("latency.min", Microseconds, Lower, Distribution, "latency, smallest");
        latency_mean_us: Number = "Mean, microseconds."
            => ("latency.mean", Microseconds, Lower, Distribution, "latency, mean");
        latency_p50_us: Number = "Median, microseconds."
            => ("latency.p50", Microseconds, Lower, Distribution, "latency, median");
        latency_p90_us: Number = "90th percentile, microseconds."
            => ("latency.p90", Microseconds, Lower, Distribution, "latency, 90th percentile");
        latency_p95_us: Number = "95th percentile, microseconds."
            => ("latency.p95", Microseconds, Lower, Distribution, "latency, 95th percentile");
        latency_p99_us: Number = "99th percentile, microseconds."
            => ("latency.p99", Microseconds, Lower, Distribution, "latency, 99th percentile");
        latency_p999_us: Number = "99.9th percentile, microseconds."
            => ("latency.p999", Microseconds, Lower, Distribution, "latency, 99.9th percentile");
        latency_max_us: Number = "Largest, microseconds."
            => ("latency.max", Microseconds, Lower, Distribution, "latency, largest");
        latency_stddev_us: Number = "Standard deviation, microseconds."
            => ("latency.stddev", Microseconds, Lower, Distribution, "latency, standard deviation");
        latency_kind: Option<LatencyKind> = "The time that was measured: {words}.";
        latency_histogram: Text = "HdrHistogram V2, base64; values in nanoseconds; histograms of several rows can be merged.";
        receive_call_mean_us: Number = "Receive calls of a stream whose send calls are in the latency columns: mean, waiting included, microseconds."
            => ("receive_call.mean", Microseconds, Lower, Distribution, "receive call, mean");
        receive_call_p50_us: Number = "The same, median, microseconds."
            => ("receive_call.p50", Microseconds, Lower, Distribution, "receive call, median");
        receive_call_p90_us: Number = "The same, 90th percentile, microseconds."
            => ("receive_call.p90", Microseconds, Lower, Distribution, "receive call, 90th percentile");
        receive_call_p99_us: Number = "The same, 99th percentile, microseconds."
            => ("receive_call.p99", Microseconds, Lower, Distribution, "receive call, 99th percentile");
        receive_call_max_us: Number = "The same, largest, microseconds."
            => ("receive_call.max", Microseconds, Lower, Distribution, "receive call, largest");
        receive_call_histogram: Text = "The same, as in `latency_histogram`.";
    }
    "responsiveness" {
        round_trips_per_min: Number = "Round trips per minute of a transport (transport RPM): 60 s over the trimmed mean of the round-trip times, the mean of the 95 % that were fastest."
            => ("round_trips_per_min", Count, Higher, Distribution, "transport RPM");
        added_latency_p50_us: Number = "Added latency, the headline of a probe under load: its median minus that of the member it names in `idle`, in the same iteration, microseconds. In a summary the mean of these differences, with Student's interval (`margin_ratio`) of them."
            => ("added_latency.p50", Microseconds, Lower, Gauge, "added latency, median", any());
        added_latency_p95_us: Number = "The same of the 95th percentile."
            => ("added_latency.p95", Microseconds, Lower, Gauge, "added latency, 95th percentile", any());
        added_forward_p50_us: Number = "What the load adds to the delay of requests: of a probe with `one_way`, the difference of the medians as in `added_latency_p50_us`. Both probes have the same two clocks, so their offset falls out; the rest of their drift is some microseconds."
            => ("added_forward.p50", Microseconds, Lower, Gauge, "added upload delay, median", any());
        added_reverse_p50_us: Number = "The same of answers."
            => ("added_reverse.p50", Microseconds, Lower, Gauge, "added download delay, median", any());
        load_confidence: Option<Confidence> = "Whether the throughput of the load beside a probe was stable at the end: {words}. Of several loads the least; in a summary that of the least iteration.";
        responsiveness_confidence: Option<Confidence> = "The same for the probe's `round_trips_per_min`.";
    }
    "one way" {
        forward_variation_p50_us: Number = "Delay of the requests, or of a stream's messages, above the least one of the test, median, microseconds; the drift of the clocks is taken out, and their offset has no part in it. With `one_way`; in a summary, as in all columns of the group, the mean over the iterations; counts are their sum."
            => ("forward_variation.p50", Microseconds, Lower, Gauge, "upload variation, median");
        forward_variation_p95_us: Number = "The same, 95th percentile."
            => ("forward_variation.p95", Microseconds, Lower, Gauge, "upload variation, 95th percentile");
        forward_variation_p99_us: Number = "The same, 99th percentile."
            => ("forward_variation.p99", Microseconds, Lower, Gauge, "upload variation, 99th percentile");
        forward_variation_histogram: Text = "All of these delays above the least one, as in `latency_histogram`; empty in summaries.";
        reverse_variation_p50_us: Number = "The same of the answers, or of a stream from `to`, median."
            => ("reverse_variation.p50", Microseconds, Lower, Gauge, "download variation, median");
        reverse_variation_p95_us: Number = "The same, 95th percentile."
            => ("reverse_variation.p95", Microseconds, Lower, Gauge, "download variation, 95th percentile");
        reverse_variation_p99_us: Number = "The same, 99th percentile."
            => ("reverse_variation.p99", Microseconds, Lower, Gauge, "download variation, 99th percentile");
        reverse_variation_histogram: Text = "The same of the answers, or of a stream from `to`, as in `latency_histogram`; empty in summaries.";
        forward_delay_min_us: Number = "Delay of the requests, from just before the send call to the arrival in the other host's kernel, smallest, microseconds, in rows of the measure phase; known to `one_way_bound_us`, and empty where that is larger."
            => ("forward_delay.min", Microseconds, Lower, Gauge, "upload delay, smallest");
        forward_delay_p50_us: Number = "The same, median."
            => ("forward_delay.p50", Microseconds, Lower, Gauge, "upload delay, median");
        forward_delay_p95_us: Number = "The same, 95th percentile."
            => ("forward_delay.p95", Microseconds, Lower, Gauge, "upload delay, 95th percentile");
        forward_delay_p99_us: Number = "The same, 99th percentile."
            => ("forward_delay.p99", Microseconds, Lower, Gauge, "upload delay, 99th percentile");
        reverse_delay_min_us: Number = "The same of the answers, smallest."
            => ("reverse_delay.min", Microseconds, Lower, Gauge, "download delay, smallest");
        reverse_delay_p50_us: Number = "The same, median."
            => ("reverse_delay.p50", Microseconds, Lower, Gauge, "download delay, median");
        reverse_delay_p95_us: Number = "The same, 95th percentile."
            => ("reverse_delay.p95", Microseconds, Lower, Gauge, "download delay, 95th percentile");
        reverse_delay_p99_us: Number = "The same, 99th percentile."
            => ("reverse_delay.p99", Microseconds, Lower, Gauge, "download delay, 99th percentile");
        forward_sender_host_p50_us: Number = "Time of the requests in the host of `from`, from just before the send call until its interface had them, so that the queue of its own host is part of it: `forward_delay_…` less this lay in the network; with `timestamps: kernel`, of every 16th message, by that host's clock alone, microseconds, median."
            => ("forward_sender_host.p50", Microseconds, Lower, Gauge, "upload in the sender's host, median");
        forward_sender_host_p95_us: Number = "The same, 95th percentile."
            => ("forward_sender_host.p95", Microseconds, Lower, Gauge, "upload in the sender's host, 95th percentile");
        forward_receiver_host_p50_us: Number = "Time of the requests in the host of `to`, from their arrival in its kernel until its program had them; with `timestamps: kernel`, of every 16th message, by that host's clock alone, microseconds, median."
            => ("forward_receiver_host.p50", Microseconds, Lower, Gauge, "upload in the receiver's host, median");
        forward_receiver_host_p95_us: Number = "The same, 95th percentile."
            => ("forward_receiver_host.p95", Microseconds, Lower, Gauge, "upload in the receiver's host, 95th percentile");
        reverse_sender_host_p50_us: Number = "Time of the answers in the host of `to`, from just before the send call until its interface had them, so that the queue of its own host is part of it: `reverse_delay_…` less this lay in the network; with `timestamps: kernel`, of every 16th message, by that host's clock alone, microseconds, median."
            => ("reverse_sender_host.p50", Microseconds, Lower, Gauge, "download in the sender's host, median");
        reverse_sender_host_p95_us: Number = "The same, 95th percentile."
            => ("reverse_sender_host.p95", Microseconds, Lower, Gauge, "download in the sender's host, 95th percentile");
        reverse_receiver_host_p50_us: Number = "Time of the answers in the host of `from`, from their arrival in its kernel until its program had them; with `timestamps: kernel`, of every 16th message, by that host's clock alone, microseconds, median."
            => ("reverse_receiver_host.p50", Microseconds, Lower, Gauge, "download in the receiver's host, median");
        reverse_receiver_host_p95_us: Number = "The same, 95th percentile."
            => ("reverse_receiver_host.p95", Microseconds, Lower, Gauge, "download in the receiver's host, 95th percentile");
        one_way_bound_us: Number = "Bound of the error of the delays: how well the offset of the two clocks is known at the worst instant of the measure phase, microseconds."
            => ("one_way_bound", Microseconds, Lower, Gauge, "bound of the delays");
        one_way_least_us: Number = "Half of the fastest round trip without the times of both hosts: the least delay of each direction by the offset in the middle, microseconds.";
        delay_asymmetry_us: Number = "`forward_delay_min_us` minus `reverse_delay_min_us`; empty where it is smaller than twice the bound."
            => ("delay_asymmetry", Microseconds, Neither, Gauge, "upload delay less download", any());
        one_way_clock: Option<OneWayClock> = "Clocks and times behind the delays: {words}.";
        one_way_offset_us: Number = "CLOCK_MONOTONIC_RAW of `to` minus that of `from` at the begin of the measure phase, microseconds, by the round trips; empty with a STAMP reflector.";
        one_way_drift_ppm: Number = "Drift of that offset, microseconds per second.";
        forward_lost: Integer = "Requests that did not come to a STAMP reflector, by its own numbers, in rows of the measure phase; those after the last answer are not known. Empty where the reflector does not count."
            => ("forward_lost", Count, Lower, Count, "lost, upload");
        reverse_lost: Integer = "Its answers that did not come back."
            => ("reverse_lost", Count, Lower, Count, "lost, download");
        forward_ttl: Integer = "Least TTL or hop limit with which requests came to a STAMP reflector. They leave with 255: the difference is the number of routers on the way.";
        one_way_because: Text = "The figures of each direction in a sentence, and why a delay is left out.";
    }
    "outages" {
        outages: Integer = "Outages of the path in the measure phase, with `outage`: times of at least that length in which no request had an answer that was in time, or no message of a stream arrived in time."
            => ("outages", Count, Lower, Count, "outages");
        outage_max_us: Number = "The longest one, from when its first request was due until a request was answered as usual again, microseconds; 0 without one. Of one that lasts to the end of the test, at least so much."
            => ("outage.max", Microseconds, Lower, Gauge, "outage, longest");
        outage_total_us: Number = "All of them together, microseconds; in a summary those of all iterations."
            => ("outage.total", Microseconds, Lower, Count, "outages, together");
        outage_begin_s: Number = "Begin of the longest one, seconds after the measure phase's start.";
        outage_bound_us: Number = "Bound of the error of begin and length: the time between two requests, microseconds. A request beside an outage that was lost by chance adds as much.";
        silence_us: Number = "Longest time in the measure phase for which nothing of a stream arrived, at least, microseconds: by the receiver's intervals, a run of lost datagrams, or TCP's waits after its retransmission timeout, as a mean (Linux 6.7). Empty below half a second, and where such pauses are usual. In a summary the longest.";
        hook_s: Number = "When the hook `during` was started, seconds after the measure phase's start at the end that tells of outages.";
        hook_bound_us: Number = "Time until it had ended, microseconds: what it did happened in this time.";
        convergence_us: Number = "From the start of the hook `during` to the end of the longest outage, if that lasted beyond it, microseconds; known to `hook_bound_us` and `outage_bound_us`. In a summary, the mean of the iterations."
            => ("convergence", Microseconds, Lower, Gauge, "convergence");
        outage_because: Text = "The outages in a sentence, with the direction of the longest: whether the requests or their answers got lost.";
    }
    "ranks" {
        ranks: Integer = "Ranks of a test of several.";
        operation: Text = "Operation between the ranks.";
        algorithm: Text = "Algorithm of the operation, chosen by its size and the number of ranks; `library`: the library's own choice.";
        library: Text = "Library that carried the data (MPI, QUIC) or sealed it (TLS), with its version, or `kernel`; empty: our own connections.";
        class: Text = "Class of a NAS kernel: S, W, A or B.";
        operation_time_us: Number = "Time of an operation at its slowest rank, from entry to exit, mean over the operations, microseconds. Of very many operations every 2nd, 4th, … counts. In a row of one rank: at that rank."
            => ("operation_time", Microseconds, Lower, Gauge, "operation time");
        operation_time_mean_us: Number = "Time of an operation, mean over operations and ranks, microseconds."
            => ("operation_time.mean", Microseconds, Lower, Gauge, "operation time, mean of ranks");
        operation_time_min_us: Number = "Mean time of an operation at the rank where it is least, microseconds."
            => ("operation_time.min", Microseconds, Lower, Gauge, "operation time, fastest rank");
        own_time_us: Number = "Time of an operation from the entry of its last rank to the exit of its last rank, mean, microseconds: without the waiting for ranks that came late. Clocks of several hosts are known to within `arrival_bound_us`."
            => ("own_time", Microseconds, Lower, Gauge, "operation's own time");
        arrival_spread_us: Number = "Time from the entry of the first rank into an operation to that of the last one, mean, microseconds."
            => ("arrival_spread", Microseconds, Lower, Gauge, "arrival spread");
        arrival_bound_us: Number = "Bound of the error of `own_time_us` and `arrival_spread_us`: how well the clocks of the hosts are known, microseconds.";
        bus_bits_per_s: Number = "Bus bandwidth by the definitions of nccl-tests: the bits per second that the busiest port must carry at least, by `bus_formula` with `operation_time_us`."
            => ("bus_bandwidth", BitsPerSecond, Higher, Gauge, "bus bandwidth");
        bus_formula: Text = "Formula of the bus bandwidth: m is `message_bytes`, n `ranks`, t the time of an operation.";
        mops_per_s: Number = "Million operations per second of a NAS kernel, as the suite counts them."
            => ("mops", MopsPerSecond, Higher, Gauge, "million operations per second");
        communication_ratio: Number = "Share of the elapsed time in calls that talk to other ranks, mean over the ranks, 0 … 1."
            => ("communication", Ratio, Lower, Gauge, "communication");
        verified: Boolean = "Whether the result of a NAS kernel is the published one.";
    }
    "cpu" {
        @ends {
            cpu_ratio (local_cpu_ratio remote_cpu_ratio): Number = "Busy share of all CPUs of the machine of `{end}`, also in a container (`cpu_shares_of` in `run.json`), 0 … 1 (everything but idle and iowait)."
                => ("cpu.local" "cpu.remote", Ratio, Lower, Gauge, "CPU");
            cpu_user_ratio (local_cpu_user_ratio remote_cpu_user_ratio): Number = "User (and nice) share at `{end}`.";
            cpu_system_ratio (local_cpu_system_ratio remote_cpu_system_ratio): Number = "System share at `{end}`.";
            cpu_iowait_ratio (local_cpu_iowait_ratio remote_cpu_iowait_ratio): Number = "Iowait share at `{end}`.";
            cpu_irq_ratio (local_cpu_irq_ratio remote_cpu_irq_ratio): Number = "Hard-interrupt share at `{end}`.";
            cpu_softirq_ratio (local_cpu_softirq_ratio remote_cpu_softirq_ratio): Number = "Soft-interrupt share at `{end}`.";
            cpu_steal_ratio (local_cpu_steal_ratio remote_cpu_steal_ratio): Number = "Share stolen by the hypervisor at `{end}`.";
            cpu_peak_ratio (local_cpu_peak_ratio remote_cpu_peak_ratio): Number = "Busy share of the busiest CPU at `{end}`."
                => ("cpu.local_peak" "cpu.remote_peak", Ratio, Lower, Gauge, "busiest CPU");
            cpu_peak_id (local_cpu_peak_id remote_cpu_peak_id): Integer = "The busiest CPU at `{end}`.";
            process_cpus (local_process_cpus remote_process_cpus): Number = "CPUs that plumb's own process at `{end}` kept busy: its user and system time over the elapsed time. Both ends count where they share a process.";
            involuntary_switches (local_involuntary_switches remote_involuntary_switches): Integer = "Times that the kernel took a CPU from plumb's own process at `{end}`, to let something else run (involuntary context switches). Both ends count where they share a process."
                => ("involuntary_switches.local" "involuntary_switches.remote", Count, Lower, Count, "involuntary context switches");
            throttled_ratio (local_throttled_ratio remote_throttled_ratio): Number = "Share of the elapsed time in which a CPU quota held back the control group of `{end}`, 0 … 1, as a mean over the CPUs that it used: its throttled time over the elapsed time, or over used plus throttled time if that is longer. Exact for one thread and for CPUs that always have work, otherwise an upper bound. Empty where it is unknown."
                => ("cpu.local_throttled" "cpu.remote_throttled", Ratio, Lower, Gauge, "held back by a quota");
            spin_ratio (local_spin_ratio remote_spin_ratio): Number = "With `io: spin`: share of the waits at `{end}` that ended while the thread spun, 0 … 1; the others blocked. Over the whole test, warm-up included."
                => ("spin.local" "spin.remote", Ratio, Neither, Gauge, "waits that ended in a spin");
            service_demand (local_service_demand remote_service_demand): Number = "CPU time of `{end}` per unit of work, in `service_demand_unit`."
                => ("service_demand.local" "service_demand.remote", ServiceDemand, Lower, Gauge, "service demand");
            process_demand (local_process_demand remote_process_demand): Number = "CPU time of plumb's own process at `{end}` per unit of work, in `service_demand_unit`: what other programs use is not in it, nor what the kernel does outside of the process. Of both ends where they share a process."
                => ("process_demand.local" "process_demand.remote", ServiceDemand, Lower, Gauge, "own CPU time");
        }
        service_demand_unit: Option<DemandUnit> = "{words}.";
    }
    "tcp" {
        retransmits: Integer = "Segments retransmitted in what the row counts by whoever sends its data: `from` of a forward stream, `to` of a reverse one, both of transactions and of both directions together."
            => ("retransmits", Count, Lower, Count, "retransmits");
        @ends {
            retransmits (local_retransmits remote_retransmits): Integer = "Segments retransmitted by `{end}` in what the row counts."
                => ("retransmits.local" "retransmits.remote", Count, Lower, Count, "retransmits");
        }
        rtt_us: Number = "Smoothed round-trip time of the sender's kernel, or with QUIC of its library, at the end, microseconds; mean over streams."
            => ("rtt", Microseconds, Lower, Gauge, "round-trip time of the connection");
        rtt_var_us: Number = "Round-trip time variation of the sender's kernel at the end, microseconds; mean over streams."
            => ("rtt_var", Microseconds, Lower, Gauge, "TCP round-trip time variation");
        cwnd_bytes: Integer = "Congestion window at the sender at the end, bytes; sum over streams. Of TCP and QUIC."
            => ("cwnd", Bytes, Neither, Gauge, "congestion window");
        delivery_rate_bits_per_s: Number = "Delivery rate as the sender's kernel estimates it at the end; sum over streams."
            => ("delivery_rate", BitsPerSecond, Neither, Gauge, "TCP delivery rate");
        min_rtt_us: Number = "Smallest round-trip time that the sender's kernel saw lately (`net.ipv4.tcp_min_rtt_wlen`, 5 minutes), at the end, microseconds; smallest over streams. With QUIC: that its library saw on the connection."
            => ("min_rtt", Microseconds, Lower, Gauge, "smallest round-trip time of the connection");
        busy_ratio: Number = "Share of the elapsed time in which the sender's kernel had data to send or unacknowledged (growth of tcpi_busy_time over the sender's elapsed time), 0 … 1; mean over streams."
            => ("busy_ratio", Ratio, Neither, Gauge, "sender busy");
        rwnd_limited_ratio: Number = "Share of the elapsed time in which the receiver's window limited the sender (growth of tcpi_rwnd_limited over the sender's elapsed time), 0 … 1; mean over streams."
            => ("rwnd_limited_ratio", Ratio, Lower, Gauge, "limited by the receive window");
        sndbuf_limited_ratio: Number = "Share of the elapsed time in which its send buffer limited the sender (growth of tcpi_sndbuf_limited over the sender's elapsed time), 0 … 1; mean over streams."
            => ("sndbuf_limited_ratio", Ratio, Lower, Gauge, "limited by the send buffer");
        @ends {
            time_wait_before (local_time_wait_before remote_time_wait_before): Integer = "Connections in TIME_WAIT at `{end}` (in its network namespace) before the load of a connect workload.";
            time_wait_after (local_time_wait_after remote_time_wait_after): Integer = "The same after it.";
        }
    }
    "quic" {
        quic_packets_sent: Integer = "Packets of QUIC sent by the end that sends the row's data: `from` of a forward stream and of requests, `to` of a reverse stream, both of both directions together; with `tcp_info` in `collect`, as in all columns of the group, and empty for `…_cc` and `…_crr`."
            => ("quic_packets_sent", Count, Neither, Count, "QUIC packets sent");
        quic_lost: Integer = "Of these and earlier ones, packets that the sender's library gave up in what the row counts. It sends their data again in others."
            => ("quic_lost", Count, Lower, Count, "QUIC packets lost");
        quic_loss_ratio: Number = "`quic_lost` over `quic_packets_sent`, 0 … 1."
            => ("quic_loss_ratio", Ratio, Lower, Gauge, "QUIC loss");
        quic_congestion_events: Integer = "Times that the sender's congestion control saw congestion."
            => ("quic_congestion_events", Count, Lower, Count, "QUIC congestion events");
        quic_blocked: Integer = "Times that the sender told the other end that its window (`quic.window`) holds it back: DATA_BLOCKED and STREAM_DATA_BLOCKED."
            => ("quic_blocked", Count, Lower, Count, "held back by QUIC's window");
        quic_udp_bytes: Integer = "Payload of the UDP datagrams of the senders: the data with QUIC's headers and seals, acknowledgements, and what was sent again, bytes.";
        quic_mtu_bytes: Integer = "Longest UDP payload that the sender knows the path to carry, at the end, bytes; smallest over streams.";
    }
    "limits" {
        limited_by: Option<LimitedBy> = "Why the test was not faster, in rows of the measure phase and in summaries: {words}.";
        limited_ratio: Number = "Share of the elapsed time, or of what was possible, for which `limited_by` held, 0 … 1.";
        limited_because: Text = "The evidence for `limited_by`, in a sentence, with what could not be looked at.";
        cpu_taken_ratio: Number = "Share of the elapsed time, 0 … 1, in which others took a CPU from the test, at the end where it is larger: stolen by the hypervisor (`…_cpu_steal_ratio`), or waited by the busiest data thread (`…_thread_waiting_ratio`) less what plumb's other threads, soft interrupts and a quota explain. From a tenth on, and from twice what is usual beside it, the row is *disturbed*."
            => ("cpu.taken", Ratio, Lower, Gauge, "CPU taken by others");
        same_machine: Boolean = "Whether both ends ran on one boot of one machine, and so shared its CPUs; empty: an end does not tell.";
        app_limited_ratio: Number = "Share of the streams whose last sample of the delivery rate was taken while the sender had too little to send (tcpi_delivery_rate_app_limited), 0 … 1.";
        pacing_rate_bits_per_s: Number = "Rate at which the sender's kernel paces (tcpi_pacing_rate), at the end; sum over streams; empty where it paces none.";
        receive_window_bytes: Integer = "Window that the receivers announced last (tcpi_snd_wnd of the sender), bytes; sum over streams."
            => ("receive_window", Bytes, Neither, Gauge, "receive window");
        @ends {
            thread_busy_ratio (local_thread_busy_ratio remote_thread_busy_ratio): Number = "Share of the elapsed time in which the busiest data thread at `{end}` was on a CPU (its schedstat), 0 … 1. The busiest is the one with the largest sum of this and `{side}_thread_waiting_ratio`; in the row of a test of ranks it is chosen among those of all ranks.";
            thread_waiting_ratio (local_thread_waiting_ratio remote_thread_waiting_ratio): Number = "Share of the elapsed time in which that thread was ready to run and waited for a CPU (its schedstat), 0 … 1.";
            encryption_cpus (local_encryption_cpus remote_encryption_cpus): Number = "CPUs that sealing and opening the records of TLS kept busy at `{end}`: their CPU time over the elapsed time, estimated from one record of 61. Empty where the kernel has the records, and for QUIC and the connect patterns, whose library does not tell.";
            thread_cpu_id (local_thread_cpu_id remote_thread_cpu_id): Integer = "The CPU that it ran on last (its stat, field 39).";
            thread_cpu_busy_ratio (local_thread_cpu_busy_ratio remote_thread_cpu_busy_ratio): Number = "Busy share of that CPU (/proc/stat), 0 … 1.";
            thread_softirq_ratio (local_thread_softirq_ratio remote_thread_softirq_ratio): Number = "Share of soft interrupts on that CPU (/proc/stat), 0 … 1.";
            softirq_peak_ratio (local_softirq_peak_ratio remote_softirq_peak_ratio): Number = "Share of soft interrupts on the CPU at `{end}` that has the most (/proc/stat), 0 … 1.";
            softirq_peak_id (local_softirq_peak_id remote_softirq_peak_id): Integer = "Number of that CPU.";
            qdisc_drops (local_qdisc_drops remote_qdisc_drops): Integer = "Packets that the queueing discipline of the interface at `{end}` dropped, with its classes, and those at its ingress (as `tc -s qdisc` shows them). All traffic of the interface counts, as in the next two."
                => ("drops.local_qdisc" "drops.remote_qdisc", Count, Lower, Count, "drops of the queueing discipline");
            interface_drops (local_interface_drops remote_interface_drops): Integer = "Packets that the interface at `{end}` dropped, in sending or receiving: no room in its ring, or dropped by its driver (rx_dropped, rx_missed_errors, rx_over_errors, rx_fifo_errors, tx_dropped, tx_fifo_errors). Those of softnet count here too."
                => ("drops.local_interface" "drops.remote_interface", Count, Lower, Count, "drops of the interface");
            softnet_drops (local_softnet_drops remote_softnet_drops): Integer = "Packets that the kernel at `{end}` dropped between its interfaces and its protocols (/proc/net/softnet_stat), on all CPUs."
                => ("drops.local_softnet" "drops.remote_softnet", Count, Lower, Count, "drops of softnet");
            socket_drops (local_socket_drops remote_socket_drops): Integer = "Packets that the data sockets at `{end}` dropped: no room in their receive buffers (SO_MEMINFO)."
                => ("drops.local_socket" "drops.remote_socket", Count, Lower, Count, "drops of the sockets");
        }
    }
    "ecn" {
        ecn: Boolean = "Whether Explicit Congestion Notification was in use: of TCP, whether the two kernels agreed on it; of datagrams, whether they were sent with a code point (`socket.ecn`). Of several streams: of all.";
        ecn_sent: Option<CodePoint> = "Code point with which datagrams were sent: {words}.";
        ecn_path: Option<EcnPath> = "What became of it on the way: {words}.";
        local_ce_packets: Integer = "Packets that arrived at `from` with a congestion mark (CE): of datagrams with `socket.ecn` the messages of the test, otherwise all IP packets of the network namespace (IpExt.InCEPkts), where each segment of a merged packet (GRO) counts."
            => ("ce.local", Count, Lower, Count, "congestion marks here");
        remote_ce_packets: Integer = "The same at `to`."
            => ("ce.remote", Count, Lower, Count, "congestion marks there");
        ce_echoed: Integer = "Segments that were acknowledged while the receiver echoed a congestion mark (growth of tcpi_delivered_ce at the sender); sum over streams. Without accurate ECN the echo lasts until the sender has answered it, so these are more than the marks."
            => ("ce_echoed", Count, Lower, Count, "congestion marks echoed");
        @ends {
            not_ect_packets (local_not_ect_packets remote_not_ect_packets): Integer = "Datagrams of a test with `socket.ecn` that arrived at `{end}` as Not-ECT."
                => ("not_ect.local" "not_ect.remote", Count, Lower, Count, "arrived as Not-ECT");
            ect0_packets (local_ect0_packets remote_ect0_packets): Integer = "The same as ECT(0)."
                => ("ect0.local" "ect0.remote", Count, Neither, Count, "arrived as ECT(0)");
            ect1_packets (local_ect1_packets remote_ect1_packets): Integer = "The same as ECT(1)."
                => ("ect1.local" "ect1.remote", Count, Neither, Count, "arrived as ECT(1)");
        }
    }
    "hops" {
        queue_hop: Integer = "The hop behind whose link the queue stands, in rows of the measure phase of a test with `hops`: 0 is `from`, 1 the router next to it. Empty: there is no queue, or its place is unknown (`queue_hop_because`).";
        queue_hop_last: Integer = "The last hop behind whose link it may stand: larger than `queue_hop` where hops between the two do not answer, or slowly by themselves.";
        queue_hop_address: Text = "Address of `queue_hop`; empty for `from`.";
        queue_hop_added_us: Number = "Round trip that the queue adds, at the last hop that answers, microseconds.";
        queue_hop_because: Text = "The place in a sentence, or why none is named.";
    }
    "confidence" {
        iterations: Integer = "Iterations that a summary row condenses.";
        confidence_level: Number = "Confidence level, 0 … 1.";
        margin_ratio: Number = "Half-width of the confidence interval over the mean, as reached (the worst of the plan's metrics).";
        margin_goal_ratio: Number = "The margin that was asked for.";
        confident: Boolean = "Whether every metric reached its margin.";
        mean: Number = "Mean of the headline metric over the iterations, in its own unit: the middle of the interval, where the row's percentiles are of all latencies together. Empty where the plan names another metric first.";
        stddev: Number = "Sample standard deviation of the headline metric over the iterations, in its own unit.";
        drift_ratio: Number = "Change of the headline metric from the first to the last iteration along the fitted line, over its mean.";
    }
    "search" {
        search: Option<Search> = "The outcome of a probe; in a summary, the end of the search: {words}.";
        search_above: Number = "In a summary, the lowest load that did not hold, in the unit of `offered_per_s`, or of `inflight` where that was searched.";
    }
}

impl Row {
    /// The row without its histograms, which are most of its bytes.
    #[must_use]
    pub fn without_histograms(self) -> Self {
        Self {
            handshake_histogram: None,
            latency_histogram: None,
            receive_call_histogram: None,
            forward_variation_histogram: None,
            reverse_variation_histogram: None,
            ..self
        }
    }
}
