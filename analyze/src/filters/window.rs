//! `plumb window`: intervals of many instances on one grid.

mod grid;
mod instances;

use std::io::Write;

use schemas::columns::number;
use schemas::units::{self, Unit, human};
use schemas::words::Phase;

use crate::error::{Error, Verdict};
use crate::table::{InputArgs, OutputArgs, Record, Table};

use grid::Stretch;
use instances::Group;

/// The window in which all members or streams run, their total, and its lowest and highest interval.
///
/// plumb run plans/quick.yaml --set defaults.interval=0.5s | plumb window --step 0.5s | plumb table
///
/// Reads interval rows. An instance is the rows that agree in file, run, member, direction and stream. The rates of all
/// instances of a group are put on a common grid, weighted by the part of each cell that an interval covers, and
/// summed. Cells in which an instance has a gap are left out of mean, min and max, with a note. Instances of one run
/// share the clock of start_s (0 is the measure phase's start), others the wall clock of time. --stairs gives every
/// stretch with a constant number of instances, for loads that grow step by step, and marks the one with the highest
/// mean. --cells gives the sums themselves as interval rows.
///
/// Needs about 50 bytes of memory per interval.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// One window per value of these columns; none: all rows together [default: case and iteration]
    #[arg(short, long, visible_alias = "by", value_name = "COLUMN,…", value_delimiter = ',')]
    group: Vec<String>,
    /// Rate to sum [default: throughput, or else transaction rate]
    #[arg(short, long, value_name = "METRIC")]
    metric: Option<String>,
    /// Length of a grid cell
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_seconds)]
    step: f64,
    /// Leave out this much at both ends of a window
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = parse_seconds)]
    trim: f64,
    /// Clock by which intervals are aligned
    #[arg(long, value_name = "CLOCK", default_value = "auto")]
    clock: instances::Clock,
    /// Count the rows of this phase: warmup, measure, cooldown or all
    #[arg(long, value_name = "PHASE", default_value = "measure")]
    phase: String,
    /// Write every stretch with a constant number of instances
    #[arg(long, conflicts_with = "cells")]
    stairs: bool,
    /// Write the sums cell by cell, as interval rows
    #[arg(long)]
    cells: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    input: InputArgs,
}

/// Limit of the grid cells that the intervals of a group fill together: their times are those of the file.
const MOST_CELLS: f64 = 1e7;

fn parse_seconds(text: &str) -> Result<f64, String> {
    units::parse_duration(text).map(|d| d.as_secs_f64()).map_err(|e| e.to_string())
}

pub fn run(args: &Args, output: &mut dyn Write) -> Result<Verdict, Error> {
    if args.step <= 0.0 {
        return Err(Error::Usage("--step must be longer than 0s".to_owned()));
    }
    let mut table = Table::open(&args.input)?;
    let metric = table.require_rate(args.metric.as_deref())?;
    let group: Vec<String> = match args.group.as_slice() {
        [] => table.header().having(&["case", "iteration"]),
        [none] if none == "none" => Vec::new(),
        names => table.names_of(names)?,
    };
    let column = table.header().names()[metric].clone();
    let groups = instances::read(&mut table, &group, metric, &args.phase, args.clock)?;
    let mut gaps = 0;
    let mut outcomes = Vec::new();
    for group in &groups {
        if grid::cells(&group.instances, args.step) > MOST_CELLS {
            let most = human(Unit::Count, MOST_CELLS);
            let reason =
                format!("{}: its intervals fill more than {most} cells; take a longer --step", group.key.join(" "));
            return Err(Error::Usage(reason));
        }
        let mut stretches = grid::stretches(&group.instances, args.step, args.trim);
        if !args.stairs {
            stretches.retain(|s| s.instances == group.instances.len());
            if stretches.is_empty() {
                let (name, length) = (group.key.join(" "), number(args.step + 2.0 * args.trim));
                crate::warn(&match group.instances.len() {
                    1 => format!("{name}: its only instance does not run for {length} s; take a shorter --step"),
                    several => format!("{name}: its {several} instances never run together for {length} s"),
                });
            }
        }
        gaps += stretches.iter().flat_map(|s| &s.cells).filter(|c| c.is_none()).count();
        outcomes.push((group, stretches));
    }
    if gaps > 0 {
        crate::warn(&format!("{gaps} cells have an instance with a gap and are left out"));
    }
    args.output.write(output, |w| {
        if args.cells {
            cells(args, &group, &column, &outcomes, w)
        } else {
            windows(args, &group, &column, &outcomes, w)
        }
    })?;
    Ok(Verdict::Ok)
}

type Outcome<'a> = (&'a Group, Vec<Stretch>);

fn windows(
    args: &Args,
    group: &[String],
    column: &str,
    outcomes: &[Outcome<'_>],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(output);
    let fixed = ["instances", "window_start_s", "window_s", "step_s"].map(str::to_owned);
    let values = ["mean", "min", "max"].map(|s| format!("{column}_{s}"));
    let peak = args.stairs.then(|| "peak".to_owned());
    writer.write_record(group.iter().cloned().chain(fixed).chain(values).chain(peak))?;
    for (group, stretches) in outcomes {
        let highest = stretches.iter().filter_map(|s| s.mean).max_by(f64::total_cmp);
        for stretch in stretches {
            let range = stretch.range();
            let mut cells = group.key.clone();
            cells.push(stretch.instances.to_string());
            cells.extend([stretch.start, stretch.end - stretch.start, args.step].map(rounded));
            cells.extend(
                [stretch.mean, range.map(|r| r.0), range.map(|r| r.1)].map(|v| v.map(number).unwrap_or_default()),
            );
            if args.stairs {
                cells.push((stretch.mean.is_some() && stretch.mean == highest).to_string());
            }
            writer.write_record(&cells)?;
        }
    }
    Ok(writer.flush()?)
}

fn cells(
    args: &Args,
    group: &[String],
    column: &str,
    outcomes: &[Outcome<'_>],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let mut writer = csv::Writer::from_writer(output);
    let fixed = ["record", "phase", "start_s", "elapsed_s", "instances", column].map(str::to_owned);
    writer.write_record(group.iter().cloned().chain(fixed))?;
    for (group, stretches) in outcomes {
        for stretch in stretches {
            for (i, value) in stretch.cells.iter().enumerate() {
                let mut cells = group.key.clone();
                cells.extend([Record::Interval.to_string(), Phase::Measure.to_string()]);
                cells.extend([stretch.start + i as f64 * args.step, args.step].map(rounded));
                cells.push(stretch.instances.to_string());
                cells.push(value.map(number).unwrap_or_default());
                writer.write_record(&cells)?;
            }
        }
    }
    Ok(writer.flush()?)
}

/// Seconds to the nanosecond: anything beyond is the rounding of sums.
fn rounded(seconds: f64) -> String {
    number((seconds * 1e9).round() / 1e9)
}
