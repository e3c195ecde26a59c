//! The parallel reader: all rows of a table on all cores, with the same result for any number of them. `aggregate` and
//! `window` use it, because their tables may have gigabytes. Everything else reads row by row with [`crate::table`].
//!
//! The interface is [`fold`] and [`Row`]. Headers and blocks of whole records come from [`crate::table`]. This module
//! only adds speed:
//!
//! - this file hands blocks to threads and merges their parts in the order of the input
//! - `row` reads the rows of a block
//! - `lines` finds the wanted cells of lines, 64 bytes at a time
//! - `bits` has the operations on words of 64 bits

mod bits;
mod lines;
mod row;

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

pub use row::Row;

use crate::error::Error;
use crate::table::{Blocks, Source, Table, Unchecked};
use row::Layout;

/// Bytes per block. A constant, because the last digits of merged sums depend on the cuts.
const BLOCK: usize = 4 << 20;

/// Bytes that are checked, searched and read at a time: they stay in a core's own cache.
const PIECE: usize = 256 << 10;

/// Parts per thread that may wait for an earlier one: bounds the memory if a thread is held up.
const WAITING: u64 = 4;

/// Gives every row to `add`, which adds it to the part of its block, and every part to `merge`, in the order of the
/// input.
///
/// Each core reads a block, makes its part, and merges the parts whose turn it is. The cuts between blocks depend on
/// the bytes alone, so the result does not depend on the number of threads. The first error in the order of the input
/// wins.
///
/// Rows have only the columns in `runs`: runs of neighbouring columns, each given by its first and last. Finding every
/// one of a hundred mostly empty cells would be half of the work of reading a row.
pub fn fold<P: Send>(
    table: &mut Table,
    runs: &[(usize, usize)],
    part: impl Fn() -> P + Sync,
    add: impl Fn(&mut P, &Row<'_>) -> Result<(), Error> + Sync,
    mut merge: impl FnMut(P) -> Result<(), Error> + Send,
) -> Result<(), Error> {
    let (header, sources) = table.parts();
    for Source { blocks, shape } in sources {
        let Some(first) = read(blocks)? else { continue };
        let layout = Layout::new(shape, header, runs);
        let make = |pieces| made(pieces, &layout, &part, &add);
        if blocks.is_at_end() {
            // A small file is done before threads would have started.
            merge(make(first)?.part)?;
            continue;
        }
        let work = Work {
            input: Mutex::new(Input { blocks, first: Some(first), taken: 0, ended: false }),
            output: Mutex::new(Output {
                merge: &mut merge,
                waiting: BTreeMap::new(),
                merged: 0,
                lines: 0,
                failed: None,
                stopped: false,
            }),
            advanced: Condvar::new(),
        };
        let threads = rayon::current_num_threads();
        rayon::scope(|scope| (0..threads).for_each(|_| scope.spawn(|_| work.run(threads as u64 * WAITING, make))));
        if let Some(error) = work.output.into_inner().ok().and_then(|output| output.failed) {
            return Err(error);
        }
    }
    Ok(())
}

/// The next block, in pieces of whole records; `None` at the end.
fn read(blocks: &mut Blocks) -> Result<Option<Vec<Unchecked>>, Error> {
    let mut pieces: Vec<Unchecked> = Vec::new();
    let mut left = BLOCK;
    while left > 0 {
        let (size, after) = if left < 2 * PIECE { (left, 0) } else { (PIECE, left - PIECE) };
        let behind = |error: Error| error.after_lines(pieces.iter().map(Unchecked::lines).sum());
        let Some(piece) = blocks.read(size).map_err(behind)? else { break };
        // The rest of an oversized piece belongs to the next block.
        left = if after == 0 { 0 } else { left.saturating_sub(piece.len()) };
        pieces.push(piece);
    }
    Ok(Some(pieces).filter(|pieces| !pieces.is_empty()))
}

/// A block's part.
struct Made<P> {
    part: P,
    lines: u64,
    /// The block's buffers, for the next one.
    texts: Vec<String>,
}

fn made<P>(
    pieces: Vec<Unchecked>,
    layout: &Layout<'_>,
    part: impl Fn() -> P,
    add: impl Fn(&mut P, &Row<'_>) -> Result<(), Error>,
) -> Result<Made<P>, Error> {
    let mut made = Made { part: part(), lines: 0, texts: Vec::with_capacity(pieces.len()) };
    for piece in pieces {
        let each = || {
            let block = piece.check(layout.file())?;
            let lines = layout.each_row(&block, |row| add(&mut made.part, row))?;
            Ok((block.text, lines))
        };
        let (text, lines) = each().map_err(|error: Error| error.after_lines(made.lines))?;
        made.lines += lines;
        made.texts.push(text);
    }
    Ok(made)
}

/// State that the threads share.
struct Work<'a, P, M> {
    input: Mutex<Input<'a>>,
    output: Mutex<Output<'a, P, M>>,
    /// Signals that a part was merged, or that something failed.
    advanced: Condvar,
}

struct Input<'a> {
    blocks: &'a mut Blocks,
    first: Option<Vec<Unchecked>>,
    /// Number of blocks handed out.
    taken: u64,
    ended: bool,
}

