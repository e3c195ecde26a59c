//! Whether others took a CPU from a test while it was measured.
//!
//! A thread that is ready and waits for its CPU is slowed by whatever runs there. That says something about the test where
//! its own threads run there, and nothing about its network where they are others'. `docs/reference/statistics.md` says what is
//! concluded from such a measurement.

use super::{
    Limit,
    evidence::{End, Evidence, MOST, NAMED_WAIT, STOLEN},
    of_the_time,
};
use crate::stats::quantiles::select_median;
use schemas::{columns::Row, units::margin, words::LimitedBy};

/// Factor by which a measurement must exceed what is usual in its surroundings to count as disturbed. What slows all of
/// them alike accuses none.
const BEYOND_USUAL: f64 = 2.0;

/// How far the shares of one process may be apart that its two ends report, each over its own time.
const ONE_PROCESS: f64 = 0.1;

/// The largest share of the time in which others took a CPU from the test, of its two ends: time stolen by the hypervisor,
/// or time in which the busiest data thread was ready and waited, less what plumb's own threads, soft interrupts and a
/// quota explain. `None`: no end tells.
#[must_use]
pub fn taken(row: &Row) -> Option<f64> {
    ["local", "remote"].iter().filter_map(|end| of_end(row, end)).reduce(f64::max)
}

fn of_end(row: &Row, end: &str) -> Option<f64> {
    let cell = |side: &str, name: &str| row.number(&format!("{side}_{name}"));
    let own = |name: &str| cell(end, name);
    let waited = own("thread_waiting_ratio").zip(own("process_cpus")).map(|(waiting, cpus)| {
        let others_of_process = (cpus - own("thread_busy_ratio").unwrap_or(0.0)).max(0.0);
        let other_end = if end == "local" { "remote" } else { "local" };
        let shared = row.same_machine != Some(false);
        // Both ends may be in one process: then each of them has its whole share, with the other's thread in it.
        let is_one_process = |other: f64| {
            let has_thread = |busy: f64| others_of_process >= (1.0 - ONE_PROCESS) * busy;
            (other - cpus).abs() <= ONE_PROCESS * cpus && cell(other_end, "thread_busy_ratio").is_some_and(has_thread)
        };
        let of_other_end = cell(other_end, "process_cpus").filter(|cpus| shared && !is_one_process(*cpus));
        let of_other_end = of_other_end.unwrap_or(0.0);
        let explained = others_of_process
            + of_other_end
            + own("thread_softirq_ratio").unwrap_or(0.0)
            + own("throttled_ratio").unwrap_or(0.0);
        (waiting - explained).clamp(0.0, 1.0)
    });
    own("cpu_steal_ratio").into_iter().chain(waited).reduce(f64::max)
}

/// The limit of a test whose threads spin, and for most of the time could not: others had their CPU. A thread that spins
/// always looks busy, so that its load says nothing; its waiting does.
pub(super) fn starved(evidence: &Evidence<'_>) -> Option<Limit> {
    let ends = [(LimitedBy::SenderCpu, &evidence.sender), (LimitedBy::ReceiverCpu, &evidence.receiver)];
    let waiting = ends.into_iter().filter(|(_, end)| end.spins).filter_map(|(by, end)| {
        let thread = end.thread.filter(|thread| thread.waiting >= MOST)?;
        Some((by, end, thread))
    });
    let (by, end, thread) = waiting.max_by(|a, b| a.2.waiting.total_cmp(&b.2.waiting))?;
    let cpu = thread.cpu.map_or_else(|| "a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    let because = format!(
        "the data thread of {} spins, and waited {} of the time for {cpu}, which others used too; `{}` pins it to another",
        end.host,
        margin(thread.waiting),
        end.key("cpu")
    );
    Some(Limit::named(by, thread.waiting, because))
}

/// A rule for measurements in surroundings where others took these shares (see [`taken`]): whether one counts as disturbed.
pub fn disturbed(mut surroundings: Vec<f64>) -> impl Fn(f64) -> bool {
    let least = NAMED_WAIT.max(BEYOND_USUAL * select_median(&mut surroundings).unwrap_or(0.0));
    move |taken| taken >= least
}

// Why the iterations of a case differ, from what else its CPUs had to do.

