//! The commits of runs, from the CI's environment and from git.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Variables in which CI services name the commit.
const OF_CI: [&str; 9] = [
    "GITHUB_SHA",
    "CI_COMMIT_SHA",
    "BUILDKITE_COMMIT",
    "CIRCLE_SHA1",
    "BITBUCKET_COMMIT",
    "DRONE_COMMIT_SHA",
    "TRAVIS_COMMIT",
    "BUILD_SOURCEVERSION",
    "GIT_COMMIT",
];

/// Commits that are listed between two runs.
const LISTED: usize = 20;

/// The commit of the present run: the CI's, or that of the repository in the present folder; `None`: neither is known.
pub fn present() -> Option<String> {
    let of_ci = OF_CI.iter().find_map(|name| std::env::var(name).ok().filter(|text| is_commit(text)));
    of_ci.or_else(|| git(Path::new("."), &["rev-parse", "HEAD"]).ok().map(|text| text.trim().to_owned()))
}

/// The commit that a bisection has checked out, or HEAD; `None`: the present folder is in no repository.
pub fn checked_out() -> Option<String> {
    let commit = |name: &str| git(Path::new("."), &["rev-parse", "--verify", "--quiet", name]).ok();
    // `git bisect --no-checkout` names the commit there.
    let found = commit("BISECT_HEAD").or_else(|| commit("HEAD"))?;
    Some(found.trim().to_owned())
}

/// Whether git keeps a file of the present repository: another commit may have another version of it.
pub fn is_tracked(file: &Path) -> bool {
    let name = file.to_string_lossy();
    git(Path::new("."), &["ls-files", "--error-unmatch", "--", &name]).is_ok()
}

/// A place in the git directory of the present repository, which no checkout and no `git clean` touches.
pub fn in_git_directory(name: &str) -> Option<PathBuf> {
    let path = git(Path::new("."), &["rev-parse", "--git-path", name]).ok()?;
    Some(PathBuf::from(path.trim_end()))
}

/// Whether a text can be a commit's name: hexadecimal digits, at least seven.
pub fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A commit, as `git log --oneline` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Short.
    pub id: String,
    pub subject: String,
}

/// Commits after one and up to another, the latest first, and how many more there are; or a sentence why they are not known.
pub fn between(repository: &Path, before: &str, first: &str) -> Result<(Vec<Commit>, usize), String> {
    for commit in [before, first] {
        if commit.is_empty() {
            return Err("a run beside the change has no commit".to_owned());
        }
        if !is_commit(commit) {
            return Err(format!("`{commit}` is not the name of a commit"));
        }
        git(repository, &["cat-file", "-e", &format!("{commit}^{{commit}}")])
            .map_err(|_| format!("commit {} is not in the repository of {}", short(commit), shown(repository)))?;
    }
    if before == first {
        return Err(format!("both runs measured commit {}", short(first)));
    }
    let text = git(repository, &["log", "--format=%h%x09%s", &format!("{before}..{first}")])?;
    let mut all: Vec<Commit> = text
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(id, subject)| Commit { id: id.to_owned(), subject: subject.to_owned() })
        .collect();
    let more = all.len().saturating_sub(LISTED);
    all.truncate(LISTED);
    if all.is_empty() {
        return Err(format!("no commit leads from {} to {}", short(before), short(first)));
    }
    Ok((all, more))
}

/// The first twelve digits.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

fn shown(repository: &Path) -> String {
    if repository == Path::new(".") { "this folder".to_owned() } else { repository.display().to_string() }
}

/// The output of git in a folder; or why there is none.
fn git(folder: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").arg("-C").arg(folder).args(words).output().map_err(|e| format!("git: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
