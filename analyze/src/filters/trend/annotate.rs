//! Regressions as annotations at lines of the history.

use std::io::Write;

use super::{Args, fails};
use crate::error::Error;
use crate::export::annotations::{At, annotations};
use crate::history::{
    places::place,
    sentences::{commits, sentence},
    series::Reading,
    told::Told,
};

/// Commits in an annotation.
const COMMITS: usize = 5;

/// Writes errors for what counts, and warnings for regressions that do not, with the commits that lie between.
pub fn write(args: &Args, reading: &Reading, all: &[Told], output: &mut dyn Write) -> Result<(), Error> {
    let mut found = Vec::new();
    for told in all {
        for (i, finding) in told.trend.findings.iter().enumerate() {
            let kind = match (fails(args, told, i), finding.worse, &told.accepted[i]) {
                (true, ..) => "error",
                (false, Some(true), None) => "warning",
                _ => continue,
            };
            let (_, first) = told.runs(reading, finding);
            let at = place(&args.history, &told.series.key, &first.run_id)?;
            let at = at.map(|(file, line)| At { file: file.display().to_string(), line, column: None });
            let commits = commits(told, i);
            let listed = commits.iter().take(COMMITS).map(|line| format!("\n{line}"));
            let more = commits.len().saturating_sub(COMMITS);
            let more = (more > 0).then(|| format!("\nand {more} more lines of commits: see the trend"));
            let text: String = listed.chain(more).collect();
            found.push((kind, at, sentence(reading, told, i) + &text));
        }
    }
    Ok(output.write_all(annotations(found).as_bytes())?)
}
