//! Tells the program its commit, profile and target, for `plumb --version` and the facts about a run.

use std::{env, path::Path, process::Command};

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLUMB_COMMIT");
    // A package's build has no repository: it names the commit itself.
    let commit = env::var("PLUMB_COMMIT").ok().or_else(|| {
        // It has an entry for each commit, switch and reset.
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
            println!("cargo::rerun-if-changed={log}");
        }
        git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
    });
    // target/PROFILE/build/PACKAGE-HASH/out
    let out = env::var("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=PLUMB_BUILD={}, {profile}, {target}", commit.as_deref().unwrap_or("commit unknown"));
}
