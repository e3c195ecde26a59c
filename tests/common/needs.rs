//! A test's needs of the machine. A line says that one is missing; `.ci/tests` lists these lines and counts them.

use std::process::Command;

/// Says why a test, or a part of it, does not run here.
pub fn skip(why: &str) {
    println!("skipped: {why}");
}

/// The same where a package is missing that `.ci/run` installs: a test that CI skips proves nothing, and fails.
pub fn skip_without(package: &str, why: &str) {
    assert!(std::env::var_os("PLUMB_NO_SKIP").is_none(), "{why}: install the package {package}");
    skip(&format!("{why} (package {package})"));
}

/// Whether a process of this user may open so many files, and says so where it may not.
pub fn has_files(count: u64) -> bool {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    // The soft limit, and the hard one, which the program asks for.
    let has = line.split_whitespace().nth(1).unwrap().parse().map_or(true, |most: u64| most >= count);
    if !has {
        skip(&format!("a process may open fewer than {count} files (ulimit -Hn)"));
    }
    has
}

/// Whether a program can be started.
pub fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// The same, and says so where it cannot: a package of this name has it.
pub fn has_program(program: &str, package: &str) -> bool {
    let has = is_installed(program);
    if !has {
        skip_without(package, &format!("there is no `{program}`"));
    }
    has
}
