//! Looks cases up and names them.

use std::collections::HashMap;

use schemas::{columns::VerdictRow, words::Way};

use super::{Case, Key};
use crate::judge::subject;

/// Finds cases by hash: a table may have a hundred thousand.
pub struct Index<'a> {
    all: &'a [Case],
    by_key: HashMap<&'a Key, &'a Case>,
    by_id: HashMap<&'a str, Vec<&'a Case>>,
    /// The direction in which a case's member was measured; `None`: several.
    direction: HashMap<(&'a str, &'a str), Option<&'a str>>,
}

impl<'a> Index<'a> {
    /// Of two cases with the same key, the first is found.
    pub fn new(cases: &'a [Case]) -> Self {
        let mut index = Self { all: cases, by_key: HashMap::new(), by_id: HashMap::new(), direction: HashMap::new() };
        for case in cases {
            let key = &case.key;
            index.by_key.entry(key).or_insert(case);
            index.by_id.entry(&key.id).or_default().push(case);
            let only = index.direction.entry((&key.id, &key.member)).or_insert(Some(&key.direction));
            *only = only.filter(|d| *d == key.direction);
        }
        index
    }

    /// With labels that always say the direction of a case.
    pub(in crate::judge) fn with_directions(mut self) -> Self {
        self.direction.values_mut().for_each(|only| *only = None);
        self
    }

    /// All cases, in the order of the table.
    pub fn all(&self) -> &'a [Case] {
        self.all
    }

    /// The case with this key. A table may leave the direction `forward` out, as rows of other programs do.
    pub fn find(&self, key: &Key) -> Option<&'a Case> {
        let forward = Way::Forward.as_str();
        let other = || match key.direction.as_str() {
            "" => Some(Key { direction: forward.to_owned(), ..key.clone() }),
            direction if direction == forward => Some(Key { direction: String::new(), ..key.clone() }),
            _ => None,
        };
        self.by_key.get(key).or_else(|| self.by_key.get(&other()?)).copied()
    }

    /// Every case with this `case_id` (or other matching column), in the order of the table.
    pub fn of(&self, id: &str) -> &[&'a Case] {
        self.by_id.get(id).map_or(&[], Vec::as_slice)
    }

    /// Writes a case into a row: its label among these cases, and where it was measured.
    pub fn mark(&self, case: &Case, row: &mut VerdictRow) {
        row.case_id.clone_from(&case.key.id);
        row.case = self.label(case);
        row.member.clone_from(&case.key.member);
        case.origin.mark(row);
    }

    /// A case's name with what tells it apart from the others: `mixed up (reverse)`.
    pub fn label(&self, case: &Case) -> String {
        let Key { id, member, direction, stream, part: _ } = &case.key;
        let mut label = subject(&case.name, member);
        let others = self.direction.get(&(id.as_str(), member.as_str())).is_some_and(|d| *d != Some(direction));
        if others && !direction.is_empty() {
            label = format!("{label} ({direction})");
        }
        if !stream.is_empty() {
            label = format!("{label} (stream {stream})");
        }
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(id: &str, member: &str, direction: &str, stream: &str) -> Case {
        let (id, member) = (id.to_owned(), member.to_owned());
        let key = Key { id, member, direction: direction.into(), stream: stream.into(), ..Key::default() };
        Case { name: format!("name of {}", key.id), key, ..Case::default() }
    }

    #[test]
    fn cases_are_found_and_named_by_what_tells_them_apart() {
        let cases = [
            case("a", "", "forward", ""),
            case("b", "up", "forward", ""),
            case("a", "", "reverse", "3"),
            case("b", "", "both", ""),
        ];
        let index = Index::new(&cases);
        let labels: Vec<String> = cases.iter().map(|c| index.label(c)).collect();
        assert_eq!(labels, ["name of a (forward)", "name of b up", "name of a (reverse) (stream 3)", "name of b"]);
        assert_eq!(index.find(&cases[2].key), Some(&cases[2]));
        assert_eq!(index.find(&Key::default()), None);
        assert_eq!(index.find(&case("b", "up", "", "").key), Some(&cases[1]));
        assert_eq!(index.find(&case("b", "up", "reverse", "").key), None);
        let without = [case("a", "", "", "")];
        assert_eq!(Index::new(&without).find(&cases[0].key), Some(&without[0]));
        assert_eq!(index.of("b"), [&cases[1], &cases[3]]);
        assert_eq!(index.of("c").len(), 0);
        // A case that is none of them, in another direction than theirs.
        assert_eq!(index.label(&case("b", "up", "reverse", "")), "name of b up (reverse)");
        assert_eq!(Index::new(&[]).label(&cases[0]), "name of a");
    }
}
