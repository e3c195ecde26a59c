//! Parses a program's output: by an importer that knows the program, or by a regular expression whose named groups are
//! metrics or columns of the results.

use analyze::import::{ImportedRows, Program};
use clap::ValueEnum;
use regex::{Regex, RegexBuilder};
use schemas::{
    columns::{self, Row},
    metrics::{self, Metric},
    units::{self, Unit},
    words::{Phase, Record, Status},
};

use super::{
    diagnostics::suggest,
    keys::{SpecError, error},
    model::Command,
};

/// Groups of columns that an output may fill; the others identify the measurement.
const GROUPS: [&str; 8] = ["what ran", "volume", "datagrams", "pacing", "latency", "cpu", "tcp", "place and time"];

/// Most memory of a compiled expression, bytes: a short text can make it gigabytes.
const MAX_EXPRESSION: usize = 1 << 20;

/// The way in which an output is read.
#[derive(Clone, Debug)]
pub enum OutputParser {
    /// By the importer of a known program.
    Import(Program),
    /// By an expression; each match is a line of results.
    Expression(Regex, Vec<Group>),
}

/// A named group of the expression.
#[derive(Clone, Debug)]
pub struct Group {
    name: String,
    column: &'static str,
    /// The unit of the metric; `None`: a column that is not a metric takes bare numbers.
    unit: Option<Unit>,
    /// The unit of numbers printed without one.
    printed: Option<String>,
}

impl Group {
    /// The metric of its column, if there is one.
    pub fn metric(&self) -> Option<&'static Metric> {
        metrics::METRICS.iter().find(|m| m.column == self.column)
    }
}

impl OutputParser {
    /// The parser that the plan asks for. A mistake has its key within `command`.
    pub fn of(command: &Command) -> Result<Self, SpecError> {
        if command.run.first().is_none_or(|word| word.0.is_empty()) {
            return Err(error("run", "a command without a program", "run: [program, argument, …]"));
        }
        match (&command.import, &command.regex) {
            (Some(name), None) => {
                if let Some(units) = &command.units
                    && !units.is_empty()
                {
                    return Err(error("units", "an importer knows its program's units", "remove `units`"));
                }
                Program::from_str(name, false).map(Self::Import).map_err(|_| {
                    let values: Vec<_> =
                        Program::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
                    let known: Vec<&str> = values.iter().map(clap::builder::PossibleValue::get_name).collect();
                    error("import", format!("there is no importer `{name}`"), suggest(name, &known))
                })
            }
            (None, Some(expression)) => Self::expression(expression, command),
            (Some(_), Some(_)) => Err(error("regex", "two ways to read its output", "keep `import`, or `regex`")),
            (None, None) => {
                Err(error("run", "no way to read its output", "add import: iperf3, or regex: '(?<throughput>…)'"))
            }
        }
    }

    fn expression(expression: &str, command: &Command) -> Result<Self, SpecError> {
        let regex = RegexBuilder::new(expression).size_limit(MAX_EXPRESSION).build().map_err(|e| {
            let text = e.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            error("regex", "this is not a regular expression", last)
        })?;
        let none = std::collections::BTreeMap::new();
        let units = command.units.as_ref().unwrap_or(&none);
        let groups: Vec<Group> =
            regex.capture_names().flatten().map(|name| group(name, units.get(name))).collect::<Result<_, _>>()?;
        if groups.is_empty() {
            return Err(error(
                "regex",
                "the expression has no named group",
                "name what it finds after a metric: (?<throughput>[0-9.]+ Gbit/s), (?<transaction_rate>[0-9.]+)",
            ));
        }
        if let Some(name) = units.keys().find(|name| !groups.iter().any(|g| g.name == **name)) {
            return Err(error("units", format!("the expression has no group `{name}`"), "units are by named group"));
        }
        Ok(Self::Expression(regex, groups))
    }

    /// The named groups of an expression.
    pub fn groups(&self) -> &[Group] {
        match self {
            Self::Import(_) => &[],
            Self::Expression(_, groups) => groups,
        }
    }

    /// Why the output can never have that metric; `None`: it may.
    pub fn lacks(&self, metric: &Metric) -> Option<String> {
        // Measured around the program, whatever it prints.
        let ours = metric.column == "elapsed_s" || metric.column.starts_with("local_cpu");
        match self {
            Self::Expression(_, groups) if !ours && !groups.iter().any(|g| g.column == metric.column) => {
                Some(format!("the expression has no group for it: (?<{}>…)", metric.name))
            }
            _ => None,
        }
    }

    /// The rows of an output, with only the cells that it fills.
    pub fn rows(&self, text: &str) -> Result<Vec<Row>, String> {
        match self {
            Self::Import(program) => {
                let mut sheet = ImportedRows::default();
                sheet.read("its output", text, Some(*program)).map_err(|e| e.to_string())?;
                Ok(sheet.finish())
            }
            Self::Expression(regex, groups) => {
                let mut rows = Vec::new();
                for found in regex.captures_iter(text) {
                    let mut row = Row {
                        record: Some(Record::Iteration),
                        phase: Some(Phase::Measure),
                        status: Some(Status::Ok),
                        ..Row::default()
                    };
                    for group in groups {
                        if let Some(cell) = found.name(&group.name) {
                            row.set_number(group.column, Some(group.value(cell.as_str().trim())?));
                        }
                    }
                    rows.push(row);
                }
                if rows.is_empty() {
                    return Err(format!("nothing in its output matches `{regex}`"));
                }
                Ok(rows)
            }
        }
    }
}

