//! netperf's output selectors: their names, headings and columns.

use schemas::columns::results::Field;

/// The selector of a key of `-k`.
pub fn of_key(key: &str) -> Option<&'static str> {
    COLUMNS.iter().find(|c| c.selector == key).map(|c| c.selector)
}

/// The selector of a heading of `-o`. The heading of `-O` is the same, on four lines.
pub fn of_title(title: &str) -> Option<&'static str> {
    let title = title.trim();
    COLUMNS.iter().find(|c| c.title == title).map(|c| c.selector)
}

/// A selector with its CSV heading, its numeric column and the factor of its value.
pub struct Column {
    pub selector: &'static str,
    pub title: &'static str,
    /// `None`: handled by name.
    pub target: Option<Field>,
    pub factor: f64,
}

const fn c(selector: &'static str, title: &'static str, target: Option<Field>, factor: f64) -> Column {
    Column { selector, title, target, factor }
}

/// Selectors that have a column, or say what ran.
pub const COLUMNS: &[Column] = &[
    c("PROTOCOL", "Protocol", None, 1.0),
    c("DIRECTION", "Direction", None, 1.0),
    c("THROUGHPUT", "Throughput", None, 1.0),
    c("THROUGHPUT_UNITS", "Throughput Units", None, 1.0),
    c("SD_UNITS", "Service Demand Units", None, 1.0),
    c("CONFIDENCE_LEVEL", "Confidence Level Percent", Some(Field::confidence_level), 0.01),
    c("CONFIDENCE_ITERATION", "Confidence Iterations Run", Some(Field::iterations), 1.0),
    // netperf reports full widths; the table's margin is half a width.
    c("CONFIDENCE_INTERVAL", "Confidence Width Target", Some(Field::margin_goal_ratio), 0.005),
    c("THROUGHPUT_CONFID", "Throughput Confidence Width (%)", Some(Field::margin_ratio), 0.005),
    c("RESULT_BRAND", "Result Tag", None, 1.0),
    c("LOCAL_CONG_CONTROL", "Local Congestion Control Algorithm", None, 1.0),
    c("LOCAL_NODELAY", "Local NODELAY", None, 1.0),
    c("SOURCE_ADDR", "Source Address", None, 1.0),
    c("DEST_ADDR", "Destination Address", None, 1.0),
    c("BURST_SIZE", "Initial Burst Requests", None, 1.0),
    c("LOCAL_SEND_SIZE", "Local Send Size", None, 1.0),
    c("REMOTE_SEND_SIZE", "Remote Send Size", None, 1.0),
    c("ELAPSED_TIME", "Elapsed Time (sec)", Some(Field::elapsed_s), 1.0),
    c("LSS_SIZE_END", "Local Send Socket Size Final", Some(Field::local_send_buffer_bytes), 1.0),
    c("LSR_SIZE_END", "Local Recv Socket Size Final", Some(Field::local_receive_buffer_bytes), 1.0),
    c("RSS_SIZE_END", "Remote Send Socket Size Final", Some(Field::remote_send_buffer_bytes), 1.0),
    c("RSR_SIZE_END", "Remote Recv Socket Size Final", Some(Field::remote_receive_buffer_bytes), 1.0),
    c("REMOTE_RECV_SIZE", "Remote Recv Size", None, 1.0),
    c("REQUEST_SIZE", "Request Size Bytes", Some(Field::request_bytes), 1.0),
    c("RESPONSE_SIZE", "Response Size Bytes", Some(Field::response_bytes), 1.0),
    c("LOCAL_CPU_UTIL", "Local CPU Util %", Some(Field::local_cpu_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_USER", "Local CPU User %", Some(Field::local_cpu_user_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_SYSTEM", "Local CPU System %", Some(Field::local_cpu_system_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_IOWAIT", "Local CPU I/O %", Some(Field::local_cpu_iowait_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_IRQ", "Local CPU IRQ %", Some(Field::local_cpu_irq_ratio), 0.01),
    c("LOCAL_CPU_PERCENT_SWINTR", "Local CPU swintr %", Some(Field::local_cpu_softirq_ratio), 0.01),
    c("LOCAL_CPU_PEAK_UTIL", "Local Peak Per CPU Util %", Some(Field::local_cpu_peak_ratio), 0.01),
    c("LOCAL_CPU_PEAK_ID", "Local Peak Per CPU ID", Some(Field::local_cpu_peak_id), 1.0),
    c("LOCAL_SD", "Local Service Demand", Some(Field::local_service_demand), 1.0),
    c("REMOTE_CPU_UTIL", "Remote CPU Util %", Some(Field::remote_cpu_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_USER", "Remote CPU User %", Some(Field::remote_cpu_user_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_SYSTEM", "Remote CPU System %", Some(Field::remote_cpu_system_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_IOWAIT", "Remote CPU I/O %", Some(Field::remote_cpu_iowait_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_IRQ", "Remote CPU IRQ %", Some(Field::remote_cpu_irq_ratio), 0.01),
    c("REMOTE_CPU_PERCENT_SWINTR", "Remote CPU swintr %", Some(Field::remote_cpu_softirq_ratio), 0.01),
    c("REMOTE_CPU_PEAK_UTIL", "Remote Peak Per CPU Util %", Some(Field::remote_cpu_peak_ratio), 0.01),
    c("REMOTE_CPU_PEAK_ID", "Remote Peak Per CPU ID", Some(Field::remote_cpu_peak_id), 1.0),
    c("REMOTE_SD", "Remote Service Demand", Some(Field::remote_service_demand), 1.0),
    c("TRANSACTION_RATE", "Transaction Rate Tran/s", Some(Field::transactions_per_s), 1.0),
    c("RT_LATENCY", "Round Trip Latency usec/tran", None, 1.0),
    c("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions", Some(Field::local_retransmits), 1.0),
    c("REMOTE_TRANSPORT_RETRANS", "Remote Transport Retransmissions", Some(Field::remote_retransmits), 1.0),
    c("TRANSPORT_MSS", "Transport MSS bytes", Some(Field::mss_bytes), 1.0),
    c("LOCAL_SEND_CALLS", "Local Send Calls", None, 1.0),
    c("REMOTE_RECV_CALLS", "Remote Recv Calls", None, 1.0),
    c("LOCAL_BYTES_SENT", "Local Bytes Sent", None, 1.0),
    c("REMOTE_BYTES_RECVD", "Remote Bytes Received", None, 1.0),
    c("LOCAL_RECV_SIZE", "Local Recv Size", None, 1.0),
    c("LOCAL_RECV_CALLS", "Local Recv Calls", None, 1.0),
    c("REMOTE_SEND_CALLS", "Remote Send Calls", None, 1.0),
    c("LOCAL_BYTES_RECVD", "Local Bytes Received", None, 1.0),
    c("REMOTE_BYTES_SENT", "Remote Bytes Sent", None, 1.0),
    c("LOCAL_SEND_THROUGHPUT", "Local Send Throughput", None, 1.0),
    c("REMOTE_SEND_THROUGHPUT", "Remote Send Throughput", None, 1.0),
    c("COMMAND_LINE", "Command Line", None, 1.0),
    c("MIN_LATENCY", "Minimum Latency Microseconds", Some(Field::latency_min_us), 1.0),
    c("MAX_LATENCY", "Maximum Latency Microseconds", Some(Field::latency_max_us), 1.0),
    c("P50_LATENCY", "50th Percentile Latency Microseconds", Some(Field::latency_p50_us), 1.0),
    c("P90_LATENCY", "90th Percentile Latency Microseconds", Some(Field::latency_p90_us), 1.0),
    c("P99_LATENCY", "99th Percentile Latency Microseconds", Some(Field::latency_p99_us), 1.0),
    c("MEAN_LATENCY", "Mean Latency Microseconds", Some(Field::latency_mean_us), 1.0),
    c("STDDEV_LATENCY", "Stddev Latency Microseconds", Some(Field::latency_stddev_us), 1.0),
];
