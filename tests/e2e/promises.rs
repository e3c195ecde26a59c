//! The promises of docs/reference/stability.md: everything that an earlier version offered is there and means the same, and its files are
//! read and judged alike.
//!
//! `tests/promises/VERSION/promises.txt` has a line for each promise of that version. `PLUMB_WRITE_PROMISES=1` writes the file of the present
//! version, until it is released. A line that is missing or reads differently today fails, unless a section of CHANGELOG.md above that
//! version's names it between backticks.

use std::{collections::BTreeSet, fs, path::PathBuf};

use runner::plan::{Format, LoadOptions, load_str};
use serde_json::Value;

use crate::program::{Ran, command, plumb};

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&fs::read(root().join(path)).expect("readable")).expect("JSON")
}

/// Columns of results, each with its type and definition.
fn columns(lines: &mut Vec<String>) {
    for field in json("schemas/results.schema.json")["fields"].as_array().expect("fields") {
        let text = |key: &str| field[key].as_str().unwrap_or_default();
        lines.push(format!("column `{}` {}: {}", text("name"), text("type"), text("description")));
    }
}

/// The words, types and default that a schema's node accepts, each by itself: more of them break nothing. Bounds and patterns may widen, and are left out.
fn accepts(node: &Value) -> Vec<String> {
    let of = |key: &str| match node.get(key) {
        None => Vec::new(),
        Some(Value::Array(all)) => all.iter().map(Value::to_string).collect(),
        Some(one) => vec![one.to_string()],
    };
    let words = ["enum", "const"].iter().flat_map(|key| of(key)).map(|word| format!("accepts {word}"));
    let types = of("type").into_iter().filter(|kind| kind != "\"null\"").map(|kind| format!("may be a {kind}"));
    let default = of("default").into_iter().filter(|value| value != "null");
    words.chain(types).chain(default.map(|value| format!("is by default {value}"))).collect()
}

/// Keys of plans by their paths. A definition that holds itself, as a member of a group does, is followed once.
fn keys(schema: &Value, node: &Value, path: &str, inside: &mut Vec<String>, found: &mut BTreeSet<String>) {
    if let Some(name) = node.get("$ref").and_then(Value::as_str)
        && !inside.iter().any(|outer| outer == name)
    {
        inside.push(name.to_owned());
        keys(schema, schema.pointer(&name[1..]).expect("a definition"), path, inside, found);
        inside.pop();
    }
    // Both have the keys of a test.
    if ["defaults", "profiles"].contains(&path) {
        return;
    }
    found.extend(accepts(node).into_iter().map(|what| format!("key `{path}` {what}")));
    for list in ["anyOf", "oneOf", "allOf"] {
        for one in node.get(list).and_then(Value::as_array).into_iter().flatten() {
            keys(schema, one, path, inside, found);
        }
    }
    for (kind, place) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(one) = node.get(kind).filter(|one| one.is_object()) {
            keys(schema, one, &format!("{path}{place}"), inside, found);
        }
    }
    for kind in ["properties", "patternProperties"] {
        for (name, one) in node.get(kind).and_then(Value::as_object).into_iter().flatten() {
            let dot = if path.is_empty() { "" } else { "." };
            keys(schema, one, &format!("{path}{dot}{name}"), inside, found);
        }
    }
}

/// The commands that a help lists above its options.
fn commands(help: &str, before: &str) -> Vec<String> {
    let is_command = |line: &&str| line.starts_with("  ") && line.as_bytes().get(2).is_some_and(u8::is_ascii_lowercase);
    let listed = help.lines().take_while(|line| *line != "Options:").filter(is_command);
    let names = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(|name| format!("{before}{name}")).collect()
}

