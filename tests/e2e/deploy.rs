//! The systemd unit agrees with the program, with its documentation and with systemd.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::{
    needs::skip,
    program::{Folder, Serve, command, end, plumb},
};

const UNIT: &str = "deploy/systemd/plumb.service";

fn project(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words that begin with `--`.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.len() > 2 && word.starts_with("--")).map(str::to_owned).collect()
}

fn known() -> BTreeSet<String> {
    let mut known = flags(&plumb(&["serve", "--help"]).stdout);
    known.remove("--help");
    known
}

#[test]
fn the_unit_uses_flags_that_serve_has() {
    let unit = project(UNIT);
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a program");
    assert!(start.contains(" serve "), "{start}");
    let (used, known) = (flags(start), known());
    assert!(!used.is_empty() && used.is_subset(&known), "{used:?}");
}

#[test]
fn the_page_says_of_every_flag_what_it_needs() {
    let page = project("docs/reference/protocol.md");
    let section = page.split("\n## ").find(|section| section.starts_with("As a service")).expect("a section");
    let table: String = section.lines().filter(|line| line.starts_with('|')).collect();
    assert_eq!(&known() - &flags(&table), BTreeSet::new(), "flags without a row in the table of {UNIT}");
}

#[test]
fn systemd_accepts_the_unit() {
    let folder = Folder::new();
    // systemd checks that the program is there.
    let unit = project(UNIT).replace("/usr/local/bin/plumb", env!("CARGO_BIN_EXE_plumb"));
    fs::write(folder.path("plumb.service"), unit).unwrap();
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no", &folder.name("plumb.service")]).output();
    let Ok(said) = verify else {
        return skip("systemd-analyze is not installed");
    };
    // systemd only warns about an unknown setting and exits with 0. It also complains about other units of the machine.
    let complaints = String::from_utf8_lossy(&said.stderr);
    let ours: Vec<&str> = complaints.lines().filter(|line| line.contains("plumb")).collect();
    assert!(ours.is_empty() && said.status.success(), "{complaints}");
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
