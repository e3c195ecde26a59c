//! Units of throughput (`-f`).

/// A unit of throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// `x`.
    Transactions,
    /// `u`: microseconds per transaction, or per byte.
    Microseconds,
    /// Bytes or bits, with the bytes in one of them.
    Volume { label: &'static str, bytes: f64 },
}

const KIB: f64 = 1024.0;

/// Letters, labels, and bytes in one unit.
const VOLUMES: [(char, &str, f64); 8] = [
    ('B', "Bytes", 1.0),
    ('K', "KBytes", KIB),
    ('M', "MBytes", KIB * KIB),
    ('G', "GBytes", KIB * KIB * KIB),
    ('b', "10^0bits", 1.0 / 8.0),
    ('k', "10^3bits", 1e3 / 8.0),
    ('m', "10^6bits", 1e6 / 8.0),
    ('g', "10^9bits", 1e9 / 8.0),
];

impl Unit {
    /// The unit of `-f`, or the default. A letter that netperf does not know means KBytes.
    pub fn of(letter: Option<char>, has_transactions: bool) -> Self {
        match letter.unwrap_or(if has_transactions { 'x' } else { 'm' }) {
            'x' if has_transactions => Self::Transactions,
            'x' => Self::volume('m'),
            'u' => Self::Microseconds,
            letter => Self::volume(letter),
        }
    }

    fn volume(letter: char) -> Self {
        let found = VOLUMES.iter().find(|(known, ..)| *known == letter).unwrap_or(&VOLUMES[1]);
        Self::Volume { label: found.1, bytes: found.2 }
    }

    /// The unit of throughputs that are volumes in any case.
    pub fn as_volume(self) -> Self {
        match self {
            Self::Volume { .. } => self,
            Self::Transactions | Self::Microseconds => Self::volume('m'),
        }
    }

    pub fn is_transactions(self) -> bool {
        self == Self::Transactions
    }

    /// Its name, before `/s`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Transactions => "Trans",
            Self::Microseconds => "Usec",
            Self::Volume { label, .. } => label,
        }
    }

    /// A rate in this unit.
    pub fn rate(self, bytes: f64, transactions: Option<f64>, seconds: f64) -> f64 {
        match self {
            _ if seconds <= 0.0 => 0.0,
            Self::Transactions => transactions.unwrap_or(0.0) / seconds,
            Self::Microseconds => {
                let operations = transactions.unwrap_or(bytes);
                if operations > 0.0 { seconds * 1e6 / operations } else { 0.0 }
            }
            Self::Volume { bytes: one, .. } => bytes / one / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_units_of_their_letters() {
        let rate = |letter, transactions: Option<f64>| {
            let unit = Unit::of(letter, transactions.is_some());
            (unit.label(), unit.rate(2_500_000.0, transactions, 2.0))
        };
        assert_eq!(rate(None, None), ("10^6bits", 10.0));
        assert_eq!(rate(Some('x'), None), ("10^6bits", 10.0));
        assert_eq!(rate(Some('b'), None), ("10^0bits", 10_000_000.0));
        assert_eq!(rate(Some('g'), None), ("10^9bits", 0.01));
        assert_eq!(rate(Some('B'), None), ("Bytes", 1_250_000.0));
        assert_eq!(rate(Some('q'), None), ("KBytes", 1_220.703_125));
        assert_eq!(rate(None, Some(1000.0)), ("Trans", 500.0));
        assert_eq!(rate(Some('m'), Some(1000.0)), ("10^6bits", 10.0));
        assert_eq!(rate(Some('u'), Some(1000.0)), ("Usec", 2000.0));
        assert!(Unit::of(None, true).rate(1.0, Some(1.0), 0.0).abs() < f64::EPSILON);
    }
}
