//! Options of all kinds of pictures.

use super::{
    Kind,
    quantity::{Quantity, Spacing},
};
use crate::{
    error::Error,
    parsed, share,
    table::{InputArgs, Record, Selection},
};
use schemars::JsonSchema;
use schemas::{
    units::{self, Unit},
    words::OneOrMany,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The logarithmic axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "LogAxes")]
pub enum Log {
    /// The horizontal one
    X,
    /// The vertical one
    Y,
    /// Both
    Xy,
    /// None, not even that of sizes
    None,
}

/// The kind of interval around a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Spread {
    /// The confidence interval of the mean (Student's t)
    Ci,
    /// From the smallest to the largest value, around the median
    Range,
    /// One standard deviation around the mean
    Stddev,
    /// None
    None,
}

/// In pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size: write WIDTHxHEIGHT in pixels, for example 1200x700");
        let (width, height) = text.split_once(['x', '×']).ok_or_else(wrong)?;
        let side = |t: &str| t.trim().parse::<u32>().ok();
        let (width, height) = side(width).zip(side(height)).ok_or_else(wrong)?;
        if !(200..=8000).contains(&width) || !(120..=8000).contains(&height) {
            return Err(format!("`{text}` is out of range: pictures are 200x120 to 8000x8000"));
        }
        Ok(Self { width, height })
    }
}

fn level(text: &str) -> Result<f64, String> {
    share(text, || format!("`{text}` is not a confidence level: write 95% or 99%"))
}

fn density(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|d| (0.5..=4.0).contains(d)).ok_or_else(|| format!("`{text}` is not between 0.5 and 4"))
}

/// The file of a picture, and its size.
#[derive(Clone, Debug, clap::Args)]
pub struct Paper {
    /// The picture: FILE.png or FILE.svg
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The title [default: what is drawn]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Leave out the footer with run, hosts, date and iterations
    #[arg(long)]
    pub no_annotation: bool,
    /// Size in pixels [default: 1200x700; with names along an axis as high as they need]
    #[arg(long, value_name = "WIDTHxHEIGHT")]
    pub size: Option<Size>,
    /// Pixels of a PNG per pixel of the size: 2 for print and fine screens
    #[arg(long, value_name = "FACTOR", value_parser = density, default_value = "1")]
    pub density: f64,
    /// Also write the drawn points to FILE (`-`: standard output), as CSV
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Draw in the terminal
    #[arg(long)]
    pub term: bool,
}

impl Default for Paper {
    fn default() -> Self {
        Self { output: None, title: None, no_annotation: false, size: None, density: 1.0, data: None, term: false }
    }
}

/// Options of `plumb plot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub input: InputArgs,
    #[command(flatten)]
    pub paper: Paper,
    /// Column (or metric) along the horizontal axis [default: by kind; for `sweep` and `heatmap` the parameter that
    /// varies]
    #[arg(short, value_name = "COLUMN")]
    pub x: Option<String>,
    /// Column (or metric) along the vertical axis [default: by kind; else the headline of the workload: throughput of
    /// streams, transaction rate of requests]
    #[arg(short, value_name = "COLUMN")]
    pub y: Option<String>,
    /// Column (or metric) that a heat map's colours show [default: the headline of the workload]
    #[arg(long, value_name = "COLUMN")]
    pub value: Option<String>,
    /// Another column (or metric), drawn beside `-y`: with an axis of its own, or over time and in distributions as further lines; may be repeated
    #[arg(long, value_name = "COLUMN")]
    pub beside: Vec<String>,
    /// Draw only this test; may be repeated
    #[arg(long = "test", value_name = "NAME", help_heading = "Which rows count")]
    pub tests: Vec<String>,
    /// One series per value of these columns (`file` is one) [default: what the rows differ in]. They must tell apart
    /// all that differs: rows of different member, direction, hosts, run or parameters are never joined
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Logarithmic axes [default: sizes, the latencies of a cdf, percentiles that span more than 50 times, and the colours
    /// of a heat map that span more than 10 times]
    #[arg(long, value_name = "AXES", value_enum)]
    pub log: Option<Log>,
    /// The kind of interval around a point [default: ci; on a logarithmic axis, where a point has fewer than five values,
    /// range: such a mean's interval would reach below the axis]
    #[arg(long = "interval", value_name = "KIND", value_enum)]
    pub spread: Option<Spread>,
    /// Confidence level of intervals
    #[arg(long, value_name = "LEVEL", value_parser = level, default_value = "95%")]
    pub confidence: f64,
    /// Let the value axis cover the data without zero; the picture says so
    #[arg(long)]
    pub zoom: bool,
    /// Draw a reference line on x: VALUE or VALUE=NAME (9000=MTU, 64KiB=L2). May be repeated
    #[arg(long = "mark", value_name = "VALUE[=NAME]")]
    pub marks: Vec<String>,
    /// Give the axes room for this file's values, too, so that two pictures compare. May be repeated
    #[arg(long, value_name = "FILE")]
    pub same_scale: Vec<PathBuf>,
    #[command(flatten)]
    pub selection: Selection,
}

/// As without any option on the command line.
impl Default for Options {
    fn default() -> Self {
        parsed(["plot"]).expect("no option must be given")
    }
}

