//! Pairing by key, and what a difference means.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Bits, Counter, Format, Kind, Snapshot, Value, line_at, prose};
use crate::error::{Error, Place};

/// What is known about a difference beyond its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// Nothing.
    #[default]
    None,
    /// A level: told, not subtracted.
    Gauge,
    /// It fell, in a format that does not say whether it is a counter.
    Fell,
    /// It came round at 2^32 once, which has been added.
    Wrapped,
    /// Long enough went by for it to come round unseen.
    Ambiguous,
    /// It was not there before.
    New,
    /// It is no longer there.
    Gone,
    /// It was set back: nothing can be said about the time before.
    Reset,
}

impl Note {
    /// The word in the `note` column; empty for none.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Gauge => "gauge",
            Self::Fell => "fell",
            Self::Wrapped => "wrapped",
            Self::Ambiguous => "ambiguous",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Reset => "reset",
        }
    }
}

/// A difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delta {
    /// Exact.
    Whole(i128),
    /// With this many digits after the point.
    Real(f64, u8),
}

impl Delta {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_zero(self) -> bool {
        match self {
            Self::Whole(v) => v == 0,
            Self::Real(v, _) => v == 0.0,
        }
    }

    /// As a double.
    #[must_use]
    pub fn real(self) -> f64 {
        match self {
            Self::Whole(v) => v as f64,
            Self::Real(v, _) => v,
        }
    }

    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Self::Whole(a + b),
            (Self::Real(_, d), _) | (_, Self::Real(_, d)) => Self::Real(self.real() + other.real(), d),
        }
    }
}

impl From<Value> for Delta {
    fn from(value: Value) -> Self {
        match value {
            Value::Whole(v) => Self::Whole(v.into()),
            Value::Below(v) => Self::Whole(v.into()),
            Value::Real(v, d) => Self::Real(v, d),
        }
    }
}

impl std::fmt::Display for Delta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(v) => write!(f, "{v}"),
            // Written without a point (`1e9`), a number has no digits to keep.
            Self::Real(v, 0) => write!(f, "{v}"),
            Self::Real(v, digits) => write!(f, "{v:.*}", usize::from(*digits)),
        }
    }
}

/// One number before and after.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// Where it comes from.
    pub source: &'a str,
    /// Its name there.
    pub key: Cow<'a, str>,
    /// The CPU whose part it is.
    pub cpu: Option<u32>,
    /// What it was; for a sum over CPUs or queues, their sum.
    pub before: Option<Delta>,
    /// What it is.
    pub after: Option<Delta>,
    /// The difference, where there is one.
    pub delta: Option<Delta>,
    /// What else is known.
    pub note: Note,
    /// Place and length in the AFTER text.
    pub at: Option<(usize, usize)>,
}

/// What to do with a counter that BEFORE does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Missing {
    /// It started at zero.
    Zero,
    /// There is no difference; a warning says so.
    #[default]
    Skip,
    /// That is an error.
    Error,
}

/// How differences are judged.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Seconds between the snapshots.
    pub elapsed: Option<f64>,
    /// The most that a counter can grow in a second.
    pub max_rate: Option<f64>,
    /// Width of counters whose format does not say it.
    pub bits: Option<Bits>,
    /// Counters that BEFORE does not have.
    pub missing: Missing,
    /// Keys that are levels although the format does not say so.
    pub gauges: Option<regex::Regex>,
}

/// Pairs two snapshots of one format by key. Changes come in AFTER's order; what is gone comes last.
pub fn differences<'a>(
    before: &'a Snapshot<'a>,
    after: &'a Snapshot<'a>,
    settings: &Settings,
) -> Result<Vec<Change<'a>>, Error> {
    let partners = Pairs::new(before, after).find();
    let mut used = vec![false; before.counters.len()];
    let mut changes = Vec::with_capacity(after.counters.len());
    for (counter, partner) in after.counters.iter().zip(&partners) {
        let old = partner.map(|at| {
            used[at] = true;
            before.counters[at].value
        });
        changes.push(change(after, counter, old, settings)?);
    }
    for (counter, _) in before.counters.iter().zip(&used).filter(|(_, used)| !**used) {
        changes.push(Change {
            source: before.source_of(counter),
            key: Cow::Borrowed(&counter.key),
            cpu: counter.cpu,
            before: Some(counter.value.into()),
            after: None,
            delta: None,
            note: Note::Gone,
            at: None,
        });
    }
    Ok(changes)
}

