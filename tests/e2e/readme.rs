//! Runs every command of the README, of the tutorial, and of the guide's pages that have no test of their own: in order, in a
//! directory for each page.
//!
//! `.ci/run` runs the `cargo` lines: here they only must be in it. This test adds options that shorten measurements;
//! everything else runs as written.

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const README: &str = include_str!("../../README.md");
/// Command lines of CI.
const CI: &str = concat!(include_str!("../../.ci/run"), include_str!("../../.ci/tests"));
const PORT: u16 = 12864;

/// The lines of the `sh` blocks.
fn commands(page: &'static str) -> Vec<&'static str> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside && !command.is_empty() => commands.push(command),
            _ => {}
        }
    }
    commands
}

/// A daemon that the README started; killed at the end of the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shell(command: &str, place: &Path) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_plumb"));
    let programs = binary.parent().expect("it lies in a directory").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(place).env("PATH", format!("{programs}:{path}")).stdin(Stdio::null());
    shell
}

/// Writes the page's plans: a `yaml` block belongs to the file that the text before it named last.
fn write_plans(page: &str, place: &Path) {
    let mut name = None;
    let mut plan: Option<String> = None;
    for line in page.lines() {
        match (&mut plan, line) {
            (None, "```yaml") => plan = Some(String::new()),
            (None, line) => {
                let named = line
                    .split('`')
                    .skip(1)
                    .step_by(2)
                    .filter(|word| Path::new(word).extension().is_some_and(|end| end == "yaml") && !word.contains(' '))
                    .last();
                name = named.or(name);
            }
            (Some(text), "```") => {
                if let Some(name) = name {
                    std::fs::write(place.join(name), text).expect("written");
                }
                plan = None;
            }
            (Some(text), line) => text.extend([line, "\n"]),
        }
    }
}

/// Runs the commands of a page; returns the directory where they ran.
fn follow(page: &'static str, fewest: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a directory");
    symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/../plans"), place.path().join("plans")).expect("a link");
    write_plans(page, place.path());
    let mut daemons = Vec::new();
    let mut key: Option<String> = None;
    let commands = commands(page);
    assert!(commands.len() >= fewest, "the page shows commands in sh blocks: {commands:?}");
    for command in commands {
        if command.starts_with("cargo ") {
            // CI runs it as it stands, or with further options.
            let is_it = |line: &str| line.strip_prefix("step ").unwrap_or(line).starts_with(command);
            assert!(CI.lines().any(is_it), "CI does not run `{command}`");
            continue;
        }
        if command.starts_with("plumb serve") {
            if std::net::TcpListener::bind(("127.0.0.1", PORT)).is_err() {
                crate::needs::skip(&format!("from `{command}` on: port {PORT} is taken on this machine"));
                break;
            }
            let mut serve = shell(&format!("exec {command}"), place.path());
            let mut child = serve.stdout(Stdio::piped()).spawn().expect("sh starts");
            // Its second line has the command for the other machine.
            let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
            let said: Vec<String> = lines.take(3).collect();
            key = said
                .iter()
                .flat_map(|line| line.split_whitespace())
                .find(|word| word.starts_with("PLUMB_KEY="))
                .map(str::to_owned);
            daemons.push(Daemon(child));
            let begun = Instant::now();
            while std::net::TcpStream::connect(("127.0.0.1", PORT)).is_err() {
                assert!(begun.elapsed() < Duration::from_secs(20), "`{command}` does not listen");
                std::thread::sleep(Duration::from_millis(20));
            }
            continue;
        }
        // The other machine is this one, and its key the one that it printed.
        let mut command = command.replace("b.lab", "127.0.0.1");
        if let (Some(shown), Some(key)) =
            (command.split_whitespace().next().filter(|word| word.starts_with("PLUMB_KEY=")), &key)
        {
            command = command.replace(shown, key);
        }
        let short = if command.contains("plumb run ") {
            format!("{command} --set duration=20ms --set warmup=0s --set iterations=5 --set interval=0s")
        } else if command.contains("plumb measure ") {
            format!("{command} -t 2")
        } else {
            command
        };
        let mut output = shell(&short, place.path()).output().expect("sh starts");
        if !output.status.success() {
            // A machine that stands still for 20 ms leaves a filter without a number; a wrong command fails again.
            output = shell(&short, place.path()).output().expect("sh starts");
        }
        assert!(
            output.status.success(),
            "`{short}` ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    place
}

/// One test: both pages use one port.
#[test]
fn every_command_of_the_readme_and_of_the_first_page_works() {
    let place = follow(README, 8);
    assert!(place.path().join("sizes.png").exists(), "the README's picture was drawn");
    follow(include_str!("../../docs/start/measure.md"), 6);
}

#[test]
fn every_command_of_the_second_page_works() {
    follow(include_str!("../../docs/start/keep.md"), 9);
}

#[test]
fn every_command_about_comparisons_works() {
    follow(include_str!("../../docs/guide/compare.md"), 6);
}

#[test]
fn every_command_about_encryption_works() {
    let place = follow(include_str!("../../docs/guide/encryption.md"), 3);
    assert!(place.path().join("sealed.png").exists(), "the page's picture was drawn");
}

#[test]
fn every_command_about_histories_works() {
    follow(include_str!("../../docs/guide/history.md"), 6);
}

#[test]
fn the_plan_that_the_readme_shows_is_valid() {
    let (_, rest) = README.split_once("```yaml\n").expect("the README shows a plan");
    let (plan, _) = rest.split_once("```").expect("the block ends");
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    std::fs::write(file.path(), plan).expect("written");
    let output =
        Command::new(env!("CARGO_BIN_EXE_plumb")).arg("check").arg(file.path()).output().expect("plumb starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Head, and case and workload of each row, of the table that begins with `case`.
fn shape(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| !line.trim_start().starts_with("case ")).take_while(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with("```")
    });
    let cells = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    // Results differ from run to run, and so does how many of them there are.
    lines.enumerate().map(|(at, line)| cells(line).into_iter().take(if at == 0 { 99 } else { 2 }).collect()).collect()
}

#[test]
fn the_table_that_the_readme_shows_is_what_the_program_prints() {
    let place = tempfile::tempdir().expect("a directory");
    symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/../plans"), place.path().join("plans")).expect("a link");
    let command = "plumb run plans/quick.yaml -o quick.csv --set duration=50ms --set warmup=0s --set iterations=2";
    let output = shell(command, place.path()).output().expect("sh starts");
    let printed = shape(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(printed.len(), 4, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(shape(README), printed, "run docs/gallery/draw");
}
