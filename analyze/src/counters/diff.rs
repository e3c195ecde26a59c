//! Pairs the counters of two snapshots, subtracts them, and judges what the difference means.

use super::{Bits, Counter, Format, Kind, Snapshot, Value, line_at, prose::without_plurals};
use crate::error::{Error, ParseError};
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    rc::Rc,
};

schemas::words! {
    /// A remark on a difference, as it stands in the column `note`.
    #[derive(Default)]
    Note {
        #[default]
        None = "",
        /// A level: shown, not subtracted.
        Gauge = "gauge",
        /// The number fell, in a format that does not tell counters from levels.
        Fell = "fell",
        /// The counter wrapped once at 2^32, which the difference includes.
        Wrapped = "wrapped",
        /// The counter may have wrapped unseen in the time that passed.
        Ambiguous = "ambiguous",
        /// Only AFTER has the counter.
        New = "new",
        /// Only BEFORE has the counter.
        Gone = "gone",
        /// The counter was reset, so the difference is unknown.
        Reset = "reset",
    }
}

/// A number before and after.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    pub source: &'a str,
    pub key: Cow<'a, str>,
    /// The CPU, where this is its part of the counter.
    pub cpu: Option<u32>,
    /// The value in BEFORE, summed where CPUs or queues are.
    pub before: Option<Value>,
    /// The value in AFTER.
    pub after: Option<Value>,
    /// `None` where the difference is unknown.
    pub delta: Option<Value>,
    pub note: Note,
    /// Place and length in AFTER's text, in bytes.
    pub at: Option<(usize, usize)>,
}

impl<'a> Change<'a> {
    /// A change with the names of a counter and without values.
    fn of(counter: &'a Counter) -> Self {
        let (source, key) = (&*counter.source, Cow::Borrowed(counter.key.as_str()));
        Self { source, key, cpu: counter.cpu, before: None, after: None, delta: None, note: Note::None, at: None }
    }
}

/// Treatment of a counter that only AFTER has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Missing {
    /// It started at zero
    Zero,
    /// It has no difference; a warning says so
    #[default]
    Skip,
    /// It is an error
    Error,
}

/// Facts about the snapshots that the judgement of a difference needs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Seconds between the snapshots.
    pub elapsed: Option<f64>,
    /// Largest growth of a counter per second.
    pub max_rate: Option<f64>,
    /// Width of counters whose format does not tell it.
    pub bits: Option<Bits>,
    pub missing: Missing,
    /// Keys of levels in formats that do not tell them from counters.
    pub gauges: Option<regex::Regex>,
}

/// The changes in AFTER's order, then the counters that only BEFORE has.
///
/// Fails where [`Missing::Error`] forbids a counter that only AFTER has.
pub fn differences<'a>(
    before: &'a Snapshot<'a>,
    after: &'a Snapshot<'a>,
    settings: &Settings,
) -> Result<Vec<Change<'a>>, Error> {
    let mut gone = vec![true; before.counters.len()];
    let mut changes = Vec::with_capacity(after.counters.len());
    for (counter, partner) in after.counters.iter().zip(partners(before, after)) {
        if let Some(at) = partner {
            gone[at] = false;
        }
        let old = partner.map(|at| before.counters[at].value);
        let (delta, note) = judge(counter, old, after.format, settings);
        if settings.missing == Missing::Error && note == Note::New && delta.is_none() {
            let reason = format!("`{}` of {} is not in BEFORE", counter.key, counter.source);
            return Err(ParseError::new(line_at(after.text, counter.at), reason).of(after.file));
        }
        let zero = (note == Note::New).then_some(Value::Whole(0)).filter(|_| delta.is_some());
        changes.push(Change {
            before: old.or(zero),
            after: Some(counter.value),
            delta,
            note,
            at: Some((counter.at, counter.len)),
            ..Change::of(counter)
        });
    }
    let gone = before.counters.iter().zip(gone).filter(|(_, gone)| *gone);
    changes.extend(gone.map(|(old, _)| Change { before: Some(old.value), note: Note::Gone, ..Change::of(old) }));
    Ok(changes)
}

