//! The `hops` table: round trips to the hops of a path, before a load and under it.

use super::{
    columns,
    may_be_empty::{Integer, Number, Text},
};
use crate::words::Way;

columns! {
    #[derive(Clone, Debug, Default, PartialEq)]
    HopRow, HOP_COLUMNS, _;

    "hops" {
        run_id: Text = "UUIDv7 of the run.";
        case_id: Text = "Identifies the case.";
        case: Text = "The case, readable.";
        member: Text = "Member of a concurrent group.";
        iteration: Integer = "Number of the iteration, from 1.";
        direction: Option<Way> = "Direction of the load: {words}.";
        hop: Integer = "Number of the hop, from 1: the router next to `from`. The last one is the far end, if it answers.";
        address: Text = "The address from which it answered first; empty: it never did.";
        idle_us: Number = "Median of the round trips before the load, microseconds.";
        loaded_us: Number = "The same under load, in the measure phase.";
        added_us: Number = "What the load adds: the median of all differences between the two (Hodges and Lehmann), microseconds; empty with too few answers for the interval: three before the load and five under it suffice.";
        added_low_us: Number = "Low end of its 95 % confidence interval.";
        added_high_us: Number = "High end.";
        idle_answers: Integer = "Answers before the load.";
        idle_probes: Integer = "Probes before the load that were answered, or not within a second.";
        loaded_answers: Integer = "Answers under load.";
        loaded_probes: Integer = "Probes under load that were answered, or not within a second.";
        note: Text = "Whether it answers slowly by itself, and other addresses that it answered from.";
    }
}
