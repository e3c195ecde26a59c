//! Values of finished cases and of the latest iteration, as lines of text that are made once.

use std::collections::VecDeque;

use analyze::export::openmetrics::{Family, head};
use schemas::{
    columns::{Row, number},
    metrics::METRICS,
    words::{Record, Way},
};

use super::page::{Page, push_labels};

/// Limit of the samples of finished cases. Beyond it the case leaves that ended first: it has been there for many scrapes.
pub const MOST_SAMPLES: usize = 10_000;

#[derive(Debug)]
pub(super) struct Results {
    families: Vec<Samples>,
    /// Finished cases in the order of their ends.
    cases: VecDeque<Case>,
    next: u64,
    samples: usize,
    /// Cases that have left.
    pub(super) forgotten: u64,
}

/// Samples of a metric.
#[derive(Debug)]
struct Samples {
    column: &'static str,
    family: Family,
    head: String,
    /// Lines of each finished case, in the order of the cases.
    finished: VecDeque<(u64, String)>,
    /// Lines of the latest iteration.
    latest: String,
}

#[derive(Debug)]
struct Case {
    key: (String, String),
    number: u64,
    samples: usize,
}

impl Default for Results {
    fn default() -> Self {
        let families = METRICS.iter().map(|metric| {
            let family = Family::of(metric.column);
            let head = head(&family.name, "gauge", family.unit, metric.label);
            Samples { column: metric.column, family, head, finished: VecDeque::new(), latest: String::new() }
        });
        Self { families: families.collect(), cases: VecDeque::new(), next: 0, samples: 0, forgotten: 0 }
    }
}

impl Results {
    /// Takes the summary rows of a case; they replace earlier ones.
    pub(super) fn finish(&mut self, key: (String, String), rows: &[&Row]) {
        if let Some(at) = self.cases.iter().position(|case| case.key == key) {
            self.remove(at);
        }
        let number = self.next;
        self.next += 1;
        let mut samples = 0;
        let labels = distinct(rows);
        for family in &mut self.families {
            let (lines, count) = family.lines(&labels);
            if count > 0 {
                family.finished.push_back((number, lines));
                samples += count;
            }
        }
        self.samples += samples;
        self.cases.push_back(Case { key, number, samples });
        while self.samples > MOST_SAMPLES && self.cases.len() > 1 {
            self.remove(0);
            self.forgotten += 1;
        }
    }

    /// Takes the rows of an iteration, which replace those of the one before.
    pub(super) fn iterate(&mut self, rows: &[&Row]) {
        let labels = distinct(rows);
        for family in &mut self.families {
            family.latest = family.lines(&labels).0;
        }
    }

    pub(super) fn write(&self, page: &mut Page) {
        for family in self.families.iter().filter(|f| !(f.finished.is_empty() && f.latest.is_empty())) {
            page.push(&family.head);
            family.finished.iter().for_each(|(_, lines)| page.push(lines));
            page.push(&family.latest);
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(case) = self.cases.remove(at) else { return };
        self.samples -= case.samples;
        for family in &mut self.families {
            if let Ok(at) = family.finished.binary_search_by_key(&case.number, |(number, _)| *number) {
                family.finished.remove(at);
            }
        }
    }
}

impl Samples {
    /// The lines of a metric, and how many there are.
    fn lines(&self, rows: &[(&Row, String)]) -> (String, usize) {
        let (mut lines, mut count) = (String::new(), 0);
        for (row, labels) in rows {
            let Some(value) = row.number(self.column) else { continue };
            for part in [&self.family.name, labels.as_str(), " ", &self.family.value(&number(value)), "\n"] {
                lines.push_str(part);
            }
            count += 1;
        }
        (lines, count)
    }
}

/// Rows with their labels, but those whose labels another one has: a scrape must not have a sample twice.
fn distinct<'r>(rows: &[&'r Row]) -> Vec<(&'r Row, String)> {
    let mut kept: Vec<(&Row, String)> = Vec::new();
    for row in rows {
        let labels = labels(row);
        if kept.iter().all(|(_, other)| *other != labels) {
            kept.push((row, labels));
        }
    }
    kept
}

/// The labels of `plumb export openmetrics` without the run and the iteration, and `record`.
fn labels(row: &Row) -> String {
    let fields = [
        ("plan", &row.plan),
        ("test", &row.test),
        ("case", &row.case),
        ("member", &row.member),
        ("tag", &row.tag),
        ("from", &row.from),
        ("to", &row.to),
    ];
    let fields = fields.into_iter().filter_map(|(name, cell)| Some((name, cell.as_deref()?)));
    let words = [("direction", row.direction.map(Way::as_str)), ("record", row.record.map(Record::as_str))];
    let words = words.into_iter().filter_map(|(name, word)| Some((name, word?)));
    let mut text = String::new();
    push_labels(&mut text, fields.chain(words).filter(|(_, value)| !value.is_empty()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::page::Format;

    fn row(case: &str, bits: f64) -> Row {
        Row {
            plan: Some("p".into()),
            case: Some(case.into()),
            record: Some(Record::Summary),
            throughput_bits_per_s: Some(bits),
            latency_p50_us: Some(24.4),
            ..Row::default()
        }
    }

    fn text(results: &Results) -> String {
        let mut page = Page::new(Format::Prometheus);
        results.write(&mut page);
        page.finish()
    }

    fn finish(results: &mut Results, case: &str, rows: &[&Row]) {
        results.finish(("p".into(), case.into()), rows);
    }

    #[test]
    fn names_and_units_are_those_of_the_export() {
        let mut results = Results::default();
        finish(&mut results, "a", &[&row("a", 8e9), &row("a", 1.0)]);
        finish(&mut results, "b", &[&row("b", 4.0)]);
        let text = text(&results);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "plumb_throughput_bytes_per_second{plan=\"p\",case=\"a\",record=\"summary\"} 1000000000",
                "plumb_throughput_bytes_per_second{plan=\"p\",case=\"b\",record=\"summary\"} 0.5",
                "plumb_latency_p50_seconds{plan=\"p\",case=\"a\",record=\"summary\"} 24.4e-6",
                "plumb_latency_p50_seconds{plan=\"p\",case=\"b\",record=\"summary\"} 24.4e-6",
            ]
        );
    }

    #[test]
    fn a_case_that_ends_again_is_there_once_and_the_oldest_leaves() {
        let mut results = Results::default();
        finish(&mut results, "a", &[&row("a", 8.0)]);
        finish(&mut results, "a", &[&row("a", 16.0)]);
        assert!(text(&results).contains("} 2\n") && !text(&results).contains("} 1\n"));
        for case in 1..=MOST_SAMPLES / 2 {
            let name = format!("c{case}");
            finish(&mut results, &name, &[&row(&name, 8.0)]);
        }
        assert_eq!((results.samples, results.forgotten), (MOST_SAMPLES, 1));
        let text = text(&results);
        assert!(!text.contains("case=\"a\"") && text.contains("case=\"c1\""));
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), MOST_SAMPLES);
    }

    #[test]
    fn the_latest_iteration_replaces_the_one_before() {
        let mut results = Results::default();
        let iteration = |bits| Row { record: Some(Record::Iteration), ..row("a", bits) };
        results.iterate(&[&iteration(8.0)]);
        results.iterate(&[&iteration(24.0)]);
        assert!(text(&results).contains("record=\"iteration\"} 3\n") && !text(&results).contains("} 1\n"));
        results.iterate(&[]);
        assert_eq!(text(&results), "");
    }
}
