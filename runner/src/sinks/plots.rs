//! `output.plots`: pictures of the results, drawn when the run ends by the same code as `plumb plot`.

use std::path::Path;

use analyze::filters::plot;
use clap::{Parser, ValueEnum as _};

use crate::{error::Error, plan::model::Plot};

/// What `plumb plot` would be given.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: plot::Args,
}

/// Draws one picture of the table into its file.
pub fn draw(what: &Plot, results: &Path, file: &Path) -> Result<(), Error> {
    let fault = |e: String| Error::Usage(format!("the picture {}: {e}", file.display()));
    let kind = word(&what.kind).map_err(fault)?;
    if plot_kind(&kind).is_none() {
        return Err(fault(format!("`{kind}` is no kind of picture")));
    }
    let mut line = vec!["plot".to_owned(), kind, "-o".into(), file.display().to_string()];
    for (flag, value) in [("-x", &what.x), ("-y", &what.y), ("--by", &what.by), ("--title", &what.title)] {
        if let Some(value) = value {
            // A plan may name a swept key (`rate`, `socket.mss`): the table has it under its column's name.
            let column = if flag == "--title" { None } else { crate::plan::check::column(value) };
            line.extend([flag.to_owned(), column.unwrap_or_else(|| value.clone())]);
        }
    }
    if let Some(record) = &what.record {
        line.extend(["--record".to_owned(), word(record).map_err(fault)?]);
    }
    if let Some(log) = &what.log {
        line.extend(["--log".to_owned(), word(log).map_err(fault)?]);
    }
    // Only the tests that the picture is about; a condition can name one, so several are picked out beforehand.
    let picked = match what.tests.as_deref() {
        None | Some([]) => None,
        Some(tests) => Some(pick(results, tests)?),
    };
    line.push(picked.as_ref().map_or(results, tempfile::NamedTempFile::path).display().to_string());
    let args = Line::try_parse_from(line).map_err(|e| fault(e.to_string()))?.args;
    plot::run(&args, &mut std::io::sink())?;
    Ok(())
}

/// The word by which a plan, and the command line, name a value.
fn word(value: &impl serde::Serialize) -> Result<String, String> {
    match value.serialize(serde_json::value::Serializer).map_err(|e| e.to_string())? {
        serde_json::Value::String(word) => Ok(word),
        other => Err(format!("`{other}` is no word")),
    }
}

fn plot_kind(word: &str) -> Option<analyze::plot::Kind> {
    analyze::plot::Kind::from_str(word, false).ok()
}

/// A copy of the table with the rows of these tests only.
fn pick(results: &Path, tests: &[String]) -> Result<tempfile::NamedTempFile, Error> {
    let fault = |e: csv::Error| Error::output(results.display())(e.into());
    let file = tempfile::Builder::new().suffix(".csv").tempfile().map_err(Error::output("a temporary table"))?;
    let mut reader = csv::Reader::from_path(results).map_err(fault)?;
    let mut writer = csv::Writer::from_writer(file.as_file());
    let header = reader.headers().map_err(fault)?.clone();
    let column = header.iter().position(|name| name == "test");
    writer.write_record(&header).map_err(fault)?;
    for record in reader.records() {
        let record = record.map_err(fault)?;
        if column.and_then(|c| record.get(c)).is_some_and(|test| tests.iter().any(|t| t == test)) {
            writer.write_record(&record).map_err(fault)?;
        }
    }
    writer.flush().map_err(Error::output("a temporary table"))?;
    drop(writer);
    Ok(file)
}
