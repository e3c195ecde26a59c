//! Why the iterations of a case differ, from what else its CPUs had to do.

use schemas::{columns::Row, units::margin};

use super::{
    evidence::{End, Evidence},
    of_the_time,
    thresholds::STOLEN,
};

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
        let by = if is_shared { "the other end and others" } else { "others" };
        return Some(format!("{cpu} of {} was taken by {by} for {}", one.host, of_the_time(thread.waiting)));
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
        assert_eq!(unsteady(&waits).unwrap(), "CPU 0 of local was taken by others for 31 % of the time");
        let shared = Row { same_machine: Some(true), remote_thread_cpu_id: Some(0), ..waits.clone() };
        assert!(unsteady(&shared).unwrap().contains("taken by the other end and others for 31 %"));
        let moving = Row { local_thread_cpu_id: None, remote_thread_cpu_id: None, ..shared };
        assert_eq!(unsteady(&moving).unwrap(), "a CPU of local was taken by others for 31 % of the time");
        let held = Row { remote_throttled_ratio: Some(0.4), ..waits };
        assert_eq!(unsteady(&held).unwrap(), "a quota held server back 40 % of the time");
        let stolen = Row { remote_cpu_steal_ratio: Some(0.2), ..quiet };
        assert_eq!(unsteady(&stolen).unwrap(), "the hypervisor took 20 % of the CPU time of server");
    }
}
