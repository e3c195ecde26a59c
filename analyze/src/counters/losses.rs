//! Counters without a difference, reported in words.

use std::collections::HashMap;

use super::diff::{Change, Note};
use super::line_at;
use crate::error::Error;
use crate::input::ParseError;

/// Counters that were reset, vanished or are new, by source and note, in the order in which they came.
#[derive(Default)]
pub struct Losses<'c> {
    kinds: Vec<Loss<'c>>,
}

/// The lost counters of one source and note.
struct Loss<'c> {
    /// The first of them.
    first: &'c Change<'c>,
    count: usize,
}

impl<'c> Losses<'c> {
    pub fn of(changes: &'c [Change<'c>]) -> Self {
        let mut kinds: Vec<Loss<'c>> = Vec::new();
        let mut places: HashMap<(&str, Note), usize> = HashMap::new();
        for change in changes {
            let lost = match change.note {
                Note::Reset | Note::Gone => true,
                Note::New => change.delta.is_none(),
                _ => false,
            };
            if lost {
                let at = *places.entry((change.source, change.note)).or_insert(kinds.len());
                match kinds.get_mut(at) {
                    Some(known) => known.count += 1,
                    None => kinds.push(Loss { first: change, count: 1 }),
                }
            }
        }
        Self { kinds }
    }

    /// Warns once for each source and note.
    pub fn warn(&self) {
        for Loss { first: Change { source, key, note, .. }, count } in &self.kinds {
            let (what, help) = match note {
                Note::Gone => ("no longer there", ""),
                Note::New => ("not there before, so without a difference", "; --missing zero counts them from zero"),
                _ => ("set back, so without a difference", ""),
            };
            let counters =
                if *count == 1 { format!("`{key}` is") } else { format!("{count} counters (`{key}`, …) are") };
            crate::warn(&format!("{source}: {counters} {what}{help}"));
        }
    }

    /// The first loss as an error, for `--strict`, with its line in AFTER.
    pub fn error(&self, (file, text): (&str, &str)) -> Option<Error> {
        let Change { source, key, note, at, .. } = self.kinds.first()?.first;
        let what = match note {
            Note::Gone => "is no longer there",
            Note::New => "was not there before",
            _ => "was set back between the snapshots",
        };
        let line = at.map_or(0, |(at, _)| line_at(text, at));
        Some(ParseError::new(line, format!("`{key}` of {source} {what} (--strict)")).of(file))
    }
}