fn change<'a>(
    after: &'a Snapshot<'a>,
    counter: &'a Counter<'a>,
    old: Option<Value>,
    settings: &Settings,
) -> Result<Change<'a>, Error> {
    let is_gauge =
        counter.kind == Kind::Gauge || settings.gauges.as_ref().is_some_and(|g| g.is_match(counter.key.as_ref()));
    let started_at_zero = settings.missing == Missing::Zero
        || (after.format.hides_zeros() && (after.format != Format::Snmp || counter.key.starts_with("IcmpMsg")));
    let (before, delta, note) = match old {
        _ if is_gauge => (old.map(Delta::from), None, Note::Gauge),
        Some(old) => {
            let (delta, note) = subtract(old, counter.value, counter.kind, settings);
            (Some(old.into()), delta, note)
        }
        None if started_at_zero => (Some(Delta::Whole(0)), Some(counter.value.into()), Note::New),
        None if settings.missing == Missing::Error => {
            let place = Place { file: after.file.clone(), line: line_at(after.text, counter.at), column: None };
            let reason = format!("`{}` of {} is not in BEFORE", counter.key, after.source_of(counter));
            return Err(Error::Data { place, reason });
        }
        None => (None, None, Note::New),
    };
    Ok(Change {
        source: after.source_of(counter),
        key: Cow::Borrowed(&counter.key),
        cpu: counter.cpu,
        before,
        after: Some(counter.value.into()),
        delta,
        note,
        at: Some((counter.at, counter.len as usize)),
    })
}

const WRAP: i128 = 1 << 32;

/// After minus before, by what the number is.
fn subtract(old: Value, new: Value, kind: Kind, settings: &Settings) -> (Option<Delta>, Note) {
    let (Some(before), Some(now)) = (old.whole(), new.whole()) else {
        let digits = |v| if let Value::Real(_, d) = v { d } else { 0 };
        let difference = new.real() - old.real();
        return match kind {
            Kind::Counter(_) if difference < 0.0 => (None, Note::Reset),
            _ => {
                let note = if difference < 0.0 { Note::Fell } else { Note::None };
                (Some(Delta::Real(difference, digits(old).max(digits(new)))), note)
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
        return (Some(Delta::Whole(difference)), if unseen { Note::Ambiguous } else { Note::None });
    }
    let round = difference + WRAP;
    let fits = (0..WRAP).contains(&before) && now >= 0 && possible.is_none_or(|most| round as f64 <= most);
    let wrapped = fits
        && match bits {
            // Without a rate to hold it against, less than half the range is taken for a step forward.
            Bits::ThirtyTwo => possible.is_some() || round < WRAP / 2,
            // Nobody said 32 bits: only from the top quarter, and not far.
            Bits::Unknown => before >= WRAP / 4 * 3 && round <= WRAP / 4,
            Bits::SixtyFour => false,
        };
    match kind {
        _ if wrapped => (Some(Delta::Whole(round)), Note::Wrapped),
        Kind::Counter(_) => (None, Note::Reset),
        Kind::Number | Kind::Gauge => (Some(Delta::Whole(difference)), Note::Fell),
    }
}

/// The search for each AFTER counter's partner.
struct Pairs<'a> {
    before: &'a Snapshot<'a>,
    after: &'a Snapshot<'a>,
    /// AFTER's source index → BEFORE's.
    sources: Vec<Option<u32>>,
}

type Identity<'k> = (u32, Option<u32>, Cow<'k, str>);

impl<'a> Pairs<'a> {
    fn new(before: &'a Snapshot<'a>, after: &'a Snapshot<'a>) -> Self {
        let places: HashMap<&str, usize> =
            before.sources.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let find = |name: &String| places.get(name.as_str()).and_then(|at| u32::try_from(*at).ok());
        Self { before, after, sources: after.sources.iter().map(find).collect() }
    }

    fn source(&self, counter: &Counter<'_>) -> Option<u32> {
        self.sources.get(counter.source as usize).copied().flatten()
    }

