//! All rows of a table on all cores, with the same outcome on any number of them.

use rayon::prelude::*;

use super::{Block, BlockRows, Blocks, Row, Table};
use crate::error::Error;

/// Bytes per block. The cuts depend on it, and with them the last digits of merged sums: it is a constant.
const BLOCK: usize = 4 << 20;

impl Table {
    /// Gives every row to `add`, which puts it into the part of its block, and every part to `merge`, in the order of the
    /// input. Parts are made on all cores while the next blocks are read; since blocks are cut by their bytes alone and
    /// merged in order, the outcome does not depend on the number of threads. The first error in the input's order wins.
    pub fn fold<P: Send>(
        &mut self,
        part: impl Fn() -> P + Sync,
        add: impl Fn(&mut P, &Row<'_>) -> Result<(), Error> + Sync,
        mut merge: impl FnMut(P) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let header = &self.header;
        for source in &mut self.sources {
            let shape = &source.shape;
            let work = |block: Block| -> Result<(P, String), Error> {
                let mut rows = BlockRows::new(block);
                let mut part = part();
                while rows.advance(shape)? {
                    add(&mut part, &rows.row(shape, header))?;
                }
                Ok((part, rows.into_text()))
            };
            let mut merge = |done: (P, String), blocks: &mut Blocks| {
                blocks.recycle(done.1);
                merge(done.0)
            };
            // The first block alone: a small file is done before threads would have started.
            if let Some(block) = source.blocks.next(BLOCK)? {
                merge(work(block)?, &mut source.blocks)?;
            }
            let size = 2 * rayon::current_num_threads();
            let mut batch = read(&mut source.blocks, size);
            while !batch.is_empty() {
                let (parts, next) = rayon::join(
                    || batch.into_par_iter().map(|block| work(block?)).collect::<Vec<_>>(),
                    || read(&mut source.blocks, size),
                );
                for part in parts {
                    merge(part?, &mut source.blocks)?;
                }
                batch = next;
            }
        }
        Ok(())
    }
}

/// Up to `size` blocks; an error is the last of them.
fn read(blocks: &mut Blocks, size: usize) -> Vec<Result<Block, Error>> {
    let mut batch = Vec::with_capacity(size);
    while batch.len() < size {
        match blocks.next(BLOCK) {
            Ok(Some(block)) => batch.push(Ok(block)),
            Ok(None) => break,
            Err(error) => {
                batch.push(Err(error));
                break;
            }
        }
    }
    batch
}
