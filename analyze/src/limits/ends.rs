//! Rules that hold for every test: the wire, the offered load, and the CPUs of the two ends.

use schemas::{
    units::{Unit, human, margin},
    words::{LimitedBy, OfferedUnit},
};

use super::{
    Limit,
    evidence::{End, Evidence},
    of_the_time,
    thresholds::{ASLEEP, FULL, FULL_WITH_SUPPORT, LOSS, MOST, NAMED_WAIT, RATE_SLACK, WIRE_BEYOND, WIRE_FULL},
};

/// A link that carries what it can is the limit, whatever waits for it.
pub fn wire(evidence: &Evidence<'_>) -> Option<Limit> {
    let ratio = evidence.row.number("wire_ratio")?;
    if !(WIRE_FULL..=WIRE_BEYOND).contains(&ratio) {
        return None;
    }
    let speed = evidence.row.number("wire_bits_per_s");
    let speed = speed.map(|bits| format!(" of {}", human(Unit::BitsPerSecond, bits))).unwrap_or_default();
    let because = format!("the throughput is {} of what a link{speed} carries with its headers", margin(ratio));
    Some(Limit::named(LimitedBy::Wire, ratio, because))
}

/// A test that offers a load and reaches it is limited by its plan.
pub fn offered(evidence: &Evidence<'_>) -> Option<Limit> {
    let row = evidence.row;
    let (offered, error) = (row.offered_per_s?, row.rate_error_ratio?);
    if error < -RATE_SLACK || row.loss_ratio.is_some_and(|loss| loss > LOSS) {
        return None;
    }
    // Messages that were sent on time may wait in a queue.
    let arrived = row.throughput_bits_per_s.zip(row.sent_bits_per_s).map(|(arrived, sent)| arrived / sent);
    if row.offered_unit != Some(OfferedUnit::Transactions)
        && arrived.is_some_and(|ratio| ratio < 1.0 - 2.0 * RATE_SLACK)
    {
        return None;
    }
    let load = match row.offered_unit {
        Some(OfferedUnit::Bits) => human(Unit::BitsPerSecond, offered),
        unit => format!("{} {}/s", human(Unit::Count, offered), unit.map_or("events", OfferedUnit::as_str)),
    };
    let because = format!("the plan offers {} and no more; `rate` sets it", load.trim_end());
    Some(Limit::named(LimitedBy::Pacing, 1.0 + error.min(0.0), because))
}

/// The end to which other evidence points: there a little less than a full thread is enough, and of two it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    Sender,
    Receiver,
    Neither,
}

/// A CPU that is full. `Err`: both ends, or one of several threads, are full in a way that names none.
pub fn cpu(evidence: &Evidence<'_>, support: Support) -> Option<Result<Limit, String>> {
    let (sender, receiver) = (&evidence.sender, &evidence.receiver);
    let full = |end: &End<'_>, which: Support| {
        let least = if support == which { FULL_WITH_SUPPORT } else { FULL };
        end.load().is_some_and(|load| load >= least)
    };
    let (sends, receives) = (full(sender, Support::Sender), full(receiver, Support::Receiver));
    if (sends || receives) && !are_alike(evidence) {
        return Some(Err(format!(
            "one of {} threads is full, and the others are not",
            evidence.row.threads.unwrap_or(0)
        )));
    }
    let shared = evidence.shares_cpus();
    match (sends, receives, support) {
        (true, true, Support::Neither) => Some(Err(both_full(sender, receiver, shared))),
        (true, _, Support::Sender) | (true, false, _) => {
            Some(Ok(of_thread(LimitedBy::SenderCpu, sender, receiver, shared)))
        }
        (_, true, _) => Some(Ok(of_thread(LimitedBy::ReceiverCpu, receiver, sender, shared))),
        (false, false, _) => softirq(evidence).map(Ok),
    }
}

/// Whether the busiest thread stands for all threads of an end: there is one, or the machines' CPUs are full.
fn are_alike(evidence: &Evidence<'_>) -> bool {
    let row = evidence.row;
    let full = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio >= FULL);
    let one = row.threads.is_none_or(|n| n <= 1);
    one || full(row.local_cpu_ratio) || full(row.remote_cpu_ratio) || {
        // Of two ends in one process both count.
        let threads = row.threads.unwrap_or(1) as f64;
        let all = |cpus: Option<f64>| cpus.is_some_and(|cpus| cpus >= threads * ASLEEP);
        row.to.as_deref() != Some("embedded") && (all(row.local_process_cpus) || all(row.remote_process_cpus))
    }
}

