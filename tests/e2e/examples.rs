//! `docs/internals/examples.md`: every example of the source documents has a row, and the commands of the rows work. The survey
//! commands of `docs/guide/clusters.md` and `docs/reference/filters.md` find what is slow in a table of eight hosts, and its
//! loop over OSU's outputs finds it in those.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../docs/internals/examples.md");

/// Numbers of examples in the four documents.
const EXAMPLES: [u32; 4] = [4, 11, 15, 7];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A row's number and its cell of commands.
fn rows() -> Vec<(&'static str, String)> {
    let row = |line: &'static str| {
        let line = line.strip_prefix("| ")?;
        let (number, rest) = line.split_once(" | ")?;
        number.starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
        let (_, commands) = rest.split_once(" | ")?;
        Some((number, commands.trim_end_matches(" |").replace("\\|", "|")))
    };
    PAGE.lines().filter_map(row).collect()
}

/// The commands in a cell: texts between backquotes that begin with `plumb`.
fn commands(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|text| text.starts_with("plumb "))
}

/// Runs a line in a shell that finds the program.
fn shell(line: &str, folder: &Path) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_plumb"));
    let path = std::env::var("PATH").unwrap_or_default();
    let folder_of = program.parent().expect("a folder").display();
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).env("PATH", format!("{folder_of}:{path}"));
    command.output().expect("sh starts")
}

