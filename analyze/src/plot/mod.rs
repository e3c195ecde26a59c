//! Pictures: kinds that share their values share a file.
//!
//! A kind reads rows ([`records`]), condenses them ([`series`]) and says what is on the paper ([`figure`], made of
//! [`axis`] and [`layer`]); the figure lays itself out as shapes ([`canvas`]), which [`paint`] turns into PNG or SVG and
//! [`term`] into characters. Only [`draw`] touches files, and only once the picture is whole.

pub mod axis;
pub mod canvas;
mod choice;
mod compare;
mod cpu;
mod distribution;
pub mod figure;
pub mod font;
mod groups;
mod heatmap;
mod hops;
mod identity;
pub mod layer;
pub mod legend;
pub mod options;
pub mod paint;
pub mod quantity;
mod reading;
pub mod records;
pub mod series;
mod sweep;
pub mod term;
mod timeseries;
mod transfer;
pub mod trend;

pub use choice::AXES;
pub use options::{Log, Options, Paper, Plot};

use crate::{
    error::Error,
    table::{OutputArgs, replace},
    word,
};
use figure::{Drawing, Figure};
use font::Metrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{io::Write, path::Path};

/// The kinds of pictures, one row each: help, name, function that draws it, options that it does not use.
macro_rules! kinds {
    ($($(#[doc = $help:literal])+ $name:ident = $draw:path, without $unused:expr;)+) => {
        /// The kind of picture. Plans name them by the same words as the command line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[schemars(rename = "PlotKind")]
        pub enum Kind {
            $($(#[doc = $help])+ $name,)+
        }

        /// Reads the files and makes the figure, without drawing it.
        pub fn drawing(kind: Kind, options: &Options) -> Result<Drawing, Error> {
            match kind {
                $(Kind::$name => $draw(options),)+
            }
        }

        /// Options that the kind does not use, as on the command line.
        pub fn unused(kind: Kind) -> &'static [&'static str] {
            match kind {
                $(Kind::$name => &$unused,)+
            }
        }
    };
}

kinds! {
    /// A metric against a parameter, one line per series: throughput against message size
    Sweep = sweep::draw, without ["--value", "--beside"];
    /// NetPIPE's signature graph: throughput against the time a message takes
    Signature = transfer::draw_signature, without ["-x", "--value", "--mark", "--beside"];
    /// NetPIPE's saturation graph: message size against the time it takes
    Saturation = transfer::draw_saturation, without ["-x", "--value", "--mark", "--zoom", "--beside"];
    /// Interval results over time, warm-up and cool-down shaded
    Timeseries = timeseries::draw, without ["--value", "--mark"];
    /// The share of the latencies (or of another column's values, -x) at or below a value
    Cdf = distribution::draw_cdf, without ["--value", "--mark"];
    /// Latency (or another column, -y) at 90 %, 99 %, 99.9 % …: the tail
    Percentiles = distribution::draw_percentiles, without ["--value", "--mark"];
    /// Every value by case (or by -x), with quartiles
    Box = groups::draw_boxes, without ["--value", "--mark", "--beside"];
    /// Means by case (or by -x) from zero, with intervals
    Bars = groups::draw_bars, without ["--value", "--mark"];
    /// A metric (--value) over two parameters, or between pairs of hosts, as colours; with -y latency, latencies over time
    Heatmap = heatmap::draw, without ["--by", "--mark", "--beside"];
    /// The findings of `plumb compare -f csv`: the change of each case with its interval and verdict
    Compare = compare::draw, without ["-x", "-y", "--value", "--by", "--mark", "--zoom", "--log", "--beside"];
    /// CPU time of both ends by kind, under the work done: over a parameter, or with -x start_s over time
    Cpu = cpu::draw, without ["--value", "--by", "--mark", "--beside"];
    /// The table of hops (r.hops.csv): round trips to each hop of the path, idle and under the load of each direction
    Hops = hops::draw, without ["-x", "-y", "--value", "--by", "--mark", "--beside"];
}

/// Size of normal text: readable in half a column of print, moderate on a slide.
pub fn text_size(width: f64, height: f64) -> f64 {
    (width.min(height * 2.6) / 68.0).clamp(11.0, 30.0)
}

/// Lays the figure out at the size of the paper, or at its natural size.
fn laid_out(figure: &Figure, paper: &Paper) -> canvas::Canvas {
    let size = paper.size.unwrap_or_else(|| figure.natural_size());
    let (width, height) = (f64::from(size.width), f64::from(size.height));
    figure.draw(width, height, Metrics::font(text_size(width, height)))
}

/// A figure as the bytes of a PNG.
pub fn to_png(figure: &Figure, paper: &Paper) -> Result<Vec<u8>, Error> {
    paint::png(&laid_out(figure, paper), paper.density).map_err(Error::Usage)
}

/// A figure as an SVG document.
pub fn to_svg(figure: &Figure, paper: &Paper) -> Result<String, Error> {
    paint::svg(&laid_out(figure, paper)).map_err(Error::Usage)
}

/// Refuses an option that the kind would ignore.
fn refuse_unused(kind: Kind, options: &Options) -> Result<(), Error> {
    let given = [
        ("-x", options.x.is_some()),
        ("-y", options.y.is_some()),
        ("--value", options.value.is_some()),
        ("--beside", !options.beside.is_empty()),
        ("--by", !options.by.is_empty()),
        ("--mark", !options.marks.is_empty()),
        ("--zoom", options.zoom),
        ("--log", options.log_x() || options.log_y()),
    ];
    let Some((option, _)) = given.iter().find(|(option, given)| *given && unused(kind).contains(option)) else {
        return Ok(());
    };
    let name = word(&kind);
    Err(Error::Usage(format!("`{name}` does not use {option}: leave it out, or choose another kind of picture")))
}

/// Draws the picture into its file, and into `stdout` for `--term`. Returns warnings. An error leaves no file.
pub fn draw(kind: Kind, options: &Options, stdout: &mut dyn Write) -> Result<Vec<String>, Error> {
    options.paper.check()?;
    refuse_unused(kind, options)?;
    put(&drawing(kind, options)?, &options.paper, stdout)
}

/// Draws series of a history, in the same way.
pub fn draw_trend(args: &trend::Args, stdout: &mut dyn Write) -> Result<Vec<String>, Error> {
    args.paper.check()?;
    put(&trend::draw(args)?, &args.paper, stdout)
}

/// Puts a drawing where it was asked for. Returns its warnings.
fn put(drawing: &Drawing, paper: &Paper, stdout: &mut dyn Write) -> Result<Vec<String>, Error> {
    let figure = &drawing.figure;
    if let Some(path) = &paper.output {
        let bytes = match extension(path).as_deref() {
            Some("svg") => to_svg(figure, paper)?.into_bytes(),
            _ => to_png(figure, paper)?,
        };
        replace(path, &bytes)?;
    }
    if paper.data.is_some() {
        OutputArgs { output: paper.data.clone() }.write(stdout, |file| drawing.points.write(file))?;
    }
    if paper.term {
        stdout.write_all(term::draw(figure).as_bytes())?;
    }
    Ok([&drawing.warnings[..], &drawing.notes].concat())
}

fn extension(path: &Path) -> Option<String> {
    path.extension().map(|e| e.to_ascii_lowercase().to_string_lossy().into_owned())
}

impl Paper {
    /// Refuses a picture without a place, or of another format.
    fn check(&self) -> Result<(), Error> {
        if self.output.is_none() && !self.term && self.data.is_none() {
            return Err(Error::Usage(
                "say where the picture goes: -o FILE.png, -o FILE.svg, or --term for this terminal".to_owned(),
            ));
        }
        if let Some(path) = &self.output
            && !matches!(extension(path).as_deref(), Some("png" | "svg"))
        {
            let path = path.display();
            return Err(Error::Usage(format!("{path}: pictures are PNG or SVG: end the name in .png or .svg")));
        }
        Ok(())
    }
}