/// Commands with their options.
fn options(lines: &mut Vec<String>) {
    let mut open = commands(&plumb(&["help", "--all"]).stdout, "");
    while let Some(words) = open.pop() {
        lines.push(format!("command `{words}`"));
        let help = plumb(&words.split(' ').chain(["--help"]).collect::<Vec<_>>()).stdout;
        if help.contains("\nCommands:\n") {
            open.extend(commands(&help, &format!("{words} ")));
        }
        let flags = help.lines().filter_map(|line| {
            let line = line.trim_start();
            let flag = line.split("  ").next().unwrap_or_default();
            let is_flag = flag.starts_with('-') && flag.split(' ').all(|word| word.starts_with(['-', '<', '[']));
            is_flag.then(|| flag.to_owned())
        });
        lines.extend(flags.map(|flag| format!("option `{words} {flag}`")));
    }
}

fn exit_codes(lines: &mut Vec<String>) {
    let page = plumb(&["help", "exit-codes"]).stdout;
    let codes = page.lines().filter_map(|line| line.trim_start().split_once("  "));
    let codes = codes.filter(|(code, _)| code.bytes().all(|b| b.is_ascii_digit()) && !code.is_empty());
    lines.extend(codes.map(|(code, meaning)| format!("exit code `{code}`: {}", meaning.trim_start())));
}

/// The leaves of a document that are neither empty nor absent.
fn leaves(value: &Value, path: &str, tell: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(name, one)| leaves(one, &format!("{path}.{name}"), tell)),
        Value::Array(all) if all.is_empty() => {}
        other => tell(path, other),
    }
}

/// The test that a plan asks for if it names only a workload.
fn defaults(lines: &mut Vec<String>) {
    let workloads = [
        "tcp_stream",
        "tcp_maerts",
        "tcp_duplex",
        "tcp_rr",
        "tcp_pingpong",
        "tcp_crr",
        "tcp_cc",
        "udp_stream",
        "udp_rr",
        "unix_stream",
        "unix_rr",
    ];
    for workload in workloads {
        let text = format!("version: 1\nname: d\ntests:\n  a: {{workload: {workload}}}\n");
        let plan = load_str("d.yaml", &text, &LoadOptions::default())
            .unwrap_or_else(|d| panic!("{}", d.render(Format::Human)));
        let case = &plan.cases[0];
        let policy = &case.policy;
        lines.push(format!("case `{workload}` {}", case.id));
        lines.push(format!("default `{workload} iterations` {} to {} at {}", policy.min, policy.max, policy.level));
        let spec = serde_json::to_value(case.members[0].spec().expect("a test of two ends")).expect("JSON");
        leaves(&spec, workload, &mut |path, value| lines.push(format!("default `{path}` {value}")));
    }
}

fn promises() -> Vec<String> {
    let mut lines = Vec::new();
    columns(&mut lines);
    let schema = json("schemas/plan.schema.json");
    let mut found = BTreeSet::new();
    keys(&schema, &schema, "", &mut Vec::new(), &mut found);
    lines.extend(found);
    options(&mut lines);
    exit_codes(&mut lines);
    defaults(&mut lines);
    lines
}

/// The versions whose promises are kept here.
fn versions() -> Vec<PathBuf> {
    let kept = fs::read_dir(root().join("tests/promises")).expect("the folder of promises");
    kept.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir()).collect()
}

fn version_of(folder: &std::path::Path) -> String {
    folder.file_name().and_then(|name| name.to_str()).expect("a version").to_owned()
}

/// The part of the changelog about versions after this one.
fn changes_since(changelog: &str, version: &str) -> String {
    let heading = format!("## {version}");
    let own = changelog.lines().position(|line| line == heading || line.starts_with(&format!("{heading} ")));
    let own = own.unwrap_or_else(|| panic!("CHANGELOG.md has no section {heading}"));
    changelog.lines().take(own).collect::<Vec<_>>().join("\n")
}