fn says(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

#[test]
fn every_example_has_a_row() {
    let numbers: Vec<&str> = rows().iter().map(|(number, _)| *number).collect();
    let of = |(document, count): (u32, u32)| (1..=count).map(move |example| format!("{document}.{example}"));
    let wanted: Vec<String> = (0..).zip(EXAMPLES).flat_map(of).collect();
    assert_eq!(numbers, wanted);
    for (number, cell) in rows() {
        assert!(commands(&cell).count() > 0, "{number} has no command");
    }
    let plans = PAGE.split("plans/").skip(1).filter_map(|rest| rest.split(".yaml").next());
    for plan in plans.collect::<BTreeSet<_>>() {
        assert!(root().join("plans").join(format!("{plan}.yaml")).is_file(), "plans/{plan}.yaml");
    }
}

/// The outputs of other programs that the commands read.
fn recorded(folder: &Path) {
    let fixtures = root().join("analyze/tests/fixtures/import");
    for (from, to) in [
        ("ping-iputils.txt", "ping.txt"),
        ("lmbench.txt", "lmbench.txt"),
        ("netpipe.txt", "netpipe.txt"),
        ("netpipe.txt", "npmpi-lam.txt"),
        ("netpipe.txt", "npmpi-mpich.txt"),
    ] {
        std::fs::copy(fixtures.join(from), folder.join(to)).expect("a recorded output");
    }
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("far.txt", "TCP latency using far: 145.8439 microseconds\n");
    write("near.txt", "TCP latency using near: 90.9072 microseconds\n");
    let kernels = ["bt", "cg", "ep", "ft", "is", "lu", "mg", "sp"].map(|kernel| {
        let path = fixtures.join(format!("recorded/npb/{kernel}.txt"));
        std::fs::read_to_string(path).expect("a recorded output")
    });
    write("nas-lam.txt", &kernels.concat());
    // MPICH's FT and IS, as the article has them.
    write("nas-mpich.txt", &kernels.concat().replace("724.04", "608.00").replace("36.95", "27.00"));
}

/// Runs a plan as shipped and shortened, once; later runs with other keys are checked, and get its results.
fn run(command: &str, folder: &Path, done: &mut BTreeMap<String, String>) {
    let plan = command.split(' ').nth(2).expect("a plan").to_owned();
    let (rest, file) = command.rsplit_once(" -o ").expect("a results file");
    let checked = shell(&rest.replacen("plumb run", "plumb check", 1), folder);
    assert!(checked.status.success(), "{command}\n{}", says(&checked));
    if plan.ends_with("mpi.yaml") {
        // It takes two libraries of MPI and has a test of its own, with the commands that read its results.
        return;
    }
    let stem = |file: &str| file.trim_end_matches(".csv").to_owned();
    let first = done.entry(plan.clone()).or_insert_with(|| {
        let mut short = "--set warmup=0s --set duration=10ms --set iterations=2 --set interval=5ms".to_owned();
        // The kernel counts CPU time in hundredths of a second.
        if plan.ends_with("hpcbench-tcp.yaml") {
            short += " --set tests.system-log.duration=400ms --set tests.system-log.interval=100ms";
        }
        let ran = shell(&format!("plumb run {plan} --progress never {short} -o {file}"), folder);
        assert!(ran.status.success(), "{command}\n{}", says(&ran));
        file.to_owned()
    });
    for ending in ["csv", "run.json", "counters.csv"].iter().filter(|_| first != file) {
        let from = folder.join(format!("{}.{ending}", stem(first)));
        if from.is_file() {
            std::fs::copy(from, folder.join(format!("{}.{ending}", stem(file)))).expect("a copy");
        }
    }
}

/// The figures that the commands of a row print of the recorded outputs.
const FIGURES: [(&str, &[&str]); 6] = [
    ("1.2", &["93.4 Mbit/s"]),
    ("1.3", &["94148244.47", "49230769"]),
    ("1.4", &["0.60431"]),
    ("3.2", &["lam", "mpich", "17.5 µs"]),
    ("3.4", &["0.3685"]),
    ("3.5", &["724"]),
];

/// Whether a table has a number below its head.
fn has_figures(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.lines().skip(1).flat_map(|line| line.split([' ', ',', '|']));
    words.any(|word| word.parse::<f64>().is_ok())
}

#[test]
fn the_commands_of_the_rows_work() {
    let folder = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink(root().join("plans").canonicalize().expect("plans"), folder.path().join("plans"))
        .expect("a link");
    recorded(folder.path());
    let mut done = BTreeMap::new();
    let (mut count, mut missing) = (0, BTreeMap::new());
    for (number, cell) in rows() {
        for command in commands(&cell) {
            count += 1;
            if command.starts_with("plumb run ") {
                run(command, folder.path(), &mut done);
                continue;
            }
            // Named without its arguments, or serving until it is stopped.
            let alone = command.split(' ').count() == 2;
            let line = if alone { format!("{command} --help") } else { command.to_owned() };
            let output = shell(&line, folder.path());
            let text = says(&output);
            assert!(output.status.success(), "{number}: {line}\n{text}");
            // A picture or a file has its own tests; a table says nothing without figures.
            if !alone && !line.contains(" -o ") && !["export", "plot", "report"].iter().any(|word| line.contains(word))
            {
                assert!(has_figures(&output), "{number}: {line}\n{text}");
            }
            if let Some((_, figures)) = FIGURES.iter().find(|(of, _)| *of == number) {
                missing.entry(number).or_insert_with(|| figures.to_vec()).retain(|figure| !text.contains(figure));
            }
        }
    }
    missing.retain(|_, figures| !figures.is_empty());
    assert!(missing.is_empty(), "no command of the row prints these: {missing:?}");
    assert!(count > 50, "the page was read: {count}");
    // The article's table: IS and FT differ between the libraries, and the other kernels do not.
    let compared = shell("plumb compare --by axis_library -m mops -f text nas-mpich.csv nas-lam.csv", folder.path());
    let text = says(&compared);
    assert!(text.contains("nas_is") && text.contains("+37 %"), "{text}");
}

/// A survey of throughputs and one of latencies between eight hosts, of which the seventh is slow to receive.
fn fabric() -> String {
    let mut text =
        String::from("test,case,record,phase,status,from,to,direction,workload,throughput_bits_per_s,latency_p50_us\n");
    for (from, to) in (1..=8).flat_map(|from| (1..=8).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        let noise = f64::from((from * 13 + to * 29 + from * to * 7) % 11) / 1100.0;
        let slow = if to == 7 { 0.9 } else { 1.0 };
        let (rate, latency) = (9.4e9 * slow * (1.0 + noise), 20.0 / slow * (1.0 + noise));
        let ends = format!("ok,node{from},node{to},forward");
        writeln!(text, "links,links,iteration,measure,{ends},tcp_stream,{rate},").expect("a text");
        writeln!(text, "rtt,rtt,iteration,measure,{ends},tcp_rr,,{latency}").expect("a text");
    }
    text
}

#[test]
fn the_survey_of_the_pages_finds_what_is_slow() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("fabric.csv"), fabric()).expect("a table");
    let mut lines = Vec::new();
    for page in ["guide/clusters.md", "reference/filters.md"] {
        let text = std::fs::read_to_string(root().join("docs").join(page)).expect("a page");
        let wanted =
            |line: &&str| line.starts_with("plumb survey fabric.csv") || line.starts_with("plumb plot heatmap --test");
        lines.extend(text.lines().filter(wanted).map(str::to_owned));
    }
    assert!(lines.len() >= 9, "{lines:?}");
    for line in lines {
        let output = shell(&line, folder.path());
        let asked = i32::from(line.contains("--fail-on"));
        // The table of round trips has no transaction rates: their latency must be asked for.
        let text = says(&output);
        assert_eq!(output.status.code(), Some(asked), "{line}\n{text}");
        if line.contains("-f text") {
            assert!(text.contains("node7 is slow as "), "{line}\n{text}");
        }
        if let Some(file) = line.split(" -o ").nth(1).and_then(|rest| rest.split(' ').next()) {
            assert!(folder.path().join(file).is_file(), "{line}");
        }
    }
}

/// Outputs of `osu_bw` between eight hosts, of which the fifth is slow to send.
#[test]
fn the_guide_finds_a_slow_host_in_outputs_of_osu() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(folder.path().join("osu")).expect("a directory");
    for (from, to) in (1..=8).flat_map(|from| (1..=8).map(move |to| (from, to))).filter(|(from, to)| from != to) {
        let noise = f64::from((from * 13 + to * 29 + from * to * 7) % 11) / 1100.0;
        let slow = if from == 5 { 0.9 } else { 1.0 };
        let mut text = String::from("# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n");
        for (size, rate) in [(65_536, 9000.0), (1_048_576, 11_500.0)] {
            writeln!(text, "{size:<10}{:18.2}", rate * slow * (1.0 + noise)).expect("a text");
        }
        std::fs::write(folder.path().join(format!("osu/node{from}-node{to}.txt")), text).expect("an output");
    }
    let page = std::fs::read_to_string(root().join("docs/guide/clusters.md")).expect("a page");
    let blocks = page.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let script =
        blocks.into_iter().find(|block| block.contains("plumb import \"$file\"")).expect("the loop of the page");
    let output = shell(script, folder.path());
    let text = says(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("node5 is slow as a sender").count(), 2, "{text}");
    assert_eq!(text.matches(" is slow as ").count(), 2, "{text}");
}
