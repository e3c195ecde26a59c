//! Tells the program its commit, profile and target, for `plumb --version` and the facts about a run, and compresses the schema of
//! plans: as a text it would be a hundredth of the program.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use miniz_oxide::deflate::compress_to_vec_zlib;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn rerun_if_changed(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The commit of the workspace, with `-dirty` where files of it have changed since. `None` outside of its own repository: one that
/// merely contains an unpacked archive of the workspace says nothing about it.
fn commit(workspace: &Path) -> Option<String> {
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != workspace.canonicalize().ok()? {
        return None;
    }
    // Commits, switches and resets change these.
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            rerun_if_changed(Path::new(&path));
        }
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

/// Compresses the schema of plans, which the program prints and reads.
fn compress_schema(workspace: &Path) {
    let schema = workspace.join("schemas/plan.schema.json");
    println!("cargo::rerun-if-changed={}", schema.display());
    let text = fs::read(schema).expect("the workspace has the schema");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("plan.schema.json.zlib"), compress_to_vec_zlib(&text, 9)).expect("cargo's folder takes a file");
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PLUMB_COMMIT");
    let workspace = Path::new("..");
    // An edit of any source makes a commit dirty.
    rerun_if_changed(&workspace.join("Cargo.toml"));
    rerun_if_changed(&workspace.join("Cargo.lock"));
    for member in fs::read_dir(workspace).into_iter().flatten().flatten().map(|entry| entry.path()) {
        rerun_if_changed(&member.join("Cargo.toml"));
        if member.join("Cargo.toml").exists() {
            rerun_if_changed(&member.join("src"));
        }
    }
    // A package's build has no repository: it names the commit itself.
    compress_schema(workspace);
    let commit = env::var("PLUMB_COMMIT").ok().or_else(|| commit(workspace));
    // …/PROFILE/build/…
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let build = out.ancestors().find(|path| path.ends_with("build"));
    let profile = build.and_then(Path::parent).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=PLUMB_BUILD={}, {profile}, {target}", commit.as_deref().unwrap_or("commit unknown"));
}
