//! What has no difference, to be told in words.

use std::collections::HashMap;

use super::diff::{Change, Note};
use super::line_at;
use crate::error::{Error, Place};

/// Counters that were set back, went or came, counted by source and kind.
#[derive(Default)]
pub struct Losses {
    /// In the order in which they were met.
    kinds: Vec<Loss>,
    /// Where each is in `kinds`: a file can have very many interfaces.
    places: HashMap<(String, Note), usize>,
    /// Where the first stands in AFTER.
    first: Option<usize>,
}

/// Lost counters of one source and kind.
struct Loss {
    source: String,
    note: Note,
    /// The key of the first.
    example: String,
    count: usize,
}

impl Losses {
    /// Counts a change that is a loss.
    pub fn look(&mut self, change: &Change<'_>) {
        let lost = match change.note {
            Note::Reset | Note::Gone => true,
            Note::New => change.delta.is_none(),
            _ => false,
        };
        if lost {
            if self.kinds.is_empty() {
                self.first = change.at.map(|(at, _)| at);
            }
            let (source, example) = (change.source.to_owned(), change.key.to_string());
            self.add(Loss { source, note: change.note, example, count: 1 });
        }
    }

    fn add(&mut self, loss: Loss) {
        let at = *self.places.entry((loss.source.clone(), loss.note)).or_insert(self.kinds.len());
        match self.kinds.get_mut(at) {
            Some(known) => known.count += loss.count,
            None => self.kinds.push(loss),
        }
    }

    /// Adds the losses of what comes after.
    pub fn append(&mut self, later: Self) {
        if self.kinds.is_empty() {
            self.first = later.first;
        }
        later.kinds.into_iter().for_each(|loss| self.add(loss));
    }

    /// Warns, once for each source and kind.
    pub fn warn(&self) {
        for Loss { source, note, example, count } in &self.kinds {
            let (what, help) = match note {
                Note::Gone => ("no longer there", ""),
                Note::New => ("not there before, so without a difference", "; --missing zero counts them from zero"),
                _ => ("set back, so without a difference", ""),
            };
            let counters = if *count == 1 {
                format!("`{example}` is")
            } else {
                format!("{count} counters (`{example}`, …) are")
            };
            crate::warn(&format!("{source}: {counters} {what}{help}"));
        }
    }

    /// The first loss as an error, for `--strict`. AFTER's name and text say where it stands.
    #[must_use]
    pub fn error(&self, (file, text): (&str, &str)) -> Option<Error> {
        let Loss { source, note, example, .. } = self.kinds.first()?;
        let what = match note {
            Note::Gone => "is no longer there",
            Note::New => "was not there before",
            _ => "was set back between the snapshots",
        };
        let line = self.first.map_or(0, |at| line_at(text, at));
        let place = Place { file: file.to_owned(), line, column: None };
        Some(Error::Data { place, reason: format!("`{example}` of {source} {what} (--strict)") })
    }
}