struct Output<'a, P, M> {
    merge: &'a mut M,
    /// Parts by their place in the input, with the number of lines of their blocks.
    waiting: BTreeMap<u64, Result<(P, u64), Error>>,
    merged: u64,
    lines: u64,
    /// The first error; nothing is merged after it.
    failed: Option<Error>,
    stopped: bool,
}

impl<P, M: FnMut(P) -> Result<(), Error>> Work<'_, P, M> {
    /// Works on blocks until there are no more, at most `lead` blocks ahead of what has been merged.
    fn run(&self, lead: u64, make: impl Fn(Vec<Unchecked>) -> Result<Made<P>, Error>) {
        let _stop = StopOnPanic(self);
        let mut spare = Vec::new();
        loop {
            // A `while let` would hold the lock while the block is worked on.
            let next = lock(&self.input).take(std::mem::take(&mut spare));
            let Some((place, pieces)) = next else { break };
            let made = pieces.and_then(&make).map(|made| {
                spare = made.texts;
                (made.part, made.lines)
            });
            let mut output = lock(&self.output);
            output.add(place, made);
            self.advanced.notify_all();
            while !output.stopped && place >= output.merged + lead {
                output = self.advanced.wait(output).expect(POISONED);
            }
            if output.stopped {
                break;
            }
        }
    }
}

/// Keeps other threads from waiting for the part of a thread that panics.
struct StopOnPanic<'a, 'b, P, M>(&'a Work<'b, P, M>);

impl<P, M> Drop for StopOnPanic<'_, '_, P, M> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut output) = self.0.output.lock()
        {
            output.stopped = true;
            self.0.advanced.notify_all();
        }
    }
}

impl Input<'_> {
    /// The next block and its place. An error is the last one.
    fn take(&mut self, spare: Vec<String>) -> Option<(u64, Result<Vec<Unchecked>, Error>)> {
        self.blocks.recycle(spare);
        if self.ended {
            return None;
        }
        let next = self.first.take().map(Ok).or_else(|| read(self.blocks).transpose());
        self.ended = !matches!(next, Some(Ok(_)));
        let place = self.taken;
        self.taken += 1;
        next.map(|block| (place, block))
    }
}

impl<P, M: FnMut(P) -> Result<(), Error>> Output<'_, P, M> {
    /// Takes a part; merges it and the parts that waited for it if it is its turn.
    fn add(&mut self, place: u64, made: Result<(P, u64), Error>) {
        self.waiting.insert(place, made);
        while !self.stopped
            && let Some(made) = self.waiting.remove(&self.merged)
        {
            self.merged += 1;
            // Line numbers in the error count from the start of the block.
            let merged = made.map_err(|error| error.after_lines(self.lines)).and_then(|(part, lines)| {
                self.lines += lines;
                (self.merge)(part)
            });
            self.failed = merged.err();
            self.stopped = self.failed.is_some();
        }
    }
}

const POISONED: &str = "no thread panics while it holds a lock";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect(POISONED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Cells;

    /// A table of some fifteen blocks.
    fn blocks() -> Table {
        Table::from_text("t", format!("a\nfirst\n{}", ("9".repeat(999) + "\n").repeat(60_000))).unwrap()
    }

    /// Other threads would wait for the part that never comes.
    #[test]
    #[should_panic(expected = "on purpose")]
    fn a_panic_is_not_waited_for() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let add = |(): &mut (), row: &Row<'_>| if row.get(0) == "first" { panic!("on purpose") } else { Ok(()) };
        let _ = pool.install(|| fold(&mut blocks(), &[(0, 0)], || (), add, |()| Ok(())));
    }

    /// The first two parts wait for each other.
    #[test]
    fn threads_work_side_by_side() {
        let (begun, another) = (Mutex::new(0), Condvar::new());
        let add = |part: &mut bool, _: &Row<'_>| {
            if !std::mem::replace(part, true) {
                let mut begun = begun.lock().unwrap();
                *begun += 1;
                another.notify_all();
                let patience = std::time::Duration::from_mins(1);
                let waited = another.wait_timeout_while(begun, patience, |begun| *begun < 2).unwrap();
                assert!(!waited.1.timed_out(), "nobody else came");
            }
            Ok(())
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        pool.install(|| fold(&mut blocks(), &[(0, 0)], || false, add, |_| Ok(()))).unwrap();
    }

    #[test]
    fn parts_are_merged_in_the_order_of_the_input() {
        let numbers: Vec<String> = (0..200_000).map(|i| format!("{i:080}")).collect();
        let text = format!("a\n{}\n", numbers.join("\n"));
        let add = |part: &mut Vec<String>, row: &Row<'_>| {
            part.push(row.get(0).to_owned());
            Ok(())
        };
        for threads in [1, 3] {
            let mut table = Table::from_text("t", text.clone()).unwrap();
            let (mut all, mut parts) = (Vec::new(), 0);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let merge = |part: Vec<String>| {
                parts += 1;
                all.extend(part);
                Ok(())
            };
            pool.install(|| fold(&mut table, &[(0, 0)], Vec::new, add, merge)).unwrap();
            assert!(parts > 2 && all == numbers, "{parts} parts");
        }
    }
}