impl Options {
    /// Reads the input, then the files of `--same-scale` where they are given. `read` gets what it made of the input,
    /// so that both take the same columns.
    pub fn with_same_scale<T>(
        &self,
        read: impl Fn(&InputArgs, Option<&T>) -> Result<T, Error>,
    ) -> Result<(T, Option<T>), Error> {
        let own = read(&self.input, None)?;
        let others = InputArgs { files: self.same_scale.clone() };
        let others = if others.files.is_empty() { None } else { Some(read(&others, Some(&own))?) };
        Ok((own, others))
    }

    /// The selection for pictures over time: interval rows of all phases.
    pub fn intervals(&self) -> Selection {
        let record = self.selection.record.clone().or_else(|| Some(Record::Interval.to_string()));
        // Warm-up and cool-down are part of the picture, shaded.
        Selection { phase: "all".to_owned(), record, ..self.selection.clone() }
    }

    pub fn log_y(&self) -> bool {
        matches!(self.log, Some(Log::Y | Log::Xy))
    }

    pub fn log_x(&self) -> bool {
        matches!(self.log, Some(Log::X | Log::Xy))
    }

    /// Spacing of a value axis: linear by default.
    pub fn spacing_y(&self) -> Spacing {
        if self.log_y() { Spacing::Log10 } else { Spacing::Linear }
    }

    /// Spacing of x: sizes by powers of two by default.
    pub fn spacing_x(&self, quantity: &Quantity) -> Spacing {
        let size = quantity.unit == Some(Unit::Bytes);
        match self.log {
            None | Some(Log::X | Log::Xy) if size => Spacing::Log2,
            Some(Log::X | Log::Xy) if quantity.is_parallel() => Spacing::Log2,
            Some(Log::X | Log::Xy) => Spacing::Log10,
            _ => Spacing::Linear,
        }
    }

    /// Reference lines of `--mark`: value and name.
    pub fn rules(&self) -> Result<Vec<(f64, String)>, Error> {
        let rule = |text: &String| {
            let (value, name) = text.split_once('=').map_or((text.as_str(), text.as_str()), |(v, n)| (v, n));
            let parsed = value.trim().parse().ok().or_else(|| units::parse_size(value).ok().map(|v| v as f64));
            parsed.filter(|v: &f64| v.is_finite()).map(|v| (v, name.trim().to_owned())).ok_or_else(|| {
                Error::Usage(format!(
                    "--mark `{text}`: `{value}` is neither a number nor a size; write 1500=MTU or 64KiB"
                ))
            })
        };
        self.marks.iter().map(rule).collect()
    }
}

// A picture as a plan asks for it, drawn when the run ends and again by `plumb report`.

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The kind of picture.
    pub kind: Kind,
    /// The tests; all by default.
    pub tests: Option<Vec<String>>,
    /// The rows: `iteration` by default if there are any, `probe` for those of a search.
    pub record: Option<Record>,
    /// Column or metric along x.
    pub x: Option<String>,
    /// Column or metric along y.
    pub y: Option<String>,
    /// Column or metric that a heat map's colours show.
    pub value: Option<String>,
    /// Columns or metrics drawn beside y, for `bars`, `timeseries`, `cdf` and `percentiles`: one of them, or a list.
    pub beside: Option<OneOrMany>,
    /// Columns that tell curves apart: one of them, or a list.
    pub by: Option<OneOrMany>,
    /// Logarithmic axes: `x`, `y`, `xy` or `none`.
    pub log: Option<Log>,
    /// Title.
    pub title: Option<String>,
    /// The file, relative to `output.dir`; its ending (png, svg) decides the format.
    pub file: PathBuf,
}

impl Plot {
    /// Options of `plumb plot` that draw it from a table.
    pub fn options(&self, table: &Path) -> Options {
        Options {
            input: InputArgs { files: vec![table.to_owned()] },
            x: self.x.clone(),
            y: self.y.clone(),
            value: self.value.clone(),
            beside: self.beside.clone().unwrap_or_default().0,
            tests: self.tests.clone().unwrap_or_default(),
            by: self.by.clone().unwrap_or_default().0,
            log: self.log,
            paper: Paper { title: self.title.clone(), ..Paper::default() },
            selection: Selection { record: self.record.map(|r| r.to_string()), ..Selection::default() },
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_marks_are_read() {
        assert_eq!("600x350".parse::<Size>().unwrap(), Size { width: 600, height: 350 });
        assert!("600".parse::<Size>().unwrap_err().contains("WIDTHxHEIGHT"));
        assert!("10x10".parse::<Size>().is_err());
        let options = Options { marks: vec!["64KiB=L2".into(), "1500".into()], ..Options::default() };
        assert_eq!(options.rules().unwrap(), [(65_536.0, "L2".to_owned()), (1500.0, "1500".to_owned())]);
        let options = Options { marks: vec!["L2".into()], ..Options::default() };
        assert!(options.rules().unwrap_err().to_string().contains("`L2` is neither a number"));
    }

    #[test]
    fn sizes_are_logarithmic_by_themselves() {
        let size = Quantity::of_column("message_bytes");
        assert_eq!(Options::default().spacing_x(&size), Spacing::Log2);
        assert_eq!(Options { log: Some(Log::None), ..Options::default() }.spacing_x(&size), Spacing::Linear);
        assert_eq!(Options { log: Some(Log::Y), ..Options::default() }.spacing_x(&size), Spacing::Linear);
        let log = Options { log: Some(Log::X), ..Options::default() };
        assert_eq!(log.spacing_x(&Quantity::of_column("streams")), Spacing::Log2);
        assert_eq!(log.spacing_x(&Quantity::of_column("offered_per_s")), Spacing::Log10);
    }
}
