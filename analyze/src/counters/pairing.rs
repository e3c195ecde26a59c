//! Which number of BEFORE is which number of AFTER.

use std::borrow::Cow;
use std::collections::HashMap;

use super::{Counter, Key, Snapshot, prose};

/// The partners of two snapshots' counters.
pub enum Pairs {
    /// The first is the first's, the second the second's, and none is left.
    InOrder,
    /// Found by their names.
    Found {
        /// For each counter of AFTER, the index of its partner in BEFORE.
        partners: Vec<Option<usize>>,
        /// Whether a counter of BEFORE has a partner.
        taken: Vec<bool>,
    },
}

impl Pairs {
    /// Finds each counter's partner by source, CPU and key.
    pub fn find(before: &Snapshot<'_>, after: &Snapshot<'_>) -> Self {
        if in_order(before, after) { Self::InOrder } else { Self::by_name(before, after) }
    }

    /// The same for snapshots that may have their counters in any order.
    pub fn by_name(before: &Snapshot<'_>, after: &Snapshot<'_>) -> Self {
        Self::by_name_after(LOOKS.saturating_mul(before.counters().len()), before, after)
    }

    /// Makes an index only after so many counters have been looked at in vain.
    fn by_name_after<'k>(looks: usize, before: &'k Snapshot<'_>, after: &'k Snapshot<'_>) -> Self {
        let (old_sources, new_sources) = sources(before, after);
        let (olds, news) = (before.counters(), after.counters());
        let prose = after.format.is_prose();
        // Words with and without their plurals cannot simply be compared.
        let mut search = Search { skipped: Vec::new(), front: 0, looks: if prose { 0 } else { looks } };
        let mut index: Option<Index<'k>> = None;
        let mut taken = vec![false; olds.len()];
        let mut partners = Vec::with_capacity(news.len());
        let mut next = 0;
        for counter in news {
            let Some(source) = new_sources[counter.source as usize] else {
                partners.push(None);
                continue;
            };
            let is_it = |at: usize| {
                olds.get(at).is_some_and(|old| {
                    old_sources[old.source as usize] == source
                        && old.cpu == counter.cpu
                        && !taken[at]
                        && before.key(old) == after.key(counter)
                })
            };
            // Two snapshots of one machine are nearly the same text: the partner usually follows the last one. It is
            // still the key that decides. Sentences may repeat, and must be counted from the top.
            let found = if (!prose || index.is_none()) && is_it(next) {
                search.front = search.front.max(next + 1);
                Some(next)
            } else if search.looks > 0 {
                search.find(olds.len(), is_it)
            } else {
                let index = index.get_or_insert_with(|| Index::new(before, &old_sources, &taken));
                index.take(&(source, counter.cpu, pairing_key(after, counter)), &taken)
            };
            if let Some(at) = found {
                taken[at] = true;
                next = at + 1;
            }
            partners.push(found);
        }
        Self::Found { partners, taken }
    }
}

/// How often each counter of BEFORE may be looked at before an index is made of all: what that takes for each.
const LOOKS: usize = 16;

/// Looks for partners one by one, which is faster than an index where little appeared, vanished or moved.
struct Search {
    /// Counters before `front` that were passed over, some of which have been taken since.
    skipped: Vec<usize>,
    /// Where those start at which nobody has looked yet.
    front: usize,
    /// How many more may be looked at.
    looks: usize,
}

impl Search {
    /// The first that is it.
    fn find(&mut self, count: usize, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        self.looks = self.looks.saturating_sub(self.skipped.len());
        if let Some(place) = self.skipped.iter().position(|at| is_it(*at)) {
            return Some(self.skipped.remove(place));
        }
        let found = (self.front..count).find(|at| is_it(*at));
        self.looks = self.looks.saturating_sub(found.unwrap_or(count) - self.front + 1);
        if let Some(at) = found {
            self.skipped.extend(self.front..at);
            self.front = at + 1;
        }
        found
    }
}

