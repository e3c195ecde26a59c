//! New levels of a watched plan: found in its history, told once, and handed to a command.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use analyze::{
    export::annotations::{Annotations, annotations},
    filters::trend::annotation,
    history::{
        analysed::{AnalysedSeries, Asked},
        sentences,
        series::{Accepted, Point, Reading, Series, read_known, write_known},
    },
};
use schemas::text::plain;
use serde_json::{Value, json};

use super::process::limited;
use crate::{error::Error, style};

/// Looks at which a change has to be found before it is told: docs/guide/watch.md has what that costs and buys.
const LOOKS: usize = 3;

/// Runs after which a change is not news any more: it is in the trend.
const RECENT: usize = 100;

/// Changes that are remembered as told.
const REMEMBERED: usize = 1000;

/// Longest time of a command that takes a new level.
const LIMIT: Duration = Duration::from_secs(30);

/// The series of a history that are looked at: those of one plan.
pub fn asked(plan: &str, min_effect: f64) -> Asked {
    Asked {
        plan: Some(plan.to_owned()),
        machine: None,
        case: None,
        metric: None,
        min_effect,
        repository: PathBuf::from("."),
        // A line that a crash cut off must not end the watch.
        repair: true,
        latest: None,
    }
}

/// Tells the changes of level that were not told before. `told`: the file that remembers them.
pub fn tell(
    history: &Path,
    told: &Path,
    reading: &Reading,
    all: &[AnalysedSeries],
    notify: Option<&str>,
) -> Result<(), Error> {
    let is_first = !told.exists();
    let mut known = read_known(told.to_owned())?;
    let new = untold(reading, all, &known);
    let today = schemas::time::now();
    let remember = |(analysed, i): &(&AnalysedSeries, usize)| {
        let finding = &analysed.trend.findings[*i];
        let (_, first) = analysed.runs(reading, finding);
        let day = today.get(..10).unwrap_or_default();
        Accepted::new(&analysed.series.key, &first.run_id, finding.ratio, "told", day)
    };
    known.extend(new.iter().map(remember));
    if !new.is_empty() || is_first {
        // Before it is told: what cannot be remembered would be told again and again.
        write_known(told, &known[known.len().saturating_sub(REMEMBERED)..])?;
    }
    // A history that was there before is in its trend.
    let is_news =
        |(analysed, i): &(&AnalysedSeries, usize)| !is_first && analysed.since(&analysed.trend.findings[*i]) <= RECENT;
    let news: Vec<(&AnalysedSeries, usize)> = new.into_iter().filter(is_news).collect();
    if news.is_empty() {
        return Ok(());
    }
    for (analysed, i) in &news {
        style::tell(plain(&format!(
            "{}: {}",
            sentences::word(analysed, *i),
            sentences::sentence(reading, analysed, *i)
        )));
        let (before, first) = analysed.runs(reading, &analysed.trend.findings[*i]);
        style::tell(plain(&format!("  between {} and {}", before.time, first.time)));
        if analysed.commits[*i].is_ok() {
            for line in sentences::commits(analysed, *i) {
                style::tell(format_args!("  {}", plain(&line)));
            }
        }
    }
    if Annotations::Auto.are_wanted() {
        let kind = |analysed: &AnalysedSeries, i: usize| match analysed.trend.findings[i].worse {
            Some(true) => "warning",
            _ => "notice",
        };
        let all = news.iter().map(|(it, i)| annotation(history, kind(it, *i), reading, it, *i));
        style::tell(annotations(all.collect::<Result<_, _>>()?).trim_end());
    }
    if let Some(command) = notify {
        let levels: Vec<Value> = news.iter().map(|(analysed, i)| level(reading, analysed, *i)).collect();
        if let Err(why) = hand(command, &json!({ "levels": levels }).to_string()) {
            style::tell(format_args!(
                "--notify {}: {why}; the new level stands above and in the trend",
                plain(command)
            ));
        }
    }
    Ok(())
}

