//! The `history` tables: one row per run, case and metric, in files that grow.

use super::{
    columns,
    may_be_empty::{Integer, Number, Text, Time},
};

columns! {
    #[derive(Clone, Debug, Default, PartialEq)]
    HistoryRow, HISTORY_COLUMNS, _;

    "history" {
        run_id: Text = "UUIDv7 of the run.";
        time: Time = "When the run began.";
        commit: Text = "Commit of what was measured; empty: not known.";
        version: Text = "Version of plumb.";
        machine: Text = "`m` and a hash of the facts that tell machines apart: model, hypervisor, architecture, CPUs, interfaces.";
        hosts: Text = "Host names of these machines, separated by spaces.";
        plan: Text = "Name of the plan.";
        labels: Text = "Labels of the plan and of the run, `name=value`, separated by spaces.";
        case_id: Text = "Identifies the case.";
        case: Text = "The case, readable.";
        member: Text = "Member of a concurrent group.";
        direction: Text = "`forward`, `reverse` or `both`.";
        metric: Text = "Name of the metric.";
        n: Integer = "Iterations with a value.";
        centre: Number = "Median of the iterations, in the unit of the metric's column.";
        low: Number = "Lower end of the interval of the typical iteration at 95 %; empty with one iteration.";
        high: Number = "Upper end of that interval.";
        sample: Text = "The values of the iterations in ascending order, separated by spaces, or eleven quantiles (0 %, 10 % … 100 %) of more than eleven.";
    }
}
