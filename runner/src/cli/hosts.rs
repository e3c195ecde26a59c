//! `plumb hosts`: the check before a campaign. Starts and reaches the ends of a plan, shows them, and stops.

use std::{collections::BTreeSet, io::Write, net::IpAddr};

use analyze::table::layout::{Column, Sheet, aligned};
use netcore::report::NicFacts;
use schemas::units::{Unit, human};
use serde_json::json;

use super::{Selection, serve::KeyFile};
use crate::{
    error::{Error, Exit},
    hosts::{
        Hosts,
        gather::{Found, ends},
    },
    launch::recipe::Allowed,
    plan::{self, Format, Plan, case::Endpoint, model::BY_LAUNCHER, ranges},
    progress::{Mode, Progress},
    schedule::step::{self, Step},
    signals::Interrupts,
    sinks::run_json::HostRecord,
    style,
};

pub const EXAMPLES: &str = "\
Examples:
  plumb hosts lab.yaml
  plumb hosts lab.yaml --host 'node[01-16]={host}.lab' --key-file lab.key
  plumb hosts lab.yaml --only 'bulk*' --json | jq '.hosts[].record.facts.kernel_release'

Daemons with `launch` are started and ended again; the others must run. Nothing is measured. Exit code 0: every host that \
the cases use is there and meets the plan's preconditions; 3: some are not, and all of these are named.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The plan; `-` is standard input.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// Print all facts as JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    key: KeyFile,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let plan = plan::load(&args.plan, &args.selection.options())
        .map_err(|diagnostics| Error::Plan(diagnostics.render(Format::Human)))?;
    let warnings = plan.warnings.render(Format::Human);
    if !warnings.is_empty() {
        style::tell(warnings.trim_end());
    }
    let announce = |signal: &str| style::tell(format_args!("{signal}: the far ends are ended"));
    let interrupts = Interrupts::install(announce)?;
    match look(&plan, args, &interrupts) {
        Err(error) => match interrupts.exit() {
            Some(exit) => {
                error.print();
                Ok(exit)
            }
            None => Err(error),
        },
        Ok(()) => Ok(interrupts.exit().unwrap_or(Exit::Success)),
    }
}

fn look(plan: &Plan, args: &Args, interrupts: &Interrupts) -> Result<(), Error> {
    let key = args.key.load()?;
    let steps = step::steps(plan, "", &plan.axis_paths);
    let progress = Progress::new(Mode::auto());
    let (mut hosts, missing) =
        Hosts::gather(plan, &steps, key.as_ref(), false, Allowed { hooks: false }, interrupts.flag(), &progress)?;
    progress.clear();
    let found = hosts.found(&steps).map_err(Error::measurement)?;
    if args.json {
        super::print(&as_json(&found, &missing))?;
    } else {
        show(plan, &found)?;
    }
    if !missing.is_empty() {
        let lines: Vec<String> = absent(&steps, &found).into_iter().chain(missing).collect();
        return Err(Error::Measurement(lines.join("\n       ")));
    }
    for warning in hosts.ready(plan, &steps)? {
        progress.warn(&warning);
    }
    Ok(())
}

/// `2 of 16 hosts are missing: node[3,7]`; `None`: the cases use none of those that failed.
fn absent(steps: &[Step], found: &[Found]) -> Option<String> {
    let ends = ends(steps).into_iter().map(|(end, _)| end).filter(|end| matches!(end, Endpoint::Host(_)));
    let names: BTreeSet<&str> = ends.map(Endpoint::name).collect();
    let there: BTreeSet<&str> = found.iter().map(|found| found.name.as_str()).collect();
    let absent: Vec<&str> = names.difference(&there).copied().collect();
    let (of, is) = (names.len(), if absent.len() == 1 { "is" } else { "are" });
    let hosts = if of == 1 { "host" } else { "hosts" };
    let sentence = format!("{} of {of} {hosts} {is} missing: {}", absent.len(), ranges::fold(absent.iter().copied()));
    (!absent.is_empty()).then_some(sentence)
}

fn as_json(found: &[Found], missing: &[String]) -> String {
    let host = |found: &Found| json!({"name": found.name, "data_address": found.data, "nics": found.nics, "record": found.record});
    let all = json!({"hosts": found.iter().map(host).collect::<Vec<_>>(), "missing": missing});
    format!("{all:#}\n")
}

/// Title of the launcher's names for the machines.
const NODE: &str = "node";

/// A line for each.
fn show(plan: &Plan, found: &[Found]) -> Result<(), Error> {
    let of_record = |cell: fn(&HostRecord) -> Option<String>| {
        move |found: &Found| found.record.as_ref().and_then(cell).unwrap_or_default()
    };
    let mut columns = vec![
        Column::of("host", false, found, |found| found.name.clone()),
        Column::of(NODE, false, found, of_record(|record| record.launch.as_ref()?.node.clone())),
        Column::of("version", false, found, of_record(|record| Some(record.tool_version.clone()))),
        Column::of("kernel", false, found, of_record(|record| record.facts.kernel_release.clone())),
        Column::of("cpus", true, found, of_record(|record| record.facts.cpus.map(|n| n.to_string()))),
        Column::of("interface", false, found, |found| found.nics.iter().map(interface).collect::<Vec<_>>().join(", ")),
        Column::of("data", false, found, |found| found.data.as_ref().map(IpAddr::to_string).unwrap_or_default()),
        Column::of("clock from ours", false, found, of_record(clock)),
        Column::of("control", false, found, |found| control(plan, found)),
    ];
    columns.retain(|column| column.title != NODE || column.cells.iter().any(|cell| !cell.is_empty()));
    let mut out = anstream::stdout().lock();
    aligned(&columns, &Sheet::stdout(), &mut out).and_then(|()| out.flush()).map_err(Error::output("standard output"))
}

/// `eth0 mlx5_core 100 Gbit/s mtu 9000`, without what is not reported.
fn interface(nic: &NicFacts) -> String {
    let speed = nic.speed_mbit_per_s.map(|mbit| match mbit % 1000 {
        0 => format!("{} Gbit/s", mbit / 1000),
        _ => format!("{mbit} Mbit/s"),
    });
    let mtu = nic.mtu_bytes.map(|bytes| format!("mtu {bytes}"));
    let driver = nic.driver.clone().or_else(|| nic.kind.clone()).filter(|driver| *driver != nic.name);
    [Some(nic.name.clone()), driver, speed, mtu].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// `+38 µs ± 4 µs`.
fn clock(record: &HostRecord) -> Option<String> {
    let clock = record.clock?;
    let us = |ns: u64| human(Unit::Microseconds, ns as f64 / 1000.0);
    let sign = if clock.wall_offset_ns < 0 { "−" } else { "+" };
    Some(format!("{sign}{} ± {}", us(clock.wall_offset_ns.unsigned_abs()), us(clock.bound_ns)))
}

/// The way of the control connection.
fn control(plan: &Plan, found: &Found) -> String {
    let Some(record) = &found.record else { return "none: a service".to_owned() };
    if let Some(netns) = plan.hosts.get(&found.name).and_then(|host| host.netns.as_ref()) {
        return format!("here, in {netns}");
    }
    let address = record.control.clone().unwrap_or_else(|| "this process".to_owned());
    match &record.launch {
        Some(launch) if launch.control == BY_LAUNCHER => format!("through {}", launch.engine),
        Some(launch) => format!("{address}, started by {}", launch.engine),
        None => address,
    }
}