/// The lasting changes of level that are not known.
fn untold<'a>(reading: &Reading, all: &'a [AnalysedSeries], known: &[Accepted]) -> Vec<(&'a AnalysedSeries, usize)> {
    let every = all.iter().flat_map(|analysed| (0..analysed.trend.findings.len()).map(move |i| (analysed, i)));
    let is_new = |(analysed, i): &(&AnalysedSeries, usize)| {
        let finding = &analysed.trend.findings[*i];
        let near = analysed.near(reading, finding);
        let is_known = || known.iter().any(|it| it.covers(&analysed.series.key, &near, finding.ratio));
        !finding.is_drift && analysed.accepted[*i].is_none() && !is_known() && analysed.is_lasting(finding, LOOKS)
    };
    every.filter(is_new).collect()
}

/// A new level, for a program.
fn level(reading: &Reading, analysed: &AnalysedSeries, i: usize) -> Value {
    let (key, finding) = (&analysed.series.key, &analysed.trend.findings[i]);
    let (before, first) = analysed.runs(reading, finding);
    let commits = analysed.commits[i].as_ref().map(|(list, more)| {
        let list: Vec<Value> = list.iter().map(|it| json!({ "id": it.id, "subject": it.subject })).collect();
        json!({ "commits": list, "more": more })
    });
    json!({
        "kind": sentences::word(analysed, i),
        "sentence": sentences::sentence(reading, analysed, i),
        "plan": key.plan,
        "machine": key.machine,
        "hosts": reading.host(&key.machine),
        "case": analysed.series.case,
        "case_id": key.case_id,
        "member": key.member,
        "direction": key.direction,
        "metric": key.metric,
        "was": finding.was,
        "is": finding.is,
        "change_ratio": finding.ratio,
        "p": finding.p,
        "worse": finding.worse,
        "run_before": before.run_id,
        "time_before": before.time,
        "commit_before": before.commit,
        "run_id": first.run_id,
        "time": first.time,
        "commit": first.commit,
        "between": commits.unwrap_or_else(|why| json!({ "unknown": why })),
    })
}

/// Runs the command with a text on its standard input.
fn hand(command: &str, text: &str) -> Result<(), String> {
    let mut shell = Command::new("sh");
    // Its standard error goes to the log of the watch.
    shell.args(["-c", command]).stdout(Stdio::null());
    let status = limited(shell, text, LIMIT)?.status;
    if status.success() { Ok(()) } else { Err(format!("it failed ({status})")) }
}

