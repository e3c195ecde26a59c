//! Counters without a difference, reported in words.

use indexmap::IndexMap;

use super::diff::{Change, Note};
use super::line_at;
use crate::error::Error;
use crate::input::ParseError;

/// Counters that were reset, vanished or are new, by source and note, in the order in which they came.
#[derive(Default)]
pub struct Losses<'c> {
    /// The first change of each kind, and their number.
    kinds: IndexMap<(&'c str, Note), (&'c Change<'c>, usize)>,
}

impl<'c> Losses<'c> {
    pub fn of(changes: &'c [Change<'c>]) -> Self {
        let mut kinds = IndexMap::<_, (&Change<'_>, usize)>::new();
        for change in changes {
            let lost = match change.note {
                Note::Reset | Note::Gone => true,
                Note::New => change.delta.is_none(),
                _ => false,
            };
            if lost {
                kinds.entry((change.source, change.note)).or_insert((change, 0)).1 += 1;
            }
        }
        Self { kinds }
    }

    /// Warns once for each source and note.
    pub fn warn(&self) {
        for (Change { source, key, note, .. }, count) in self.kinds.values() {
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
        let Change { source, key, note, at, .. } = self.kinds.first()?.1.0;
        let what = match note {
            Note::Gone => "is no longer there",
            Note::New => "was not there before",
            _ => "was set back between the snapshots",
        };
        let line = at.map_or(0, |(at, _)| line_at(text, at));
        Some(ParseError::new(line, format!("`{key}` of {source} {what} (--strict)")).of(file))
    }
}
