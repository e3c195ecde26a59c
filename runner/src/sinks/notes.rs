//! Notes below the summary: what readers of the numbers should know, with what disturbed an end and its numbers alone do not
//! show: a CPU quota, a CPU shared with the other end, and what happened to its clocks.

use std::collections::BTreeMap;

use analyze::first_few;
use netcore::{
    client::Outcome,
    measure::host::{CpuSharesOf, HostFacts},
    report::{FlowWindow, Phase, SideReport, TimeWait},
    spec::{Role, Side},
};
use schemas::{
    text::counted,
    units::{Unit, human, margin, three_digits},
};

use super::run_json::HostRecord;
use crate::schedule::{Measured, whole::Waits};

/// Collects the notes of a run.
#[derive(Debug, Default)]
pub struct Notes {
    /// Whether BBR, which nobody asked for, sent over loopback.
    paced_by_default: bool,
    said: Vec<String>,
    /// Iterations per case that counted nothing at all.
    silent: BTreeMap<(Zero, String), u32>,
    /// Cases during which another client's load ran on a daemon: iterations, and the largest share of a measurement.
    beside_others: BTreeMap<String, (u32, f64)>,
    waits: Waits,
    /// Disturbances of an end of a case: iterations, and the largest.
    disturbed: BTreeMap<(String, Disturbance), (u32, f64)>,
    /// At connecting and at accepting ends: before the first connect test, and after the last.
    time_wait: [Option<(u64, u64)>; 2],
}

impl Notes {
    /// Collects from the reports of an iteration. `is_free`: of each member, whether it measures for a time, as fast as it can.
    pub fn keep(&mut self, case: &str, measured: &Measured, is_free: impl Iterator<Item = bool>) {
        for (member, is_timed) in measured.members.iter().zip(is_free.chain(std::iter::repeat(false))) {
            if let Some(zero) = zero(member.ends(), is_timed) {
                *self.silent.entry((zero, case.to_owned())).or_default() += 1;
            }
            let share = member.ends().map(beside_others_ratio).fold(0.0, f64::max);
            if share > 0.0 {
                let (times, most) = self.beside_others.entry(case.to_owned()).or_default();
                (*times, *most) = (*times + 1, most.max(share));
            }
            self.keep_time_wait([member.near.time_wait, member.far.as_ref().and_then(|far| far.time_wait)]);
        }
        if let Some(whole) = &measured.whole {
            whole.notes().into_iter().for_each(|note| self.add(note));
            whole.keep_waits(case, &mut self.waits);
        }
        for report in measured.members.iter().flat_map(Outcome::ends) {
            for (disturbance, size) in of(report) {
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
        for of in [Zero::Arrivals, Zero::Transactions, Zero::Few] {
            let cases = self.silent.iter().filter(|((zero, _), _)| *zero == of);
            let cases: Vec<String> =
                cases.map(|((_, case), times)| format!("{case} ({})", counted(times, "time"))).collect();
            if !cases.is_empty() {
                notes.push(of.sentence(&first_few(cases.into_iter(), MOST_SILENT).join(", ")));
            }
        }
        notes.extend(self.beside_others.iter().map(|(case, (times, most))| {
            format!(
                "{case}: another client's load ran on the same daemon during up to {} of a measurement, {}",
                margin(*most),
                counted(times, "time")
            )
        }));
        notes.extend(self.waits.sentence());
        notes.extend(
            self.disturbed
                .iter()
                .map(|((case, disturbance), (times, most))| format!("{case}: {}", disturbance.sentence(*most, *times))),
        );
        notes.extend(parts_of_machines(hosts));
        notes.extend(self.said.iter().cloned());
        notes
    }
}

/// Share of a measurement during which another client's load ran on the same daemon.
fn beside_others_ratio(report: &SideReport) -> f64 {
    let measured = report.phase(Phase::Measure);
    measured
        .filter(|window| window.elapsed_ns > 0)
        .map_or(0.0, |window| report.shared_ns as f64 / window.elapsed_ns as f64)
}

/// Cases that a note about zeros names.
const MOST_SILENT: usize = 5;

/// What was counted, and was zero or next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Zero {
    Arrivals,
    Transactions,
    /// No zero, but so few transactions that one more or less is a large part.
    Few,
}

/// The fewest transactions of a timed measurement whose number tells their rate.
const FEWEST_TRANSACTIONS: u64 = 20;

impl Zero {
    fn sentence(self, cases: &str) -> String {
        match self {
            Self::Arrivals => format!(
                "nothing of what was sent arrived while it measured: {cases}; either all of it was lost (do full packets pass? \
                 `plumb hosts` shows the MTU of each end), or the measurement is too short for the path"
            ),
            Self::Transactions => format!(
                "no transaction was finished while it measured: {cases}; if one takes longer than the measurement, zero says nothing \
                 about the network: measure longer, or by a count (transactions: 10)"
            ),
            Self::Few => format!(
                "fewer than {FEWEST_TRANSACTIONS} transactions while it measured: {cases}; a time holds a whole number of them, so the rate \
                 is off by up to one: measure longer, or by a count (transactions: 20), or take the latency"
            ),
        }
    }
}

/// What all receivers and requesters together counted as zero: bytes received, or transactions; or too few of these in a time.
fn zero<'a>(ends: impl Iterator<Item = &'a SideReport>, is_timed: bool) -> Option<Zero> {
    let windows = ends.flat_map(|end| &end.phases).filter(|window| window.phase == Phase::Measure);
    let counted = |flow: &FlowWindow| match flow.role {
        Role::Receiver | Role::Duplex => Some((Zero::Arrivals, flow.counts.bytes_received)),
        Role::Requester => Some((Zero::Transactions, flow.counts.transactions)),
        Role::Sender | Role::Responder => None,
    };
    let flows = windows.flat_map(|window| &window.flows).filter_map(counted);
    let (zero, sum) = flows.reduce(|(_, sum), (zero, count)| (zero, sum.saturating_add(count)))?;
    match (zero, sum) {
        (_, 0) => Some(zero),
        (Zero::Transactions, 1..FEWEST_TRANSACTIONS) if is_timed => Some(Zero::Few),
        _ => None,
    }
}

