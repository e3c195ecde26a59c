//! Runs of lost messages, from the receiver's runs and the sender's numbers.

use netcore::{
    report::{DatagramPhase, FlowWindow, LossRuns},
    spec::{Dialect, Role, TestSpec},
};
use schemas::{columns::Row, words::Phase};

use super::both::End;

/// Fills the cells of a phase. An end that is another program or an older version tells no runs.
pub(super) fn runs(row: &mut Row, spec: &TestSpec, near: &End<'_>, far: &End<'_>) {
    if row.phase != Some(Phase::Measure) || spec.dialect != Dialect::Plumb || !spec.numbers_messages() {
        return;
    }
    let of_end = |receiver: &End<'_>, sender: &End<'_>| {
        let receivers = receiver.flows.iter().filter(|flow| flow.role == Role::Receiver);
        let of_flow = |flow: &FlowWindow| {
            // Nothing was sent, or nothing arrived in the whole test: there are no counts.
            let sent = sender.flows.iter().find(|other| other.flow == flow.flow)?.datagrams.unwrap_or_default();
            let runs = flow.datagrams.map_or(Some(LossRuns::default()), |counts: DatagramPhase| counts.runs)?;
            Some(runs.whole(sent.before, sent.sent))
        };
        receivers.map(|flow| of_flow(flow)).collect::<Vec<_>>()
    };
    let all = of_end(near, far).into_iter().chain(of_end(far, near)).reduce(|a, b| Some(together(a?, b?)));
    let Some(all) = all.flatten() else { return };
    row.loss_runs = Some(all.runs);
    row.loss_run_mean = (all.runs > 0).then(|| all.lost as f64 / all.runs as f64);
    row.loss_run_max = Some(all.longest);
}

/// The runs of two flows.
fn together(a: LossRuns, b: LossRuns) -> LossRuns {
    LossRuns {
        runs: a.runs.saturating_add(b.runs),
        lost: a.lost.saturating_add(b.lost),
        longest: a.longest.max(b.longest),
        ..LossRuns::default()
    }
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{self, SideReport, Window},
        spec::{Direction, Pattern, Side, Transport},
    };

    use super::*;
    use crate::schedule::{
        fake::{self, flow, window},
        rows::of_iteration,
    };

    fn end(side: Side, role: Role, counts: &[Option<DatagramPhase>]) -> SideReport {
        let flows = (0..).zip(counts).map(|(number, counts)| {
            let mut flow = flow(number, role, 0, 0);
            flow.datagrams = *counts;
            flow
        });
        let measure: Window = window(report::Phase::Measure, 1_000_000_000, flows.collect());
        fake::report(side, vec![measure])
    }

    #[test]
    fn runs_of_all_flows_come_with_those_at_the_edges() {
        let mut spec = TestSpec::new(Pattern::Stream, Transport::Udp);
        (spec.direction, spec.streams) = (Direction::Forward, 3);
        let sent = |before, sent| Some(DatagramPhase { before, sent, ..DatagramPhase::default() });
        let near = end(Side::Near, Role::Sender, &[sent(100, 50), sent(0, 9), sent(5, 10)]);
        // 100 to 102 and 145 to 149 are lost at the edges, and 4 in two runs between; the second flow lost nothing; of the third
        // nothing arrived.
        let got = |first, end, runs, lost, longest| {
            let all = LossRuns { first, end, runs, lost, longest };
            Some(DatagramPhase { received: end - first - lost, runs: Some(all), ..DatagramPhase::default() })
        };
        let counts = [got(103, 145, 2, 4, 3), got(0, 9, 0, 0, 0), None];
        let far = end(Side::Far, Role::Receiver, &counts);
        let row = &of_iteration(&Row::default(), &spec, &near, Some(&far)).measured[0].1;
        assert_eq!((row.loss_runs, row.loss_run_mean, row.loss_run_max), (Some(5), Some(22.0 / 5.0), Some(10)));
        assert_eq!(row.lost, Some(22));
        // A far end that does not tell.
        let older = counts.map(|counts| counts.map(|counts| DatagramPhase { runs: None, ..counts }));
        let far = end(Side::Far, Role::Receiver, &older);
        let row = &of_iteration(&Row::default(), &spec, &near, Some(&far)).measured[0].1;
        assert_eq!((row.loss_runs, row.loss_run_max, row.lost), (None, None, Some(22)));
    }
}
