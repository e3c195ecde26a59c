//! The text of an answer: families of samples, in Prometheus' format or OpenMetrics'.

use std::fmt::Write as _;

use analyze::export::openmetrics::{escaped, head};

use super::families::{Family, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Text format 0.0.4.
    Prometheus,
    OpenMetrics,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Samples of a family stand together, behind its head; a family without samples has none.
#[derive(Debug)]
pub struct Page {
    text: String,
    format: Format,
    /// The family of the last sample.
    last: &'static str,
}

impl Page {
    pub(super) fn new(format: Format) -> Self {
        Self { text: String::with_capacity(16 << 10), format, last: "" }
    }

    /// Adds a sample.
    pub(super) fn put(&mut self, family: &Family, labels: &[(&str, &str)], value: f64) {
        let total = if family.kind == Kind::Counter { "_total" } else { "" };
        if self.last != family.name {
            self.last = family.name;
            // OpenMetrics names a counter without the ending of its sample.
            let ending = if self.format == Format::OpenMetrics { "" } else { total };
            let name = format!("{}{ending}", family.name);
            let unit = family.unit.filter(|_| ending.is_empty());
            self.text.push_str(&head(&name, family.kind.name(), unit, family.help));
        }
        self.text.push_str(family.name);
        self.text.push_str(total);
        if !labels.is_empty() {
            push_labels(&mut self.text, labels.iter().copied());
        }
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, " {value}");
    }

    /// Adds lines that were made before.
    pub(super) fn push(&mut self, lines: &str) {
        self.text.push_str(lines);
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// `{case="a",member="b"}`
pub(super) fn push_labels<'a>(text: &mut String, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    let mut before = '{';
    for (name, value) in labels {
        text.push(before);
        text.push_str(name);
        text.push_str("=\"");
        text.push_str(&escaped(value));
        text.push('"');
        before = ',';
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::families::{REFUSED, SESSIONS};

    fn text(format: Format) -> String {
        let mut page = Page::new(format);
        page.put(&SESSIONS, &[], 3.0);
        page.put(&REFUSED, &[("reason", "key")], 1.0);
        page.put(&REFUSED, &[("reason", "a\"\\\n")], 0.0);
        page.finish()
    }

    #[test]
    fn a_counter_is_named_by_the_rules_of_each_format() {
        let plain = text(Format::Prometheus);
        assert!(plain.contains("# TYPE plumb_serve_refused_total counter\n"), "{plain}");
        assert!(plain.contains("plumb_serve_refused_total{reason=\"key\"} 1\n"), "{plain}");
        assert_eq!((plain.matches("# HELP").count(), plain.contains("# EOF")), (2, false));
        let open = text(Format::OpenMetrics);
        assert!(open.contains("# TYPE plumb_serve_refused counter\n"), "{open}");
        assert!(open.ends_with("plumb_serve_refused_total{reason=\"a\\\"\\\\\\n\"} 0\n# EOF\n"), "{open}");
    }
}
