//! What the difference between two readings of a counter means.

use std::borrow::Cow;

pub use super::fold::folded;
use super::pairing::Pairs;
use super::{Bits, Counter, Format, Kind, Snapshot, Value};
use crate::error::{Error, Place};

/// What is known about a difference beyond its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    /// The sum.
    pub(super) fn plus(self, other: Self) -> Self {
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

/// Two snapshots of one format, paired by key. The changes are worked out as they are asked for: kept, they would take more
/// memory than both snapshots.
pub struct Differences<'a> {
    before: &'a Snapshot<'a>,
    after: &'a Snapshot<'a>,
    settings: Settings,
    pairs: Pairs,
}

impl<'a> Differences<'a> {
    /// Pairs the snapshots. An error where [`Missing::Error`] forbids a counter that only AFTER has.
    pub fn new(before: &'a Snapshot<'a>, after: &'a Snapshot<'a>, settings: &Settings) -> Result<Self, Error> {
        let pairs = Pairs::find(before, after);
        let differences = Self { before, after, settings: settings.clone(), pairs };
        if settings.missing == Missing::Error
            && let Some((counter, _)) = differences
                .numbers()
                .find(|(c, old)| old.is_none() && !differences.is_gauge(c) && !differences.started_at_zero(c))
        {
            let place = Place { file: after.file.to_owned(), line: after.line(counter.at), column: None };
            let reason = format!("`{}` of {} is not in BEFORE", after.key(counter), after.source_of(counter));
            return Err(Error::Data { place, reason });
        }
        Ok(differences)
    }

    /// Pairs the snapshots by name even where both have the same counters in the same order.
    #[cfg(test)]
    pub(super) fn by_name(before: &'a Snapshot<'a>, after: &'a Snapshot<'a>, settings: &Settings) -> Self {
        Self { before, after, settings: settings.clone(), pairs: Pairs::by_name(before, after) }
    }

    /// The differences where both snapshots have the same counters in the same order; `None` where they do not.
    pub(super) fn in_order(before: &'a Snapshot<'a>, after: &'a Snapshot<'a>, settings: &Settings) -> Option<Self> {
        super::pairing::in_order(before, after).then(|| Self {
            before,
            after,
            settings: settings.clone(),
            pairs: Pairs::InOrder,
        })
    }

    /// The snapshot that the differences are shown in.
    #[must_use]
    pub fn after(&self) -> &'a Snapshot<'a> {
        self.after
    }

    /// The changes in AFTER's order; what is gone comes last.
    pub fn iter(&self) -> impl Iterator<Item = Change<'a>> {
        self.numbers().map(|(counter, old)| self.change(counter, old)).chain(self.gone())
    }

    /// AFTER's numbers in their order, and what they were in BEFORE.
    pub fn numbers(&self) -> impl Iterator<Item = (&'a Counter, Option<&'a Counter>)> {
        let olds = self.before.counters();
        self.after.counters().iter().enumerate().map(move |(at, counter)| match &self.pairs {
            Pairs::InOrder => (counter, olds.get(at)),
            Pairs::Found { partners, .. } => (counter, partners[at].map(|partner| &olds[partner])),
        })
    }

    /// By how much a counter grew, where that is all there is to say about it.
    #[inline]
    #[must_use]
    pub fn grown(&self, counter: &Counter, old: Option<&Counter>) -> Option<u64> {
        match (&old?.value, &counter.value) {
            (Value::Whole(old), Value::Whole(new))
                if counter.kind != Kind::Gauge
                    && self.settings.gauges.is_none()
                    && self.settings.max_rate.is_none() =>
            {
                new.checked_sub(*old)
            }
            _ => None,
        }
    }

    /// The counters that AFTER does not have, in BEFORE's order.
    pub fn gone(&self) -> impl Iterator<Item = Change<'a>> {
        let taken = match &self.pairs {
            Pairs::InOrder => None,
            Pairs::Found { taken, .. } => Some(taken),
        };
        let olds = taken.into_iter().flat_map(|taken| self.before.counters().iter().zip(taken));
        olds.filter(|(_, taken)| !**taken).map(|(counter, _)| self.gone_change(counter))
    }

    fn is_gauge(&self, counter: &Counter) -> bool {
        counter.kind == Kind::Gauge
            || self.settings.gauges.as_ref().is_some_and(|g| g.is_match(self.after.key(counter)))
    }

    fn started_at_zero(&self, counter: &Counter) -> bool {
        let format = self.after.format;
        self.settings.missing == Missing::Zero
            || (format.hides_zeros() && (format != Format::Snmp || self.after.key(counter).starts_with("IcmpMsg")))
    }

    /// What there is to say about a number of AFTER.
    pub fn change(&self, counter: &'a Counter, old: Option<&Counter>) -> Change<'a> {
        let old = old.map(|old| old.value);
        let (before, delta, note) = match old {
            _ if self.is_gauge(counter) => (old.map(Delta::from), None, Note::Gauge),
            Some(old) => {
                let (delta, note) = subtract(old, counter.value, counter.kind, &self.settings);
                (Some(old.into()), delta, note)
            }
            None if self.started_at_zero(counter) => (Some(Delta::Whole(0)), Some(counter.value.into()), Note::New),
            None => (None, None, Note::New),
        };
        Change {
            source: self.after.source_of(counter),
            key: Cow::Borrowed(self.after.key(counter)),
            cpu: counter.cpu,
            before,
            after: Some(counter.value.into()),
            delta,
            note,
            at: Some((counter.at, counter.len as usize)),
        }
    }

    fn gone_change(&self, counter: &'a Counter) -> Change<'a> {
        Change {
            source: self.before.source_of(counter),
            key: Cow::Borrowed(self.before.key(counter)),
            cpu: counter.cpu,
            before: Some(counter.value.into()),
            after: None,
            delta: None,
            note: Note::Gone,
            at: None,
        }
    }
}

/// All changes at once, as [`Differences::iter`] gives them.
pub fn differences<'a>(
    before: &'a Snapshot<'a>,
    after: &'a Snapshot<'a>,
    settings: &Settings,
) -> Result<Vec<Change<'a>>, Error> {
    Ok(Differences::new(before, after, settings)?.iter().collect())
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
}
