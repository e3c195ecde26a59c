//! The wide results table: one list of columns from which the registry and the typed row are both made.

/// What the cells of a column hold. A cell of any type may be empty: empty means "not defined for this row".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// UTF-8 text; identifiers among them never look like numbers.
    Text,
    /// A whole number, 0 … 2^63−1.
    Integer,
    /// A finite decimal number in the shortest form that reads back the same.
    Number,
    /// `true` or `false`.
    Boolean,
    /// RFC 3339 in UTC with a `Z`.
    Time,
}

/// One column of the results table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its header: ASCII `snake_case`, the unit last.
    pub name: &'static str,
    /// What its cells hold.
    pub ty: ColumnType,
    /// The group of the contract it belongs to (`identity`, `latency`, …).
    pub group: &'static str,
    /// One sentence for the data dictionary.
    pub description: &'static str,
}

macro_rules! cell_type {
    (Text) => {
        String
    };
    (Time) => {
        String
    };
    (Integer) => {
        u64
    };
    (Number) => {
        f64
    };
    (Boolean) => {
        bool
    };
}

macro_rules! columns {
    ($( $group:literal { $( $name:ident : $ty:ident = $description:literal; )* } )*) => {
        /// Every fixed column, in the order in which it is written.
        pub const COLUMNS: &[Column] = &[
            $( $( Column {
                name: stringify!($name), ty: ColumnType::$ty, group: $group, description: $description,
            }, )* )*
        ];

        /// One row, a field per column. What is `None` is written as an empty cell.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Row {
            $( $( #[doc = $description] pub $name: Option<cell_type!($ty)>, )* )*
            /// The cells of the `axis_<path>` columns, in the order of [`header`]'s axes.
            pub axes: Vec<String>,
        }

        impl Row {
            /// Calls `write` once per cell, in the order of [`header`]. Undefined and non-finite values are empty cells.
            pub fn for_each_cell(&self, mut write: impl FnMut(&str)) {
                $( $( write(&self.$name.as_ref().map(Cell::text).unwrap_or_default()); )* )*
                for axis in &self.axes {
                    write(axis);
                }
            }

            /// The cell of that fixed column as a number; `None` where it is empty or holds no number.
            #[must_use]
            pub fn number(&self, column: &str) -> Option<f64> {
                match column {
                    $( $( stringify!($name) => self.$name.as_ref().and_then(Cell::number), )* )*
                    _ => None,
                }
            }

            /// Sets the cell of that fixed column to a number, whole where the column is, or empties it. Cells that hold
            /// no numbers are left alone.
            pub fn set_number(&mut self, column: &str, value: Option<f64>) {
                match column {
                    $( $( stringify!($name) => Cell::set_number(&mut self.$name, value), )* )*
                    _ => {}
                }
            }
        }
    };
}

trait Cell: Sized {
    fn text(&self) -> String;

    fn number(&self) -> Option<f64> {
        None
    }

    fn set_number(_cell: &mut Option<Self>, _value: Option<f64>) {}
}

impl Cell for String {
    fn text(&self) -> String {
        self.clone()
    }
}

impl Cell for u64 {
    fn text(&self) -> String {
        self.to_string()
    }

    fn number(&self) -> Option<f64> {
        Some(*self as f64)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates, as a count may")]
    fn set_number(cell: &mut Option<Self>, value: Option<f64>) {
        *cell = value.filter(|v| v.is_finite()).map(|v| v.round() as Self);
    }
}

impl Cell for bool {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Cell for f64 {
    fn text(&self) -> String {
        number(*self)
    }

    fn number(&self) -> Option<f64> {
        self.is_finite().then_some(*self)
    }

    fn set_number(cell: &mut Option<Self>, value: Option<f64>) {
        *cell = value;
    }
}

/// A number as the contract writes it: shortest form that reads back the same; empty where it is not finite.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    // `-0` would survive a round trip but surprises everybody who reads it.
    let value = if value == 0.0 { 0.0 } else { value };
    value.to_string()
}

/// The prefix of the columns that hold swept keys without a column of their own.
pub const AXIS_PREFIX: &str = "axis_";

/// The name of the axis column of a dotted path: `socket.mss` → `axis_socket_mss`.
#[must_use]
pub fn axis_column(path: &str) -> String {
    let mut name = String::from(AXIS_PREFIX);
    name.extend(path.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }));
    name
}