/// Whether an end sent over loopback with BBR, and the plan had not asked for it.
fn is_paced_by_default(report: &SideReport) -> bool {
    let sends = |flow: u32| report.totals.iter().any(|total| total.flow == flow && total.counts.bytes_sent > 0);
    report.nic.as_ref().is_some_and(|nic| nic.name == "lo")
        && report.options.iter().any(|granted| {
            granted.option == "congestion_control"
                && granted.requested.is_none()
                && sends(granted.flow)
                && granted.last().is_some_and(|name| name.starts_with("bbr"))
        })
}

/// Whether a far end runs on the same boot of the same kernel as this process.
fn share_a_machine(hosts: &BTreeMap<String, HostRecord>) -> bool {
    let Some(here) = hosts.get("local").and_then(|h| h.facts.boot_id.as_ref()) else { return false };
    hosts.iter().any(|(name, host)| name != "local" && host.facts.boot_id.as_ref() == Some(here))
}

/// Share of a measurement from which being held back by a quota is worth a note.
const THROTTLED: f64 = 0.01;

/// Share of a measurement by which a clock must be slewed for a note. ntpd slews by half of it at most.
const SLEWED: f64 = 0.001;

/// Share of the waits that must not have spun for a note.
const UNSPUN: f64 = 0.01;

/// Seconds that a wall clock must jump, or a machine be suspended, for a note.
const SECONDS: f64 = 0.01;

/// A disturbance of an end during a measurement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Disturbance {
    /// `near` or `far`.
    end: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A CPU quota held its control group back, for a share of the measurement. The quota, in words.
    Throttled(String),
    /// Its clock ran faster than its oscillator by this share of the measurement; negative: slower.
    Slewed,
    /// Its machine was suspended for so many seconds.
    Suspended,
    /// Its wall clock jumped by so many seconds.
    Stepped,
    /// With `io: spin`, a share of its waits blocked at once: it shared this CPU with the other end.
    Unspun(u32),
}

/// Disturbances that an end reports, with their sizes.
pub fn of(report: &SideReport) -> Vec<(Disturbance, f64)> {
    let Some(measured) = report.phase(Phase::Measure) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(cpu) = &measured.cpu
        && let Some(share) = cpu.throttled.filter(|share| *share >= THROTTLED)
    {
        let quota = cpu.quota_cpus.map_or_else(
            || "a CPU quota that it cannot see".to_owned(),
            |quota| format!("its CPU quota of {}", cpus(quota)),
        );
        found.push((Kind::Throttled(quota), share));
    }
    if let Some((start, end)) = &report.clocks {
        let change = end.since(start);
        let seconds = |ns: i64| ns as f64 / 1e9;
        let unsure = change.within_ns as f64 / 1e9;
        let elapsed = measured.elapsed_ns as f64 / 1e9;
        let slewed = seconds(change.slewed_ns);
        if elapsed > 0.0 && slewed.abs() > unsure + SLEWED * elapsed {
            found.push((Kind::Slewed, slewed / elapsed));
        }
        for (kind, ns) in [(Kind::Suspended, change.suspended_ns), (Kind::Stepped, change.stepped_ns)] {
            if seconds(ns).abs() > unsure + SECONDS {
                found.push((kind, seconds(ns)));
            }
        }
    }
    if let Some(waits) = report.spinning
        && let (Some(cpu), Some(share)) = (waits.cpu, waits.at_once_ratio().filter(|share| *share >= UNSPUN))
    {
        found.push((Kind::Unspun(cpu), share));
    }
    let end = if report.side == Side::Near { "near" } else { "far" };
    found.into_iter().map(|(kind, size)| (Disturbance { end, kind }, size)).collect()
}

