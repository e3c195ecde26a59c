//! Times as the `time` column has them: RFC 3339 in UTC.

use jiff::Timestamp;

/// Parses a cell of the `time` column.
pub(crate) fn parse(cell: &str) -> Option<Timestamp> {
    cell.parse().ok()
}

/// Seconds since 1970-01-01T00:00:00Z.
pub(crate) fn epoch_seconds(moment: Timestamp) -> f64 {
    moment.as_second() as f64 + f64::from(moment.subsec_nanosecond()) / 1e9
}

/// RFC 3339 with milliseconds, of seconds since 1970. `None` beyond the years of the calendar.
pub(crate) fn utc(seconds: f64) -> Option<schemas::columns::Timestamp> {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and what is that far away is no moment")]
    let millis = seconds.is_finite().then(|| (seconds * 1e3).round() as i64)?;
    Timestamp::from_millisecond(millis).ok().map(|moment| schemas::columns::Timestamp(format!("{moment:.3}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_moments() {
        let seconds = |cell: &str| parse(cell).map(epoch_seconds);
        // date -u -d 2026-11-21T00:33:37Z +%s
        assert_eq!(seconds("2026-11-21T00:33:37.25Z"), Some(1_795_221_217.25));
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(seconds("1969-12-31T23:59:59.5Z"), Some(-0.5));
        // date -u -d 2024-02-29T12:00:00Z +%s
        assert_eq!(seconds("2024-02-29T12:00:00Z"), Some(1_709_208_000.0));
        // Tables of plumb are in UTC; another offset counts as it is written.
        assert_eq!(seconds("2024-02-29T13:00:00+01:00"), Some(1_709_208_000.0));
        for bad in ["", "now", "2000-02-29T00:00:00", "2000-13-01T00:00:00Z", "2000-02-30T00:00:00Z", "äöü"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_cells() {
        assert_eq!(utc(0.0).as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(utc(951_782_400.5).as_deref(), Some("2000-02-29T00:00:00.500Z"));
        assert_eq!(utc(-1.0).as_deref(), Some("1969-12-31T23:59:59.000Z"));
        assert_eq!(utc(1e300), None);
        assert_eq!(utc(f64::NAN), None);
    }
}
