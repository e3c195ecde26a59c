//! The NAS Parallel Benchmarks (3.x, of MPI, OpenMP and one process): the block of results that every kernel prints.

use schemas::columns::Row;

use super::sheet::{Sheet, number, unknown, whole};
use crate::input::ParseError;

/// Whether a kernel wrote it.
pub fn looks_like(text: &str) -> bool {
    text.lines().any(|line| completed(line).is_some())
}

/// ` EP Benchmark Completed.`: the kernel, in lower case. The programs in C print no full stop.
fn completed(line: &str) -> Option<String> {
    let kernel = line.trim().trim_end_matches('.').strip_suffix(" Benchmark Completed")?.trim();
    let is_name = (2..=4).contains(&kernel.len()) && kernel.bytes().all(|b| b.is_ascii_uppercase());
    is_name.then(|| kernel.to_lowercase())
}

/// ` Mop/s total     =                    63.74` as name and value.
fn figure(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    Some((name.trim(), value.trim()))
}

/// A kernel's block while it is read.
struct Block {
    /// Line of its head.
    line: usize,
    kernel: String,
    row: Row,
    is_judged: bool,
}

/// Reads every block.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    let mut current: Option<Block> = None;
    for (at, line) in (1..).zip(text.lines()) {
        if let Some(kernel) = completed(line) {
            finish(current.take(), sheet)?;
            let mut row = unknown();
            row.workload = Some(format!("nas_{kernel}"));
            current = Some(Block { line: at, kernel, row, is_judged: false });
            continue;
        }
        let (Some(block), Some((name, value))) = (current.as_mut(), figure(line)) else { continue };
        // Compile options follow, with signs of equality of their own.
        if block.is_judged {
            continue;
        }
        let positive = || number(value).filter(|v| *v >= 0.0).ok_or_else(|| ParseError::expected(at, "a number", line));
        let count = || whole(value).ok_or_else(|| ParseError::expected(at, "a whole number", line));
        match name {
            "Class" => block.row.class = Some(value.to_owned()),
            "Time in seconds" => block.row.elapsed_s = Some(positive()?),
            "Total processes" => {
                block.row.ranks = Some(count()?);
                block.row.transport = Some("mpi".to_owned());
            }
            "Total threads" => block.row.threads = Some(count()?),
            "Mop/s total" => block.row.mops_per_s = Some(positive()?),
            "Verification" => {
                block.is_judged = true;
                match value {
                    "SUCCESSFUL" => block.row.verified = Some(true),
                    "UNSUCCESSFUL" => {
                        let (kernel, class) = (block.kernel.to_uppercase(), block.row.class.as_deref().unwrap_or("?"));
                        return Err(ParseError::new(
                            at,
                            format!(
                                "the result of {kernel} of class {class} is wrong (verification UNSUCCESSFUL), so that its \
                                 speed says nothing: look for a faulty machine, library or compiler option"
                            ),
                        ));
                    }
                    "NOT PERFORMED" => sheet.note("a kernel did not verify its result: `verified` is empty"),
                    _ => return Err(ParseError::expected(at, "SUCCESSFUL or UNSUCCESSFUL", line)),
                }
            }
            // Size and iterations follow from the class, Mop/s/process from the total.
            _ => {}
        }
    }
    finish(current, sheet)
}

/// Adds a kernel's row, which is whole.
fn finish(block: Option<Block>, sheet: &mut Sheet) -> Result<(), ParseError> {
    let Some(block) = block else { return Ok(()) };
    if !block.is_judged || block.row.mops_per_s.is_none() {
        let kernel = block.kernel.to_uppercase();
        let reason =
            format!("the results of {kernel} that begin here have no Mop/s total and verification: cut off there");
        return Err(ParseError::new(block.line, reason));
    }
    sheet.add_last(block.row);
    Ok(())
}