/// For each counter of AFTER, the index of its partner in BEFORE: the one with the same source, CPU and key.
///
/// If several share that identity, the partner is the one right after the previous partner, else the first that is
/// left. Sentences always take the first: they repeat under headings that come and go.
fn partners(before: &Snapshot<'_>, after: &Snapshot<'_>) -> Vec<Option<usize>> {
    let prose = after.format.is_prose();
    let identity = |counter: &'_ Counter| {
        let key = if prose { without_plurals(&counter.key) } else { counter.key.clone() };
        (Rc::clone(&counter.source), counter.cpu, key)
    };
    let mut places: HashMap<_, VecDeque<usize>> = HashMap::new();
    for (at, old) in before.counters.iter().enumerate() {
        places.entry(identity(old)).or_default().push_back(at);
    }
    let mut next = 0;
    let mut partner = |counter| {
        let left = places.get_mut(&identity(counter))?;
        let at = left.remove(if prose { 0 } else { left.binary_search(&next).unwrap_or(0) })?;
        next = at + 1;
        Some(at)
    };
    after.counters.iter().map(&mut partner).collect()
}

/// The difference of a counter of AFTER to its value in BEFORE.
fn judge(counter: &Counter, old: Option<Value>, format: Format, settings: &Settings) -> (Option<Value>, Note) {
    let is_gauge = || settings.gauges.as_ref().is_some_and(|g| g.is_match(&counter.key));
    let started_at_zero = || {
        settings.missing == Missing::Zero
            || (format.hides_zeros() && (format != Format::Snmp || counter.key.starts_with("IcmpMsg")))
    };
    match old {
        _ if counter.kind == Kind::Gauge || is_gauge() => (None, Note::Gauge),
        Some(old) => subtract(old, counter.value, counter.kind, settings),
        None => (started_at_zero().then_some(counter.value), Note::New),
    }
}

const WRAP: i128 = 1 << 32;

/// Subtracts BEFORE's value from AFTER's, by the kind of the number.
fn subtract(old: Value, new: Value, kind: Kind, settings: &Settings) -> (Option<Value>, Note) {
    let (Some(before), Some(now)) = (old.whole(), new.whole()) else {
        let digits = |v| if let Value::Real(_, d) = v { d } else { 0 };
        let difference = new.real() - old.real();
        return match kind {
            Kind::Counter(_) if difference < 0.0 => (None, Note::Reset),
            _ => {
                let note = if difference < 0.0 { Note::Fell } else { Note::None };
                (Some(Value::Real(difference, digits(old).max(digits(new)))), note)
            }
        };
    };
    let bits = match kind {
        Kind::Counter(bits) if bits != Bits::Unknown => bits,
        _ => settings.bits.unwrap_or(Bits::Unknown),
    };
    let possible = settings.max_rate.zip(settings.elapsed).map(|(rate, elapsed)| rate * elapsed);
    let difference = now - before;
    if difference >= 0 {
        let unseen = bits == Bits::ThirtyTwo && possible.is_some_and(|most| most >= WRAP as f64);
        return (Some(Value::Whole(difference)), if unseen { Note::Ambiguous } else { Note::None });
    }
    let round = difference + WRAP;
    let fits = (0..WRAP).contains(&before) && now >= 0 && possible.is_none_or(|most| round as f64 <= most);
    let wrapped = fits
        && match bits {
            // Without a largest rate, a step of less than half the range counts as a wrap.
            Bits::ThirtyTwo => possible.is_some() || round < WRAP / 2,
            // The width is a guess: only a small step from the top quarter counts as a wrap.
            Bits::Unknown => before >= WRAP / 4 * 3 && round <= WRAP / 4,
            Bits::SixtyFour => false,
        };
    match kind {
        _ if wrapped => (Some(Value::Whole(round)), Note::Wrapped),
        Kind::Counter(_) => (None, Note::Reset),
        Kind::Number | Kind::Gauge => (Some(Value::Whole(difference)), Note::Fell),
    }
}

// Sums of counters that are kept in parts: by CPU, by queue.

/// Adds up the parts of counters: CPUs (unless `per_cpu`) and, with `queues`, the queues of a device.
pub fn folded<'c, 'a>(changes: &'c [Change<'a>], per_cpu: bool, queues: bool) -> Cow<'c, [Change<'a>]> {
    if !queues && (per_cpu || changes.iter().all(|c| c.cpu.is_none())) {
        return Cow::Borrowed(changes);
    }
    let mut out: Vec<Change<'a>> = Vec::with_capacity(changes.len());
    let mut sums: HashMap<(&'a str, Option<u32>, String), usize> = HashMap::new();
    for change in changes {
        let mut change = change.clone();
        let cpu_parts = change.cpu.is_some() && !per_cpu;
        let queue = if queues { without_queue(&change.key) } else { None };
        if !cpu_parts && queue.is_none() {
            out.push(change);
            continue;
        }
        if cpu_parts {
            change.cpu = None;
        }
        if let Some(key) = queue {
            change.key = Cow::Owned(key);
        }
        match sums.entry((change.source, change.cpu, change.key.clone().into_owned())) {
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(out.len());
                out.push(change);
            }
            std::collections::hash_map::Entry::Occupied(at) => add(&mut out[*at.get()], &change),
        }
    }
    Cow::Owned(out)
}

