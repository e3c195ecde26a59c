//! netperf's output selectors: their names, headings and columns.

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
    /// Empty: handled by name.
    pub target: &'static str,
    pub factor: f64,
}

const fn c(selector: &'static str, title: &'static str, target: &'static str, factor: f64) -> Column {
    Column { selector, title, target, factor }
}

/// Selectors that have a column, or say what ran.
pub const COLUMNS: &[Column] = &[
    c("PROTOCOL", "Protocol", "", 1.0),
    c("DIRECTION", "Direction", "", 1.0),
    c("THROUGHPUT", "Throughput", "", 1.0),
    c("THROUGHPUT_UNITS", "Throughput Units", "", 1.0),
    c("SD_UNITS", "Service Demand Units", "", 1.0),
    c("CONFIDENCE_LEVEL", "Confidence Level Percent", "confidence_level", 0.01),
    c("CONFIDENCE_ITERATION", "Confidence Iterations Run", "iterations", 1.0),
    // netperf reports full widths; the table's margin is half a width.
    c("CONFIDENCE_INTERVAL", "Confidence Width Target", "margin_goal_ratio", 0.005),
    c("THROUGHPUT_CONFID", "Throughput Confidence Width (%)", "margin_ratio", 0.005),
    c("RESULT_BRAND", "Result Tag", "", 1.0),
    c("LOCAL_CONG_CONTROL", "Local Congestion Control Algorithm", "", 1.0),
    c("LOCAL_NODELAY", "Local NODELAY", "", 1.0),
    c("SOURCE_ADDR", "Source Address", "", 1.0),
    c("DEST_ADDR", "Destination Address", "", 1.0),
    c("BURST_SIZE", "Initial Burst Requests", "", 1.0),
    c("LOCAL_SEND_SIZE", "Local Send Size", "", 1.0),
    c("REMOTE_SEND_SIZE", "Remote Send Size", "", 1.0),
    c("ELAPSED_TIME", "Elapsed Time (sec)", "elapsed_s", 1.0),
    c("LSS_SIZE_END", "Local Send Socket Size Final", "local_send_buffer_bytes", 1.0),
    c("LSR_SIZE_END", "Local Recv Socket Size Final", "local_receive_buffer_bytes", 1.0),
    c("RSS_SIZE_END", "Remote Send Socket Size Final", "remote_send_buffer_bytes", 1.0),
    c("RSR_SIZE_END", "Remote Recv Socket Size Final", "remote_receive_buffer_bytes", 1.0),
    c("REMOTE_RECV_SIZE", "Remote Recv Size", "", 1.0),
    c("REQUEST_SIZE", "Request Size Bytes", "request_bytes", 1.0),
    c("RESPONSE_SIZE", "Response Size Bytes", "response_bytes", 1.0),
    c("LOCAL_CPU_UTIL", "Local CPU Util %", "local_cpu_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_USER", "Local CPU User %", "local_cpu_user_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_SYSTEM", "Local CPU System %", "local_cpu_system_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_IOWAIT", "Local CPU I/O %", "local_cpu_iowait_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_IRQ", "Local CPU IRQ %", "local_cpu_irq_ratio", 0.01),
    c("LOCAL_CPU_PERCENT_SWINTR", "Local CPU swintr %", "local_cpu_softirq_ratio", 0.01),
    c("LOCAL_CPU_PEAK_UTIL", "Local Peak Per CPU Util %", "local_cpu_peak_ratio", 0.01),
    c("LOCAL_CPU_PEAK_ID", "Local Peak Per CPU ID", "local_cpu_peak_id", 1.0),
    c("LOCAL_SD", "Local Service Demand", "local_service_demand", 1.0),
    c("REMOTE_CPU_UTIL", "Remote CPU Util %", "remote_cpu_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_USER", "Remote CPU User %", "remote_cpu_user_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_SYSTEM", "Remote CPU System %", "remote_cpu_system_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_IOWAIT", "Remote CPU I/O %", "remote_cpu_iowait_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_IRQ", "Remote CPU IRQ %", "remote_cpu_irq_ratio", 0.01),
    c("REMOTE_CPU_PERCENT_SWINTR", "Remote CPU swintr %", "remote_cpu_softirq_ratio", 0.01),
    c("REMOTE_CPU_PEAK_UTIL", "Remote Peak Per CPU Util %", "remote_cpu_peak_ratio", 0.01),
    c("REMOTE_CPU_PEAK_ID", "Remote Peak Per CPU ID", "remote_cpu_peak_id", 1.0),
    c("REMOTE_SD", "Remote Service Demand", "remote_service_demand", 1.0),
    c("TRANSACTION_RATE", "Transaction Rate Tran/s", "transactions_per_s", 1.0),
    c("RT_LATENCY", "Round Trip Latency usec/tran", "", 1.0),
    c("LOCAL_TRANSPORT_RETRANS", "Local Transport Retransmissions", "local_retransmits", 1.0),
    c("REMOTE_TRANSPORT_RETRANS", "Remote Transport Retransmissions", "remote_retransmits", 1.0),
    c("TRANSPORT_MSS", "Transport MSS bytes", "mss_bytes", 1.0),
    c("LOCAL_SEND_CALLS", "Local Send Calls", "", 1.0),
    c("REMOTE_RECV_CALLS", "Remote Recv Calls", "", 1.0),
    c("LOCAL_BYTES_SENT", "Local Bytes Sent", "", 1.0),
    c("REMOTE_BYTES_RECVD", "Remote Bytes Received", "", 1.0),
    c("LOCAL_RECV_SIZE", "Local Recv Size", "", 1.0),
    c("LOCAL_RECV_CALLS", "Local Recv Calls", "", 1.0),
    c("REMOTE_SEND_CALLS", "Remote Send Calls", "", 1.0),
    c("LOCAL_BYTES_RECVD", "Local Bytes Received", "", 1.0),
    c("REMOTE_BYTES_SENT", "Remote Bytes Sent", "", 1.0),
    c("LOCAL_SEND_THROUGHPUT", "Local Send Throughput", "", 1.0),
    c("REMOTE_SEND_THROUGHPUT", "Remote Send Throughput", "", 1.0),
    c("COMMAND_LINE", "Command Line", "", 1.0),
    c("MIN_LATENCY", "Minimum Latency Microseconds", "latency_min_us", 1.0),
    c("MAX_LATENCY", "Maximum Latency Microseconds", "latency_max_us", 1.0),
    c("P50_LATENCY", "50th Percentile Latency Microseconds", "latency_p50_us", 1.0),
    c("P90_LATENCY", "90th Percentile Latency Microseconds", "latency_p90_us", 1.0),
    c("P99_LATENCY", "99th Percentile Latency Microseconds", "latency_p99_us", 1.0),
    c("MEAN_LATENCY", "Mean Latency Microseconds", "latency_mean_us", 1.0),
    c("STDDEV_LATENCY", "Stddev Latency Microseconds", "latency_stddev_us", 1.0),
];
