//! Tells the crate the versions of the libraries that results name.

use std::fs;

/// The version of a package in the lock file; empty if it has none.
fn version<'a>(lock: &'a str, name: &str) -> &'a str {
    let package = lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"\n")));
    let line = package.and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = \"")));
    line.map_or("", |line| line.trim_end_matches('"'))
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let lock = fs::read_to_string("../Cargo.lock").unwrap_or_default();
    let tls = format!("rustls {}, ring {}", version(&lock, "rustls"), version(&lock, "ring"));
    println!("cargo::rustc-env=PLUMB_TLS={tls}");
    println!("cargo::rustc-env=PLUMB_QUIC=quinn-proto {}, {tls}", version(&lock, "quinn-proto"));
}
