//! The `counters` table: what kernels and interfaces counted.

use super::{
    columns,
    may_be_empty::{Integer, Number, Text},
};
use crate::words::Span;

columns! {
    #[derive(Clone, Debug, Default, PartialEq)]
    CounterRow, COUNTER_COLUMNS, _;

    "counters" {
        run_id: Text = "UUIDv7 of the run.";
        case_id: Text = "Identifies the case.";
        case: Text = "The case, readable.";
        member: Text = "Member of a concurrent group.";
        iteration: Integer = "Number of the iteration, from 1.";
        host: Text = "Name of the host.";
        span: Option<Span> = "{words}.";
        start_s: Number = "Start of the span, seconds after the measure phase's start.";
        source: Text = "Where it was read: `cpu`, `memory`, `nic:eth0`, `interrupts`, `snmp`, …";
        key: Text = "Its name there (`Tcp.RetransSegs`).";
        before: Integer = "Value at the start.";
        after: Integer = "Value at the end.";
        delta: Integer = "`after` − `before`; empty where that is negative.";
        elapsed_s: Number = "Length of the span, seconds.";
        rate_per_s: Number = "`delta` over `elapsed_s`.";
        note: Text = "Why `delta` is empty.";
    }
}
