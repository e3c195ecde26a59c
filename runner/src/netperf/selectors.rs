//! The output selectors: name, title and value of each.

use super::{
    facts::{
        End::{Local, Remote},
        Facts, Value,
        Value::{Absent, Hex, Quoted, Real, Text, Whole},
        text, whole,
    },
    figures::EndFigures,
};

/// A row of [`SELECTORS`].
#[derive(Clone, Copy, Debug)]
pub struct Selector {
    pub name: &'static str,
    /// Lines of its title in a column, separated by `|`.
    title: &'static str,
    pub value: fn(&Facts<'_>) -> Value,
}

/// Two selectors are the same if their names are.
impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Selector {
    /// The lines of its title.
    pub fn lines(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.title.split('|')
    }

    /// Its title in one line.
    pub fn title(&self) -> String {
        self.title.replace('|', " ")
    }

    /// Whether its value is a latency, which is then collected.
    pub fn is_latency(&self) -> bool {
        self.name.ends_with("_LATENCY") && self.name != "RT_LATENCY"
    }
}

const fn row(name: &'static str, title: &'static str, value: fn(&Facts<'_>) -> Value) -> Selector {
    Selector { name, title, value }
}

/// The value of facts about a host that netperf stopped to gather in 2.7.
fn deprecated(_: &Facts<'_>) -> Value {
    text("Deprecated")
}

/// The selector of a name in any case.
pub fn named(name: &str) -> Option<&'static Selector> {
    SELECTORS.iter().find(|selector| selector.name.eq_ignore_ascii_case(name))
}

/// Every selector, in the order of `all`. The first and the last have no value of their own.
#[rustfmt::skip]
pub const SELECTORS: &[Selector] = &[
    row("OUTPUT_NONE", " ", |_| text(" ")),
    row("SOCKET_TYPE", "Socket|Type", |f| text(f.shape().socket_type())),
    row("PROTOCOL", "Protocol", |f| text(f.shape().protocol())),
    row("DIRECTION", "Direction", |f| text(f.shape().direction())),
    row("ELAPSED_TIME", "Elapsed|Time|(sec)", |f| Real(f.iterations.elapsed_s(), 2)),
    row("THROUGHPUT", "Throughput", |f| Real(f.iterations.mean_throughput(), 2)),
    row("THROUGHPUT_UNITS", "Throughput|Units", |f| Text(format!("{}/s", f.unit().label()))),
    row("LSS_SIZE_REQ", "Local|Send Socket|Size|Requested", |f| whole(f.buffer(Local, true).0)),
    row("LSS_SIZE", "Local|Send Socket|Size|Initial", |f| whole(f.buffer(Local, true).1.initial)),
    row("LSS_SIZE_END", "Local|Send Socket|Size|Final", |f| whole(f.buffer(Local, true).1.last)),
    row("LSR_SIZE_REQ", "Local|Recv Socket|Size|Requested", |f| whole(f.buffer(Local, false).0)),
    row("LSR_SIZE", "Local|Recv Socket|Size|Initial", |f| whole(f.buffer(Local, false).1.initial)),
    row("LSR_SIZE_END", "Local|Recv Socket|Size|Final", |f| whole(f.buffer(Local, false).1.last)),
    row("RSS_SIZE_REQ", "Remote|Send Socket|Size|Requested", |f| whole(f.buffer(Remote, true).0)),
    row("RSS_SIZE", "Remote|Send Socket|Size|Initial", |f| whole(f.buffer(Remote, true).1.initial)),
    row("RSS_SIZE_END", "Remote|Send Socket|Size|Final", |f| whole(f.buffer(Remote, true).1.last)),
    row("RSR_SIZE_REQ", "Remote|Recv Socket|Size|Requested", |f| whole(f.buffer(Remote, false).0)),
    row("RSR_SIZE", "Remote|Recv Socket|Size|Initial", |f| whole(f.buffer(Remote, false).1.initial)),
    row("RSR_SIZE_END", "Remote|Recv Socket|Size|Final", |f| whole(f.buffer(Remote, false).1.last)),
    row("LOCAL_SEND_SIZE", "Local|Send|Size", |f| Whole(f.send_size(Local))),
    row("LOCAL_RECV_SIZE", "Local|Recv|Size", |f| Whole(f.receive_size(Local))),
    row("REMOTE_SEND_SIZE", "Remote|Send|Size", |f| Whole(f.send_size(Remote))),
    row("REMOTE_RECV_SIZE", "Remote|Recv|Size", |f| Whole(f.receive_size(Remote))),
    row("REQUEST_SIZE", "Request|Size|Bytes", |f| f.exchange(|sizes| sizes.request_bytes)),
    row("RESPONSE_SIZE", "Response|Size|Bytes", |f| f.exchange(|sizes| sizes.response_bytes)),
    row("LOCAL_CPU_UTIL", "Local|CPU|Util|%", |f| Real(f.mean_cpu(Local), 2)),
    row("LOCAL_CPU_PERCENT_USER", "Local|CPU|User|%", |f| Real(f.cpu_percent(Local, |cpu| cpu.user).unwrap_or(0.0), 2)),
    row("LOCAL_CPU_PERCENT_SYSTEM", "Local|CPU|System|%", |f| Real(f.cpu_percent(Local, |cpu| cpu.system).unwrap_or(0.0), 2)),
    row("LOCAL_CPU_PERCENT_IOWAIT", "Local|CPU|I/O|%", |f| Real(f.cpu_percent(Local, |cpu| cpu.iowait).unwrap_or(0.0), 2)),
    row("LOCAL_CPU_PERCENT_IRQ", "Local|CPU|IRQ|%", |f| Real(f.cpu_percent(Local, |cpu| cpu.irq).unwrap_or(0.0), 2)),
    row("LOCAL_CPU_PERCENT_SWINTR", "Local|CPU|swintr|%", |f| Real(f.cpu_percent(Local, |cpu| cpu.softirq).unwrap_or(0.0), 2)),
    row("LOCAL_CPU_METHOD", "Local|CPU|Util|Method", |f| text(f.cpu_method(Local))),
    row("LOCAL_SD", "Local|Service|Demand", |f| Real(f.mean_demand(Local), 3)),
    row("REMOTE_CPU_UTIL", "Remote|CPU|Util|%", |f| Real(f.mean_cpu(Remote), 2)),
    row("REMOTE_CPU_PERCENT_USER", "Remote|CPU|User|%", |f| Real(f.cpu_percent(Remote, |cpu| cpu.user).unwrap_or(0.0), 2)),
    row("REMOTE_CPU_PERCENT_SYSTEM", "Remote|CPU|System|%", |f| Real(f.cpu_percent(Remote, |cpu| cpu.system).unwrap_or(0.0), 2)),
    row("REMOTE_CPU_PERCENT_IOWAIT", "Remote|CPU|I/O|%", |f| Real(f.cpu_percent(Remote, |cpu| cpu.iowait).unwrap_or(0.0), 2)),
    row("REMOTE_CPU_PERCENT_IRQ", "Remote|CPU|IRQ|%", |f| Real(f.cpu_percent(Remote, |cpu| cpu.irq).unwrap_or(0.0), 2)),
    row("REMOTE_CPU_PERCENT_SWINTR", "Remote|CPU|swintr|%", |f| Real(f.cpu_percent(Remote, |cpu| cpu.softirq).unwrap_or(0.0), 2)),
    row("REMOTE_CPU_METHOD", "Remote|CPU|Util|Method", |f| text(f.cpu_method(Remote))),
    row("REMOTE_SD", "Remote|Service|Demand", |f| Real(f.mean_demand(Remote), 3)),
    row("SD_UNITS", "Service|Demand|Units", |f| text(if f.unit().is_transactions() { "usec/Tran" } else { "usec/KB" })),
    row("CONFIDENCE_LEVEL", "Confidence|Level|Percent", |f| Whole(f.globals().goal.map_or(0, |goal| goal.level.into()))),
    row("CONFIDENCE_INTERVAL", "Confidence|Width|Target", |f| Real(f.globals().goal.map_or(-1.0, |goal| 100.0 * goal.width), 6)),
    row("CONFIDENCE_ITERATION", "Confidence|Iterations|Run", |f| Whole(f.iterations.count().into())),
    row("THROUGHPUT_CONFID", "Throughput|Confidence|Width (%)", |f| Real(f.width(|widths| widths.throughput), 3)),
    row("LOCAL_CPU_CONFID", "Local|CPU|Confidence|Width (%)", |f| Real(f.width(|widths| widths.local_cpu), 3)),
    row("REMOTE_CPU_CONFID", "Remote|CPU|Confidence|Width (%)", |f| Real(f.width(|widths| widths.remote_cpu), 3)),
    row("TRANSACTION_RATE", "Transaction|Rate|Tran/s", |f| Real(f.transaction_rate().unwrap_or(1.0), 3)),
    row("RT_LATENCY", "Round|Trip|Latency|usec/tran", |f| Real(f.round_trip_us().unwrap_or(-1.0), 3)),
    row("BURST_SIZE", "Initial|Burst|Requests", |f| Whole(f.specifics().burst.into())),
    row("LOCAL_TRANSPORT_RETRANS", "Local|Transport|Retransmissions", |f| whole(f.end(Local).and_then(|end| end.retransmits))),
    row("REMOTE_TRANSPORT_RETRANS", "Remote|Transport|Retransmissions", |f| whole(f.end(Remote).and_then(|end| end.retransmits))),
    row("TRANSPORT_MSS", "Transport|MSS|bytes", |f| whole(f.figures.mss)),
    row("LOCAL_SEND_THROUGHPUT", "Local|Send|Throughput", |f| Real(f.rate(Local, |end| end.bytes_sent), 2)),
    row("LOCAL_RECV_THROUGHPUT", "Local|Recv|Throughput", |f| Real(f.rate(Local, |end| end.bytes_received), 2)),
    row("REMOTE_SEND_THROUGHPUT", "Remote|Send|Throughput", |f| Real(f.rate(Remote, |end| end.bytes_sent), 2)),
    row("REMOTE_RECV_THROUGHPUT", "Remote|Recv|Throughput", |f| Real(f.rate(Remote, |end| end.bytes_received), 2)),
    row("LOCAL_CPU_BIND", "Local|CPU|Bind", |f| whole(f.globals().cpu.local.map(u64::from))),
    row("LOCAL_CPU_COUNT", "Local|CPU|Count", |f| Whole(f.cpu(Local).map_or(0, |cpu| cpu.cpus.into()))),
    row("LOCAL_CPU_PEAK_UTIL", "Local|Peak|Per CPU|Util %", |f| Real(f.cpu_percent(Local, |cpu| cpu.peak).unwrap_or(-1.0), 2)),
    row("LOCAL_CPU_PEAK_ID", "Local|Peak|Per CPU|ID", |f| Whole(f.cpu(Local).map_or(-1, |cpu| cpu.peak_id.into()))),
    row("LOCAL_CPU_MODEL", "Local|CPU|Model", deprecated),
    row("LOCAL_CPU_FREQUENCY", "Local|CPU|Frequency|MHz", |_| Whole(0)),
    row("REMOTE_CPU_BIND", "Remote|CPU|Bind", |f| whole(f.globals().cpu.remote.map(u64::from))),
    row("REMOTE_CPU_COUNT", "Remote|CPU|Count", |f| Whole(f.cpu(Remote).map_or(0, |cpu| cpu.cpus.into()))),
    row("REMOTE_CPU_PEAK_UTIL", "Remote|Peak|Per CPU|Util %", |f| Real(f.cpu_percent(Remote, |cpu| cpu.peak).unwrap_or(-1.0), 2)),
    row("REMOTE_CPU_PEAK_ID", "Remote|Peak|Per CPU|ID", |f| Whole(f.cpu(Remote).map_or(-1, |cpu| cpu.peak_id.into()))),
    row("REMOTE_CPU_MODEL", "Remote|CPU|Model", deprecated),
    row("REMOTE_CPU_FREQUENCY", "Remote|CPU|Frequency|MHz", |_| Whole(0)),
    row("SOURCE_PORT", "Source|Port", |f| Text(f.specifics().ports.local.unwrap_or(0).to_string())),
    row("SOURCE_ADDR", "Source|Address", |f| Text(f.request.source())),
    row("SOURCE_FAMILY", "Source|Family", |_| Whole(0)),
    row("DEST_PORT", "Destination|Port", |f| Text(f.specifics().ports.remote.unwrap_or(0).to_string())),
    row("DEST_ADDR", "Destination|Address", |f| Text(f.request.destination())),
    row("DEST_FAMILY", "Destination|Family", |f| Whole(if f.is_ipv6 { 10 } else { 2 })),
    row("LOCAL_SEND_CALLS", "Local|Send|Calls", |f| f.count(Local, |end| end.sends)),
    row("LOCAL_RECV_CALLS", "Local|Recv|Calls", |f| f.count(Local, |end| end.receives)),
    row("LOCAL_BYTES_PER_RECV", "Local|Bytes|Per|Recv", |f| Real(f.per_call(Local, |end| (end.bytes_received, end.receives)), 2)),
    row("LOCAL_BYTES_PER_SEND", "Local|Bytes|Per|Send", |f| Real(f.per_call(Local, |end| (end.bytes_sent, end.sends)), 2)),
    row("LOCAL_BYTES_SENT", "Local|Bytes|Sent", |f| f.count(Local, |end| end.bytes_sent)),
    row("LOCAL_BYTES_RECVD", "Local|Bytes|Received", |f| f.count(Local, |end| end.bytes_received)),
    row("LOCAL_BYTES_XFERD", "Local|Bytes|Xferred", |f| f.count(Local, EndFigures::bytes)),
    row("LOCAL_SEND_OFFSET", "Local|Send|Offset", |f| Whole(f.buffers(Local).offset.cast_signed())),
    row("LOCAL_RECV_OFFSET", "Local|Recv|Offset", |f| Whole(f.buffers(Local).offset.cast_signed())),
    row("LOCAL_SEND_ALIGN", "Local|Send|Alignment", |f| Whole(f.alignment(Local))),
    row("LOCAL_RECV_ALIGN", "Local|Recv|Alignment", |f| Whole(f.alignment(Local))),
    row("LOCAL_SEND_WIDTH", "Local|Send|Width", |f| Whole(f.buffers(Local).ring.into())),
    row("LOCAL_RECV_WIDTH", "Local|Recv|Width", |f| Whole(f.buffers(Local).ring.into())),
    row("LOCAL_SEND_DIRTY_COUNT", "Local|Send|Dirty|Count", |_| Whole(-1)),
    row("LOCAL_RECV_DIRTY_COUNT", "Local|Recv|Dirty|Count", |_| Whole(-1)),
    row("LOCAL_RECV_CLEAN_COUNT", "Local|Recv|Clean|Count", |_| Whole(-1)),
    row("LOCAL_NODELAY", "Local|NODELAY", |f| Whole(f.specifics().no_delay.into())),
    row("LOCAL_CORK", "Local|Cork", |f| Whole(f.specifics().cork.into())),
    row("REMOTE_SEND_CALLS", "Remote|Send|Calls", |f| f.count(Remote, |end| end.sends)),
    row("REMOTE_RECV_CALLS", "Remote|Recv|Calls", |f| f.count(Remote, |end| end.receives)),
    row("REMOTE_BYTES_PER_RECV", "Remote|Bytes|Per|Recv", |f| Real(f.per_call(Remote, |end| (end.bytes_received, end.receives)), 2)),
    row("REMOTE_BYTES_PER_SEND", "Remote|Bytes|Per|Send", |f| Real(f.per_call(Remote, |end| (end.bytes_sent, end.sends)), 2)),
    row("REMOTE_BYTES_SENT", "Remote|Bytes|Sent", |f| f.count(Remote, |end| end.bytes_sent)),
    row("REMOTE_BYTES_RECVD", "Remote|Bytes|Received", |f| f.count(Remote, |end| end.bytes_received)),
    row("REMOTE_BYTES_XFERD", "Remote|Bytes|Xferred", |f| f.count(Remote, EndFigures::bytes)),
    row("REMOTE_SEND_OFFSET", "Remote|Send|Offset", |f| Whole(f.buffers(Remote).offset.cast_signed())),
    row("REMOTE_RECV_OFFSET", "Remote|Recv|Offset", |f| Whole(f.buffers(Remote).offset.cast_signed())),
    row("REMOTE_SEND_ALIGN", "Remote|Send|Alignment", |f| Whole(f.alignment(Remote))),
    row("REMOTE_RECV_ALIGN", "Remote|Recv|Alignment", |f| Whole(f.alignment(Remote))),
    row("REMOTE_SEND_WIDTH", "Remote|Send|Width", |f| Whole(f.buffers(Remote).ring.into())),
    row("REMOTE_RECV_WIDTH", "Remote|Recv|Width", |f| Whole(f.buffers(Remote).ring.into())),
    row("REMOTE_SEND_DIRTY_COUNT", "Remote|Send|Dirty|Count", |_| Whole(-1)),
    row("REMOTE_RECV_DIRTY_COUNT", "Remote|Recv|Dirty|Count", |_| Whole(-1)),
    row("REMOTE_RECV_CLEAN_COUNT", "Remote|Recv|Clean|Count", |_| Whole(-1)),
    row("REMOTE_NODELAY", "Remote|NODELAY", |f| Whole(f.specifics().no_delay.into())),
    row("REMOTE_CORK", "Remote|Cork", |f| Whole(f.specifics().cork.into())),
    row("LOCAL_SYSNAME", "Local|Sysname", deprecated),
    row("LOCAL_SYSTEM_MODEL", "Local|System|Model", deprecated),
    row("LOCAL_RELEASE", "Local|Release", deprecated),
    row("LOCAL_VERSION", "Local|Version", deprecated),
    row("LOCAL_MACHINE", "Local|Machine", deprecated),
    row("REMOTE_SYSNAME", "Remote|Sysname", deprecated),
    row("REMOTE_SYSTEM_MODEL", "Remote|System|Model", deprecated),
    row("REMOTE_RELEASE", "Remote|Release", deprecated),
    row("REMOTE_VERSION", "Remote|Version", deprecated),
    row("REMOTE_MACHINE", "Remote|Machine", deprecated),
    row("LOCAL_INTERFACE_NAME", "Local|Interface|Name", deprecated),
    row("LOCAL_INTERFACE_VENDOR", "Local|Interface|Vendor", |_| Hex(0xffff_fffe, 4)),
    row("LOCAL_INTERFACE_DEVICE", "Local|Interface|Device", |_| Hex(0xffff_fffe, 4)),
    row("LOCAL_INTERFACE_SUBVENDOR", "Local|Interface|Subvendor", |_| Hex(0xffff_fffe, 4)),
    row("LOCAL_INTERFACE_SUBDEVICE", "Local|Interface|Subdevice", |_| Hex(0xffff_fffe, 4)),
    row("LOCAL_DRIVER_NAME", "Local|Driver|Name", deprecated),
    row("LOCAL_DRIVER_VERSION", "Local|Driver|Version", deprecated),
    row("LOCAL_DRIVER_FIRMWARE", "Local|Driver|Firmware", deprecated),
    row("LOCAL_DRIVER_BUS", "Local|Driver|Bus", deprecated),
    row("LOCAL_INTERFACE_SLOT", "Local|Interface|Slot", deprecated),
    row("REMOTE_INTERFACE_NAME", "Remote|Interface|Name", deprecated),
    row("REMOTE_INTERFACE_VENDOR", "Remote|Interface|Vendor", |_| Hex(0xffff_fffe, 4)),
    row("REMOTE_INTERFACE_DEVICE", "Remote|Interface|Device", |_| Hex(0xffff_fffe, 4)),
    row("REMOTE_INTERFACE_SUBVENDOR", "Remote|Interface|Subvendor", |_| Hex(0xffff_fffe, 4)),
    row("REMOTE_INTERFACE_SUBDEVICE", "Remote|Interface|Subdevice", |_| Hex(0xffff_fffe, 4)),
    row("REMOTE_DRIVER_NAME", "Remote|Driver|Name", deprecated),
    row("REMOTE_DRIVER_VERSION", "Remote|Driver|Version", deprecated),
    row("REMOTE_DRIVER_FIRMWARE", "Remote|Driver|Firmware", deprecated),
    row("REMOTE_DRIVER_BUS", "Remote|Driver|Bus", deprecated),
    row("REMOTE_INTERFACE_SLOT", "Remote|Interface|Slot", deprecated),
    row("LOCAL_INTERVAL_USECS", "Local|Interval|Usecs", |_| Whole(0)),
    row("LOCAL_INTERVAL_BURST", "Local|Interval|Burst", |_| Whole(0)),
    row("REMOTE_INTERVAL_USECS", "Remote|Interval|Usecs", |_| Whole(0)),
    row("REMOTE_INTERVAL_BURST", "Remote|Interval|Burst", |_| Whole(0)),
    row("LOCAL_SECURITY_TYPE_ID", "Local|OS|Security|Type ID", |_| Whole(0)),
    row("LOCAL_SECURITY_TYPE", "Local|OS|Security|Type", deprecated),
    row("LOCAL_SECURITY_ENABLED_NUM", "Local|OS|Security|Enabled Num", |_| Whole(0)),
    row("LOCAL_SECURITY_ENABLED", "Local|OS|Security|Enabled", deprecated),
    row("LOCAL_SECURITY_SPECIFIC", "Local|OS|Security|Specific", deprecated),
    row("REMOTE_SECURITY_TYPE_ID", "Remote|OS|Security|Type", |_| Whole(0)),
    row("REMOTE_SECURITY_TYPE", "Remote|OS|Security|Type", deprecated),
    row("REMOTE_SECURITY_ENABLED_NUM", "Remote|OS|Security|Enabled", |_| Whole(0)),
    row("REMOTE_SECURITY_ENABLED", "Remote|OS|Security|Enabled", deprecated),
    row("REMOTE_SECURITY_SPECIFIC", "Remote|OS|Security|Specific", deprecated),
    row("RESULT_BRAND", "Result|Tag", |f| f.globals().tag.clone().map_or(Absent, Quoted)),
    row("UUID", "Test|UUID", |f| text(&f.uuid)),
    row("MIN_LATENCY", "Minimum|Latency|Microseconds", |f| f.latency_us(|latency| latency.min)),
    row("MAX_LATENCY", "Maximum|Latency|Microseconds", |f| f.latency_us(|latency| latency.max)),
    row("P50_LATENCY", "50th|Percentile|Latency|Microseconds", |f| f.latency_us(|latency| latency.p50)),
    row("P90_LATENCY", "90th|Percentile|Latency|Microseconds", |f| f.latency_us(|latency| latency.p90)),
    row("P99_LATENCY", "99th|Percentile|Latency|Microseconds", |f| f.latency_us(|latency| latency.p99)),
    row("MEAN_LATENCY", "Mean|Latency|Microseconds", |f| Real(f.latency().map_or(-1.0, |latency| latency.mean), 2)),
    row("STDDEV_LATENCY", "Stddev|Latency|Microseconds", |f| Real(f.latency().map_or(-1.0, |latency| latency.stddev), 2)),
    row("LOCAL_SOCKET_PRIO", "Local|Socket|Priority", |f| whole(f.end(Local).and_then(|end| end.priority).map(u64::from))),
    row("REMOTE_SOCKET_PRIO", "Remote|Socket|Priority", |f| whole(f.end(Remote).and_then(|end| end.priority).map(u64::from))),
    row("LOCAL_SOCKET_TOS", "Local|Socket|TOS", |f| Hex(f.end(Local).and_then(|end| end.service).map_or(u32::MAX, u32::from), 2)),
    row("REMOTE_SOCKET_TOS", "Remote|Socket|TOS", |f| Hex(f.end(Remote).and_then(|end| end.service).map_or(u32::MAX, u32::from), 2)),
    row("LOCAL_CONG_CONTROL", "Local|Congestion|Control|Algorithm", |f| Text(f.end(Local).and_then(|end| end.congestion_control.clone()).unwrap_or_default())),
    row("REMOTE_CONG_CONTROL", "Remote|Congestion|Control|Algorithm", |f| Text(f.end(Remote).and_then(|end| end.congestion_control.clone()).unwrap_or_default())),
    row("LOCAL_FILL_FILE", "Local|Fill|File", |f| Text(f.globals().fill.local.clone().unwrap_or_default())),
    row("REMOTE_FILL_FILE", "Remote|Fill|File", |f| Text(f.globals().fill.remote.clone().unwrap_or_default())),
    row("COMMAND_LINE", "Command|Line", |f| Quoted(f.request.line.clone())),
    row("OUTPUT_END", "This|Is|The|End", |_| Absent),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that netperf 2.7 prints, in its order.
    const NAMES: &str = include_str!("../../../tests/e2e/fixtures/netperf-selectors.txt");

    #[test]
    fn the_table_has_every_selector_in_netperfs_order() {
        let names: Vec<&str> = SELECTORS.iter().map(|selector| selector.name).collect();
        assert_eq!(names, NAMES.lines().collect::<Vec<_>>());
        assert!(SELECTORS.iter().all(|selector| selector.lines().count() <= 4));
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(named("p50_lATENCY").unwrap().title(), "50th Percentile Latency Microseconds");
        assert!(named("P51_LATENCY").is_none());
        assert!(!named("RT_LATENCY").unwrap().is_latency() && named("stddev_latency").unwrap().is_latency());
    }
}