impl Disturbance {
    /// The sentence for a number of measurements with at most this size.
    pub fn sentence(&self, most: f64, times: u32) -> String {
        let end = self.end;
        let duration = |seconds: f64| human(Unit::Seconds, seconds.abs());
        let text = match &self.kind {
            Kind::Throttled(quota) => {
                format!("the {end} end was held back by {quota} for up to {} of a measurement", margin(most))
            }
            Kind::Slewed => format!(
                "the clock of the {end} end was slewed by up to {} in a measurement: its times and rates are off by as much",
                margin(most)
            ),
            Kind::Suspended => format!(
                "the machine of the {end} end was suspended during a measurement, for up to {}, which its elapsed time \
                 leaves out",
                duration(most)
            ),
            Kind::Stepped => format!(
                "the wall clock of the {end} end jumped {} by up to {} during a measurement: the times of its rows jump, its \
                 measurements do not",
                if most < 0.0 { "back" } else { "ahead" },
                duration(most)
            ),
            Kind::Unspun(cpu) => format!(
                "io: spin blocked at once for up to {} of the waits of the {end} end, since both ends shared CPU {cpu} (cpu and \
                 remote_cpu can keep them apart)",
                margin(most)
            ),
        };
        format!("{text}, {}", counted(times, "time"))
    }
}

/// A sentence for each set of hosts on which plumb may use only a part of the machine that the CPU shares are about.
pub fn parts_of_machines(hosts: &BTreeMap<String, HostRecord>) -> Vec<String> {
    let mut named: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, host) in hosts {
        if let Some(part) = part_of_machine(&host.facts) {
            named.entry(part).or_default().push(name);
        }
    }
    named.into_iter().map(|(part, names)| format!("{}: {part}", names.join(", "))).collect()
}

fn part_of_machine(facts: &HostFacts) -> Option<String> {
    if facts.cpu_shares_of == Some(CpuSharesOf::Container) {
        return None;
    }
    let (allowed, quota) = facts.fewer_cpus();
    let parts =
        [allowed.map(|list| format!("only CPU {list}")), quota.map(|quota| format!("a quota of {}", cpus(quota)))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| {
        format!(
            "CPU shares are those of the whole machine ({} CPUs), and plumb has {} there",
            facts.cpus.unwrap_or_default(),
            parts.join(" and ")
        )
    })
}

/// `0.5 CPUs`, `1 CPU`
fn cpus(count: f64) -> String {
    let number = if count.fract() == 0.0 { format!("{count:.0}") } else { three_digits(count) };
    let number = if number.contains('.') { number.trim_end_matches('0') } else { &number };
    counted(number, "CPU")
}

#[cfg(test)]
mod tests {
    use netcore::{
        client::RanksOutcome,
        report::{Ending, Granted, NicFacts, RankReport, ThreadUse},
    };

    use super::*;
    use crate::schedule::{
        fake::{flow, report},
        whole::Whole,
    };

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
            let outcome = RanksOutcome { reports: (0..).zip(waiting).map(rank).collect(), t0_ns: 1, arrivals: None };
            notes.keep(
                "bcast",
                &Measured { whole: Some(Whole::Ranks(outcome)), ..Measured::default() },
                std::iter::empty(),
            );
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

#[cfg(test)]
mod tests_of_disturbance {
    use netcore::report::{ClockReading, CpuUse, Ending, Spinning, Window};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// An end that measured for 10 s, and its clocks at the end of that.
    fn report(side: Side, cpu: CpuUse, end: ClockReading) -> SideReport {
        let window = Window {
            phase: Phase::Measure,
            start_ns: 0,
            elapsed_ns: 10 * SECOND,
            wall_end_ns: 0,
            flows: Vec::new(),
            cpu: Some(cpu),
            evidence: None,
        };
        let clocks = Some((ClockReading::default(), end));
        SideReport { phases: vec![window], clocks, ..SideReport::empty(side, Ending::Complete) }
    }