fn both_full(sender: &End<'_>, receiver: &End<'_>, one_machine: bool) -> String {
    let cpu = |end: &End<'_>| end.thread.and_then(|thread| thread.cpu);
    let why = match (cpu(sender), cpu(receiver)) {
        _ if sender.is_throttled() && receiver.is_throttled() => {
            format!(
                "; quotas held them back for {} and {}",
                of_the_time(sender.throttled),
                of_the_time(receiver.throttled)
            )
        }
        (Some(a), Some(b)) if a == b && one_machine => {
            format!("; they shared CPU {a}: `cpu` and `remote_cpu` give each its own")
        }
        _ => String::new(),
    };
    format!("the data threads of both ends always ran or waited for a CPU{why}")
}

/// `the data thread of a ran 80 % of the time and waited 18 % for a CPU; that of b was idle 60 % of the time`
pub fn of_thread(by: LimitedBy, full: &End<'_>, other: &End<'_>, one_machine: bool) -> Limit {
    let (Some(thread), Some(load)) = (full.thread, full.load()) else { return Limit::unknown(String::new()) };
    let mut parts = vec![format!("ran {}", of_the_time(thread.busy))];
    let waits = thread.waiting >= NAMED_WAIT && !full.is_throttled();
    if waits {
        let with = if one_machine && other.thread.is_some_and(|of_other| of_other.cpu == thread.cpu) {
            "which the other end used too"
        } else {
            "which others used too"
        };
        let cpu = thread.cpu.map_or_else(|| "a CPU".to_owned(), |cpu| format!("CPU {cpu}, {with}"));
        parts.push(format!("waited {} for {cpu}", margin(thread.waiting)));
    }
    if full.is_throttled() {
        parts.push(format!("was held back {} by its CPU quota", margin(full.throttled)));
    }
    let idle = match other.load() {
        Some(load) if load < FULL => format!("; that of {} was idle {}", other.host, of_the_time(1.0 - load)),
        _ => String::new(),
    };
    let advice = if full.is_throttled() {
        "; a larger quota lets it do more".to_owned()
    } else if waits {
        format!("; `{}` pins it to another", full.key("cpu"))
    } else {
        String::new()
    };
    Limit::named(by, load, format!("the data thread of {} {}{idle}{advice}", full.host, parts.join(" and ")))
}

/// A CPU that does nothing but soft interrupts, on a machine that the other end does not share.
fn softirq(evidence: &Evidence<'_>) -> Option<Limit> {
    if evidence.shares_cpus() {
        return None;
    }
    let (by, end) = match (evidence.sender.full_softirq(), evidence.receiver.full_softirq()) {
        (None, Some(_)) => (LimitedBy::ReceiverCpu, &evidence.receiver),
        (Some(_), None) => (LimitedBy::SenderCpu, &evidence.sender),
        _ => return None,
    };
    let (cpu, ratio) = end.full_softirq()?;
    let because = format!(
        "CPU {cpu} of {} spent {} in soft interrupts; more queues of its interface, or RPS, spread them",
        end.host,
        of_the_time(ratio)
    );
    Some(Limit::named(by, ratio, because))
}

/// Whether a thread is known to sleep for a good part of the time.
pub fn sleeps(end: &End<'_>) -> bool {
    end.load().is_some_and(|load| load < ASLEEP)
}

/// Whether the thread may be the limit for all that is known.
pub fn may_be_full(end: &End<'_>) -> bool {
    end.load().is_some_and(|load| load >= ASLEEP)
}

/// The numbers behind an answer that names no cause.
pub fn numbers(evidence: &Evidence<'_>) -> Vec<String> {
    let row = evidence.row;
    let mut all = Vec::new();
    let mut add = |what: &str, ratio: Option<f64>| {
        all.extend(ratio.map(|ratio| format!("{what} {}", margin(ratio))));
    };
    add("sender busy", row.busy_ratio);
    add("receiver's window", row.rwnd_limited_ratio.filter(|r| *r > 0.0));
    add("send buffer", row.sndbuf_limited_ratio.filter(|r| *r > 0.0));
    for end in [&evidence.sender, &evidence.receiver] {
        add(&format!("thread of {}", end.host), end.load());
        // A load that is mostly waiting is another matter than one of work.
        let waiting = end.thread.map(|thread| thread.waiting).filter(|waiting| *waiting >= NAMED_WAIT);
        add("of it waiting", waiting.filter(|_| !end.spins));
    }
    add("wire", row.number("wire_ratio").filter(|r| *r <= WIRE_BEYOND));
    add("loss", row.loss_ratio.filter(|r| *r > 0.0));
    all.extend(evidence.retransmits().filter(|n| *n > 0.0).map(|n| format!("retransmits {}", human(Unit::Count, n))));
    if let (Some(rtt), Some(min)) = (row.rtt_us, row.min_rtt_us) {
        let us = |us: f64| human(Unit::Microseconds, us);
        all.push(format!("round trip {}, at least {}", us(rtt), us(min)));
    }
    all
}

/// Whether most of a window has this as its share.
pub fn is_most(ratio: f64) -> bool {
    ratio >= MOST
}