/// The header: every fixed column, then one per axis path in the order given.
#[must_use]
pub fn header(axis_paths: &[String]) -> Vec<String> {
    COLUMNS.iter().map(|c| c.name.to_owned()).chain(axis_paths.iter().map(|p| axis_column(p))).collect()
}

/// The fixed column of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|c| c.name == name)
}

columns! {
    "identity" {
        run_id: Text = "UUIDv7 of the run that wrote the row.";
        plan: Text = "Name of the plan.";
        test: Text = "Name of the test within the plan.";
        case_id: Text = "`c` and a hash of everything that affects the workload; stable across renames of files and hosts.";
        case: Text = "The test and its swept values, readable: `bulk[message_size=65536]`.";
        member: Text = "Name of the member of a concurrent group.";
        tag: Text = "The test's tags, separated by spaces.";
    }
    "kind" {
        record: Text = "What the row is: `interval`, `stream`, `iteration`, `probe` or `summary`.";
        iteration: Integer = "Number of the iteration, from 1.";
        phase: Text = "`warmup`, `measure` or `cooldown`.";
        stream: Integer = "Number of the stream (flow), from 0, where the row is about one.";
        status: Text = "`ok`, `failed`, `timeout`, `skipped`, `discarded`, or `confirm` (measured again because a verdict failed).";
        error: Text = "Why, where the status is not `ok`.";
    }
    "place and time" {
        from: Text = "Name of the host that opens the connections.";
        to: Text = "Name of the host that accepts them.";
        direction: Text = "`forward` (from → to), `reverse` or `both`.";
        time: Time = "Wall-clock end of what the row counts.";
        start_s: Number = "Start of what the row counts, seconds after the measure phase's start; warm-up is negative.";
        elapsed_s: Number = "Actual length of what the row counts, seconds.";
        start_skew_us: Number = "Largest difference between the instants at which the ends, or members, were measured under their whole load (the last of their threads had begun), microseconds.";
        settled: Boolean = "Whether the load was flat when a warm-up ended that ends by itself (`warmup: auto`); empty where it was to last a given time. How long it lasted is the `elapsed_s` of its row.";
    }
    "what ran" {
        workload: Text = "Workload name.";
        transport: Text = "Transport protocol.";
        control: Text = "`session`: both ends report. `none`: the far end is a service that takes no part, and what only it could count is empty.";
        io: Text = "How bytes crossed the socket, as granted.";
        streams: Integer = "Parallel streams in each direction.";
        threads: Integer = "Threads that moved data at each end.";
        message_bytes: Integer = "Bytes per send call of a stream.";
        receive_bytes: Integer = "Bytes asked for per receive call of a stream.";
        request_bytes: Integer = "Bytes of a request.";
        response_bytes: Integer = "Bytes of a response.";
        inflight: Integer = "Outstanding transactions per stream.";
        coalesce: Boolean = "Whether all replies at hand are drained by one read and refilled by one send: other semantics than one call per request.";
        offered_per_s: Number = "Offered load asked for, of each direction, in `offered_unit` per second.";
        offered_unit: Text = "`bits`, `messages` or `transactions`.";
        congestion_control: Text = "Congestion control in use at the sender; empty for both directions together where the two senders differ.";
        no_delay: Boolean = "Whether TCP_NODELAY was set.";
        local_send_buffer_bytes: Integer = "SO_SNDBUF at the end of the run at `from`, as the kernel reports it.";
        local_receive_buffer_bytes: Integer = "SO_RCVBUF at the end of the run at `from`, as the kernel reports it.";
        remote_send_buffer_bytes: Integer = "SO_SNDBUF at the end of the run at `to`, as the kernel reports it.";
        remote_receive_buffer_bytes: Integer = "SO_RCVBUF at the end of the run at `to`, as the kernel reports it.";
        mss_bytes: Integer = "Maximum segment size in use at the end.";
        local_cpu: Text = "CPU affinity of the data threads at `from`; empty: not pinned.";
        remote_cpu: Text = "CPU affinity of the data threads at `to`; empty: not pinned.";
    }
    "volume" {
        throughput_bits_per_s: Number = "What arrived, as the receiver counted it: payload bits over the receiver's own elapsed time.";
        sent_bits_per_s: Number = "What was handed to the kernel, as the sender counted it: payload bits over the sender's own elapsed time.";
        transactions_per_s: Number = "Completed transactions per second, as the requester counted them.";
        bytes_sent: Integer = "Payload bytes the senders handed to the kernel.";
        bytes_received: Integer = "Payload bytes the receivers got.";
        sends: Integer = "Send calls that moved data.";
        receives: Integer = "Receive calls that moved data.";
        transactions: Integer = "Completed transactions.";
        connections: Integer = "Connections opened for the data.";
        errors: Integer = "Operations that failed without ending the measurement (timeouts of requests, refused connections, …).";
    }
    "datagrams" {
        messages_sent: Integer = "Messages sent.";
        messages_received: Integer = "Messages received, duplicates not counted.";
        lost: Integer = "Messages sent in the window that never arrived; empty where they are shorter than a number (8 bytes).";
        loss_ratio: Number = "`lost` over `messages_sent`, 0 … 1.";
        reordered: Integer = "Messages that arrived after one with a higher sequence number.";
        duplicated: Integer = "Messages that arrived more than once, beyond the first.";
        jitter_us: Number = "Interarrival jitter by RFC 3550, microseconds.";
    }
    "pacing" {
        rate_error_ratio: Number = "(sent rate − offered rate) over the offered rate.";
        gap_p50_us: Number = "Median gap between sends, microseconds.";
        gap_p99_us: Number = "99th percentile of the gap between sends, microseconds.";
        gap_max_us: Number = "Largest gap between sends, microseconds.";
        gap_within_tenth_ratio: Number = "Share of the gaps within a tenth of the scheduled gap, 0 … 1.";
    }
    "latency" {
        latency_min_us: Number = "Smallest, microseconds.";
        latency_mean_us: Number = "Mean, microseconds.";
        latency_p50_us: Number = "Median, microseconds.";
        latency_p90_us: Number = "90th percentile, microseconds.";
        latency_p95_us: Number = "95th percentile, microseconds.";
        latency_p99_us: Number = "99th percentile, microseconds.";
        latency_p999_us: Number = "99.9th percentile, microseconds.";
        latency_max_us: Number = "Largest, microseconds.";
        latency_stddev_us: Number = "Standard deviation, microseconds.";
        latency_kind: Text = "What was timed: `round_trip`, `response` (from the intended send), `connect`, `send` or `receive`.";
        latency_histogram: Text = "HdrHistogram V2, base64; values in nanoseconds; histograms of several rows can be merged.";
        receive_call_mean_us: Number = "Receive calls of a stream whose send calls are in the latency columns: mean, waiting included, microseconds.";
        receive_call_p50_us: Number = "The same, median, microseconds.";
        receive_call_p90_us: Number = "The same, 90th percentile, microseconds.";
        receive_call_p99_us: Number = "The same, 99th percentile, microseconds.";
        receive_call_max_us: Number = "The same, largest, microseconds.";
        receive_call_histogram: Text = "The same, as in `latency_histogram`.";
    }
    "cpu" {
        local_cpu_ratio: Number = "Busy share of all CPUs of `from`, 0 … 1 (everything but idle and iowait).";
        local_cpu_user_ratio: Number = "User (and nice) share at `from`.";
        local_cpu_system_ratio: Number = "System share at `from`.";
        local_cpu_iowait_ratio: Number = "Iowait share at `from`.";
        local_cpu_irq_ratio: Number = "Hard-interrupt share at `from`.";
        local_cpu_softirq_ratio: Number = "Soft-interrupt share at `from`.";
        local_cpu_steal_ratio: Number = "Share stolen by the hypervisor at `from`.";
        local_cpu_peak_ratio: Number = "Busy share of the busiest CPU at `from`.";
        local_cpu_peak_id: Integer = "The busiest CPU at `from`.";
        local_service_demand: Number = "CPU time of `from` per unit of work, in `service_demand_unit`.";
        remote_cpu_ratio: Number = "Busy share of all CPUs of `to`, 0 … 1 (everything but idle and iowait).";
        remote_cpu_user_ratio: Number = "User (and nice) share at `to`.";
        remote_cpu_system_ratio: Number = "System share at `to`.";
        remote_cpu_iowait_ratio: Number = "Iowait share at `to`.";
        remote_cpu_irq_ratio: Number = "Hard-interrupt share at `to`.";
        remote_cpu_softirq_ratio: Number = "Soft-interrupt share at `to`.";
        remote_cpu_steal_ratio: Number = "Share stolen by the hypervisor at `to`.";
        remote_cpu_peak_ratio: Number = "Busy share of the busiest CPU at `to`.";
        remote_cpu_peak_id: Integer = "The busiest CPU at `to`.";
        remote_service_demand: Number = "CPU time of `to` per unit of work, in `service_demand_unit`.";
        service_demand_unit: Text = "`us_per_kib` or `us_per_transaction`.";
    }
    "tcp" {
        retransmits: Integer = "Segments retransmitted by `from` in what the row counts.";
        remote_retransmits: Integer = "Segments retransmitted by `to` in what the row counts.";
        rtt_us: Number = "Smoothed round-trip time of the sender's kernel at the end, microseconds; mean over streams.";
        rtt_var_us: Number = "Round-trip time variation of the sender's kernel at the end, microseconds; mean over streams.";
        cwnd_bytes: Integer = "Congestion window at the sender at the end, bytes; sum over streams.";
        delivery_rate_bits_per_s: Number = "Delivery rate as the sender's kernel estimates it at the end; sum over streams.";
        local_time_wait_before: Integer = "Connections in TIME_WAIT at `from` (in its network namespace) before the load of a connect workload.";
        local_time_wait_after: Integer = "The same after it.";
        remote_time_wait_before: Integer = "Connections in TIME_WAIT at `to` (in its network namespace) before the load of a connect workload.";
        remote_time_wait_after: Integer = "The same after it.";
    }
    "confidence" {
        iterations: Integer = "Iterations that a summary row condenses.";
        confidence_level: Number = "Confidence level, 0 … 1.";
        margin_ratio: Number = "Half-width of the confidence interval over the mean, as reached (the worst of the plan's metrics).";
        margin_goal_ratio: Number = "The margin that was asked for.";
        confident: Boolean = "Whether every metric reached its margin.";
        stddev: Number = "Sample standard deviation of the headline metric over the iterations, in its own unit.";
        drift_ratio: Number = "Change of the headline metric from the first to the last iteration along the fitted line, over its mean.";
    }
    "search" {
        search: Text = "What a probe showed (`held`, `exceeded`, `unreached`: the load was not really offered); in a summary, how the search ended (`found`, `at_least`, `unreached`, `nothing`, `open`).";
        search_above: Number = "In a summary, the lowest load that did not hold, in the unit of `offered_per_s`, or of `inflight` where that was searched.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_ascii_snake_case() {
        let mut seen = std::collections::HashSet::new();
        for column in COLUMNS {
            assert!(seen.insert(column.name), "{} twice", column.name);
            assert!(column.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        }
    }

    #[test]
    fn a_row_has_a_cell_per_header() {
        let row = Row { axes: vec!["true".into()], ..Row::default() };
        let mut cells = 0;
        row.for_each_cell(|_| cells += 1);
        assert_eq!(cells, header(&["socket.no_delay".into()]).len());
    }

    #[test]
    fn cells_are_read_and_set_by_name() {
        let mut row = Row { io: Some("blocking".into()), ..Row::default() };
        row.set_number("bytes_sent", Some(41.6));
        row.set_number("sent_bits_per_s", Some(0.5));
        row.set_number("io", Some(1.0));
        assert_eq!((row.bytes_sent, row.number("bytes_sent")), (Some(42), Some(42.0)));
        assert_eq!((row.number("sent_bits_per_s"), row.number("io")), (Some(0.5), None));
        assert_eq!(row.io.as_deref(), Some("blocking"));
        row.set_number("bytes_sent", None);
        assert_eq!(row.bytes_sent, None);
    }

    #[test]
    fn undefined_numbers_are_empty() {
        assert_eq!(number(f64::NAN), "");
        assert_eq!(number(f64::INFINITY), "");
        assert_eq!(number(-0.0), "0");
        assert_eq!(number(0.1 + 0.2), "0.30000000000000004");
    }

    #[test]
    fn axis_columns_are_identifiers() {
        assert_eq!(axis_column("socket.no_delay"), "axis_socket_no_delay");
    }
}
