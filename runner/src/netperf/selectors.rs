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

/// Rows as they stand, and rows for the two ends: all for the local one, then the same for the remote one.
macro_rules! selectors {
    ($(
        alone { $(($name:literal, $title:literal, $value:expr),)* }
        $(ends { $(($what:literal, $of:literal, |$f:pat_param, $end:pat_param| $fact:expr),)* })*
    )*) => {
        &[$(
            $(row($name, $title, $value),)*
            $(
                $(row(concat!("LOCAL_", $what), concat!("Local|", $of), |$f| { let $end = Local; $fact }),)*
                $(row(concat!("REMOTE_", $what), concat!("Remote|", $of), |$f| { let $end = Remote; $fact }),)*
            )*
        )*]
    };
}

/// Every selector, in the order of `all`. The first and the last have no value of their own.
pub const SELECTORS: &[Selector] = selectors! {
    alone {
        ("OUTPUT_NONE", " ", |_| text(" ")),
        ("SOCKET_TYPE", "Socket|Type", |f| text(f.shape().socket_type())),
        ("PROTOCOL", "Protocol", |f| text(f.shape().protocol())),
        ("DIRECTION", "Direction", |f| text(f.shape().direction())),
        ("ELAPSED_TIME", "Elapsed|Time|(sec)", |f| Real(f.iterations.elapsed_s(), 2)),
        ("THROUGHPUT", "Throughput", |f| Real(f.iterations.mean_throughput(), 2)),
        ("THROUGHPUT_UNITS", "Throughput|Units", |f| Text(format!("{}/s", f.unit().label()))),
        ("LSS_SIZE_REQ", "Local|Send Socket|Size|Requested", |f| whole(f.buffer(Local, true).0)),
        ("LSS_SIZE", "Local|Send Socket|Size|Initial", |f| whole(f.buffer(Local, true).1.initial)),
        ("LSS_SIZE_END", "Local|Send Socket|Size|Final", |f| whole(f.buffer(Local, true).1.last)),
        ("LSR_SIZE_REQ", "Local|Recv Socket|Size|Requested", |f| whole(f.buffer(Local, false).0)),
        ("LSR_SIZE", "Local|Recv Socket|Size|Initial", |f| whole(f.buffer(Local, false).1.initial)),
        ("LSR_SIZE_END", "Local|Recv Socket|Size|Final", |f| whole(f.buffer(Local, false).1.last)),
        ("RSS_SIZE_REQ", "Remote|Send Socket|Size|Requested", |f| whole(f.buffer(Remote, true).0)),
        ("RSS_SIZE", "Remote|Send Socket|Size|Initial", |f| whole(f.buffer(Remote, true).1.initial)),
        ("RSS_SIZE_END", "Remote|Send Socket|Size|Final", |f| whole(f.buffer(Remote, true).1.last)),
        ("RSR_SIZE_REQ", "Remote|Recv Socket|Size|Requested", |f| whole(f.buffer(Remote, false).0)),
        ("RSR_SIZE", "Remote|Recv Socket|Size|Initial", |f| whole(f.buffer(Remote, false).1.initial)),
        ("RSR_SIZE_END", "Remote|Recv Socket|Size|Final", |f| whole(f.buffer(Remote, false).1.last)),
        ("LOCAL_SEND_SIZE", "Local|Send|Size", |f| Whole(f.send_size(Local))),
        ("LOCAL_RECV_SIZE", "Local|Recv|Size", |f| Whole(f.receive_size(Local))),
        ("REMOTE_SEND_SIZE", "Remote|Send|Size", |f| Whole(f.send_size(Remote))),
        ("REMOTE_RECV_SIZE", "Remote|Recv|Size", |f| Whole(f.receive_size(Remote))),
        ("REQUEST_SIZE", "Request|Size|Bytes", |f| f.exchange(|sizes| sizes.request_bytes)),
        ("RESPONSE_SIZE", "Response|Size|Bytes", |f| f.exchange(|sizes| sizes.response_bytes)),
    } ends {
        ("CPU_UTIL", "CPU|Util|%", |f, end| Real(f.mean_cpu(end), 2)),
        ("CPU_PERCENT_USER", "CPU|User|%", |f, end| Real(f.cpu_percent(end, |cpu| cpu.user).unwrap_or(0.0), 2)),
        ("CPU_PERCENT_SYSTEM", "CPU|System|%", |f, end| Real(f.cpu_percent(end, |cpu| cpu.system).unwrap_or(0.0), 2)),
        ("CPU_PERCENT_IOWAIT", "CPU|I/O|%", |f, end| Real(f.cpu_percent(end, |cpu| cpu.iowait).unwrap_or(0.0), 2)),
        ("CPU_PERCENT_IRQ", "CPU|IRQ|%", |f, end| Real(f.cpu_percent(end, |cpu| cpu.irq).unwrap_or(0.0), 2)),
        ("CPU_PERCENT_SWINTR", "CPU|swintr|%", |f, end| Real(f.cpu_percent(end, |cpu| cpu.softirq).unwrap_or(0.0), 2)),
        ("CPU_METHOD", "CPU|Util|Method", |f, end| text(f.cpu_method(end))),
        ("SD", "Service|Demand", |f, end| Real(f.mean_demand(end), 3)),
    } alone {
        ("SD_UNITS", "Service|Demand|Units", |f| text(if f.unit().is_transactions() { "usec/Tran" } else { "usec/KB" })),
        ("CONFIDENCE_LEVEL", "Confidence|Level|Percent", |f| Whole(f.globals().goal.map_or(0, |goal| goal.level.into()))),
        ("CONFIDENCE_INTERVAL", "Confidence|Width|Target", |f| Real(f.globals().goal.map_or(-1.0, |goal| 100.0 * goal.width), 6)),
        ("CONFIDENCE_ITERATION", "Confidence|Iterations|Run", |f| Whole(f.iterations.count().into())),
        ("THROUGHPUT_CONFID", "Throughput|Confidence|Width (%)", |f| Real(f.width(|widths| widths.throughput), 3)),
        ("LOCAL_CPU_CONFID", "Local|CPU|Confidence|Width (%)", |f| Real(f.width(|widths| widths.local_cpu), 3)),
        ("REMOTE_CPU_CONFID", "Remote|CPU|Confidence|Width (%)", |f| Real(f.width(|widths| widths.remote_cpu), 3)),
        ("TRANSACTION_RATE", "Transaction|Rate|Tran/s", |f| Real(f.transaction_rate().unwrap_or(1.0), 3)),
        ("RT_LATENCY", "Round|Trip|Latency|usec/tran", |f| Real(f.round_trip_us().unwrap_or(-1.0), 3)),
        ("BURST_SIZE", "Initial|Burst|Requests", |f| Whole(f.specifics().burst.into())),
        ("LOCAL_TRANSPORT_RETRANS", "Local|Transport|Retransmissions", |f| whole(f.end(Local).and_then(|end| end.retransmits))),
        ("REMOTE_TRANSPORT_RETRANS", "Remote|Transport|Retransmissions", |f| whole(f.end(Remote).and_then(|end| end.retransmits))),
        ("TRANSPORT_MSS", "Transport|MSS|bytes", |f| whole(f.figures.mss)),
        ("LOCAL_SEND_THROUGHPUT", "Local|Send|Throughput", |f| Real(f.rate(Local, |end| end.bytes_sent), 2)),
        ("LOCAL_RECV_THROUGHPUT", "Local|Recv|Throughput", |f| Real(f.rate(Local, |end| end.bytes_received), 2)),
        ("REMOTE_SEND_THROUGHPUT", "Remote|Send|Throughput", |f| Real(f.rate(Remote, |end| end.bytes_sent), 2)),
        ("REMOTE_RECV_THROUGHPUT", "Remote|Recv|Throughput", |f| Real(f.rate(Remote, |end| end.bytes_received), 2)),
    } ends {
        ("CPU_BIND", "CPU|Bind", |f, end| whole(if end == Local { f.globals().cpu.local } else { f.globals().cpu.remote }.map(u64::from))),
        ("CPU_COUNT", "CPU|Count", |f, end| Whole(f.cpu(end).map_or(0, |cpu| cpu.cpus.into()))),
        ("CPU_PEAK_UTIL", "Peak|Per CPU|Util %", |f, end| Real(f.cpu_percent(end, |cpu| cpu.peak).unwrap_or(-1.0), 2)),
        ("CPU_PEAK_ID", "Peak|Per CPU|ID", |f, end| Whole(f.cpu(end).map_or(-1, |cpu| cpu.peak_id.into()))),
        ("CPU_MODEL", "CPU|Model", |f, _| deprecated(f)),
        ("CPU_FREQUENCY", "CPU|Frequency|MHz", |_, _| Whole(0)),
    } alone {
        ("SOURCE_PORT", "Source|Port", |f| Text(f.specifics().ports.local.unwrap_or(0).to_string())),
        ("SOURCE_ADDR", "Source|Address", |f| Text(f.request.source())),
        ("SOURCE_FAMILY", "Source|Family", |_| Whole(0)),
        ("DEST_PORT", "Destination|Port", |f| Text(f.specifics().ports.remote.unwrap_or(0).to_string())),
        ("DEST_ADDR", "Destination|Address", |f| Text(f.request.destination())),
        ("DEST_FAMILY", "Destination|Family", |f| Whole(if f.is_ipv6 { 10 } else { 2 })),
    } ends {
        ("SEND_CALLS", "Send|Calls", |f, end| f.count(end, |at| at.sends)),
        ("RECV_CALLS", "Recv|Calls", |f, end| f.count(end, |at| at.receives)),
        ("BYTES_PER_RECV", "Bytes|Per|Recv", |f, end| Real(f.per_call(end, |at| (at.bytes_received, at.receives)), 2)),
        ("BYTES_PER_SEND", "Bytes|Per|Send", |f, end| Real(f.per_call(end, |at| (at.bytes_sent, at.sends)), 2)),
        ("BYTES_SENT", "Bytes|Sent", |f, end| f.count(end, |at| at.bytes_sent)),
        ("BYTES_RECVD", "Bytes|Received", |f, end| f.count(end, |at| at.bytes_received)),
        ("BYTES_XFERD", "Bytes|Xferred", |f, end| f.count(end, EndFigures::bytes)),
        ("SEND_OFFSET", "Send|Offset", |f, end| Whole(f.buffers(end).offset.cast_signed())),
        ("RECV_OFFSET", "Recv|Offset", |f, end| Whole(f.buffers(end).offset.cast_signed())),
        ("SEND_ALIGN", "Send|Alignment", |f, end| Whole(f.alignment(end))),
        ("RECV_ALIGN", "Recv|Alignment", |f, end| Whole(f.alignment(end))),
        ("SEND_WIDTH", "Send|Width", |f, end| Whole(f.buffers(end).ring.into())),
        ("RECV_WIDTH", "Recv|Width", |f, end| Whole(f.buffers(end).ring.into())),
        ("SEND_DIRTY_COUNT", "Send|Dirty|Count", |_, _| Whole(-1)),
        ("RECV_DIRTY_COUNT", "Recv|Dirty|Count", |_, _| Whole(-1)),
        ("RECV_CLEAN_COUNT", "Recv|Clean|Count", |_, _| Whole(-1)),
        ("NODELAY", "NODELAY", |f, _| Whole(f.specifics().no_delay.into())),
        ("CORK", "Cork", |f, _| Whole(f.specifics().cork.into())),
    } ends {
        ("SYSNAME", "Sysname", |f, _| deprecated(f)),
        ("SYSTEM_MODEL", "System|Model", |f, _| deprecated(f)),
        ("RELEASE", "Release", |f, _| deprecated(f)),
        ("VERSION", "Version", |f, _| deprecated(f)),
        ("MACHINE", "Machine", |f, _| deprecated(f)),
    } ends {
        ("INTERFACE_NAME", "Interface|Name", |f, _| deprecated(f)),
        ("INTERFACE_VENDOR", "Interface|Vendor", |_, _| Hex(0xffff_fffe, 4)),
        ("INTERFACE_DEVICE", "Interface|Device", |_, _| Hex(0xffff_fffe, 4)),
        ("INTERFACE_SUBVENDOR", "Interface|Subvendor", |_, _| Hex(0xffff_fffe, 4)),
        ("INTERFACE_SUBDEVICE", "Interface|Subdevice", |_, _| Hex(0xffff_fffe, 4)),
        ("DRIVER_NAME", "Driver|Name", |f, _| deprecated(f)),
        ("DRIVER_VERSION", "Driver|Version", |f, _| deprecated(f)),
        ("DRIVER_FIRMWARE", "Driver|Firmware", |f, _| deprecated(f)),
        ("DRIVER_BUS", "Driver|Bus", |f, _| deprecated(f)),
        ("INTERFACE_SLOT", "Interface|Slot", |f, _| deprecated(f)),
    } alone {
        ("LOCAL_INTERVAL_USECS", "Local|Interval|Usecs", |_| Whole(0)),
        ("LOCAL_INTERVAL_BURST", "Local|Interval|Burst", |_| Whole(0)),
        ("REMOTE_INTERVAL_USECS", "Remote|Interval|Usecs", |_| Whole(0)),
        ("REMOTE_INTERVAL_BURST", "Remote|Interval|Burst", |_| Whole(0)),
        ("LOCAL_SECURITY_TYPE_ID", "Local|OS|Security|Type ID", |_| Whole(0)),
        ("LOCAL_SECURITY_TYPE", "Local|OS|Security|Type", deprecated),
        ("LOCAL_SECURITY_ENABLED_NUM", "Local|OS|Security|Enabled Num", |_| Whole(0)),
        ("LOCAL_SECURITY_ENABLED", "Local|OS|Security|Enabled", deprecated),
        ("LOCAL_SECURITY_SPECIFIC", "Local|OS|Security|Specific", deprecated),
        ("REMOTE_SECURITY_TYPE_ID", "Remote|OS|Security|Type", |_| Whole(0)),
        ("REMOTE_SECURITY_TYPE", "Remote|OS|Security|Type", deprecated),
        ("REMOTE_SECURITY_ENABLED_NUM", "Remote|OS|Security|Enabled", |_| Whole(0)),
        ("REMOTE_SECURITY_ENABLED", "Remote|OS|Security|Enabled", deprecated),
        ("REMOTE_SECURITY_SPECIFIC", "Remote|OS|Security|Specific", deprecated),
        ("RESULT_BRAND", "Result|Tag", |f| f.globals().tag.clone().map_or(Absent, Quoted)),
        ("UUID", "Test|UUID", |f| text(&f.uuid)),
        ("MIN_LATENCY", "Minimum|Latency|Microseconds", |f| f.latency_us(|latency| latency.min)),
        ("MAX_LATENCY", "Maximum|Latency|Microseconds", |f| f.latency_us(|latency| latency.max)),
        ("P50_LATENCY", "50th|Percentile|Latency|Microseconds", |f| f.latency_us(|latency| latency.p50)),
        ("P90_LATENCY", "90th|Percentile|Latency|Microseconds", |f| f.latency_us(|latency| latency.p90)),
        ("P99_LATENCY", "99th|Percentile|Latency|Microseconds", |f| f.latency_us(|latency| latency.p99)),
        ("MEAN_LATENCY", "Mean|Latency|Microseconds", |f| Real(f.latency().map_or(-1.0, |latency| latency.mean), 2)),
        ("STDDEV_LATENCY", "Stddev|Latency|Microseconds", |f| Real(f.latency().map_or(-1.0, |latency| latency.stddev), 2)),
        ("LOCAL_SOCKET_PRIO", "Local|Socket|Priority", |f| whole(f.end(Local).and_then(|end| end.priority).map(u64::from))),
        ("REMOTE_SOCKET_PRIO", "Remote|Socket|Priority", |f| whole(f.end(Remote).and_then(|end| end.priority).map(u64::from))),
        ("LOCAL_SOCKET_TOS", "Local|Socket|TOS", |f| Hex(f.end(Local).and_then(|end| end.service).map_or(u32::MAX, u32::from), 2)),
        ("REMOTE_SOCKET_TOS", "Remote|Socket|TOS", |f| Hex(f.end(Remote).and_then(|end| end.service).map_or(u32::MAX, u32::from), 2)),
        ("LOCAL_CONG_CONTROL", "Local|Congestion|Control|Algorithm", |f| Text(f.end(Local).and_then(|end| end.congestion_control.clone()).unwrap_or_default())),
        ("REMOTE_CONG_CONTROL", "Remote|Congestion|Control|Algorithm", |f| Text(f.end(Remote).and_then(|end| end.congestion_control.clone()).unwrap_or_default())),
        ("LOCAL_FILL_FILE", "Local|Fill|File", |f| Text(f.globals().fill.local.clone().unwrap_or_default())),
        ("REMOTE_FILL_FILE", "Remote|Fill|File", |f| Text(f.globals().fill.remote.clone().unwrap_or_default())),
        ("COMMAND_LINE", "Command|Line", |f| Quoted(f.request.line.clone())),
        ("OUTPUT_END", "This|Is|The|End", |_| Absent),
    }
};

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
