//! The rules of a path that is full: a link between the ends whose speed no interface tells carries all it can. TCP then keeps a
//! queue standing in front of it, BBR paces by what it delivers, and datagrams beyond its rate are lost.

use schemas::{
    units::{Unit, human, margin},
    words::LimitedBy,
};

use super::{
    Limit,
    ends::may_be_full,
    evidence::{Evidence, Place},
    thresholds::{
        EXPLAINED, FEW_PACKETS, LITTLE, PACED_BBR, QUEUE_FACTOR, QUEUE_US, STEADY, TRACE, WIRE_BEYOND, WIRE_FULL,
    },
};

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
    let rate_held =
        if is_steady(delivered) { delivered } else { paced.filter(|rate| is_steady(*rate) && stands(rtt, min))? };
    if is_end_busy(evidence) {
        return None;
    }
    let us = |us| human(Unit::Microseconds, us);
    let rate = human(Unit::BitsPerSecond, bits);
    let because = if stands(rtt, min) {
        let held = human(Unit::Bytes, bits / 8.0 * (rtt - min) / 1e6);
        let dropped = qdisc_drops(evidence).map(|drops| {
            let place = Place::Qdisc.of(evidence.sender.host);
            format!(", and {place} dropped {} packets", human(Unit::Count, drops))
        });
        format!(
            "a link between the ends is full at {rate} of payload: a queue of {} ({held}) stands on the path, whose base delay is {}{}",
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
            "a link between the ends is full at {rate} of payload: BBR paces by what it delivers, with a queue of {} on the path, whose \
             base delay is {}",
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
        _ => "; a plan that names its speed (`wire`) tells the share of it that is used".to_owned(),
    }
}

/// Datagrams that were lost, and neither end dropped them. `None`: an end may have dropped them.
pub fn lost(evidence: &Evidence<'_>, lost: f64, loss: f64) -> Option<Limit> {
    let drops = |end: &super::evidence::End<'_>, place| end.drops.iter().find(|(of, _)| *of == place)?.1;
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
