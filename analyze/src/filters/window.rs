//! `plumb window`: intervals of many instances on one grid.

mod instances;

use crate::{
    error::{Error, Verdict},
    table::{InputArgs, OutputArgs, Record, Table, cells, write_csv},
};
use instances::Group;
use schemas::{
    columns::number,
    units::{self, Unit, human},
    words::Phase,
};
use std::io::Write;

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
        if grid_cells(&group.instances, args.step) > MOST_CELLS {
            let most = human(Unit::Count, MOST_CELLS);
            let reason =
                format!("{}: its intervals fill more than {most} cells; take a longer --step", group.key.join(" "));
            return Err(Error::Usage(reason));
        }
        let mut stretches = stretches(&group.instances, args.step, args.trim);
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
            grid(args, &group, &column, &outcomes, w)
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
    let fixed = ["instances", "window_start_s", "window_s", "step_s"].map(str::to_owned);
    let values = ["mean", "min", "max"].map(|s| format!("{column}_{s}"));
    let peak = args.stairs.then(|| "peak".to_owned());
    let rows = outcomes.iter().flat_map(|(group, stretches)| {
        let highest = stretches.iter().filter_map(|s| s.mean).max_by(f64::total_cmp);
        stretches.iter().map(move |stretch| {
            let [start, length, step] = [stretch.start, stretch.end - stretch.start, args.step].map(rounded);
            let (low, high) = stretch.range().unzip();
            let peak = args.stairs.then(|| stretch.mean.is_some() && stretch.mean == highest);
            let cells = cells![stretch.instances, start, length, step, stretch.mean, low, high];
            group.key.iter().cloned().chain(cells).chain(peak.map(|peak| peak.to_string()))
        })
    });
    write_csv(output, group.iter().cloned().chain(fixed).chain(values).chain(peak), rows)
}

fn grid(
    args: &Args,
    group: &[String],
    column: &str,
    outcomes: &[Outcome<'_>],
    output: &mut dyn Write,
) -> Result<(), Error> {
    let fixed = ["record", "phase", "start_s", "elapsed_s", "instances", column].map(str::to_owned);
    let stretches = outcomes.iter().flat_map(|(group, stretches)| stretches.iter().map(move |s| (group, s)));
    let rows = stretches.flat_map(|(group, stretch)| {
        stretch.cells.iter().enumerate().map(move |(i, value)| {
            let [start, step] = [stretch.start + i as f64 * args.step, args.step].map(rounded);
            let (record, phase) = (Record::Interval.as_str(), Phase::Measure.as_str());
            group.key.iter().cloned().chain(cells![record, phase, start, step, stretch.instances, *value])
        })
    });
    write_csv(output, group.iter().cloned().chain(fixed), rows)
}

/// Seconds to the nanosecond: anything beyond is the rounding of sums.
fn rounded(seconds: f64) -> String {
    number((seconds * 1e9).round() / 1e9)
}

// Interim results of several instances on one clock and one grid.

/// One interval of one instance: an average rate over a time span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Seconds on the common clock.
    pub start: f64,
    /// Later than `start`.
    pub end: f64,
    /// Rate, in the unit of the column.
    pub rate: f64,
}

/// A time span with a constant number of running instances.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Seconds on the common clock.
    pub start: f64,
    pub end: f64,
    /// The number of running instances.
    pub instances: usize,
    /// The sum of their rates in each whole grid cell; `None` if an instance has a gap.
    pub cells: Vec<Option<f64>>,
    /// The mean over the cells without gaps.
    pub mean: Option<f64>,
}

impl Stretch {
    /// Lowest and highest cell.
    pub fn range(&self) -> Option<(f64, f64)> {
        let known = || self.cells.iter().flatten().copied();
        Some((known().min_by(f64::total_cmp)?, known().max_by(f64::total_cmp)?))
    }
}

/// A cell covered by at least this share is whole: the rest is rounding.
const WHOLE: f64 = 0.999;

/// The stretches with a constant number of running instances, in the order of time. Each is shortened by `trim` seconds
/// at both ends and cut into cells of `step` seconds; stretches without one whole cell are left out. An instance runs
/// from its first piece's start to its last one's end.
pub fn stretches(instances: &[Vec<Piece>], step: f64, trim: f64) -> Vec<Stretch> {
    let spans: Vec<(f64, f64)> = instances.iter().filter_map(|i| Some((i.first()?.start, last_end(i)?))).collect();
    let mut edges: Vec<f64> = spans.iter().flat_map(|s| [s.0, s.1]).collect();
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    let running = |t: f64| spans.iter().filter(|s| s.0 <= t && t < s.1).count();
    let mut stretches: Vec<(f64, f64, usize)> = Vec::new();
    for pair in edges.windows(2) {
        let count = running(pair[0]);
        match stretches.last_mut() {
            Some(last) if last.2 == count => last.1 = pair[1],
            _ => stretches.push((pair[0], pair[1], count)),
        }
    }
    stretches
        .into_iter()
        .filter(|(_, _, count)| *count > 0)
        .filter_map(|(start, end, count)| cut(instances, start + trim, end - trim, count, step))
        .collect()
}

