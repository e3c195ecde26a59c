//! Which number of BEFORE is which number of AFTER.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Counter, Snapshot, prose};

/// The partners of two snapshots' counters.
pub struct Pairs {
    /// For each counter of AFTER, the index of its partner in BEFORE.
    pub partners: Vec<Option<usize>>,
    /// Whether a counter of BEFORE has a partner.
    pub taken: Vec<bool>,
}

impl Pairs {
    /// Finds each counter's partner by source, CPU and key.
    pub fn find<'k>(before: &'k Snapshot<'_>, after: &'k Snapshot<'_>) -> Self {
        let places: HashMap<&str, u32> = before.sources.iter().map(String::as_str).zip(0..).collect();
        let sources: Vec<Option<u32>> = after.sources.iter().map(|name| places.get(name.as_str()).copied()).collect();
        let prose = after.format.is_prose();
        let mut index: Option<Index<'k>> = None;
        let mut taken = vec![false; before.counters.len()];
        let mut partners = Vec::with_capacity(after.counters.len());
        let mut next = 0;
        for counter in &after.counters {
            let source = sources.get(counter.source as usize).copied().flatten();
            // Two snapshots of one machine are nearly the same text: the partner usually follows the last one. It is
            // still the key that decides. Sentences may repeat, and must be counted from the top.
            let follows = before.counters.get(next).is_some_and(|old| {
                Some(old.source) == source
                    && old.cpu == counter.cpu
                    && !taken[next]
                    && before.key(old) == after.key(counter)
            });
            let found = if follows && (!prose || index.is_none()) {
                Some(next)
            } else {
                let index = index.get_or_insert_with(|| Index::new(before, &taken));
                source.and_then(|source| index.take(&(source, counter.cpu, pairing_key(after, counter)), &taken))
            };
            if let Some(at) = found {
                taken[at] = true;
                next = at + 1;
            }
            partners.push(found);
        }
        Self { partners, taken }
    }
}

type Identity<'k> = (u32, Option<u32>, Cow<'k, str>);

/// The counters of BEFORE that have no partner yet, by what they are.
struct Index<'k> {
    /// The first of each identity.
    first: HashMap<Identity<'k>, Option<usize>>,
    /// For each counter, the next of the same identity.
    next: Vec<Option<usize>>,
}

impl<'k> Index<'k> {
    fn new(before: &'k Snapshot<'_>, taken: &[bool]) -> Self {
        let count = before.counters.len();
        let mut index = Self { first: HashMap::with_capacity(count), next: vec![None; count] };
        // From the end, so that the first of several is on top.
        for (at, old) in before.counters.iter().enumerate().rev().filter(|(at, _)| !taken[*at]) {
            index.next[at] = index.first.insert((old.source, old.cpu, pairing_key(before, old)), Some(at)).flatten();
        }
        index
    }

    /// The first counter of this identity that nobody has taken.
    fn take(&mut self, identity: &Identity<'k>, taken: &[bool]) -> Option<usize> {
        let first = self.first.get_mut(identity)?;
        while let Some(at) = *first {
            *first = self.next[at];
            if !taken[at] {
                return Some(at);
            }
        }
        None
    }
}

fn pairing_key<'k>(snapshot: &'k Snapshot<'_>, counter: &Counter) -> Cow<'k, str> {
    let key = snapshot.key(counter);
    if snapshot.format.is_prose() { Cow::Owned(prose::without_plurals(key)) } else { Cow::Borrowed(key) }
}
