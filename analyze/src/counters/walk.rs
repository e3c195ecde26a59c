//! Two snapshots, read and paired part by part.
//!
//! As long as both have the same counters in the same order, a part is read, its differences are used, and its memory serves
//! for the next one; the processor's cores take turns. From the first part on in which the snapshots disagree, counters may
//! have moved anywhere: all that follows is read at once and paired by name.

use std::sync::{Mutex, PoisonError};

use super::diff::{Differences, Settings};
use super::part::{Cuts, Part};
use super::{Options, Snapshot, Store, Text};
use crate::error::Error;

/// Bytes of AFTER that are read at once: enough to be worth handing out, and with what is read of them little enough for a
/// core's own cache.
pub const PART: usize = 64 << 10;

/// Reads BEFORE and AFTER, each a file's name and its text, in parts of at least so many bytes of AFTER. What `each` makes of
/// the differences of the parts comes back in their order.
pub fn walk<T: Send>(
    before: (&str, &str),
    after: (&str, &str),
    options: &Options,
    settings: &Settings,
    part_bytes: usize,
    each: impl Fn(&Differences<'_>) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let (before, after) = texts(before, after, options)?;
    let walk = Walk { before, after, settings, each };
    let cuts = Cuts::new(after.format, before.all, after.all, part_bytes);
    let (mut done, (old, new)) = walk.agreeing(cuts)?;
    let (before, after) = both(&before, old, &after, new)?;
    done.push((walk.each)(&Differences::new(&before, &after, settings)?)?);
    Ok(done)
}

/// Reads both snapshots at once.
pub fn read<'a>(
    before: (&'a str, &'a str),
    after: (&'a str, &'a str),
    options: &Options,
) -> Result<(Snapshot<'a>, Snapshot<'a>), Error> {
    let (before, after) = texts(before, after, options)?;
    both(&before, Part::whole(before.all), &after, Part::whole(after.all))
}

fn texts<'a, 'o>(
    before: (&'a str, &'a str),
    after: (&'a str, &'a str),
    options: &'o Options,
) -> Result<(Text<'a, 'o>, Text<'a, 'o>), Error> {
    let before = Text::new(before.0, before.1, options)?;
    let after = Text::new(after.0, after.1, options)?;
    if before.format != after.format {
        // What is wrong with one of them may be why.
        both(&before, Part::whole(before.all), &after, Part::whole(after.all))?;
        return Err(Error::Usage(format!(
            "{} looks like {}, {} like {}: say which it is with --format",
            before.file,
            before.format.name(),
            after.file,
            after.format.name()
        )));
    }
    Ok((before, after))
}

fn both<'a>(
    before: &Text<'a, '_>,
    old: Part,
    after: &Text<'a, '_>,
    new: Part,
) -> Result<(Snapshot<'a>, Snapshot<'a>), Error> {
    let read_before = || before.read(old, Store::default());
    let read_after = || after.read(new, Store::default());
    // Starting threads takes longer than reading little.
    let (before, after) =
        if new.to - new.from > 2 * PART { rayon::join(read_before, read_after) } else { (read_before(), read_after()) };
    Ok((before?, after?))
}

struct Walk<'w, F> {
    before: Text<'w, 'w>,
    after: Text<'w, 'w>,
    settings: &'w Settings,
    each: F,
}

/// The parts that are to be done.
struct Work<'a> {
    cuts: Cuts<'a>,
    /// How many have been handed out.
    count: usize,
    /// The first in which the snapshots disagree.
    disagree: Option<(usize, (Part, Part))>,
}

impl Work<'_> {
    fn next(&mut self) -> Option<(usize, (Part, Part))> {
        let parts = if self.disagree.is_none() { self.cuts.next()? } else { return None };
        self.count += 1;
        Some((self.count, parts))
    }
}

impl<T: Send, F: Fn(&Differences<'_>) -> Result<T, Error> + Sync> Walk<'_, F> {
    /// Uses the parts before the first in which the snapshots disagree. What is left comes back with what was made of them.
    fn agreeing(&self, cuts: Cuts<'_>) -> Result<(Vec<T>, (Part, Part)), Error> {
        if cuts.clone().next().is_none() {
            return Ok((Vec::new(), cuts.rest()));
        }
        let work = Mutex::new(Work { cuts, count: 0, disagree: None });
        let mut done: Vec<_> = rayon::broadcast(|_| self.work_off(&work)).into_iter().flatten().collect();
        let Work { cuts, disagree, .. } = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (end, rest) = match disagree {
            Some((at, (old, new))) => (at, (old.to_end(self.before.all), new.to_end(self.after.all))),
            None => (usize::MAX, cuts.rest()),
        };
        done.retain(|(at, _)| *at < end);
        done.sort_unstable_by_key(|(at, _)| *at);
        Ok((done.into_iter().map(|(_, made)| made).collect::<Result<_, _>>()?, rest))
    }

    /// Takes part after part.
    fn work_off(&self, work: &Mutex<Work<'_>>) -> Vec<(usize, Result<T, Error>)> {
        let lock = || work.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stores = (Store::default(), Store::default());
        let mut done = Vec::new();
        loop {
            let Some((at, parts)) = lock().next() else { return done };
            if let Some(made) = self.part(parts, &mut stores) {
                done.push((at, made));
                continue;
            }
            let mut work = lock();
            if work.disagree.is_none_or(|(first, _)| at < first) {
                work.disagree = Some((at, parts));
            }
        }
    }

    /// Uses a part; `None` where the snapshots disagree in it, or where it cannot be read: all of the text will tell why.
    fn part(&self, (old, new): (Part, Part), stores: &mut (Store, Store)) -> Option<Result<T, Error>> {
        let before = self.before.read(old, std::mem::take(&mut stores.0)).ok()?;
        let after = self.after.read(new, std::mem::take(&mut stores.1)).ok()?;
        let made = (self.each)(&Differences::in_order(&before, &after, self.settings)?);
        *stores = (before.store, after.store);
        Some(made)
    }
}

#[cfg(test)]
mod tests;