/// Cells that the instances take, and all of their pieces one by one.
fn grid_cells(instances: &[Vec<Piece>], step: f64) -> f64 {
    let all = || instances.iter().flatten();
    let first = all().map(|piece| piece.start).fold(f64::INFINITY, f64::min);
    let last = all().map(|piece| piece.end).fold(f64::NEG_INFINITY, f64::max);
    let spans =
        [(last - first).max(0.0)].into_iter().chain(all().map(|piece| (piece.end - piece.start).max(0.0) + step));
    spans.map(|span| span / step).sum()
}

fn last_end(pieces: &[Piece]) -> Option<f64> {
    pieces.iter().map(|p| p.end).max_by(f64::total_cmp)
}

fn cut(instances: &[Vec<Piece>], start: f64, end: f64, count: usize, step: f64) -> Option<Stretch> {
    // Ends that miss a whole cell by rounding still make one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive count, or 0")]
    let cells = ((end - start) / step + 1e-6).floor().max(0.0) as usize;
    if cells == 0 {
        return None;
    }
    let mut sums = vec![0.0; cells];
    let mut covered = vec![0.0; cells];
    let end = start + cells as f64 * step;
    for piece in instances.iter().flatten().filter(|p| p.end > start && p.start < end) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the cells")]
        let first = ((piece.start - start) / step).floor().max(0.0) as usize;
        for cell in first..cells {
            let (low, high) = (start + cell as f64 * step, start + (cell + 1) as f64 * step);
            if low >= piece.end {
                break;
            }
            let share = ((piece.end.min(high) - piece.start.max(low)) / step).max(0.0);
            sums[cell] += piece.rate * share;
            covered[cell] += share;
        }
    }
    let cells: Vec<Option<f64>> =
        sums.into_iter().zip(covered).map(|(sum, share)| (share >= count as f64 * WHOLE).then_some(sum)).collect();
    let known: Vec<f64> = cells.iter().flatten().copied().collect();
    let mean = crate::stats::moments::mean(&known);
    Some(Stretch { start, end, instances: count, cells, mean })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(start: f64, pieces: usize, length: f64, rate: f64) -> Vec<Piece> {
        (0..pieces)
            .map(|i| Piece { start: start + i as f64 * length, end: start + (i + 1) as f64 * length, rate })
            .collect()
    }

    #[test]
    fn the_cells_of_far_times_are_too_many_and_not_made() {
        assert!((grid_cells(&[instance(0.0, 20, 0.5, 10.0)], 1.0) - 40.0).abs() < 1e-9);
        let far = [Piece { start: -1e308, end: 0.0, rate: 1.0 }, Piece { start: 0.0, end: 1e308, rate: 1.0 }];
        assert!(grid_cells(&[far.into()], 1.0) > 1e300);
        assert!(grid_cells(&[vec![Piece { start: 0.0, end: 9e9, rate: 1.0 }]], 1.0) > 1e9);
    }

    #[test]
    fn a_staircase() {
        // One starts at 0, the other at 5; both end at 10.
        let stairs = stretches(&[instance(0.0, 20, 0.5, 10.0), instance(5.0, 5, 1.0, 7.0)], 1.0, 1.0);
        let [one, two] = stairs.as_slice() else { panic!("{stairs:?}") };
        assert_eq!((one.start, one.end, one.instances, one.mean), (1.0, 4.0, 1, Some(10.0)));
        assert_eq!((two.start, two.end, two.instances, two.mean), (6.0, 9.0, 2, Some(17.0)));
        assert_eq!(two.range(), Some((17.0, 17.0)));
    }

    #[test]
    fn intervals_that_straddle_cells_are_shared_out() {
        let pieces = vec![
            Piece { start: 0.0, end: 0.5, rate: 0.0 },
            Piece { start: 0.5, end: 1.5, rate: 8.0 },
            Piece { start: 1.5, end: 2.0, rate: 4.0 },
        ];
        let all = stretches(&[pieces], 1.0, 0.0);
        assert_eq!(all[0].cells, [Some(4.0), Some(6.0)]);
        assert_eq!(all[0].mean, Some(5.0));
    }

    #[test]
    fn a_gap_is_no_zero() {
        let mut pieces = instance(0.0, 4, 1.0, 5.0);
        pieces.remove(1);
        let all = stretches(&[pieces], 1.0, 0.0);
        assert_eq!(all[0].cells, [Some(5.0), None, Some(5.0), Some(5.0)]);
        assert_eq!(all[0].mean, Some(5.0));
    }
}