/// Sentences about a run that has series of its own: another machine than before, or other cases. `all`: the series of its
/// plan, with the runs that others disturbed.
pub fn differences(reading: &Reading, all: &[Series], run_id: &str) -> Vec<String> {
    let run = |point: &Point| reading.runs[point.run].run_id.as_str();
    let has = |it: &Series| it.points.last().is_some_and(|last| run(last) == run_id);
    let Some(own) = all.iter().find(|it| has(it)).map(|it| &it.key.machine) else { return Vec::new() };
    let (of_machine, others): (Vec<&Series>, Vec<_>) = all.iter().partition(|it| it.key.machine == *own);
    let is_new = |it: &Series| it.points.len() == 1;
    if of_machine.iter().all(|it| is_new(it)) {
        let machines: BTreeSet<&str> = others.iter().map(|it| reading.host(&it.key.machine)).collect();
        let machines: Vec<&str> = machines.into_iter().collect();
        let own = reading.host(own);
        let said = format!("the history is of another machine ({}): {own} gets series of its own", machines.join(", "));
        return if machines.is_empty() { Vec::new() } else { vec![said] };
    }
    let points = of_machine.iter().flat_map(|it| &it.points);
    let earlier = points.map(|point| &reading.runs[point.run]).filter(|other| other.run_id != run_id);
    let before = earlier.max_by(|a, b| a.time.cmp(&b.time)).map(|run| run.run_id.as_str());
    let ids = |wanted: &dyn Fn(&Series) -> bool| -> BTreeSet<&str> {
        of_machine.iter().filter(|it| wanted(it)).map(|it| it.key.case_id.as_str()).collect()
    };
    // A case that is not new may have a metric that is.
    let new = ids(&|it| has(it) && is_new(it)).difference(&ids(&|it| has(it) && !is_new(it))).count();
    let gone = ids(&|it| it.points.last().map(run) == before).difference(&ids(&has)).count();
    if new + gone == 0 {
        return Vec::new();
    }
    vec![format!(
        "the plan changed its cases: {new} begin series of their own, and {gone} that the run before had have no value any more"
    )]
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use analyze::history::{analysed, store};

    use super::*;

    /// A history with a row for each run, machine and case.
    fn read(rows: &[(&str, &str, &str)]) -> (Reading, Vec<Series>) {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "run_id,time,machine,plan,case_id,metric,centre\n".to_owned();
        for (run, machine, case) in rows {
            writeln!(text, "{run},2026-01-01T00:0{}:00Z,{machine},p,{case},throughput,1", &run[1..]).unwrap();
        }
        std::fs::write(folder.path().join("m.csv"), text).unwrap();
        let reading = store::read(folder.path(), false).unwrap();
        let all = reading.series();
        (reading, all)
    }

    /// A link whose rate varies by about 1 %, a step of a tenth at run 100, and a look after each run.
    #[test]
    fn a_step_is_told_within_six_runs_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let (file, told) = (folder.path().join("m.csv"), folder.path().join(".told.csv"));
        let mut text = "run_id,time,machine,plan,case_id,metric,centre\n".to_owned();
        let (mut state, mut known) = (7_u64, Vec::new());
        for run in 0..130 {
            // Sums of three are near enough to a normal distribution, whose standard deviation is 1 then.
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f64 / f64::from(1 << 23) - 1.0
            };
            let noise: f64 = (0..3).map(|_| next()).sum();
            let centre = if run < 100 { 1e9 } else { 0.9e9 } * (1.0 + noise / 100.0);
            let (hour, minute) = (run / 60, run % 60);
            writeln!(text, "r{run},2026-01-01T{hour:02}:{minute:02}:00Z,m,p,c,throughput,{centre}").unwrap();
            std::fs::write(&file, &text).unwrap();
            let (reading, all) = analysed::read(folder.path(), &asked("p", 0.05)).unwrap();
            let before = read_known(told.clone()).unwrap().len();
            tell(folder.path(), &told, &reading, &all, None).unwrap();
            if read_known(told.clone()).unwrap().len() > before {
                known.push(run);
            }
        }
        assert!(matches!(known[..], [run] if (102..106).contains(&run)), "{known:?}");
    }

    #[test]
    fn another_machine_and_other_cases_are_told_once() {
        let said = |rows: &[_], run: &str| {
            let (reading, all) = read(rows);
            differences(&reading, &all, run).concat()
        };
        let rows = [
            ("r1", "m1", "a"),
            ("r1", "m1", "b"),
            ("r2", "m1", "a"),
            ("r2", "m1", "c"),
            ("r3", "m1", "a"),
            ("r3", "m1", "c"),
        ];
        assert_eq!(said(&rows[..2], "r1"), "", "the first run of a history");
        assert!(said(&rows[..4], "r2").contains("1 begin series of their own, and 1 that the run before had"));
        assert_eq!(said(&rows, "r3"), "");
        let rows = [("r1", "m1", "a"), ("r2", "m2", "a"), ("r3", "m2", "a")];
        assert!(said(&rows[..2], "r2").contains("of another machine (m1): m2 gets series of its own"));
        assert_eq!(said(&rows, "r3"), "");
    }
}