/// A sum is known where all its parts are.
fn add(sum: &mut Change<'_>, part: &Change<'_>) {
    let both = |a: Option<Value>, b: Option<Value>| Some(a?.plus(b?));
    sum.before = both(sum.before, part.before);
    sum.after = both(sum.after, part.after);
    sum.delta = both(sum.delta, part.delta);
    sum.note = sum.note.max(part.note);
    sum.at = None;
}

/// Replaces the number of a queue with a star. Drivers write `rx_queue_3_bytes`, `rx3_bytes`, `tx-3.packets`,
/// `queue_3_tx_cnt` and `[3]: rx_ucast_packets`.
fn without_queue(key: &str) -> Option<String> {
    let bytes = key.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            at += 1;
        }
        let (head, tail) = (&key[..start], &key[at..]);
        let announced = ["queue_", "queue", "rx", "tx", "rx-", "tx-", "rx_", "tx_", "ring_", "ch", "ch_", "["]
            .iter()
            .any(|word| head.strip_suffix(word).is_some_and(|h| h.is_empty() || h.ends_with(['_', '.', ' ', '-'])));
        // `tx_64byte_packets` and `rx_1024_to_1518` are sizes.
        let is_queue = if head.ends_with('[') {
            tail.starts_with(']')
        } else {
            let bare = head.ends_with('_') && !head.ends_with("queue_") && !head.ends_with("ring_");
            tail.starts_with(['_', '.', ':', '-']) && !tail.starts_with("_to_") && !bare
        };
        if announced && is_queue {
            return Some(format!("{head}*{tail}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sub(old: u64, new: u64, bits: Bits, settings: &Settings) -> (Option<Value>, Note) {
        subtract(Value::Whole(old.into()), Value::Whole(new.into()), Kind::Counter(bits), settings)
    }

    #[test]
    fn wraps_resets_and_what_cannot_be_told() {
        let s = Settings::default();
        assert_eq!(sub(10, 30, Bits::SixtyFour, &s), (Some(Value::Whole(20)), Note::None));
        assert_eq!(sub(30, 10, Bits::SixtyFour, &s), (None, Note::Reset));
        assert_eq!(sub(u64::from(u32::MAX), 9, Bits::ThirtyTwo, &s), (Some(Value::Whole(10)), Note::Wrapped));
        // A step over most of the range is a reset.
        assert_eq!(sub(1_000, 10, Bits::ThirtyTwo, &s), (None, Note::Reset));
        assert_eq!(sub(4_294_967_000, 100, Bits::Unknown, &s), (Some(Value::Whole(396)), Note::Wrapped));
        assert_eq!(sub(2_000_000_000, 100, Bits::Unknown, &s), (None, Note::Reset));
        assert_eq!(sub(1 << 40, 100, Bits::ThirtyTwo, &s), (None, Note::Reset));
    }

    #[test]
    fn the_line_rate_decides_where_it_is_known() {
        let slow = Settings { elapsed: Some(1.0), max_rate: Some(1e6), ..Settings::default() };
        let fast = Settings { elapsed: Some(10.0), max_rate: Some(12.5e9), ..Settings::default() };
        // A wrap would be 294 million in a second, and a million is the most: a reset.
        assert_eq!(sub(4_000_000_000, 0, Bits::ThirtyTwo, &slow), (None, Note::Reset));
        assert_eq!(sub(1_000, 10, Bits::ThirtyTwo, &fast).1, Note::Wrapped);
        assert_eq!(sub(10, 30, Bits::ThirtyTwo, &fast).1, Note::Ambiguous);
        assert_eq!(sub(10, 30, Bits::SixtyFour, &fast).1, Note::None);
    }

    #[test]
    fn queues_are_told_from_sizes() {
        for (key, folded) in [
            ("rx_queue_3_bytes", Some("rx_queue_*_bytes")),
            ("rx0_packets", Some("rx*_packets")),
            ("tx-12.packets", Some("tx-*.packets")),
            ("queue_1_tx_cnt", Some("queue_*_tx_cnt")),
            ("[4]: rx_ucast_packets", Some("[*]: rx_ucast_packets")),
            ("ch0_events", Some("ch*_events")),
            ("tx_64byte_packets", None),
            ("rx_65_to_127_bytes", None),
            ("rx_prio3_bytes", None),
            ("rx_packets", None),
        ] {
            assert_eq!(without_queue(key).as_deref(), folded, "{key}");
        }
    }
}