    /// Clocks after 10 s in which nothing happened.
    const QUIET: ClockReading = ClockReading {
        monotonic_ns: 10 * SECOND,
        raw_ns: 10 * SECOND,
        boot_ns: 10 * SECOND,
        wall_ns: 10_000_000_000,
        within_ns: 500,
        wall_error_ns: None,
    };

    fn sentences(report: &SideReport) -> Vec<String> {
        of(report).iter().map(|(disturbance, size)| disturbance.sentence(*size, 2)).collect()
    }

    #[test]
    fn a_quota_is_named_with_the_time_that_it_took() {
        let cpu = |throttled, quota_cpus| CpuUse { throttled, quota_cpus, ..CpuUse::default() };
        let said = |cpu| sentences(&report(Side::Far, cpu, QUIET));
        assert_eq!(
            said(cpu(Some(0.4), Some(0.5))),
            ["the far end was held back by its CPU quota of 0.5 CPUs for up to 40 % of a measurement, 2 times"]
        );
        assert!(said(cpu(Some(0.4), None))[0].contains("a CPU quota that it cannot see"));
        assert!(said(cpu(Some(0.009), Some(0.5))).is_empty());
        assert!(said(cpu(None, None)).is_empty());
    }

    #[test]
    fn a_cpu_that_both_ends_share_is_named_with_the_share_of_the_waits() {
        let said = |spinning| sentences(&SideReport { spinning, ..report(Side::Near, CpuUse::default(), QUIET) });
        let waits = Spinning { waits: 200, spun: 20, at_once: 150, cpu: Some(3) };
        assert_eq!(
            said(Some(waits)),
            [
                "io: spin blocked at once for up to 75 % of the waits of the near end, since both ends shared CPU 3 (cpu and \
              remote_cpu can keep them apart), 2 times"
            ]
        );
        for quiet in [Spinning { at_once: 1, ..waits }, Spinning { cpu: None, ..waits }, Spinning::default()] {
            assert!(said(Some(quiet)).is_empty(), "{quiet:?}");
        }
    }

    #[test]
    fn events_of_the_clocks_are_told_from_one_another() {
        let said = |end| sentences(&report(Side::Near, CpuUse::default(), end)).join("\n");
        assert_eq!(said(QUIET), "");
        // Suspended for 3 s: only the clocks that count it go on.
        let slept = ClockReading { boot_ns: 13 * SECOND, wall_ns: 13_000_000_000, ..QUIET };
        assert!(
            said(slept)
                .starts_with("the machine of the near end was suspended during a measurement, for up to 3.00 s,")
        );
        assert!(!said(slept).contains('\n'), "{}", said(slept));
        let stepped = ClockReading { wall_ns: 8_000_000_000, ..QUIET };
        assert!(
            said(stepped).starts_with("the wall clock of the near end jumped back by up to 2.00 s"),
            "{}",
            said(stepped)
        );
        let slewed = ClockReading { raw_ns: 9_500_000_000, ..QUIET };
        assert!(said(slewed).contains("was slewed by up to 5.0 % in"), "{}", said(slewed));
        // ntpd's 500 parts per million, and a reading that the scheduler tore apart.
        assert_eq!(said(ClockReading { raw_ns: 10 * SECOND - 5_000_000, ..QUIET }), "");
        assert_eq!(said(ClockReading { within_ns: 5 * SECOND, ..stepped }), "");
    }

    #[test]
    fn shares_of_a_whole_machine_are_said_to_be_so() {
        let host = |cpus_allowed: &str, cpu_quota| HostRecord {
            launch: None,
            control: None,
            tool_version: String::new(),
            facts: HostFacts {
                cpus: Some(8),
                cpus_allowed: Some(cpus_allowed.to_owned()),
                cpu_quota,
                cpu_shares_of: Some(CpuSharesOf::Machine),
                ..HostFacts::default()
            },
            clock: None,
            mpi: None,
        };
        let hosts = BTreeMap::from([
            ("a".to_owned(), host("0-7", Some(0.5))),
            ("b".to_owned(), host("0-7", None)),
            ("c".to_owned(), host("0-7", Some(0.5))),
            ("d".to_owned(), host("2", Some(1.0))),
        ]);
        assert_eq!(
            parts_of_machines(&hosts),
            [
                "a, c: CPU shares are those of the whole machine (8 CPUs), and plumb has a quota of 0.5 CPUs there",
                "d: CPU shares are those of the whole machine (8 CPUs), and plumb has only CPU 2 and a quota of 1 CPU there"
            ]
        );
    }
}