/// Whether both have the same counters in the same order. [`Pairs::find`] would then find the same, more slowly.
pub fn in_order(before: &Snapshot<'_>, after: &Snapshot<'_>) -> bool {
    let (olds, news) = (before.counters(), after.counters());
    // The columns of a table are stored names: at the same places where the stores are the same.
    let same_names = before.store.names == after.store.names;
    let same = |old: Key, new: Key| {
        (same_names && old.is_stored() && old == new)
            || before.store.name(old, before.text) == after.store.name(new, after.text)
    };
    let (old_sources, new_sources) = (&before.store.sources, &after.store.sources);
    // The numbers of a line may have one name, which need be compared only once.
    let mut last = None;
    olds.len() == news.len()
        && old_sources.len() == new_sources.len()
        && old_sources.iter().zip(new_sources).all(|(old, new)| same(*old, *new))
        && olds.iter().zip(news).all(|(old, new)| {
            let keys = Some((old.key, new.key));
            old.source == new.source
                && old.cpu == new.cpu
                && (keys == std::mem::replace(&mut last, keys) || same(old.key, new.key))
        })
}

/// What sources are known by in both snapshots: the first of BEFORE that has the name.
fn sources(before: &Snapshot<'_>, after: &Snapshot<'_>) -> (Vec<u32>, Vec<Option<u32>>) {
    let mut places: HashMap<&str, u32> = HashMap::new();
    let names = before.store.sources.iter().map(|key| before.store.name(*key, before.text));
    let old = names.zip(0..).map(|(name, at)| *places.entry(name).or_insert(at)).collect();
    let names = after.store.sources.iter().map(|key| after.store.name(*key, after.text));
    let new = names.map(|name| places.get(name).copied()).collect();
    (old, new)
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
    fn new(before: &'k Snapshot<'_>, sources: &[u32], taken: &[bool]) -> Self {
        let count = before.counters().len();
        let mut index = Self { first: HashMap::with_capacity(count), next: vec![None; count] };
        // From the end, so that the first of several is on top.
        for (at, old) in before.counters().iter().enumerate().rev().filter(|(at, _)| !taken[*at]) {
            let identity = (sources[old.source as usize], old.cpu, pairing_key(before, old));
            index.next[at] = index.first.insert(identity, Some(at)).flatten();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::counters::{Format, Options};

    /// The next one if it is it, else the first that nobody has.
    fn slowly(before: &Snapshot<'_>, after: &Snapshot<'_>) -> Vec<Option<usize>> {
        let identity = |s: &Snapshot<'_>, c: &Counter| (s.source_of(c).to_owned(), c.cpu, s.key(c).to_owned());
        let mut olds: Vec<_> = before.counters().iter().map(|old| Some(identity(before, old))).collect();
        let mut next = 0;
        let partner = |counter| {
            let it = Some(identity(after, counter));
            let at = if olds.get(next) == Some(&it) { Some(next) } else { olds.iter().position(|old| *old == it) };
            if let Some(at) = at {
                olds[at] = None;
                next = at + 1;
            }
            at
        };
        after.counters().iter().map(partner).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn partners_are_the_next_or_the_first_that_is_left(
            before in "([a-e] 1\n){1,12}",
            after in "([a-e] 1\n){1,12}",
            looks in prop::sample::select(vec![0, 1, 5, 20, usize::MAX]),
            interfaces in any::<bool>(),
        ) {
            const HEAD: &str = "Inter-| Receive | Transmit\n face |bytes|bytes\n";
            let (before, after) = if interfaces {
                let table = |text: &str| format!("{HEAD}{}", text.replace(" 1", ": 1 2"));
                (table(&before), table(&after))
            } else {
                (before, after)
            };
            let format = Some(if interfaces { Format::Dev } else { Format::KeyValue });
            let options = Options { format, ..Options::default() };
            let before = Snapshot::read("b", &before, &options).unwrap();
            let after = Snapshot::read("a", &after, &options).unwrap();
            let Pairs::Found { partners, taken } = Pairs::by_name_after(looks, &before, &after) else {
                panic!("pairs that were looked for")
            };
            prop_assert_eq!(&partners, &slowly(&before, &after));
            let all: Vec<bool> = (0..taken.len()).map(|at| partners.contains(&Some(at))).collect();
            prop_assert_eq!(taken, all);
        }
    }
}
