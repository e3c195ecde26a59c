//! Every family of samples but those of results, whose names come from their columns, and the text of an answer: families in
//! Prometheus' format or OpenMetrics'.

use std::fmt::Write as _;

use analyze::export::openmetrics::{escaped, head};

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
            self.text.push_str(&head(&name, &family.kind, unit, family.help));
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

schemas::words! {
    Kind {
        Gauge = "gauge",
        /// Its sample ends with `_total`.
        Counter = "counter",
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Without the `_total` of a counter.
    pub name: &'static str,
    pub kind: Kind,
    /// The unit, with which the name ends then.
    pub unit: Option<&'static str>,
    pub help: &'static str,
}

macro_rules! families {
    ($($name:ident = $kind:ident $text:literal $(in $unit:literal)?, $help:literal;)*) => {
        $(
            pub(super) const $name: Family =
                Family { name: $text, kind: Kind::$kind, unit: families!(@unit $($unit)?), help: $help };
        )*

        /// In the order of a page.
        pub const ALL: &[Family] = &[$($name),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

families! {
    BUILD = Gauge "plumb_build_info", "The program that answers; always 1.";
    START = Gauge "plumb_start_time_seconds" in "seconds", "Begin of the run or of the daemon, Unix time.";

    RUN = Gauge "plumb_run_info", "A plan of the run; always 1.";
    ACTIVE = Gauge "plumb_run_active", "1 until the run has ended, then 0.";
    CASES = Gauge "plumb_run_cases", "Cases of the run.";
    FINISHED = Gauge "plumb_run_finished_cases", "Cases that have ended, by their status.";
    ITERATIONS = Counter "plumb_run_iterations", "Iterations and probes, by their status.";
    REMARKS = Counter "plumb_run_remarks", "Warnings and errors of the run.";
    VERDICTS = Gauge "plumb_run_verdicts", "Verdicts of the plans that have ended.";
    LEFT = Gauge "plumb_run_left_seconds" in "seconds", "Estimated time left of the running plan.";
    FORGOTTEN = Gauge "plumb_run_forgotten_cases", "Finished cases whose values have left this page to bound it.";

    CASE_NUMBER = Gauge "plumb_case_number", "Number of the running case in its plan, from 1.";
    ITERATION = Gauge "plumb_case_iteration", "Number of the running iteration or probe, from 1.";
    PLANNED = Gauge "plumb_case_planned_iterations", "Fewest and most iterations of the running case.";
    MARGIN = Gauge "plumb_case_margin_ratio" in "ratio", "Margin that the running case has reached.";
    GOAL = Gauge "plumb_case_margin_goal_ratio" in "ratio", "Margin that the running case is to reach.";
    QUEUE = Gauge "plumb_case_queue_place", "Place in the queue of the host whose turn is waited for.";
    ELAPSED = Gauge "plumb_phase_elapsed_seconds" in "seconds", "Time since the begin of the phase that a member is in.";
    LENGTH = Gauge "plumb_phase_planned_seconds" in "seconds", "Length of that phase, where it ends by time.";
    LIVE_BYTES = Gauge "plumb_live_bytes_per_second" in "bytes_per_second", "Payload of a member's last interval, at its near end.";
    LIVE_EVENTS = Gauge "plumb_live_transactions_per_second", "Transactions of a member's last interval.";

    CYCLES = Counter "plumb_watch_cycles", "Cycles since the start of the program, by their status.";
    MISSED = Counter "plumb_watch_missed_starts", "Starts that were skipped, since a cycle was still going on.";
    CYCLING = Gauge "plumb_watch_active", "1 while a cycle is going on, else 0.";
    STATE = Gauge "plumb_watch_status", "1 for the status of the last cycle, 0 for the others.";
    SINCE = Gauge "plumb_watch_status_since_seconds" in "seconds", "Begin of the first of the last cycles with that status, Unix time.";
    AGE = Gauge "plumb_watch_results_age_seconds" in "seconds", "Time since the begin of the run that the results are of.";
    NEXT = Gauge "plumb_watch_next_start_seconds" in "seconds", "The next start, Unix time.";
    UNKEPT = Gauge "plumb_watch_unkept_cycles", "Cycles whose rows could not be written yet.";
    PROBED = Gauge "probe_success", "1 if every case of the probe was measured, else 0.";
    PROBE_LENGTH = Gauge "probe_duration_seconds" in "seconds", "Length of the probe, with the wait for its turn.";

    SESSIONS = Gauge "plumb_serve_sessions", "Open sessions.";
    MOST_SESSIONS = Gauge "plumb_serve_sessions_limit", "Most sessions at the same time.";
    MOST_OF_CLIENT = Gauge "plumb_serve_client_sessions_limit", "Most sessions of one address at the same time.";
    OPENED = Counter "plumb_serve_opened_sessions", "Sessions since the start, by the client's program.";
    GREETING = Gauge "plumb_serve_greeting_connections", "Connections that have proven nothing yet.";
    REFUSED = Counter "plumb_serve_refused", "Connections that got no session.";
    WAITING = Gauge "plumb_serve_waiting_sessions", "Sessions that wait for their turn (--exclusive).";
    RUNNING = Gauge "plumb_serve_running_tests", "Tests under load.";
    TESTS = Counter "plumb_serve_tests", "Tests that have ended, or were refused.";
    PROGRAMS = Counter "plumb_serve_programs", "Programs that were run for clients (hooks).";
    FLOWS = Gauge "plumb_serve_flows", "Flows of all admitted tests.";
    MOST_FLOWS = Gauge "plumb_serve_test_flows_limit", "Most flows of one test.";
    MEMORY = Gauge "plumb_serve_memory_bytes" in "bytes", "Memory of all admitted tests.";
    MOST_MEMORY = Gauge "plumb_serve_memory_limit_bytes" in "bytes", "Most memory of all tests at the same time.";
    LONGEST = Gauge "plumb_serve_test_limit_seconds" in "seconds", "Longest test.";
    SENT = Counter "plumb_serve_sent_bytes" in "bytes", "Payload that ended tests sent from here.";
    RECEIVED = Counter "plumb_serve_received_bytes" in "bytes", "Payload that ended tests received here.";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use analyze::export::openmetrics;
    use schemas::metrics::METRICS;

    use super::*;

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

    #[test]
    fn names_are_unique_and_end_with_their_unit() {
        let results = METRICS.iter().map(|metric| openmetrics::Family::of(metric.column).name);
        let mut seen: HashSet<String> = results.collect();
        assert!(seen.len() >= METRICS.len());
        for family in ALL {
            assert!(seen.insert(family.name.to_owned()), "{} is there twice", family.name);
            assert!(family.unit.is_none_or(|unit| family.name.ends_with(&format!("_{unit}"))), "{}", family.name);
            assert!(!family.name.ends_with("_total"), "{}", family.name);
        }
    }
}
