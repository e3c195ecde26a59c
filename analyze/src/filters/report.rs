//! `plumb report`: a page about a run.

mod document;
mod facts;
mod pictures;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use schemas::{metrics, units};

use super::table::view::View;
use crate::{
    error::{Error, Verdict},
    table::{
        InputArgs, Table,
        beside::{self, Beside},
        layout::Column,
        replace,
    },
};
use document::{Block, Document};

/// A page about a run: plan, machines, results, verdicts, pictures and warnings.
///
/// plumb run plans/message-size.yaml -o sizes.csv; plumb report sizes.csv -o sizes.html
///
/// RESULTS is what `plumb run -o` wrote, or the folder it is in. RESULTS.run.json (plan, machines, notes) and
/// RESULTS.verdicts.csv are used if they exist. FILE.html is one page with everything inside. FILE.md has its pictures
/// beside it (FILE.1.svg …). Without -o the page goes to standard output as Markdown, without pictures.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A results file, or the folder it is in
    #[arg(value_name = "RESULTS")]
    results: PathBuf,
    /// The page: FILE.md or FILE.html
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Its title [default: the plan's name]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    let html = match args.output.as_deref().map(|p| (p, p.extension().and_then(|e| e.to_str()))) {
        None | Some((_, Some("md"))) => false,
        Some((_, Some("html"))) => true,
        Some((path, _)) => {
            return Err(Error::Usage(format!(
                "{}: a report is Markdown or HTML: end the name in .md or .html",
                path.display()
            )));
        }
    };
    let results = results_file(&args.results)?;
    let document = assemble(&results, args.title.as_deref())?;
    match &args.output {
        None => output.write_all(document.markdown(|_, _| None).as_bytes())?,
        Some(path) if html => {
            let text = document.html();
            replace(path, text)?;
        }
        Some(path) => {
            let mut pictures = Vec::new();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = document.markdown(|number, svg| {
                let name = format!("{stem}.{number}.svg");
                pictures.push((path.with_file_name(&name), svg.to_owned()));
                // A blank would end the name in Markdown.
                Some(name.replace(' ', "%20"))
            });
            for (path, svg) in &pictures {
                replace(path, svg)?;
            }
            replace(path, text)?;
        }
    }
    Ok(Verdict::Ok)
}

/// The results file: the given one, or the only one in the given folder.
fn results_file(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let file_error = |source| Error::File { path: path.to_owned(), source };
    let named = path.join("results.csv");
    if named.is_file() {
        return Ok(named);
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(path).map_err(file_error)? {
        let file = entry.map_err(file_error)?.path();
        // A run's table has a file of facts beside it.
        if file.extension().is_some_and(|e| e == "csv") && file.with_extension("run.json").is_file() {
            found.push(file);
        }
    }
    found.sort();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(Error::Usage(format!(
            "{}: there is no results.csv and no table with its run.json; name the results file",
            path.display()
        ))),
        several => Err(Error::Usage(format!(
            "{}: there are {} results files ({} …); name one",
            path.display(),
            several.len(),
            several[0].display()
        ))),
    }
}

fn assemble(results: &Path, title: Option<&str>) -> Result<Document, Error> {
    let mut foreign = Vec::new();
    let facts = own(beside::run_record(results)?, &mut foreign);
    let input = InputArgs { files: vec![results.to_owned()] };
    let view = View::read(&mut Table::open(&input)?, &[], false)?;
    let mut blocks = Vec::new();
    let verdicts_file = own(beside::table(results, "verdicts.csv")?, &mut foreign);
    let mut warnings: Vec<String> = view.note.clone().into_iter().chain(foreign).collect();
    if let Some(facts) = &facts {
        blocks.push(Block::List(facts::run(facts)));
        warnings.extend(facts::notes(facts));
    } else {
        warnings.push(format!(
            "{} is not there: plan and machines are unknown",
            results.with_extension("run.json").display()
        ));
    }
    if let Some(columns) = verdicts_file.as_deref().map(verdicts).transpose()? {
        blocks.push(Block::Heading("Verdicts".to_owned()));
        blocks.push(Block::Table(columns));
    }
    blocks.push(Block::Heading("Results".to_owned()));
    blocks.push(Block::Table(view.columns(false)));
    blocks.extend(pictures::of(results)?);
    if !warnings.is_empty() {
        blocks.push(Block::Heading("Warnings".to_owned()));
        blocks.push(Block::List(warnings));
    }
    if let Some(facts) = &facts {
        if let Some(hosts) = facts::hosts(facts) {
            blocks.push(Block::Heading("Machines".to_owned()));
            blocks.push(hosts);
        }
        let plans = facts::plans(facts);
        if !plans.is_empty() {
            blocks.push(Block::Heading("Plan".to_owned()));
            blocks.extend(plans);
        }
    }
    let named = || facts.as_ref().and_then(|f| f.plans.first()).map(|p| p.name.as_str()).filter(|n| !n.is_empty());
    let title = match title.or_else(named) {
        Some(title) => title.to_owned(),
        None => results.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    Ok(Document { title, blocks })
}

/// The file, if it is of the run of the table; else why it is ignored goes to `foreign`.
fn own<T>(found: Beside<T>, foreign: &mut Vec<String>) -> Option<T> {
    match found {
        Beside::Own(file) => Some(file),
        Beside::Absent => None,
        Beside::Foreign(why) => {
            foreign.push(why);
            None
        }
    }
}

/// The `verdicts` table for people.
fn verdicts(path: &Path) -> Result<Vec<Column>, Error> {
    let mut table = Table::open(&InputArgs { files: vec![path.to_owned()] })?;
    let require = |name: &str| table.require(name);
    let (verdict, case, assertion) = (require("verdict")?, require("case")?, require("assertion")?);
    let (metric, observed, note) = (require("metric")?, require("observed")?, require("note")?);
    let (low, high) = (require("ci_low")?, require("ci_high")?);
    let mut columns: Vec<Column> = ["verdict", "case", "assertion", "observed", "interval", "note"]
        .map(|title| Column { title: title.to_owned(), right: false, cells: Vec::new() })
        .into();
    while let Some(row) = table.next_row()? {
        let unit = metrics::find(row.get(metric)).map(|m| m.unit);
        let words = |value: Option<f64>| match (value, unit) {
            (Some(value), Some(unit)) => units::human(unit, value),
            (Some(value), None) => schemas::columns::number(value),
            (None, _) => String::new(),
        };
        let interval = match (row.number(low)?, row.number(high)?) {
            (Some(low), Some(high)) => format!("{} … {}", words(Some(low)), words(Some(high))),
            _ => String::new(),
        };
        let cells = [
            row.get(verdict).to_owned(),
            row.get(case).to_owned(),
            row.get(assertion).to_owned(),
            words(row.number(observed)?),
            interval,
            row.get(note).to_owned(),
        ];
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.cells.push(cell);
        }
    }
    columns.retain(|c| c.title == "verdict" || c.cells.iter().any(|cell| !cell.is_empty()));
    Ok(columns)
}