    fn find(&self) -> Vec<Option<usize>> {
        let prose = self.after.format.is_prose();
        let mut index: Option<HashMap<Identity<'_>, Vec<usize>>> = None;
        let mut taken = vec![false; self.before.counters.len()];
        let mut next = 0;
        let mut partners = Vec::with_capacity(self.after.counters.len());
        for counter in &self.after.counters {
            let source = self.source(counter);
            // Two snapshots of one machine are nearly the same text: the partner usually follows the last one. It is
            // still the key that decides. Sentences may repeat, and must be counted from the top.
            let follows = self.before.counters.get(next).is_some_and(|old| {
                Some(old.source) == source && old.cpu == counter.cpu && old.key == counter.key && !taken[next]
            });
            let found = if follows && (!prose || index.is_none()) {
                Some(next)
            } else {
                let index = index.get_or_insert_with(|| self.index(&taken));
                source.and_then(|source| {
                    let same = index.get_mut(&(source, counter.cpu, self.pairing_key(counter)))?;
                    std::iter::from_fn(|| same.pop()).find(|at| !taken[*at])
                })
            };
            if let Some(at) = found {
                taken[at] = true;
                next = at + 1;
            }
            partners.push(found);
        }
        partners
    }

    fn index(&self, taken: &[bool]) -> HashMap<Identity<'a>, Vec<usize>> {
        let mut index: HashMap<Identity<'a>, Vec<usize>> = HashMap::new();
        // From the end, so that the first of several is on top.
        for (at, old) in self.before.counters.iter().enumerate().rev().filter(|(at, _)| !taken[*at]) {
            index.entry((old.source, old.cpu, self.pairing_key(old))).or_default().push(at);
        }
        index
    }

    fn pairing_key<'k>(&self, counter: &'k Counter<'_>) -> Cow<'k, str> {
        if self.after.format.is_prose() {
            Cow::Owned(prose::without_plurals(&counter.key))
        } else {
            Cow::Borrowed(counter.key.as_ref())
        }
    }
}

/// Adds up the parts of counters: CPUs (unless `per_cpu`) and, with `queues`, the queues of a device.
#[must_use]
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

/// A sum is known only where every part of it is.
fn add(sum: &mut Change<'_>, part: &Change<'_>) {
    let both = |a: Option<Delta>, b: Option<Delta>| Some(a?.plus(b?));
    sum.before = both(sum.before, part.before);
    sum.after = both(sum.after, part.after);
    sum.delta = both(sum.delta, part.delta);
    sum.note = sum.note.max(part.note);
    sum.at = None;
}

/// The key of a queue's counter with a star for the queue's number: `rx_queue_3_bytes`, `rx3_bytes`, `tx-3.packets`,
/// `queue_3_tx_cnt`, `[3]: rx_ucast_packets`.
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

    fn sub(old: u64, new: u64, bits: Bits, settings: &Settings) -> (Option<Delta>, Note) {
        subtract(Value::Whole(old), Value::Whole(new), Kind::Counter(bits), settings)
    }

    #[test]
    fn wraps_resets_and_what_cannot_be_told() {
        let s = Settings::default();
        assert_eq!(sub(10, 30, Bits::SixtyFour, &s), (Some(Delta::Whole(20)), Note::None));
        assert_eq!(sub(30, 10, Bits::SixtyFour, &s), (None, Note::Reset));
        assert_eq!(sub(u64::from(u32::MAX), 9, Bits::ThirtyTwo, &s), (Some(Delta::Whole(10)), Note::Wrapped));
        // Most of the range in one go is a reset, not a lap.
        assert_eq!(sub(1_000, 10, Bits::ThirtyTwo, &s), (None, Note::Reset));
        assert_eq!(sub(4_294_967_000, 100, Bits::Unknown, &s), (Some(Delta::Whole(396)), Note::Wrapped));
        assert_eq!(sub(2_000_000_000, 100, Bits::Unknown, &s), (None, Note::Reset));
        assert_eq!(sub(1 << 40, 100, Bits::ThirtyTwo, &s), (None, Note::Reset));
    }

    #[test]
    fn the_line_rate_decides_where_it_is_known() {
        let slow = Settings { elapsed: Some(1.0), max_rate: Some(1e6), ..Settings::default() };
        let fast = Settings { elapsed: Some(10.0), max_rate: Some(12.5e9), ..Settings::default() };
        // 294 million in a second at no more than a million a second: it was set back.
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
