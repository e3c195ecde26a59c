//! Notes below the summary: what readers of the numbers should know.

use std::collections::BTreeMap;

use analyze::limits;
use netcore::{
    report::{FlowWindow, Granted, Phase, SideReport, TimeWait},
    spec::Role,
};
use schemas::units::margin;

use super::{
    disturbance::{self, Disturbance},
    run_json::HostRecord,
};
use crate::schedule::bench::Measured;

/// Collects the notes of a run.
#[derive(Debug, Default)]
pub struct Notes {
    /// Whether BBR, which nobody asked for, sent over loopback.
    paced_by_default: bool,
    said: Vec<String>,
    /// Iterations per case that counted nothing at all.
    silent: BTreeMap<String, u32>,
    /// Cases during which another client's load ran on a daemon: iterations, and the largest share of a measurement.
    beside_others: BTreeMap<String, (u32, f64)>,
    /// Cases of which a rank waited for a CPU: iterations, the largest share of the time, and that rank.
    waited: BTreeMap<String, (u32, f64, u32)>,
    /// Disturbances of an end of a case: iterations, and the largest.
    disturbed: BTreeMap<(String, Disturbance), (u32, f64)>,
    /// At connecting and at accepting ends: before the first connect test, and after the last.
    time_wait: [Option<(u64, u64)>; 2],
}

impl Notes {
    /// Collects from the reports of an iteration.
    pub fn keep(&mut self, case: &str, measured: &Measured) {
        for member in &measured.members {
            if is_silent([Some(&member.near), member.far.as_ref()].into_iter().flatten()) {
                *self.silent.entry(case.to_owned()).or_default() += 1;
            }
            let ends = [Some(&member.near), member.far.as_ref()];
            let share = ends.into_iter().flatten().map(beside_others_ratio).fold(0.0, f64::max);
            if share > 0.0 {
                let (times, most) = self.beside_others.entry(case.to_owned()).or_default();
                (*times, *most) = (*times + 1, most.max(share));
            }
            self.keep_time_wait([member.near.time_wait, member.far.as_ref().and_then(|far| far.time_wait)]);
        }
        let ranks = || measured.ranks.iter().flat_map(|ranks| &ranks.reports);
        for note in ranks().flat_map(|report| &report.notes) {
            self.add(note.clone());
        }
        let waited = ranks().filter_map(|report| Some((report.thread?.waiting?, report.rank)));
        if let Some((share, rank)) = waited.max_by(|a, b| a.0.total_cmp(&b.0))
            && limits::disturbed(Vec::new())(share)
        {
            let (times, most, of) = self.waited.entry(case.to_owned()).or_default();
            *times += 1;
            if share > *most {
                (*most, *of) = (share, rank);
            }
        }
        for report in measured.members.iter().flat_map(|m| std::iter::once(&m.near).chain(&m.far)) {
            for (disturbance, size) in disturbance::of(report) {
                let (times, most) = self.disturbed.entry((case.to_owned(), disturbance)).or_default();
                (*times, *most) = (*times + 1, if size.abs() > most.abs() { size } else { *most });
            }
            self.paced_by_default |= is_paced_by_default(report);
            report.notes.iter().for_each(|note| self.add(note.clone()));
        }
    }

    fn keep_time_wait(&mut self, ends: [Option<TimeWait>; 2]) {
        for (kept, new) in self.time_wait.iter_mut().zip(ends) {
            *kept = match (*kept, new) {
                (Some((before, _)), Some(new)) => Some((before, new.after)),
                (kept, new) => kept.or(new.map(|new| (new.before, new.after))),
            };
        }
    }

    /// Adds a sentence about a case.
    pub fn add(&mut self, sentence: String) {
        if !self.said.contains(&sentence) {
            self.said.push(sentence);
        }
    }

    /// All notes of a run on these machines.
    pub fn of_run(&self, hosts: &BTreeMap<String, HostRecord>) -> Vec<String> {
        let mut notes = Vec::new();
        let shared = share_a_machine(hosts);
        if self.paced_by_default {
            notes.push(
                "congestion control is this machine's default, bbr, which paces even loopback; with \
                 socket.congestion_control: cubic it may be twice as fast"
                    .to_owned(),
            );
        }
        if shared {
            notes.push("the two ends share this machine: this measures its kernel, not a network".to_owned());
        }
        for (end, counts) in ["connects", "accepts"].into_iter().zip(self.time_wait) {
            notes.extend(counts.map(|(before, after)| {
                format!(
                    "connections in TIME_WAIT at the end that {end}: {before} before, {after} after the connect tests"
                )
            }));
        }
        notes.extend(self.silent.iter().map(|(case, times)| {
            format!(
                "{case}: nothing arrived and no transaction was completed while it measured, {times} time{}: zero was counted, \
                 but says nothing about the network; measure longer, or by a count (transactions, bytes)",
                if *times == 1 { "" } else { "s" }
            )
        }));
        notes.extend(self.beside_others.iter().map(|(case, (times, most))| {
            format!(
                "{case}: another client's load ran on the same daemon during up to {} of a measurement, {times} time{}",
                margin(*most),
                if *times == 1 { "" } else { "s" }
            )
        }));
        let worst = self.waited.iter().max_by(|(_, (_, a, _)), (_, (_, b, _))| a.total_cmp(b));
        notes.extend(worst.map(|(case, (times, most, rank))| {
            let others = match self.waited.len() - 1 {
                0 => String::new(),
                n => format!("; so did ranks in {n} other case{}, for less", if n == 1 { "" } else { "s" }),
            };
            format!(
                "{case}: rank {rank} waited for a CPU for up to {} of a measurement, {times} time{}: other ranks or programs had it, \
                 and all ranks wait for the slowest{others}",
                margin(*most),
                if *times == 1 { "" } else { "s" }
            )
        }));
        notes.extend(
            self.disturbed
                .iter()
                .map(|((case, disturbance), (times, most))| format!("{case}: {}", disturbance.sentence(*most, *times))),
        );
        notes.extend(disturbance::parts_of_machines(hosts));
        notes.extend(self.said.iter().cloned());
        notes
    }
}

