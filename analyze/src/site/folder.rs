//! The pages on disk. A list in the folder names the pages that are the program's own, which it may replace and remove.

use super::{INDEX, RUNS, SERIES};
use crate::{error::Error, history::analysed::AnalysedSeries, table::replace};
use schemas::text::fnv1a;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// The list of pages.
const LIST: &str = "pages.txt";

/// Its first line.
const HEAD: &str =
    "Pages that plumb report --history wrote: it replaces them, and removes those that are no longer there.";

pub struct Folder {
    root: PathBuf,
    pages: BTreeSet<String>,
    /// Pages of an earlier build that are not among the present ones.
    stale: BTreeSet<String>,
}

impl Folder {
    /// Makes the folder, or takes one that an earlier build wrote. Any other that has files is refused.
    pub fn open(root: &Path, pages: BTreeSet<String>) -> Result<Self, Error> {
        let own = own(root)?;
        if own.is_none() {
            refuse_foreign(root)?;
        }
        let own = own.unwrap_or_default();
        if let Some(page) = pages.iter().find(|page| !own.contains(*page) && root.join(page).symlink_metadata().is_ok())
        {
            let page = root.join(page);
            return Err(Error::Usage(format!(
                "{}: this file is not of an earlier site: move it away, or name another folder",
                page.display()
            )));
        }
        let series = root.join(SERIES);
        fs::create_dir_all(&series).map_err(Error::file(&series))?;
        let stale = own.difference(&pages).cloned().collect();
        let folder = Self { root: root.to_owned(), pages, stale };
        // Before the pages: after an interruption they are known as own.
        folder.write_list(folder.pages.union(&folder.stale))?;
        Ok(folder)
    }

    fn write_list<'a>(&self, pages: impl Iterator<Item = &'a String>) -> Result<(), Error> {
        let mut text = format!("{HEAD}\n");
        for page in pages {
            text.push_str(page);
            text.push('\n');
        }
        self.write(LIST, &text)
    }

    /// Writes a file whole. One that has the same bytes already stays as it is.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.root.join(name);
        if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        replace(&path, text)
    }

    /// Removes the pages that are no longer there. Returns the number of pages.
    pub fn close(self) -> Result<usize, Error> {
        for page in &self.stale {
            let path = self.root.join(page);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(Error::File { path, source }),
                _ => {}
            }
        }
        self.write_list(self.pages.iter())?;
        Ok(self.pages.len())
    }
}

/// The pages of an earlier build; `None`: there was none. Names that no build writes are left out: a list that was
/// tampered with removes nothing else.
fn own(root: &Path) -> Result<Option<BTreeSet<String>>, Error> {
    let path = root.join(LIST);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        Err(source) => return Err(Error::File { path, source }),
    };
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Ok(None);
    }
    let series = format!("{SERIES}/");
    let is_own = |name: &&str| [INDEX, RUNS].contains(name) || name.strip_prefix(&series).is_some_and(is_page);
    Ok(Some(lines.filter(is_own).map(str::to_owned).collect()))
}

/// Refuses a folder that has files. Hidden ones are git's and the like.
fn refuse_foreign(root: &Path) -> Result<(), Error> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::Usage(format!("{} is a file: a site is a folder of pages", root.display())));
        }
        Err(source) => return Err(Error::file(root)(source)),
    };
    for entry in entries {
        let name = entry.map_err(Error::file(root))?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') {
            return Err(Error::Usage(format!(
                "{} has files that are not of a site ({name}): name a new or empty folder, or one that plumb report --history \
                 wrote",
                root.display()
            )));
        }
    }
    Ok(())
}

// Names of pages and anchors: of plain letters, and the same from build to build, so that links to them stay valid.

/// Longest readable part of a name.
const LONGEST: usize = 60;

/// The file of a series: what it is, and a hash of all that tells it from others.
pub fn page(analysed: &AnalysedSeries) -> String {
    let key = &analysed.series.key;
    let direction = if key.direction == "forward" { "" } else { &key.direction };
    let readable = slug(&[analysed.series.case.as_str(), &key.member, direction, &key.metric].join(" "));
    let parts = [&key.plan, &key.machine, &key.case_id, &key.member, &key.direction, &key.metric];
    let hash = fnv1a(&parts.map(String::as_str).join("\x1f")) & 0xffff_ffff_ffff;
    format!("{readable}-{hash:012x}.html")
}

/// Whether a text can be the name of a file that [`page`] made.
fn is_page(name: &str) -> bool {
    name.strip_suffix(".html").is_some_and(|stem| {
        !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

/// An anchor. A text of other characters, or a long one, gets a hash, which a dot sets apart from all plain ones.
pub fn anchor(kind: &str, text: &str) -> String {
    let is_plain = !text.is_empty()
        && text.len() <= LONGEST
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if is_plain { format!("{kind}-{text}") } else { format!("{kind}-{}.{:016x}", slug(text), fnv1a(text)) }
}

/// Lower-case letters and digits of a text, with a dash for what stands between them.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        if slug.len() >= LONGEST {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let trimmed = slug.trim_end_matches('-');
    if trimmed.is_empty() { "x".to_owned() } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_plain_and_anchors_differ() {
        assert_eq!(
            slug("bulk[message_size=64KiB,streams=4] throughput"),
            "bulk-message-size-64kib-streams-4-throughput"
        );
        assert_eq!(slug("../../<script>"), "script");
        assert_eq!(slug("äöü"), "x");
        assert_eq!(anchor("run", "0198-c2_A"), "run-0198-c2_A");
        assert_ne!(anchor("run", "a b"), anchor("run", "a/b"));
        assert!(!anchor("run", "\"><i>").contains(['"', '<', ' ']));
    }
}
