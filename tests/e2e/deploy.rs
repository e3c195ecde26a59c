//! The files in `deploy` agree with the program, with its documentation and with systemd.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::{
    needs::skip,
    program::{Folder, Serve, command, end, plumb},
};

const UNIT: &str = "deploy/systemd/plumb.service";

/// Files that start commands, and the command.
const STARTED: [(&str, &str); 3] =
    [(UNIT, "serve"), ("deploy/systemd/plumb-watch.service", "watch"), ("deploy/kubernetes/watch.yaml", "watch")];

fn project(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words that begin with `--`.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.len() > 2 && word.starts_with("--")).map(str::to_owned).collect()
}

fn known(command: &str) -> BTreeSet<String> {
    let mut known = flags(&plumb(&[command, "--help"]).stdout);
    known.remove("--help");
    known
}

#[test]
fn what_is_deployed_uses_flags_that_the_commands_have() {
    for (file, command) in STARTED {
        let text = project(file);
        let start: Vec<&str> =
            text.lines().filter(|line| line.starts_with("ExecStart=") || line.contains("command: [plumb")).collect();
        let [start] = start[..] else { panic!("{file} starts {start:?}") };
        assert!(start.contains(&format!(" {command}")), "{start}");
        let (used, known) = (flags(start), known(command));
        assert!(!used.is_empty() && used.is_subset(&known), "{file}: {used:?}");
    }
}

/// The plan in the manifest, and the manifest.
#[test]
fn the_manifest_of_a_watch_has_a_plan_that_checks() {
    use serde::Deserialize as _;
    let text = project("deploy/kubernetes/watch.yaml");
    let documents: Vec<serde_json::Value> = serde_yaml::Deserializer::from_str(&text)
        .map(|document| serde_json::Value::deserialize(document).expect("YAML"))
        .collect();
    let kinds: Vec<&str> = documents.iter().filter_map(|it| it["kind"].as_str()).collect();
    assert_eq!(kinds, ["ConfigMap", "PersistentVolumeClaim", "Deployment", "Service"]);
    let folder = Folder::new();
    let plan = folder.text(documents[0]["data"]["plan.yaml"].as_str().expect("a plan"));
    let checked = plumb(&["check", &plan]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}

#[test]
fn the_page_says_of_every_flag_what_it_needs() {
    let page = project("docs/reference/protocol.md");
    let section = page.split("\n## ").find(|section| section.starts_with("As a service")).expect("a section");
    let table: String = section.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(&known("serve") - &flags(&table), BTreeSet::new(), "flags without a row in the table of {UNIT}");
}

#[test]
fn systemd_accepts_the_units() {
    for (file, _) in STARTED.iter().filter(|(file, _)| file.ends_with(".service")) {
        let folder = Folder::new();
        let name = Path::new(file).file_name().expect("a name").to_string_lossy().into_owned();
        // systemd checks that the program is there.
        let unit = project(file).replace("/usr/local/bin/plumb", env!("CARGO_BIN_EXE_plumb"));
        fs::write(folder.path(&name), unit).unwrap();
        let verify = Command::new("systemd-analyze").args(["verify", "--man=no", &folder.name(&name)]).output();
        let Ok(said) = verify else {
            return skip("systemd-analyze is not installed");
        };
        // systemd only warns about an unknown setting and exits with 0. It also complains about other units of the machine.
        let complaints = String::from_utf8_lossy(&said.stderr);
        let ours: Vec<&str> = complaints.lines().filter(|line| line.contains("plumb")).collect();
        assert!(ours.is_empty() && said.status.success(), "{complaints}");
    }
}

/// systemd shows the access list of a unit's user as the permissions of the group.
#[test]
fn a_credential_of_the_unit_is_a_key() {
    let folder = Folder::new();
    let key = folder.name("key");
    assert_eq!(plumb(&["key", &key]).code, Some(0));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o440)).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--key-file", &key];
    let refused = end(command(&serve).spawn().unwrap());
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("may be read by others"), "{}", refused.stderr);
    let mut unit = command(&serve);
    unit.env("CREDENTIALS_DIRECTORY", folder.path("."));
    Serve::of(unit);
}
