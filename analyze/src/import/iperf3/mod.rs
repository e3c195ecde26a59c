//! iperf3: the JSON of `-J`, the stream of events of `--json-stream`, and the text for people.

mod json;
mod text;

use super::sheet::Sheet;
use crate::input::ParseError;

/// Whether iperf3 wrote it, or iperf 2, which is refused with a reason of its own.
pub fn looks_like(text: &str) -> bool {
    json::looks_like(text) || text::looks_like(text) || iperf2(text).is_some()
}

/// Reads JSON or text.
pub fn read(text: &str, sheet: &mut Sheet) -> Result<(), ParseError> {
    if let Some(line) = iperf2(text) {
        return Err(ParseError::new(line, "this is the output of iperf 2, which is another program: run iperf3"));
    }
    if text.trim_start().starts_with('{') { json::read(text, sheet) } else { text::read(text, sheet) }
}

/// The line of iperf 2's first words.
fn iperf2(text: &str) -> Option<usize> {
    let begins = |l: &str| l.starts_with("Client connecting to ") || l.starts_with("Server listening on TCP port ");
    text.lines().position(|l| begins(l) || l.starts_with("Server listening on UDP port ")).map(|at| at + 1)
}
