//! The `cycles` table of a history that `plumb watch` keeps: one row per cycle, also of those that measured nothing.

use super::{
    columns,
    may_be_empty::{Integer, Number, Text, Time},
};
use crate::words::CycleStatus;

columns! {
    #[derive(Clone, Debug, Default, PartialEq)]
    CycleRow, CYCLE_COLUMNS, _;

    "cycles" {
        time: Time = "When the cycle began.";
        plan: Text = "Name of the plan.";
        host: Text = "Host name of the machine that watches.";
        status: Option<CycleStatus> = "How it ended: {words}.";
        reason: Text = "Why it is not `ok`: one sentence.";
        since: Time = "When the first cycle of those in a row with this status began.";
        missed: Integer = "Starts that were skipped since the row before: a run was still going on.";
        run_id: Text = "UUIDv7 of the run; empty: it did not begin.";
        length_s: Number = "Length of the cycle, seconds.";
    }
}
