//! Tables and histories whose numbers are finite and extreme, through every filter and every picture: each ends, within a
//! bound of memory, with an answer or an error.

use crate::tables::{self, Noise};
use clap::{CommandFactory, Parser};
use schemas::columns::{COLUMNS, Row};
use std::{fs, path::Path, process::Command};

#[derive(clap::Parser)]
struct Plumb {
    #[command(subcommand)]
    filter: analyze::Filter,
}

/// Set in the process that does the work, to its seed: one that hangs or takes all memory must not take the tests along.
const CHILD: &str = "PLUMB_EXTREMES";

/// Address space of that process, KiB. Threads reserve a good part of it.
const MEMORY_KIB: u32 = 6 << 20;

/// Seconds until it counts as hung: far more than it takes, also on a busy machine.
const PATIENCE_S: u32 = 300;

/// A minute of work each; `FULL=1` runs more.
const SEEDS: u64 = 1;

#[test]
fn extreme_numbers_end_in_an_answer_or_an_error() {
    if let Ok(seed) = std::env::var(CHILD) {
        return run_all(seed.parse().unwrap());
    }
    let seeds = if std::env::var_os("FULL").is_some() { 20 } else { SEEDS };
    for seed in 1..=seeds {
        let limited = format!("ulimit -v {MEMORY_KIB}; exec timeout -s KILL {PATIENCE_S} \"$@\"");
        let own = std::env::current_exe().unwrap();
        let ran = Command::new("sh")
            .args(["-c", &limited, "sh"])
            .arg(own)
            .args(["--exact", "extremes::extreme_numbers_end_in_an_answer_or_an_error", "--nocapture"])
            .env(CHILD, seed.to_string())
            .env("RAYON_NUM_THREADS", "2")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let last = said.lines().rfind(|line| line.starts_with("plumb ")).unwrap_or_default();
        let why = String::from_utf8_lossy(&ran.stderr);
        let panic = why.find("panicked").map_or("", |at| &why[at..]);
        assert!(ran.status.success(), "seed {seed}, {}: {last}\n{panic}", ran.status);
    }
}

/// Numbers at the edges of what a cell can hold, and plain ones between them.
fn extreme(noise: &mut Noise) -> f64 {
    const EDGES: [f64; 14] = [
        1e308,
        -1e308,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        -5e-324,
        1e300,
        1e-300,
        1e154,
        9_007_199_254_740_993.0,
        0.0,
        -0.0,
        -1.0,
    ];
    if noise.share() < 0.5 { chosen(&EDGES, noise) } else { noise.around(1e3, 0.5) }
}

fn chosen<T: Copy>(all: &[T], noise: &mut Noise) -> T {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short list")]
    let place = (noise.share() * all.len() as f64) as usize;
    all[place.min(all.len() - 1)]
}

/// A results table.
#[expect(clippy::cast_possible_truncation, reason = "remainders of small numbers")]
fn results(noise: &mut Noise) -> String {
    let workloads = ["tcp_stream", "tcp_rr", "mpi_nas_is"];
    let (rows, hosts) = (60_u64, ["n1", "n2", "n3", "n4"]);
    // Of some columns all values are extreme, of some only a few, and some are plain.
    let shares: Vec<f64> = COLUMNS.iter().map(|_| chosen(&[0.0, 0.02, 0.3, 1.0], noise)).collect();
    let made = (0..rows).map(|i| {
        let record = if i % 5 == 4 { "interval" } else { "iteration" };
        let (from, to) = (hosts[i as usize % 4], hosts[(i as usize / 4 + 1 + i as usize) % 4]);
        let mut row = Row {
            case_id: Some(format!("c{}", i % 3)),
            workload: Some(workloads[i as usize % 3].into()),
            from: Some(from.into()),
            to: Some(to.into()),
            latency_histogram: tables::round_trips(&["rtt"], 1)[0].latency_histogram.clone(),
            ..tables::row(["bulk", "rr", "is"][i as usize % 3], record, i / 15 + 1)
        };
        for (column, share) in COLUMNS.iter().zip(&shares).filter(|(column, _)| column.ty.is_number()) {
            if column.name == "iteration" {
                continue;
            }
            let value = if noise.share() < *share { extreme(noise) } else { noise.around(1e3, 0.5) };
            row.set_number(column.name, Some(value));
        }
        row
    });
    tables::csv(&made.collect::<Vec<_>>())
}

