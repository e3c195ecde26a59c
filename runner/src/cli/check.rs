//! Checks before a run: `plumb check` checks plans and lists their cases, and with `--power` measures how much their results
//! scatter and says how many iterations a change takes. `plumb hosts` starts and reaches the ends of a plan, shows them, and
//! stops.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::Write,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use analyze::{
    filters::compare::parse_share,
    judge::power::{FOUND, MOST},
    table::layout::{Column, Sheet, aligned},
};
use netcore::{control::key::Key, report::NicFacts};
use schemas::{
    text::{counted, plain_lines},
    units::{self, Unit, human},
};
use serde_json::json;

use super::{Selection, run::announce};
use crate::{
    campaign::{self, Options},
    error::{Error, Exit},
    gate::power::{Need, Power, TooFew, too_few},
    hosts::{
        Hosts,
        gather::{Found, ends},
    },
    launch::recipe,
    plan::{
        self, Format, Plan,
        case::{Case, Endpoint, Member, Round},
        model::BY_LAUNCHER,
        ranges,
    },
    programs::{self, Allowed},
    progress::{Mode, Progress},
    schedule::step::{self, Step},
    signals::Interrupts,
    sinks::run_json::HostRecord,
    style,
};

pub const EXAMPLES: &str = "\
Examples:
  plumb check lab.yaml
  plumb check --list lab.yaml
  plumb check --explain tests.bulk.socket.no_delay lab.yaml
  plumb check --error-format github plans/*.yaml
  plumb check --power 3% lab.yaml

Nothing is measured and no host is asked, but for --power. Exit code 0: the plans can be run; 2: they cannot.

--power measures each case at least five times, for about a minute in all where the plan allows it. It then says with how many \
iterations nine of ten comparisons of two runs find that one is worse by that much, by the rule of the plan's baseline or of \
plumb compare. What differs between two runs and not within one, such as a machine that was started anew, is not in it.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Plans to check; `-` is standard input.
    #[arg(required = true, value_name = "PLAN")]
    plans: Vec<String>,
    /// List the cases of each plan, with the time they take.
    #[arg(long)]
    list: bool,
    /// Print a value and everything that set it, such as `tests.bulk.socket.no_delay`.
    #[arg(long, value_name = "PATH", conflicts_with = "list")]
    explain: Option<String>,
    /// Format of errors.
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    error_format: Format,
    /// Measure how much results scatter, and say how many iterations show a change of this size, such as 3%.
    #[arg(long, value_name = "CHANGE", value_parser = parse_share("3%"), conflicts_with_all = ["list", "explain"])]
    power: Option<f64>,
    #[command(flatten)]
    selection: Selection,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let format = args.error_format;
    let options = args.selection.options();
    let mut wrong = String::new();
    for path in &args.plans {
        if let Some(key) = &args.explain {
            match plan::explain(path, &options, key) {
                Ok(explanation) => super::print(&plain_lines(&explanation.to_string()))?,
                Err(diagnostics) => wrong.push_str(&diagnostics.render(format)),
            }
            continue;
        }
        match plan::load(path, &options) {
            Ok(mut plan) => {
                let warnings = plan.warnings.render(format);
                if !warnings.is_empty() {
                    style::tell(warnings.strip_suffix('\n').unwrap_or(&warnings));
                }
                super::print(&plain_lines(&describe(&plan, args.list)))?;
                if let Some(change) = args.power {
                    match power(&mut plan, change, args.selection.key.load()?)? {
                        Exit::Success => {}
                        exit => return Ok(exit),
                    }
                }
            }
            Err(diagnostics) => wrong.push_str(&diagnostics.render(format)),
        }
    }
    if wrong.is_empty() {
        return Ok(Exit::Success);
    }
    // GitHub and programs read standard output, people read standard error.
    if matches!(format, Format::Human) {
        return Err(Error::Plan(wrong));
    }
    super::print(&wrong)?;
    Ok(Exit::Usage)
}

/// Most members of the same workload that are listed one by one.
const MOST_ALIKE: usize = 4;

fn describe(plan: &Plan, list: bool) -> String {
    let mut text = String::new();
    let cases = plan.cases.len();
    let rounds: BTreeSet<&Round> = plan.cases.iter().filter_map(|case| case.round.as_ref()).collect();
    let rounds = match rounds.len() {
        0 => String::new(),
        count => format!(" · {} of pairs", counted(count, "round")),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} · {}{rounds} · {}",
        if plan.path == plan.name { plan.name.clone() } else { format!("{}: {}", plan.path, plan.name) },
        counted(cases, "case"),
        plan.estimate()
    );
    for line in needs(plan).into_iter().chain(undecided(plan)) {
        let _ = writeln!(text, "  {line}");
    }
    if list {
        let width = plan.cases.iter().map(|c| c.name.chars().count()).max().unwrap_or(0);
        for case in &plan.cases {
            let mut workloads: Vec<String> = Vec::new();
            for alike in case.members.chunk_by(|a, b| a.workload == b.workload) {
                let workload = &alike[0].workload;
                let many = alike.len() > MOST_ALIKE;
                workloads.extend(if many {
                    vec![format!("{}×{workload}", alike.len())]
                } else {
                    vec![workload.clone(); alike.len()]
                });
            }
            let round = case
                .round
                .as_ref()
                .map_or_else(String::new, |round| format!("  round {} of {}", round.number, round.of));
            let time = match &case.skip {
                Some(reason) if reason.is_empty() => "skipped".to_owned(),
                Some(reason) => format!("skipped: {reason}"),
                None => case.estimate().to_string(),
            };
            let _ = writeln!(text, "  {}  {:width$}  {}  {time}{round}", case.id, case.name, workloads.join("+"));
        }
    }
    text
}

/// The needs of each host, and of the command line, in one line.
fn needs(plan: &Plan) -> Option<String> {
    let cases = || plan.cases.iter().filter(|case| case.skip.is_none());
    let mut by_need: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for member in cases().flat_map(|case| &case.members) {
        let daemons = member.ends();
        for end in member.places() {
            let Endpoint::Host(name) = end else { continue };
            let has_daemon = daemons.iter().any(|(other, has)| *other == end && *has);
            if let Some(need) = plan.hosts.get(name).and_then(|host| host.need(has_daemon)) {
                by_need.entry(need).or_default().insert(name);
            }
        }
    }
    let mut parts: Vec<String> =
        by_need.into_iter().map(|(need, names)| format!("{}: {need}", ranges::fold(names))).collect();
    let others: BTreeSet<&str> =
        cases().flat_map(|case| &case.members).filter_map(|member| between_daemons(plan, member)).flatten().collect();
    parts.extend((!others.is_empty()).then(|| {
        format!("{}: --allow-connect NETWORK as well, since they measure with each other", ranges::fold(others))
    }));
    let has_command = cases().any(|case| case.members.iter().any(|member| member.job.command().is_some()));
    parts.extend(has_command.then(|| "plumb run --allow-commands".to_owned()));
    parts.extend(cases().any(|case| !case.hooks.is_empty()).then(|| "plumb run --allow-hooks".to_owned()));
    (!parts.is_empty()).then(|| format!("needs {}", parts.join(" · ")))
}

/// The two hosts of a member that are daemons which run already, and of which each serves its client alone.
fn between_daemons<'a>(plan: &Plan, member: &'a Member) -> Option<[&'a str; 2]> {
    let (Endpoint::Host(from), Endpoint::Host(to)) = (&member.from, &member.to) else { return None };
    let runs = |name: &String| {
        plan.hosts.get(name).is_some_and(|host| {
            host.launch.is_none()
                && host.netns.is_none()
                && host.speaks.is_none()
                && host.address.as_deref() != Some("local")
        })
    };
    (from != to && runs(from) && runs(to)).then_some([from.as_str(), to.as_str()])
}

/// Says that the plan's iterations cannot tell two runs of it apart. One iteration is not meant to, nor is a survey of pairs, unless there
/// is a baseline.
fn undecided(plan: &Plan) -> Option<String> {
    let TooFew { has, needed, comparisons, alpha } =
        too_few(plan).filter(|few| plan.baseline.is_some() || few.has > 1 && plan.surveys.is_empty())?;
    let what = match (comparisons, plan.baseline.is_some()) {
        (1, true) => "the comparison with its baseline needs".to_owned(),
        (count, true) => format!("{count} comparisons with its baseline need"),
        (1, false) => "a comparison with another run needs".to_owned(),
        (count, false) => format!("{count} comparisons with another run need"),
    };
    let fewer = if comparisons == 1 { "" } else { "; fewer cases (--only) need fewer" };
    Some(format!("note: {what} {needed} iterations at α = {alpha}, and the plan has {has}{fewer}"))
}

/// Time for the noise of a plan.
const TIME: Duration = Duration::from_mins(1);

/// Fewest and most iterations of a case.
const ITERATIONS: [u32; 2] = [5, 30];

/// Measures the noise of a plan, and prints how many iterations show a change of this size.
pub fn power(plan: &mut Plan, change: f64, key: Option<Key>) -> Result<Exit, Error> {
    programs::permit(plan, Allowed::default(), "--power runs no programs: leave these tests out with --only\n")?;
    let has = measured(plan).map(|case| case.policy.max).min();
    prepare(plan);
    let interrupts = Interrupts::install(announce)?;
    let power = Arc::new(Power::of(plan, change));
    let options = Options { key, until: Some(Arc::clone(&power) as _), ..Options::default() };
    let mut progress = Progress::brief();
    let report = campaign::run(std::slice::from_ref(plan), &options, None, &interrupts, &mut progress)?;
    if let Some(exit) = interrupts.exit() {
        return Ok(exit);
    }
    if let Some((case, why)) = report.failures().next() {
        return Err(Error::Measurement(format!("{case}: {why}")));
    }
    let needs = power.needs(plan);
    super::print(&answer(plan, &power, change, has.unwrap_or_default(), &needs))?;
    Ok(Exit::Success)
}

/// The cases that are measured: a search has no iterations of one load to compare.
fn measured(plan: &Plan) -> impl Iterator<Item = &Case> {
    plan.cases.iter().filter(|case| case.skip.is_none() && case.find.is_none())
}

/// Gives each case as many iterations as fit into the time. Nothing is judged or written.
fn prepare(plan: &mut Plan) {
    plan.output = <_>::default();
    plan.gate = <_>::default();
    plan.cases.retain(|case| case.find.is_none());
    plan.surveys.clear();
    for case in &mut plan.cases {
        case.asserts.clear();
        case.stop_when = None;
    }
    set_iterations(plan, 1);
    let once = plan.estimate().most.as_millis().max(1);
    let fit = u32::try_from(TIME.as_millis() / once).unwrap_or(u32::MAX);
    set_iterations(plan, fit.clamp(ITERATIONS[0], ITERATIONS[1]));
}

fn set_iterations(plan: &mut Plan, n: u32) {
    for case in &mut plan.cases {
        (case.policy.min, case.policy.max, case.policy.margin) = (n, n, None);
    }
}

/// A line per comparison, and what to write into the plan.
fn answer(plan: &mut Plan, power: &Power, change: f64, has: u32, needs: &[Need]) -> String {
    let Some(rule) = power.rule().filter(|_| !needs.is_empty()) else {
        return "nothing of it can be compared\n".to_owned();
    };
    let noise = |need: &Need| need.noise.map_or_else(|| "its mean is 0".to_owned(), |noise| units::margin(noise.ratio));
    let takes = |need: &Need| match (need.noise, need.iterations) {
        (_, Some(n)) => n.to_string(),
        (Some(_), None) => format!("more than {MOST}"),
        (None, None) => String::new(),
    };
    let columns = [
        Column::of("case", false, needs, |need| need.case.clone()),
        Column::of("metric", false, needs, |need| need.metric.name.to_owned()),
        Column::of("noise", true, needs, noise),
        Column::of(&format!("iterations for {}", units::margin(change)), true, needs, takes),
    ];
    let mut table = Vec::new();
    // Writing to memory cannot fail.
    let _ = aligned(&columns, &Sheet::stdout(), &mut table);
    let mut text = String::from_utf8_lossy(&table).into_owned();
    let among = if needs.len() == 1 { String::new() } else { format!(" among {} comparisons", needs.len()) };
    let counts = units::margin(rule.min_ratio).replace(' ', "");
    let sized = needs.iter().filter(|need| need.noise.is_some());
    let most = sized.map(|need| need.iterations.unwrap_or(usize::MAX)).max().unwrap_or(usize::MAX);
    // Writing to a String cannot fail.
    let _ = match u32::try_from(most) {
        Ok(n) if most <= MOST => {
            set_iterations(plan, n);
            write!(
                text,
                "with `iterations: {n}` ({time}; the plan has {has}) {found:.0} % of all pairs of runs show it, at α = {alpha}{among}\n\
                 and with `max_regression: {counts}` in a baseline, or plumb compare --min-effect {counts}\n",
                time = plan.estimate(),
                found = FOUND * 100.0,
                alpha = rule.alpha,
            )
        }
        _ => text
            .write_str("longer iterations (`duration`) scatter less, and so does a machine that does nothing else\n"),
    };
    text
}

pub const HOSTS_EXAMPLES: &str = "\
Examples:
  plumb hosts lab.yaml
  plumb hosts lab.yaml --host 'node[01-16]={host}.lab' --key-file lab.key
  plumb hosts lab.yaml --only 'bulk*' --json | jq '.hosts[].record.facts.kernel_release'

Daemons with `launch` are started and ended again; the others must run. Nothing is measured. Exit code 0: every host that \
the cases use is there and meets the plan's preconditions; 3: some are not, and all of these are named.";

#[derive(Debug, clap::Args)]
pub struct HostsArgs {
    /// The plan; `-` is standard input.
    #[arg(value_name = "PLAN")]
    plan: String,
    /// Print all facts as JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    selection: Selection,
}

pub fn hosts(args: &HostsArgs) -> Result<Exit, Error> {
    let plan = plan::load(&args.plan, &args.selection.options())?;
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

fn look(plan: &Plan, args: &HostsArgs, interrupts: &Interrupts) -> Result<(), Error> {
    let key = args.selection.key.load()?;
    let steps = step::steps(plan, "", &plan.axis_paths);
    let progress = Progress::new(Mode::auto());
    let (mut hosts, missing) = Hosts::gather(
        plan,
        &steps,
        key.as_ref(),
        false,
        recipe::DaemonOptions { hooks: false },
        interrupts.flag(),
        &progress,
    )?;
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
    let (of, is) = (counted(names.len(), "host"), if absent.len() == 1 { "is" } else { "are" });
    let sentence = format!("{} of {of} {is} missing: {}", absent.len(), ranges::fold(absent.iter().copied()));
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
