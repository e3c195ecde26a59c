//! `workload: command`: an iteration runs a program once and reads its output as the result.

use netcore::{
    control::{
        child::{self, Program, Said, shown},
        stop::Urgency,
    },
    measure::cpu::{CpuReader, CpuSnapshot},
};

use super::Surroundings;
use crate::{
    plan::{case::Endpoint, model::Command, output::OutputParser},
    schedule::{
        bench::{MeasureError, Measured, Printed, ProgramFacts},
        rows::{kinds, window::cpu_shares},
        step::Step,
    },
};

/// Largest output that is read, bytes: a program that prints for ever must not use up the memory.
const OUTPUT_BOUND: usize = 64 << 20;

/// Runs it once.
pub fn measure(
    step: &Step,
    command: &Command,
    iteration: u32,
    surroundings: &Surroundings,
) -> Result<Measured, MeasureError> {
    let parser = OutputParser::of(command)
        .map_err(|wrong| MeasureError::failed(format!("{}: {}", wrong.message, wrong.help)))?;
    let argv: Vec<String> = command.run.iter().map(|word| word.0.clone()).collect();
    let environment = surroundings.environment(step, Some(iteration));
    let from = step.members.first().map(|m| &m.from);
    let program = Program {
        argv: &argv,
        environment: &environment,
        netns: match from {
            Some(Endpoint::Host(name)) => surroundings.netns(Some(name)),
            _ => None,
        },
        limit: step.grace,
        keep: OUTPUT_BOUND,
        whole: true,
        ends_all: true,
        heeds: Urgency::None,
    };
    let before = cpu_now();
    let ran = child::run(&program, &surroundings.stop)?;
    let cpu = cpu_now().zip(before).and_then(|(after, before)| after.since(&before, false));
    let text = String::from_utf8_lossy(&ran.stdout);
    let mut lines = parser
        .rows(&text)
        .map_err(|why| MeasureError::failed(format!("`{}`: {why}{}", shown(&argv), Said::of(&ran.stdout, &[]))))?;
    if step.policy.margin.is_some() {
        let results = lines.iter().filter(|row| kinds::is_measured(row)).count();
        let ways: std::collections::BTreeSet<_> = lines.iter().map(kinds::way).collect();
        if results > ways.len() {
            return Err(MeasureError::failed(format!(
                "`{}` printed {results} results, and a margin is about one: set iterations to a plain count",
                shown(&argv)
            )));
        }
    }
    let now = schemas::time::now();
    for row in &mut lines {
        row.time = row.time.take().or_else(|| Some(now.clone()));
        if kinds::is_measured(row) {
            row.elapsed_s = row.elapsed_s.or(Some(ran.elapsed.as_secs_f64()));
            if let Some(cpu) = cpu.as_ref().filter(|_| row.local_cpu_ratio.is_none()) {
                // Of the whole machine, from the program's start to its end, as for every other workload.
                cpu_shares(row, 0, cpu);
            }
        }
    }
    let complaints = Said::of(&[], &ran.stderr);
    let facts = ProgramFacts {
        run: argv,
        elapsed_s: ran.elapsed.as_secs_f64(),
        cpu_user_s: ran.user.as_secs_f64(),
        cpu_system_s: ran.system.as_secs_f64(),
        complaints: (complaints != Said::default()).then(|| complaints.to_string().trim_start_matches(": ").to_owned()),
    };
    Ok(Measured { printed: Some(Printed { lines, facts }), ..Measured::default() })
}

fn cpu_now() -> Option<CpuSnapshot> {
    CpuReader::open().ok()?.read().ok()
}