/// Names the end that lost most of its time to something else, and the taker; `None`: the row shows nothing.
#[must_use]
pub fn unsteady(row: &Row) -> Option<String> {
    let evidence = Evidence::of(row)?;
    let taken = |end: &End<'_>| end.thread.map_or(0.0, |thread| thread.waiting);
    let (one, other) = if taken(&evidence.sender) >= taken(&evidence.receiver) {
        (&evidence.sender, &evidence.receiver)
    } else {
        (&evidence.receiver, &evidence.sender)
    };
    if let Some(end) = [one, other].into_iter().find(|end| end.is_throttled()) {
        return Some(format!("a quota held {} back {}", end.host, of_the_time(end.throttled)));
    }
    if let Some(thread) = one.thread.filter(|_| one.waits()) {
        let cpu = thread.cpu.map_or_else(|| "a CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        // A summary names no CPU where its iterations used several.
        let of_other = other.thread.and_then(|other| other.cpu);
        let is_shared = evidence.shares_cpus() && of_other.is_some() && of_other == thread.cpu;
        let shared = if is_shared { ", which the other end used too" } else { "" };
        // Plumb's own threads may have run there: `taken` says what only others can have had.
        return Some(format!(
            "the data thread of {} waited {} for {cpu}{shared}",
            one.host,
            of_the_time(thread.waiting)
        ));
    }
    let stolen = |share: Option<f64>, host: &str| {
        let share = share.filter(|share| *share >= STOLEN)?;
        Some(format!("the hypervisor took {} of the CPU time of {host}", margin(share)))
    };
    let host = |name: &Option<String>| name.clone().unwrap_or_default();
    stolen(row.local_cpu_steal_ratio, &host(&row.from)).or_else(|| stolen(row.remote_cpu_steal_ratio, &host(&row.to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_took_counts() {
        let waiting = Row {
            same_machine: Some(false),
            local_thread_busy_ratio: Some(0.2),
            local_thread_waiting_ratio: Some(0.5),
            local_process_cpus: Some(0.2),
            local_cpu_steal_ratio: Some(0.01),
            remote_process_cpus: Some(0.4),
            ..Row::default()
        };
        assert_eq!(taken(&waiting), Some(0.5));
        // The other end ran on the same machine, another thread of its own, soft interrupts, or a quota.
        let is_left = |own: Row, left: f64| {
            assert!((taken(&own).unwrap() - left).abs() < 1e-9, "{:?} {left}", taken(&own));
        };
        is_left(Row { same_machine: Some(true), ..waiting.clone() }, 0.1);
        // Both ends in one process, whose share each of them tells.
        let one = Row {
            same_machine: Some(true),
            local_process_cpus: Some(0.41),
            remote_thread_busy_ratio: Some(0.2),
            ..waiting.clone()
        };
        is_left(one.clone(), 0.29);
        is_left(Row { remote_thread_busy_ratio: None, ..one.clone() }, 0.01);
        // Two processes whose threads are as busy as each other.
        is_left(Row { local_process_cpus: Some(0.2), remote_process_cpus: Some(0.2), ..one }, 0.3);
        is_left(Row { local_process_cpus: Some(0.5), ..waiting.clone() }, 0.2);
        is_left(Row { local_thread_softirq_ratio: Some(0.3), ..waiting.clone() }, 0.2);
        is_left(Row { local_throttled_ratio: Some(0.6), ..waiting.clone() }, 0.01);
        is_left(Row { local_process_cpus: None, ..waiting.clone() }, 0.01);
        assert_eq!(taken(&Row { remote_cpu_steal_ratio: Some(0.7), ..waiting }), Some(0.7));
        assert_eq!(taken(&Row::default()), None);
    }

    #[test]
    fn what_slows_all_alike_disturbs_none() {
        let quiet = disturbed(vec![0.0, 0.01, 0.3]);
        assert!(quiet(0.3) && quiet(0.1) && !quiet(0.09));
        let busy = disturbed(vec![0.3; 5]);
        assert!(busy(0.6) && !busy(0.4));
        assert!(disturbed(Vec::new())(0.1));
    }

    #[test]
    fn what_took_the_time_is_named_with_its_share() {
        let quiet = Row {
            workload: Some("tcp_stream".into()),
            from: Some("local".into()),
            to: Some("server".into()),
            local_thread_busy_ratio: Some(0.5),
            remote_thread_busy_ratio: Some(0.5),
            local_thread_cpu_id: Some(0),
            remote_thread_cpu_id: Some(1),
            ..Row::default()
        };
        assert_eq!(unsteady(&quiet), None);
        let waits =
            Row { local_thread_waiting_ratio: Some(0.31), remote_thread_waiting_ratio: Some(0.2), ..quiet.clone() };
        assert_eq!(unsteady(&waits).unwrap(), "the data thread of local waited 31 % of the time for CPU 0");
        let shared = Row { same_machine: Some(true), remote_thread_cpu_id: Some(0), ..waits.clone() };
        assert!(unsteady(&shared).unwrap().ends_with("for CPU 0, which the other end used too"));
        let moving = Row { local_thread_cpu_id: None, remote_thread_cpu_id: None, ..shared };
        assert_eq!(unsteady(&moving).unwrap(), "the data thread of local waited 31 % of the time for a CPU");
        let held = Row { remote_throttled_ratio: Some(0.4), ..waits };
        assert_eq!(unsteady(&held).unwrap(), "a quota held server back 40 % of the time");
        let stolen = Row { remote_cpu_steal_ratio: Some(0.2), ..quiet };
        assert_eq!(unsteady(&stolen).unwrap(), "the hypervisor took 20 % of the CPU time of server");
    }
}
