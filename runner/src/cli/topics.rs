//! Texts inside the program: `plumb help TOPIC`, the short form of a page; `plumb plans`; and `plumb schema`, the published
//! contracts.
//!
//! The texts of topics are the tables of keys and metrics, and sections of the pages.

use std::fmt::Write as _;

use analyze::table::layout::{Column, Sheet, aligned, paragraph};
use clap::ValueEnum;
use schemas::{columns, metrics::METRICS};

use super::EXIT_CODES;
use crate::{
    error::{Error, Exit},
    plan::{
        Format, LoadOptions,
        diagnostics::suggest,
        keys, load_str,
        shipped::{PLANS, shipped},
    },
};

/// A page, of which sections are printed.
const PLAN: &str = include_str!("../../../docs/reference/plan.md");

struct Topic {
    name: &'static str,
    about: &'static str,
    text: Text,
    /// Further reading: commands, and pages of `docs/`.
    more: &'static str,
}

enum Text {
    Plain(&'static str),
    /// A heading of [`PLAN`], whose text goes to the next one.
    Section(&'static str),
    Keys,
    Metrics,
}

const TOPICS: &[Topic] = &[
    Topic {
        name: "exit-codes",
        about: "what the exit code of a command says",
        text: Text::Plain(EXIT_CODES),
        more: "docs/guide/ci.md",
    },
    Topic {
        name: "units",
        about: "how sizes, times, rates and shares are written",
        text: Text::Section("### Quantities"),
        more: "docs/reference/plan.md",
    },
    Topic {
        name: "keys",
        about: "the keys of a test in a plan",
        text: Text::Keys,
        more: "plumb check --explain tests.bulk.duration lab.yaml\nplumb schema plan\ndocs/reference/plan.md",
    },
    Topic {
        name: "metrics",
        about: "what can be asserted, compared and drawn",
        text: Text::Metrics,
        more: "plumb gate --assert 'latency.p99 < 80us' results.csv\nplumb schema results\ndocs/reference/results.md",
    },
    Topic {
        name: "workloads",
        about: "what a test can run, over which transports and by which calls",
        text: Text::Section("### Workloads"),
        more: "docs/reference/plan.md",
    },
    Topic {
        name: "inventory",
        about: "where the ends of a test are",
        text: Text::Section("## Hosts"),
        more: "plumb hosts lab.yaml\nplumb run lab.yaml --host server=b.lab\ndocs/guide/clusters.md",
    },
    Topic {
        name: "matrix",
        about: "how values are swept",
        text: Text::Section("## Matrix"),
        more: "plumb check --list lab.yaml\ndocs/reference/plan.md",
    },
    Topic {
        name: "assert",
        about: "what must come out of a test, and how it is judged",
        text: Text::Section("## Verdicts"),
        more: "plumb check --power 3% lab.yaml\ndocs/reference/statistics.md",
    },
];

/// The names of all topics.
pub fn names() -> String {
    TOPICS.iter().map(|topic| topic.name).collect::<Vec<_>>().join(", ")
}

/// Each topic with what it is about.
pub fn list() -> String {
    let width = TOPICS.iter().map(|topic| topic.name.len()).max().unwrap_or(0);
    let lines: Vec<String> = TOPICS.iter().map(|topic| format!("  {:width$}  {}", topic.name, topic.about)).collect();
    format!("Topics:\n{}", lines.join("\n"))
}

/// The page of this topic. `None`: there is none.
pub fn page(name: &str, sheet: &Sheet) -> Option<String> {
    let topic = TOPICS.iter().find(|topic| topic.name == name)?;
    let mut out = format!("{}: {}\n\n", topic.name, topic.about);
    match topic.text {
        Text::Plain(text) => out.push_str(text),
        Text::Section(heading) => out.push_str(&section(heading, sheet)),
        Text::Keys => {
            let all: Vec<_> =
                keys::KEYS.iter().map(|key| (key.name, keys::about(key.name).unwrap_or_default())).collect();
            let columns = [
                Column::of("key", false, &all, |(name, _)| (*name).to_owned()),
                Column::of("meaning", false, &all, |(_, about)| (*about).to_owned()),
            ];
            out.push_str(&table(&columns, sheet));
        }
        Text::Metrics => {
            let about = |column: &str| columns::find(column).map_or_else(String::new, columns::Column::description);
            let columns = [
                Column::of("metric", false, METRICS, |metric| metric.name.to_owned()),
                Column::of("unit", false, METRICS, |metric| metric.unit.to_string()),
                Column::of("meaning", false, METRICS, |metric| about(metric.column)),
            ];
            out.push_str(&table(&columns, sheet));
        }
    }
    let more: Vec<String> = topic.more.lines().map(|line| format!("  {line}")).collect();
    // Writing to a String cannot fail.
    let _ = write!(out, "\n\nMore:\n{}\n", more.join("\n"));
    Some(out.replace("\n\n\n", "\n\n"))
}

fn table(columns: &[Column], sheet: &Sheet) -> String {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = aligned(columns, sheet, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A section of the page up to the next heading of any level: tables are aligned, paragraphs wrapped, code stays.
fn section(heading: &str, sheet: &Sheet) -> String {
    let body = PLAN.split_once(&format!("\n{heading}\n")).map_or("", |(_, rest)| rest);
    let body = body.split("\n#").next().unwrap_or_default();
    let mut out = String::new();
    let mut is_code = false;
    let mut lines = body.trim().lines().peekable();
    while let Some(line) = lines.next() {
        let kind = |line: &str| match line {
            line if line.starts_with("```") => 'c',
            line if line.starts_with('|') => 't',
            line if line.starts_with("- ") => '-',
            "" => ' ',
            _ => 'p',
        };
        match kind(line) {
            'c' => is_code = !is_code,
            _ if is_code => out.extend(["    ", line, "\n"]),
            ' ' => out.push('\n'),
            't' => {
                let mut rows = vec![cells(line)];
                while let Some(line) = lines.next_if(|line| kind(line) == 't') {
                    rows.push(cells(line));
                }
                let head = rows.remove(0);
                rows.retain(|row| row.iter().any(|cell| cell.chars().any(|c| c != '-' && c != ':')));
                let of = |(i, title): (usize, &String)| {
                    Column::of(title, false, &rows, |row| row.get(i).cloned().unwrap_or_default())
                };
                out.push_str(&table(&head.iter().enumerate().map(of).collect::<Vec<_>>(), sheet));
            }
            _ => {
                let mut text = line.to_owned();
                while let Some(line) = lines.next_if(|line| kind(line) == 'p') {
                    text = format!("{text} {}", line.trim());
                }
                let mut wrapped = Vec::new();
                // Writing to memory cannot fail.
                let _ = paragraph(&plain(&text), 0, Some(sheet.width.unwrap_or(super::COLUMNS)), &mut wrapped);
                out.push_str(&String::from_utf8_lossy(&wrapped));
            }
        }
    }
    out
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_matches('|').replace("\\|", "\u{0}");
    row.split('|').map(|cell| plain(&cell.replace('\u{0}', "|"))).collect()
}

/// A text without links and stars. Back quotes stay: they tell words of a plan apart.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.trim();
    while let Some((before, after)) = rest.split_once("](") {
        let (text, label) = before.rsplit_once('[').unwrap_or((before, ""));
        out = out + text + label;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    (out + rest).replace("**", "")
}

pub const PLANS_EXAMPLES: &str = "\
Examples:
  plumb plans
  plumb plans show quick > my.yaml
  plumb run quick --to b.lab

A file of the same name in this folder is preferred: `plumb run quick` takes `quick` if there is one.";

#[derive(Debug, clap::Args)]
pub struct PlansArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print a plan, to be read or to begin one's own with.
    #[command(after_help = "Examples:\n  plumb plans show quick > my.yaml")]
    Show {
        /// Its name.
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub fn plans(args: &PlansArgs) -> Result<Exit, Error> {
    match &args.action {
        None => super::print(&plan_list(&Sheet::stdout()))?,
        Some(Action::Show { name }) => {
            let Some(plan) = shipped(name) else {
                let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
                return Err(Error::Usage(format!("no plan `{name}` is inside: {}", suggest(name, &names))));
            };
            super::print(plan.text)?;
        }
    }
    Ok(Exit::Success)
}

/// Each name with the question that the plan answers.
fn plan_list(sheet: &Sheet) -> String {
    let width = PLANS.iter().map(|plan| plan.name.len()).max().unwrap_or(0);
    let room = sheet.width.map_or(usize::MAX, |columns| columns.saturating_sub(width + 4).max(20));
    let mut text = String::new();
    for shipped in PLANS {
        // Tests hold them to be without a mistake.
        let plan = load_str(shipped.name, shipped.text, &LoadOptions::default());
        let text_of = plan.map_or_else(|out| out.render(Format::Human), |plan| plan.description.unwrap_or_default());
        // The rest of the description is for readers of the plan.
        let question = text_of.split_inclusive('?').next().unwrap_or_default().trim();
        super::listed(&mut text, shipped.name, width, question, room);
    }
    text
}

pub const SCHEMA_EXAMPLES: &str = "\
Examples:
  plumb schema plan > plan.schema.json
  plumb schema results | jq -r '.fields[].name'";

#[derive(Debug, clap::Args)]
pub struct SchemaArgs {
    /// The contract to print.
    which: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Which {
    /// The JSON Schema of a plan.
    Plan,
    /// The Table Schema of the results table.
    Results,
}

pub fn schema(args: &SchemaArgs) -> Result<Exit, Error> {
    match args.which {
        Which::Plan => super::print(&keys::PUBLISHED)?,
        Which::Results => super::print(&format!("{:#}\n", schemas::publish::results_schema()))?,
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_has_a_page_and_each_of_its_commands_parses() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../");
        for topic in TOPICS {
            for width in [None, Some(80)] {
                let page = page(topic.name, &Sheet { width, ..Sheet::PLAIN }).unwrap();
                assert!(page.lines().count() > 8, "{page}");
                assert!(!page.contains("](") && !page.contains("```") && !page.contains("**"), "{page}");
                let too_long = page.lines().find(|line| width.is_some() && line.chars().count() > 100);
                assert!(too_long.is_none_or(|line| line.starts_with("    ")), "{too_long:?}");
            }
            for line in topic.more.lines() {
                let Some(words) = line.strip_prefix("plumb ") else {
                    assert!(std::path::Path::new(docs).join(line).exists(), "{line}");
                    continue;
                };
                let words = words.replace('\'', "\"");
                let mut parts = words
                    .split('"')
                    .enumerate()
                    .flat_map(|(i, part)| if i % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
                let args: Vec<&str> = std::iter::once("plumb").chain(&mut parts).collect();
                if let Err(e) = super::super::command().try_get_matches_from(args) {
                    panic!("{line}: {e}");
                }
            }
            assert!(super::super::command().find_subcommand(topic.name).is_none(), "{} is a command", topic.name);
        }
    }

    #[test]
    fn topics_are_derived_from_the_tables() {
        let page = |name| page(name, &Sheet::PLAIN).unwrap();
        for key in keys::KEYS {
            assert!(
                page("keys").lines().any(|line| line.starts_with(&format!("{} ", key.name)) && line.len() > 20),
                "{}",
                key.name
            );
        }
        for metric in METRICS {
            assert!(page("metrics").lines().any(|line| line.starts_with(metric.name)), "{}", metric.name);
        }
        assert!(page("units").contains("`1Gbit/s`") && page("exit-codes").contains("  4    inconclusive only"));
        assert!(super::page("nope", &Sheet::PLAIN).is_none());
    }

    #[test]
    fn markup_is_taken_out() {
        assert_eq!(plain("see [Io methods](#io-methods), **both** of [`a`](b.md)"), "see Io methods, both of `a`");
        assert_eq!(cells(r"| `a\|b` | c |"), ["`a|b`", "c"]);
    }
}
