//! The `time` column: RFC 3339 in UTC.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};

use crate::columns::Timestamp;

/// The moment in a cell of the `time` column; `None` for anything but RFC 3339.
pub fn parse(cell: &str) -> Option<DateTime<Utc>> {
    // RFC 3339 allows a space and lower case too; the column does not.
    cell.contains('T').then(|| DateTime::parse_from_rfc3339(cell).ok()).flatten().map(|moment| moment.to_utc())
}

/// Seconds since 1970.
pub fn epoch_seconds(moment: DateTime<Utc>) -> f64 {
    moment.timestamp() as f64 + f64::from(moment.timestamp_subsec_nanos()) / 1e9
}

/// The cell of this instant, in microseconds.
pub fn now() -> Timestamp {
    text(SystemTime::now().into(), SecondsFormat::Micros)
}

/// The cell of a moment in nanoseconds since 1970, in microseconds.
pub fn from_unix_ns(unix_ns: i64) -> Timestamp {
    text(DateTime::from_timestamp_nanos(unix_ns), SecondsFormat::Micros)
}

/// The cell of a moment in seconds since 1970, in milliseconds. `None` beyond the calendar's years.
pub fn from_unix_seconds(seconds: f64) -> Option<Timestamp> {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, beyond any calendar")]
    let millis = seconds.is_finite().then(|| (seconds * 1e3).round() as i64)?;
    Some(text(DateTime::from_timestamp_millis(millis)?, SecondsFormat::Millis))
}

/// A moment in milliseconds since 1970 as RFC 1123 writes it: `Mon, 23 Nov 2026 03:07:24 GMT`.
pub fn rfc1123(unix_ms: i64) -> Option<String> {
    Some(DateTime::from_timestamp_millis(unix_ms)?.format("%a, %d %b %Y %H:%M:%S GMT").to_string())
}

fn text(moment: DateTime<Utc>, precision: SecondsFormat) -> Timestamp {
    Timestamp(moment.to_rfc3339_opts(precision, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc1123_has_the_day_of_the_week() {
        // LC_ALL=C date -u -d @1795403244 '+%a, %d %b %Y %H:%M:%S GMT'
        assert_eq!(rfc1123(1_795_403_244_999).as_deref(), Some("Mon, 23 Nov 2026 03:07:24 GMT"));
        assert_eq!(rfc1123(i64::MAX), None);
    }

    #[test]
    fn cells_are_moments() {
        let seconds = |cell: &str| parse(cell).map(epoch_seconds);
        // date -u -d 2026-11-21T00:33:37Z +%s
        assert_eq!(seconds("2026-11-21T00:33:37.25Z"), Some(1_795_221_217.25));
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(seconds("1969-12-31T23:59:59.5Z"), Some(-0.5));
        // date -u -d 2024-02-29T12:00:00Z +%s
        assert_eq!(seconds("2024-02-29T12:00:00Z"), Some(1_709_208_000.0));
        // Our own tables are in UTC; other offsets are converted.
        assert_eq!(seconds("2024-02-29T13:00:00+01:00"), Some(1_709_208_000.0));
        for bad in ["", "now", "2000-02-29T00:00:00", "2000-13-01T00:00:00Z", "2000-02-30T00:00:00Z", "äöü"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_cells() {
        assert_eq!(from_unix_seconds(0.0).as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(from_unix_seconds(951_782_400.5).as_deref(), Some("2000-02-29T00:00:00.500Z"));
        assert_eq!(from_unix_seconds(-1.0).as_deref(), Some("1969-12-31T23:59:59.000Z"));
        assert_eq!(from_unix_seconds(1e300), None);
        assert_eq!(from_unix_seconds(f64::NAN), None);
        assert_eq!(&*from_unix_ns(1_709_208_000_123_456_789), "2024-02-29T12:00:00.123456Z");
        assert!(now().len() == "2024-02-29T12:00:00.123456Z".len() && parse(&now()).is_some());
    }
}