/// Promises of then that are not kept now, and that no change names.
fn broken<'a>(then: &'a str, now: &[String], changes: &str) -> Vec<&'a str> {
    let now: BTreeSet<&str> = now.iter().map(String::as_str).collect();
    let name = |line: &str| line.split('`').nth(1).expect("a name between backticks").to_owned();
    let is_broken = |line: &&str| !now.contains(line) && !changes.contains(&format!("`{}`", name(line)));
    then.lines().filter(is_broken).collect()
}

#[test]
fn what_a_version_offered_is_there_and_means_the_same() {
    let now = promises();
    let own = root().join("tests/promises").join(env!("CARGO_PKG_VERSION")).join("promises.txt");
    if std::env::var_os("PLUMB_WRITE_PROMISES").is_some() {
        fs::create_dir_all(own.parent().expect("its folder")).unwrap();
        fs::write(&own, now.join("\n") + "\n").unwrap();
    }
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let versions = versions();
    assert!(!versions.is_empty());
    for folder in versions {
        let then = fs::read_to_string(folder.join("promises.txt")).unwrap();
        let version = version_of(&folder);
        let broken = broken(&then, &now, &changes_since(&changelog, &version));
        assert!(
            broken.is_empty(),
            "version {version} promised this; a section of CHANGELOG.md above its own must name what changed, and why:\n{}",
            broken.join("\n")
        );
    }
}

#[test]
fn a_broken_promise_is_found_and_a_change_that_is_told_is_not() {
    let then = "column `a` integer: A.\ncolumn `b` number: B.\nexit code `4`: inconclusive";
    let now = [
        "column `a` integer: A.".to_owned(),
        "column `b` number: Another.".to_owned(),
        "column `c` text: C.".to_owned(),
    ];
    assert_eq!(broken(then, &now, ""), ["column `b` number: B.", "exit code `4`: inconclusive"]);
    assert_eq!(broken(then, &now, "- `b` is now of the sender. `4` is gone."), [""; 0]);
    assert_eq!(changes_since("# C\n## 1.1.0\n- `b`\n## 1.0.0\n- `d`\n", "1.0.0"), "# C\n## 1.1.0\n- `b`");
}

/// The numbers and words of a table in the columns that it had then, without texts for people.
fn cells(text: &str, heads: &[String]) -> Vec<Vec<String>> {
    let mut table = csv::Reader::from_reader(text.as_bytes());
    let now = table.headers().expect("a header").clone();
    let places: Vec<usize> = heads.iter().map(|head| now.iter().position(|other| other == head).expect(head)).collect();
    let rows = table.records().map(|row| row.expect("a row"));
    rows.map(|row| places.iter().map(|place| row[*place].to_owned()).collect()).collect()
}

#[test]
fn files_of_earlier_versions_are_read_and_judged_alike() {
    for folder in versions() {
        let commands = fs::read_to_string(folder.join("commands.txt")).unwrap();
        assert!(commands.lines().count() >= 5, "{}", folder.display());
        for line in commands.lines() {
            // `exit code | file with its standard output | command`
            let [code, output, words] = line.splitn(3, " | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
            let words: Vec<&str> = words.split(' ').collect();
            let ran: Ran = command(&words).current_dir(&folder).output().expect("plumb starts").into();
            assert_eq!(ran.code.map(|code| code.to_string()).as_deref(), Some(code), "{line}: {}", ran.stderr);
            let path = folder.join(output);
            if std::env::var_os("PLUMB_WRITE_PROMISES").is_some() && !path.exists() {
                fs::write(&path, &ran.stdout).unwrap();
            }
            let then = fs::read_to_string(&path).unwrap();
            let texts = ["message", "note", "error", "reason", "because"];
            let heads = csv::Reader::from_reader(then.as_bytes()).headers().unwrap().clone();
            let heads: Vec<String> = heads.iter().filter(|head| !texts.contains(head)).map(str::to_owned).collect();
            assert_eq!(cells(&ran.stdout, &heads), cells(&then, &heads), "{line}");
        }
    }
}
