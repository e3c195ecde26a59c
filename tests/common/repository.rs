//! Repositories of git that a test makes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{needs::has_program, program::Folder};

/// Runs git in a folder; its output.
pub fn git(folder: &Path, words: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=x", "-c", "user.email=x@example.org", "-C"])
        .arg(folder)
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes files and commits them; the commit.
pub fn commit(folder: &Path, subject: &str, files: &[(&str, &str)]) -> String {
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
        if text.starts_with("#!") {
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
            // A process that another test starts may hold this file open for writing: git writes one that it does not.
            git(folder, &["add", name]);
            fs::remove_file(folder.join(name)).unwrap();
            git(folder, &["checkout", "-q", "--", name]);
        }
    }
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-q", "--allow-empty", "-m", subject]);
    git(folder, &["rev-parse", "HEAD"])
}

/// A repository in `repo` beside the plan and the baseline; `None`: there is no git, and the test is skipped.
pub fn repository(folder: &Folder) -> Option<PathBuf> {
    if !has_program("git", "git") {
        return None;
    }
    let repo = folder.path("repo");
    fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q"]);
    Some(repo)
}