fn group(name: &str, printed: Option<&String>) -> Result<Group, SpecError> {
    let metric = metrics::find(name).or_else(|| metrics::METRICS.iter().find(|m| m.column == name));
    let column = metric.map_or(name, |m| m.column);
    let known = columns::find(column)
        .filter(|c| GROUPS.contains(&c.group) && c.ty.is_number() && !["start_s", "start_skew_us"].contains(&c.name));
    let Some(known) = known else {
        let names: Vec<&str> = metrics::METRICS.iter().map(|m| m.name).collect();
        let help = if columns::find(name).is_some() {
            "only numbers can be read: name a metric".to_owned()
        } else {
            suggest(name, &names)
        };
        return Err(error("regex", format!("the group `{name}` is not a metric"), help));
    };
    let group =
        Group { name: name.to_owned(), column: known.name, unit: metric.map(|m| m.unit), printed: printed.cloned() };
    if printed.is_some()
        && let Err(reason) = group.value("1")
    {
        return Err(error("units", format!("`{}` is not a unit of `{name}`", printed.map_or("", |u| u)), reason));
    }
    Ok(group)
}

impl Group {
    /// The text found, as a number of the column: with the unit printed beside it, the unit that the plan names, or the
    /// column's own.
    fn value(&self, found: &str) -> Result<f64, String> {
        let bare = found.parse::<f64>().ok().filter(|v| v.is_finite());
        let text = match (bare, &self.printed) {
            (Some(bare), None) => return Ok(bare),
            (Some(_), Some(unit)) => format!("{found}{unit}"),
            (None, _) => found.to_owned(),
        };
        let Some(unit) = self.unit else {
            return Err(format!("`{text}` is not a number for the column {}", self.column));
        };
        units::parse_for(unit, &text)
            .map_err(|e| format!("the group `{}` found a value of another unit: {e}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::model::Word;

    fn command(import: Option<&str>, regex: Option<&str>, units: &[(&str, &str)]) -> Command {
        Command {
            run: vec![Word("it".into())],
            import: import.map(str::to_owned),
            regex: regex.map(str::to_owned),
            units: Some(units.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
        }
    }

    fn why(command: &Command) -> String {
        let wrong = OutputParser::of(command).unwrap_err();
        format!("{}: {} ({})", wrong.key, wrong.message, wrong.help)
    }

    #[test]
    fn a_unit_is_printed_named_or_the_columns_own() {
        let read = |regex, units: &[_], text| OutputParser::of(&command(None, Some(regex), units)).unwrap().rows(text);
        let rows = read("total +(?<throughput>[0-9.]+ [A-Za-z/]+)", &[], "total  1.5 Gbit/s\n").unwrap();
        assert_eq!(rows[0].throughput_bits_per_s, Some(1.5e9));
        let npb = "Time in seconds = +(?<elapsed>[0-9.]+)(?s:.*)Mop/s total += +(?<transaction_rate>[0-9.]+)";
        let text = " Time in seconds =                     0.45\n Mop/s total     =                  2214.25\n";
        let rows = read(npb, &[("transaction_rate", "M/s")], text).unwrap();
        assert_eq!((rows[0].elapsed_s, rows[0].transactions_per_s), (Some(0.45), Some(2_214_250_000.0)));
        let rows = read("p99: (?<latency.p99>[0-9.]+)", &[("latency.p99", "ms")], "p99: 2.5").unwrap();
        assert_eq!(rows[0].latency_p99_us, Some(2500.0));
    }

    #[test]
    fn each_match_is_a_line_of_results() {
        let regex = "(?m)^ *(?<message_size>[0-9]+) +(?<latency.mean>[0-9.]+)$";
        let rows = OutputParser::of(&command(None, Some(regex), &[])).unwrap().rows("1 7.5\n64 8\nend\n").unwrap();
        let seen: Vec<_> = rows.iter().map(|r| (r.message_bytes, r.latency_mean_us)).collect();
        assert_eq!(seen, [(Some(1), Some(7.5)), (Some(64), Some(8.0))]);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let no = |regex, units: &[_], text| {
            OutputParser::of(&command(None, Some(regex), units)).unwrap().rows(text).unwrap_err()
        };
        assert_eq!(
            no("rate (?<throughput>.*)", &[], "nothing"),
            "nothing in its output matches `rate (?<throughput>.*)`"
        );
        let text = no("rate (?<throughput>.*)", &[], "rate 10Mbps");
        assert!(text.contains("`throughput`") && text.contains("bits or bytes"), "{text}");
    }

    #[test]
    fn a_mistake_is_said_before_anything_runs() {
        for (command, words) in [
            (command(None, Some("("), &[]), "regex: this is not a regular expression (unclosed group)"),
            (command(None, Some("[0-9]+"), &[]), "regex: the expression has no named group"),
            (
                command(None, Some("(?<throughptu>.)"), &[]),
                "regex: the group `throughptu` is not a metric (did you mean `throughput`?)",
            ),
            (command(None, Some("(?<run_id>.)"), &[]), "only numbers can be read"),
            (
                command(None, Some("(?<throughput>.)"), &[("throughput", "k/s")]),
                "units: `k/s` is not a unit of `throughput`",
            ),
            (
                command(None, Some("(?<throughput>.)"), &[("latency", "us")]),
                "units: the expression has no group `latency`",
            ),
            (command(Some("iperf"), None, &[]), "import: there is no importer `iperf` (did you mean `iperf3`?)"),
            (command(Some("iperf3"), Some("x"), &[]), "regex: two ways to read its output"),
            (command(None, None, &[]), "run: no way to read its output"),
        ] {
            let said = why(&command);
            assert!(said.contains(words), "{said}");
        }
    }
}
