//! Rules that hold for every test: the wire, the offered load, the CPUs of the two ends, and a path that is full.

use super::{
    Limit,
    evidence::{
        ASLEEP, EXPLAINED, End, Evidence, FEW_PACKETS, FULL, FULL_WITH_SUPPORT, LITTLE, LOSS, MOST, NAMED_WAIT,
        PACED_BBR, Place, QUEUE_FACTOR, QUEUE_US, RATE_SLACK, STEADY, STEADY_BEHIND_QUEUE, TRACE, WIRE_BEYOND,
        WIRE_FULL,
    },
    of_the_time,
};
use schemas::{
    units::{Unit, human, margin},
    words::{LimitedBy, OfferedUnit},
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
    let encryption =
        full.encryption.map_or_else(String::new, |share| format!(" ({} of it for encryption)", margin(share)));
    let mut parts = vec![format!("ran {}{encryption}", of_the_time(thread.busy))];
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
        parts.push(format!("was held back up to {} by its CPU quota", margin(full.throttled)));
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

// The rules of a path that is full: a link between the ends whose speed no interface tells carries all it can. TCP then keeps a
// queue standing in front of it, BBR paces by what it delivers, and datagrams beyond its rate are lost.

/// A sentence about a queue that stands on the path; `None`: the round-trip time shows none.
pub fn queue(evidence: &Evidence<'_>) -> Option<String> {
    let (rtt, min) = round_trips(evidence)?;
    stands(rtt, min).then(|| {
        let us = |us| human(Unit::Microseconds, us);
        format!("a queue stands on the path, since a round trip takes {} and not {}", us(rtt), us(min))
    })
}

fn round_trips(evidence: &Evidence<'_>) -> Option<(f64, f64)> {
    evidence.row.rtt_us.zip(evidence.row.min_rtt_us)
}

fn stands(rtt: f64, min: f64) -> bool {
    rtt > min * QUEUE_FACTOR && rtt > min + QUEUE_US
}

/// TCP at a steady rate, behind a queue or paced by BBR's estimate of the path, while both ends could do more. `None`: one of these
/// is not so, or not known.
pub fn full(evidence: &Evidence<'_>) -> Option<Limit> {
    let row = evidence.row;
    let bits = row.throughput_bits_per_s.or(row.sent_bits_per_s).filter(|bits| *bits > 0.0)?;
    let delivered = row.delivery_rate_bits_per_s? / bits;
    let (rtt, min) = round_trips(evidence)?;
    let paced = row.pacing_rate_bits_per_s.filter(|_| evidence.is_bbr()).map(|rate| rate / bits);
    let is_steady = |rate: f64| (STEADY.0..=STEADY.1).contains(&rate);
    // BBR's estimate is the largest delivery rate of several round trips. The last one alone may be of the test's end.
    let rate_held = match paced.filter(|rate| is_steady(*rate)) {
        _ if is_steady(delivered) => delivered,
        _ if !stands(rtt, min) => return None,
        Some(rate) => rate,
        None if (STEADY_BEHIND_QUEUE..STEADY.0).contains(&delivered) => 1.0,
        None => return None,
    };
    if is_end_busy(evidence) {
        return None;
    }
    let us = |us| human(Unit::Microseconds, us);
    let rate = human(Unit::BitsPerSecond, bits);
    let because = if stands(rtt, min) {
        let held = human(Unit::Bytes, bits / 8.0 * (rtt - min) / 1e6);
        let dropped = qdisc_drops(evidence).map(|drops| {
            let place = Place::Qdisc.of(evidence.sender.host);
            format!(", and {place} dropped {}", evidence.count(drops, "packets"))
        });
        format!(
            "a link between the ends is full at {rate} of payload: at the end a queue of {} ({held}) stood on the path, whose smallest \
             round trip is {} in the kernel{}",
            us(rtt - min),
            us(min),
            dropped.unwrap_or_default()
        )
    } else {
        // On a short path a sender that is at work spoils BBR's estimate.
        let trusts = min >= QUEUE_US || evidence.sender.load().is_some_and(|load| load < LITTLE);
        let used = 1.0 / paced.filter(|_| trusts)?;
        if !(PACED_BBR.0..=PACED_BBR.1).contains(&used) {
            return None;
        }
        format!(
            "a link between the ends is full at {rate} of payload: BBR paces by what it delivers, with a queue of {} on the path at the \
             end, whose smallest round trip is {} in the kernel",
            us((rtt - min).max(0.0)),
            us(min)
        )
    };
    let because = format!("{because}{}", about_wire(evidence));
    Some(Limit::named(LimitedBy::Path, rate_held.min(1.0), because))
}

/// Whether an end may have kept the other waiting: its thread was nearly full or could not run, or its own queues dropped packets.
fn is_end_busy(evidence: &Evidence<'_>) -> bool {
    let receiver = &evidence.receiver;
    let at_receiver = |place| matches!(place, Place::Socket | Place::Softnet);
    let losses = evidence.retransmits().unwrap_or(0.0).max(FEW_PACKETS);
    [&evidence.sender, receiver].into_iter().any(may_be_full)
        || receiver.held() >= LITTLE
        || receiver.drops.iter().any(|(place, n)| at_receiver(*place) && n.is_some_and(|n| n >= losses * EXPLAINED))
}

fn qdisc_drops(evidence: &Evidence<'_>) -> Option<f64> {
    evidence.sender.drops.iter().find(|(place, _)| *place == Place::Qdisc)?.1.filter(|drops| *drops >= FEW_PACKETS)
}

/// The way to the share of a link that is used. Below a table it stands once.
pub const NAME_WIRE: &str = "; `wire` in a plan (`wire: 100Mbit/s`) tells the share of its speed that is used";

/// The question that the speed of the link would decide.
fn about_wire(evidence: &Evidence<'_>) -> String {
    let cell = |name| evidence.row.number(name);
    match (cell("wire_bits_per_s"), cell("wire_ratio")) {
        (Some(speed), Some(ratio)) if ratio < WIRE_FULL => {
            format!("; it is slower than {}", human(Unit::BitsPerSecond, speed))
        }
        (Some(speed), Some(ratio)) if ratio > WIRE_BEYOND => {
            format!("; it is faster than the {} of `wire`", human(Unit::BitsPerSecond, speed))
        }
        _ => NAME_WIRE.to_owned(),
    }
}

/// Datagrams that were lost, and neither end dropped them. `None`: an end may have dropped them.
pub fn lost(evidence: &Evidence<'_>, lost: f64, loss: f64) -> Option<Limit> {
    let drops = |end: &End<'_>, place| end.drops.iter().find(|(of, _)| *of == place)?.1;
    // Both counters show drops by an overrun of an end.
    drops(&evidence.sender, Place::Qdisc)?;
    drops(&evidence.receiver, Place::Socket)?;
    let all = [&evidence.sender, &evidence.receiver].into_iter().flat_map(|end| end.drops).filter_map(|(_, n)| n);
    if all.sum::<f64>() > lost * TRACE {
        return None;
    }
    let bits = evidence.row.throughput_bits_per_s.filter(|bits| *bits > 0.0)?;
    let rate = human(Unit::BitsPerSecond, bits);
    let because = format!(
        "{rate} arrived, and the path lost {} of the datagrams: neither end counted a drop; at a `rate` below it a full link loses none{}",
        margin(loss),
        about_wire(evidence)
    );
    Some(Limit::named(LimitedBy::Path, 1.0 - loss, because))
}