/// Share of a measurement during which another client's load ran on the same daemon.
fn beside_others_ratio(report: &SideReport) -> f64 {
    let measured = report.phases.iter().find(|window| window.phase == Phase::Measure);
    measured
        .filter(|window| window.elapsed_ns > 0)
        .map_or(0.0, |window| report.shared_ns as f64 / window.elapsed_ns as f64)
}

/// Whether all receivers and requesters together counted zero: bytes received, or transactions.
fn is_silent<'a>(ends: impl Iterator<Item = &'a SideReport>) -> bool {
    let windows = ends.flat_map(|end| &end.phases).filter(|window| window.phase == Phase::Measure);
    let counted = |flow: &FlowWindow| match flow.role {
        Role::Receiver | Role::Duplex => Some(flow.counts.bytes_received),
        Role::Requester => Some(flow.counts.transactions),
        Role::Sender | Role::Responder => None,
    };
    windows.flat_map(|window| &window.flows).filter_map(counted).reduce(u64::saturating_add) == Some(0)
}

/// Whether an end sent over loopback with BBR, and the plan had not asked for it.
fn is_paced_by_default(report: &SideReport) -> bool {
    let sends = |flow: u32| report.totals.iter().any(|total| total.flow == flow && total.counts.bytes_sent > 0);
    let is_bbr =
        |granted: &Granted| granted.at_end.as_ref().or(granted.at_start.as_ref()).is_some_and(|c| c.starts_with("bbr"));
    report.nic.as_ref().is_some_and(|nic| nic.name == "lo")
        && report.options.iter().any(|granted| {
            granted.option == "congestion_control"
                && granted.requested.is_none()
                && sends(granted.flow)
                && is_bbr(granted)
        })
}

/// Whether a far end runs on the same boot of the same kernel as this process.
fn share_a_machine(hosts: &BTreeMap<String, HostRecord>) -> bool {
    let Some(here) = hosts.get("local").and_then(|h| h.facts.boot_id.as_ref()) else { return false };
    hosts.iter().any(|(name, host)| name != "local" && host.facts.boot_id.as_ref() == Some(here))
}

#[cfg(test)]
mod tests {
    use netcore::{
        client::RanksOutcome,
        report::{Ending, NicFacts, RankReport, ThreadUse},
        spec::Side,
    };

    use super::*;
    use crate::schedule::fake::{flow, report};

    #[test]
    fn bbr_is_noted_where_it_sent_over_loopback_by_default() {
        let granted = |end: &str, requested: Option<&str>| Granted {
            flow: 0,
            option: "congestion_control".into(),
            requested: requested.map(str::to_owned),
            at_start: Some("cubic".into()),
            at_end: Some(end.into()),
        };
        let end = |role, interface: Option<&str>, option: Granted| {
            let (sent, received) = if role == Role::Sender { (9, 0) } else { (0, 9) };
            let mut report = report(Side::Near, Vec::new());
            (report.totals, report.options) = (vec![flow(0, role, sent, received)], vec![option]);
            report.nic = interface.and_then(NicFacts::named);
            is_paced_by_default(&report)
        };
        let lo = Some("lo");
        assert!(end(Role::Sender, lo, granted("bbr", None)));
        assert!(!end(Role::Sender, None, granted("bbr", None)), "another path");
        assert!(!end(Role::Receiver, lo, granted("bbr", None)), "it only acknowledges");
        assert!(!end(Role::Sender, lo, granted("bbr", Some("bbr"))), "the plan's choice");
        assert!(!end(Role::Sender, lo, granted("cubic", None)));
    }

    #[test]
    fn the_rank_that_waited_most_for_a_cpu_is_named() {
        let mut notes = Notes::default();
        let mut keep = |waiting: [f64; 2]| {
            let rank = |(rank, waiting)| {
                let thread = ThreadUse { waiting: Some(waiting), ..ThreadUse::default() };
                RankReport { thread: Some(thread), ..RankReport::empty(rank, Ending::Complete) }
            };
            let ranks = RanksOutcome { reports: (0..).zip(waiting).map(rank).collect(), t0_ns: 1, arrivals: None };
            notes.keep("bcast", &Measured { ranks: Some(ranks), ..Measured::default() });
        };
        keep([0.2, 0.67]);
        keep([0.3, 0.09]);
        keep([0.05, 0.09]);
        let said = notes.of_run(&BTreeMap::new()).join("\n");
        assert!(
            said.starts_with("bcast: rank 1 waited for a CPU for up to 67 % of a measurement, 2 times: "),
            "{said}"
        );
    }

    #[test]
    fn time_wait_is_told_from_before_the_first_test_to_after_the_last() {
        let mut notes = Notes::default();
        let counts = |before, after| Some(TimeWait { before, after, ports: 100 });
        notes.keep_time_wait([counts(3, 50), None]);
        notes.keep_time_wait([counts(40, 90), counts(1, 2)]);
        notes.keep_time_wait([None, None]);
        let said = notes.of_run(&BTreeMap::new()).join("\n");
        assert!(said.contains("connects: 3 before, 90 after") && said.contains("accepts: 1 before, 2 after"), "{said}");
    }
}