#[expect(clippy::format_push_string, reason = "a table for a test")]
fn history(noise: &mut Noise) -> String {
    let mut text = String::from(
        "run_id,time,commit,version,machine,plan,labels,case_id,case,member,direction,metric,n,centre,low,high,sample\n",
    );
    for run in 0..40 {
        for metric in ["throughput", "latency.p99", "loss", "cpu.taken"] {
            let [centre, low, high] = [0; 3].map(|_| schemas::columns::number(extreme(noise)));
            let time = format!("2026-01-01T00:{run:02}:00Z");
            text += &format!("r{run},{time},,1,m,p,,c,bulk,,forward,{metric},3,{centre},{low},{high},{low} {high}\n");
        }
    }
    text
}

/// The words that an option takes.
fn values(filter: &str, option: &str) -> Vec<String> {
    let command = Plumb::command();
    let filter = command.find_subcommand(filter).unwrap();
    let option = filter.get_arguments().find(|argument| argument.get_id() == option).unwrap();
    option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

fn run_all(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    let mut noise = Noise::new(seed);
    fs::write("a.csv", results(&mut noise)).unwrap();
    fs::write("b.csv", results(&mut noise)).unwrap();
    fs::write("before.txt", "Tcp: A B\nTcp: 1 18446744073709551615\n").unwrap();
    fs::write("after.txt", "Tcp: A B\nTcp: 2 0\n").unwrap();
    fs::write("n.txt", "1 1e308 1e-308\n2 5e-324 1.7e308\n").unwrap();
    fs::create_dir("h").unwrap();
    fs::write("h/m.csv", history(&mut noise)).unwrap();
    let mut commands: Vec<String> = [
        "aggregate -g case -m throughput,latency.p50,loss -a count,mean,median,min,max,best,ci,stddev a.csv",
        "aggregate -g case -m throughput -a ci --ci bootstrap a.csv",
        "aggregate -g from,to -m transactions a.csv",
        "beforeafter before.txt after.txt",
        "compare a.csv b.csv",
        "compare -m throughput,latency.p99,loss,cpu.taken a.csv b.csv -f text",
        "compare --by from -m throughput a.csv",
        "compare --test welch a.csv b.csv",
        "compare --test bootstrap a.csv b.csv",
        "compare --self-test 10% a.csv",
        "fit a.csv",
        "fit --wire 10Gbit/s --mtu 9000 a.csv",
        "gate --assert 'throughput>1Gbit/s' a.csv",
        "history compact h --older-than 30d --dry-run",
        "import n.txt --from netpipe",
        "percentiles -g case a.csv",
        "report a.csv -o r.html",
        "report a.csv",
        "report a.csv --against b.csv -o c.html",
        "report --history h -o site",
        "steady a.csv",
        "steady --mark a.csv",
        "survey a.csv -f text",
        "survey a.csv -m latency.p50",
        "table a.csv",
        "table --md a.csv",
        "table --record interval --sort=-throughput --columns case,start_s,throughput a.csv",
        "plot trend h -o trend.svg",
        "trend h -f text",
        "trend h",
        "trend h --metric cpu.taken -f md",
        "window -g none a.csv",
        "window --step 0.5s --cells a.csv",
        "window --stairs --trim 1s -g case a.csv",
    ]
    .map(str::to_owned)
    .to_vec();
    commands.extend(values("export", "to").iter().map(|to| format!("export -f {to} a.csv")));
    for kind in values("plot", "kind") {
        for more in ["", " --log xy", " --log none", " --term"] {
            commands.push(format!("plot {kind} a.csv -o {kind}.svg{more}"));
            commands.push(format!("plot {kind} a.csv -o {kind}.png -y latency.p99{more}"));
            commands.push(format!("plot {kind} a.csv -o {kind}.svg -x throughput -y loss{more}"));
            commands.push(format!("plot {kind} a.csv -o {kind}.svg --test bulk --zoom --interval range{more}"));
        }
    }
    let names: Vec<String> = Plumb::command().get_subcommands().map(|filter| filter.get_name().to_owned()).collect();
    for name in names {
        assert!(commands.iter().any(|command| command.split(' ').next() == Some(&name)), "{name} is not tried");
    }
    for command in &commands {
        println!("plumb {command}");
        let words = command.split(' ').map(|word| word.trim_matches('\''));
        // Not every option is one of every kind of picture; the others' commands are right.
        let parsed = Plumb::try_parse_from(["plumb"].into_iter().chain(words));
        match parsed {
            Ok(plumb) => {
                let _ = plumb.filter.run(&mut Vec::new());
            }
            Err(error) => assert!(command.starts_with("plot "), "{command}: {error}"),
        }
    }
    assert!(Path::new("r.html").exists());
}
