//! The cases of a results table: one per case, member and direction, over its iterations.

pub mod overview;

use crate::{
    error::Error,
    judge::{
        offered,
        samples::{self, Index, Key},
    },
    limits,
    stats::{confidence, histogram::Latencies, moments},
    table::{Field, Table, layout::Column},
};
use indexmap::IndexMap;
use schemas::{
    columns::{self, Row},
    metrics::{self, Family, Kind, Metric},
    text::short_names,
    units,
    words::{Phase, Record, Search, Status, Way},
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// One case, member or direction.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// Its name, with the member and the direction where they tell it apart.
    pub label: String,
    key: Key,
    /// The cells that say what ran, from its first row.
    about: Row,
    /// Columns and values that tell it apart where the table has no `case_id`.
    parameters: Vec<(&'static str, String)>,
    /// Iterations that count, in the order of the table. Their histograms are in `latencies`.
    pub iterations: Vec<Row>,
    /// The row in which `plumb run` condensed them.
    pub summary: Option<Row>,
    latencies: Option<Latencies>,
    /// Status and reason of the measured phases that do not count.
    pub left_out: Vec<(Status, String)>,
}

/// The part of a results table that a report needs.
#[derive(Debug, Default)]
pub struct Cases {
    /// In the order of their first rows.
    pub list: Vec<Case>,
    /// Tests that have rows per interval.
    pub intervals: BTreeSet<String>,
    /// The axis columns of the table.
    pub axes: Vec<String>,
}

impl Cases {
    pub fn read(table: &mut Table) -> Result<Self, Error> {
        let header = table.header();
        let columns: Vec<(usize, &'static str)> =
            columns::COLUMNS.iter().filter_map(|c| Some((header.find(c.name)?, c.name))).collect();
        let axes = header.names().iter().filter(|name| name.starts_with(columns::AXIS_PREFIX)).cloned().collect();
        let mut cases = Self { axes, ..Self::default() };
        let (mut known, mut mixed) = (IndexMap::<Key, Case>::new(), HashSet::<String>::new());
        while let Some(line) = table.next_row()? {
            match line.text(Field::record).parse::<Record>() {
                Ok(Record::Interval) => {
                    cases.intervals.insert(line.text(Field::test).to_owned());
                    continue;
                }
                Ok(Record::Stream | Record::Probe) => continue,
                _ => {}
            }
            let mut row = Row::default();
            for (column, name) in &columns {
                row.set(name, line.get(*column)).map_err(|e| line.error(Some(*column), e.to_string()))?;
            }
            if row.phase.is_some_and(|p| p != Phase::Measure) {
                continue;
            }
            let mut parameters = Vec::new();
            if row.case_id.is_none() {
                // Other programs' tables give one name to measurements that differ.
                let told =
                    columns.iter().filter(|(_, name)| columns::find(name).is_some_and(columns::Column::is_parameter));
                parameters.extend(told.map(|(column, name)| (*name, line.get(*column).to_owned())));
            }
            let name = [&row.case_id, &row.case, &row.test].into_iter().find_map(Clone::clone).unwrap_or_default();
            let values = parameters.iter().map(|(_, value)| value.as_str());
            let key = Key {
                id: std::iter::once(name.as_str()).chain(values).collect::<Vec<_>>().join("\n"),
                member: row.member.clone().unwrap_or_default(),
                direction: row.direction.map(|d| d.to_string()).unwrap_or_default(),
                ..Key::default()
            };
            if !key.member.is_empty() {
                mixed.insert(key.id.clone());
            }
            let case = known.entry(key).or_insert_with_key(|key| {
                let about = row.clone().without_histograms();
                Case { key: key.clone(), about, parameters, ..Case::default() }
            });
            case.add(row).map_err(|reason| line.error(None, reason))?;
        }
        cases.list = known.into_values().collect();
        // A total over members that do different work adds up what does not belong together.
        cases.list.retain(|c| !c.key.member.is_empty() || !mixed.contains(&c.key.id) || !c.workload().is_empty());
        cases.name();
        Ok(cases)
    }

    fn name(&mut self) {
        let mut of_name: HashMap<&str, Vec<BTreeSet<&str>>> = HashMap::new();
        for case in &self.list {
            let values = of_name.entry(case.name()).or_insert_with(|| vec![BTreeSet::new(); case.parameters.len()]);
            for (values, (_, value)) in values.iter_mut().zip(&case.parameters) {
                values.insert(value);
            }
        }
        let differ = |case: &Case, at: usize| of_name[case.name()].get(at).is_some_and(|values| values.len() > 1);
        let named = |case: &Case| {
            let told = (0..case.parameters.len()).filter(|at| differ(case, *at)).map(|at| &case.parameters[at]);
            let told: Vec<String> = told.map(|(column, value)| format!("{column}={value}")).collect();
            let told = if told.is_empty() { String::new() } else { format!("[{}]", told.join(", ")) };
            samples::Case { key: case.key.clone(), name: format!("{}{told}", case.name()), ..Default::default() }
        };
        let all: Vec<samples::Case> = self.list.iter().map(named).collect();
        let index = Index::new(&all);
        for (case, named) in self.list.iter_mut().zip(&all) {
            case.label = index.label(named);
        }
    }

    /// The pairs of surveys, and the other cases.
    pub fn pairs_apart(&self) -> (Self, Self) {
        let (pairs, others) = self.list.iter().cloned().partition(Case::is_pair);
        (Self { list: pairs, ..Self::default() }, Self { list: others, ..Self::default() })
    }

    /// The largest confidence level, and whether every case has it.
    fn level(&self) -> (f64, bool) {
        let levels = || self.list.iter().map(Case::level);
        let largest = levels().fold(0.0, f64::max);
        (largest, levels().all(|l| (l - largest).abs() < 1e-9))
    }

    /// A row per case. `asked` are metrics that the plan's pictures and verdicts are about.
    pub fn table(&self, asked: &[&'static Metric]) -> Vec<Column> {
        let cases = &self.list;
        let column = |title: &str, right, cell: &dyn Fn(&Case) -> String| Column::of(title, right, cases, cell);
        let of = |name: &str| {
            let metric = metrics::find(name);
            move |case: &Case| metric.and_then(|m| case.text_of_all(m)).unwrap_or_default()
        };
        // Several iterations: their mean, and percentiles of all latencies together. Verdicts have medians of the iterations.
        let several = cases.iter().any(|c| c.count() > 1);
        let (level, alone) = self.level();
        let level = if alone { format!("{} interval", units::level(level)) } else { "interval".to_owned() };
        let mut columns = vec![
            column("case", false, &|c| short_names(&c.label)),
            column("workload", false, &|c| metrics::shown_workload(c.workload(), c.row().direction)),
            column("metric", false, &|c| c.headline().map_or(String::new(), |m| m.label.to_owned())),
            column(if several { "mean" } else { "result" }, true, &Case::result),
            column(&level, true, &|c| {
                let spread = c.headline().and_then(|m| c.spread(m)).unwrap_or_default();
                if alone || spread.is_empty() { spread } else { format!("{spread} ({})", units::level(c.level())) }
            }),
            column("n", true, &|c| c.count().to_string()),
            column(if several { "p50 of all" } else { "p50" }, true, &of("latency.p50")),
            column(if several { "p99 of all" } else { "p99" }, true, &of("latency.p99")),
            column("loss", true, &|c| of("loss_ratio")(c) + &c.unanswered().unwrap_or_default()),
        ];
        let shown = ["throughput", "transaction_rate", metrics::ADDED, "latency.p50", "latency.p99", "loss_ratio"];
        for metric in asked.iter().filter(|m| !shown.contains(&m.name)) {
            let title = match metric.kind {
                _ if !several => metric.label.to_owned(),
                Kind::Distribution => format!("{} of all", metric.label),
                Kind::Count => format!("{}, sum", metric.label),
                Kind::Rate | Kind::Gauge => format!("{}, mean", metric.label),
            };
            if !columns.iter().any(|c| c.title == title) {
                columns.push(column(&title, true, &|c| c.text_of_all(metric).unwrap_or_default()));
            }
        }
        columns.push(column("load confidence", false, &|c| {
            c.row().load_confidence.map_or(String::new(), |confidence| confidence.to_string())
        }));
        columns.push(column("CPU from / to", true, &Case::cpu));
        columns.push(column("", false, &|c| c.searched().unwrap_or_default().to_owned()));
        // Units tell rates of bytes and of transactions apart.
        let rates = [metrics::find("throughput"), metrics::find("transaction_rate")];
        let plain = |m: Option<&'static Metric>| m.is_none_or(|m| rates.iter().flatten().any(|r| r.name == m.name));
        let odd = cases.iter().any(|c| !plain(c.headline()));
        columns.retain(|c| match c.title.as_str() {
            "case" | "mean" | "result" | "n" => true,
            "metric" => odd,
            // A value that all rows share is in the plan.
            "workload" => c.cells.len() == 1 || c.cells.iter().any(|cell| *cell != c.cells[0]),
            _ => c.cells.iter().any(|cell| !cell.is_empty()),
        });
        columns
    }
}

impl Cases {
    /// What limited each case, in sentences.
    pub fn limits(&self) -> Vec<String> {
        // They name the direction themselves.
        let name = |case: &Case| case.label.replace(&format!(" ({})", case.key.direction), "");
        limits::lines(self.list.iter().map(|case| (name(case), case.row())))
    }
}

impl Case {
    fn add(&mut self, row: Row) -> Result<(), String> {
        let good = row.status.is_none_or(|s| s == Status::Ok);
        match row.record {
            Some(Record::Summary) => self.summary = Some(row),
            _ if good => {
                if let Some(cell) = row.latency_histogram.as_deref().filter(|c| !c.is_empty()) {
                    let one = Latencies::decode(cell)?;
                    match &mut self.latencies {
                        Some(all) => all.merge(&one)?,
                        none => *none = Some(one),
                    }
                }
                self.iterations.push(row.without_histograms());
            }
            _ => self.left_out.push((row.status.unwrap_or(Status::Failed), row.error.clone().unwrap_or_default())),
        }
        Ok(())
    }

    /// A row that says what ran.
    fn row(&self) -> &Row {
        self.summary.as_ref().or(self.iterations.last()).unwrap_or(&self.about)
    }

    /// Whether it is a pair of a survey.
    pub fn is_pair(&self) -> bool {
        self.row().round.is_some()
    }

    pub fn test(&self) -> &str {
        self.row().test.as_deref().unwrap_or_default()
    }

    /// The case without member and direction.
    pub fn name(&self) -> &str {
        self.row().case.as_deref().unwrap_or(self.test())
    }

    pub fn member(&self) -> &str {
        &self.key.member
    }

    pub fn workload(&self) -> &str {
        self.row().workload.as_deref().unwrap_or_default()
    }

    pub fn level(&self) -> f64 {
        self.summary.as_ref().and_then(|r| r.confidence_level).unwrap_or(0.95)
    }

    /// Iterations that count.
    pub fn count(&self) -> u64 {
        match self.iterations.len() as u64 {
            0 => self.summary.as_ref().and_then(|r| r.iterations).unwrap_or(0),
            n => n,
        }
    }

    /// Whether an iteration of it failed, or it has nothing to show although it should.
    pub fn failed(&self) -> bool {
        let status = self.summary.as_ref().and_then(|r| r.status).or(self.left_out.last().map(|(s, _)| *s));
        self.left_out.iter().any(|(status, _)| matches!(status, Status::Failed | Status::Timeout))
            || self.count() == 0 && !matches!(status, None | Some(Status::Ok | Status::Skipped))
    }

    pub fn family(&self) -> Family {
        Family::from(self.row())
    }

    /// The metric that the case is about.
    pub fn headline(&self) -> Option<&'static Metric> {
        self.family().headline(|m| self.centre(m).is_some())
    }

    /// One value per iteration.
    pub fn values(&self, metric: &Metric) -> Vec<f64> {
        self.iterations.iter().filter_map(|row| row.number(metric.column)).collect()
    }

    /// The mean of the iterations, in the middle of [`Self::interval`]. Without their rows, as [`Self::of_all`].
    pub fn centre(&self, metric: &Metric) -> Option<f64> {
        let is_of_iterations = metric.kind == Kind::Distribution;
        let mean = is_of_iterations.then(|| moments::mean(&self.values(metric))).flatten();
        mean.or_else(|| self.of_all(metric))
    }

    /// The value over all iterations: a mean, a sum of counts, a percentile of all latencies together.
    pub fn of_all(&self, metric: &Metric) -> Option<f64> {
        let values = self.values(metric);
        let condensed = || self.summary.as_ref().and_then(|r| r.number(metric.column));
        match metric.kind {
            Kind::Distribution => {
                let merged = self.latencies.as_ref().and_then(|h| h.column(metric.column));
                // Percentiles are not averaged.
                condensed().or(merged).or(values.first().copied().filter(|_| values.len() == 1))
            }
            _ if values.is_empty() || values.len() < self.iterations.len() => condensed(),
            Kind::Count => Some(values.iter().sum()),
            Kind::Rate | Kind::Gauge => moments::mean(&values),
        }
    }

    fn text_of_all(&self, metric: &Metric) -> Option<String> {
        self.of_all(metric).map(|v| units::human(metric.unit, v))
    }

    fn unanswered(&self) -> Option<String> {
        offered::unanswered(self.workload(), |name| self.of_all(metrics::find(name)?))
    }

    /// Student's interval of the mean of the iterations, around [`Self::centre`].
    pub fn interval(&self, metric: &Metric) -> Option<(f64, f64)> {
        let interval = confidence::t_interval(&self.values(metric), self.level())?.within(metric.range());
        Some((interval.low, interval.high))
    }

    fn spread(&self, metric: &Metric) -> Option<String> {
        let (low, high) = self.interval(metric)?;
        units::spread(metric.unit, self.centre(metric)?, low, high)
    }

    /// The headline, or why there is none.
    pub fn result(&self) -> String {
        if let Some(text) = self.headline().and_then(|m| Some(units::human(m.unit, self.centre(m)?))) {
            return text;
        }
        let status = self.left_out.last().map(|(status, _)| *status).or(self.summary.as_ref().and_then(|r| r.status));
        status.filter(|s| *s != Status::Ok).map_or("none".to_owned(), |s| s.to_string())
    }

    fn cpu(&self) -> String {
        let of = |name| metrics::find(name).and_then(|m| self.centre(m));
        let percent = |v: Option<f64>| v.map_or("?".to_owned(), |v| format!("{:.0} %", v * 100.0));
        match (of("cpu.local"), of("cpu.remote")) {
            (None, None) => String::new(),
            (from, to) => format!("{} / {}", percent(from), percent(to)),
        }
    }

    /// The end of a search, in words.
    pub fn searched(&self) -> Option<&'static str> {
        self.summary.as_ref()?.search.map(Search::sentence)
    }

    /// The result of a search: `holds up to 36 in flight, not at 38 in flight`.
    pub fn limit(&self) -> Option<String> {
        let row = self.summary.as_ref()?;
        let load = |value: f64| match row.offered_per_s {
            None => format!("{value} in flight"),
            Some(_) => offered::load(row, value),
        };
        let held = row.offered_per_s.or(row.inflight.map(|n| n as f64)).map(load);
        let above = row.search_above.map(|above| format!(", not at {}", load(above))).unwrap_or_default();
        let more = row.search_above.map_or_else(|| "more".to_owned(), load);
        Some(match (row.search?, held) {
            (Search::Nothing, _) | (_, None) => "holds at none of the loads tried".to_owned(),
            (Search::Found, Some(held)) => format!("{} {held}{above}", Search::HOLDS),
            (Search::AtLeast, Some(held)) => format!("holds even at the highest load, {held}"),
            (Search::Unreached, Some(held)) => format!("{} {held}; {more} could not be offered", Search::HOLDS),
            (_, Some(held)) => format!("{} {held}{above} (the search ended early)", Search::HOLDS),
        })
    }

    /// Whether its latencies are those of round trips or connects, in contrast to a stream's calls.
    pub fn is_timed(&self) -> bool {
        self.iterations.iter().any(|r| r.transactions_per_s.is_some())
    }

    /// Whether it is a whole: no member's or direction's share of another row.
    pub fn is_total(&self, all: &[Self]) -> bool {
        !all.iter().any(|other| {
            let wider = other.key.member.is_empty() && !self.key.member.is_empty()
                || other.key.member == self.key.member && other.key.direction == Way::Both.as_str();
            other.key.id == self.key.id && other.key != self.key && wider
        })
    }

    pub fn has_histogram(&self) -> bool {
        self.latencies.is_some()
    }
}

/// Counts of something by status, with the reasons, over the members of a case.
pub fn by_status(cases: &[Case]) -> BTreeMap<(String, Status), (usize, Vec<String>)> {
    let mut found: BTreeMap<(String, Status), (usize, Vec<String>)> = BTreeMap::new();
    for case in cases {
        let mut counts: BTreeMap<Status, usize> = BTreeMap::new();
        for (status, reason) in &case.left_out {
            *counts.entry(*status).or_default() += 1;
            let (_, reasons) = found.entry((case.name().to_owned(), *status)).or_default();
            if !reason.is_empty() && !reasons.contains(reason) {
                reasons.push(reason.clone());
            }
        }
        // The members of a group fail together.
        for (status, count) in counts {
            let (most, _) = found.entry((case.name().to_owned(), status)).or_default();
            *most = (*most).max(count);
        }
    }
    found
}
