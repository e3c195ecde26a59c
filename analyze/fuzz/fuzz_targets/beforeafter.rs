//! Two texts, split at a zero byte, through every reader and both writers of `beforeafter`.
#![no_main]

use analyze::counters::diff::{self, Differences, Settings};
use analyze::counters::render::{self, Wanted};
use analyze::counters::{Options, Snapshot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let (before, after) = data.split_once('\0').unwrap_or((data, data));
    let options = Options::default();
    let (Ok(before), Ok(after)) = (Snapshot::read("b", before, &options), Snapshot::read("a", after, &options)) else {
        return;
    };
    if before.format != after.format {
        return;
    }
    let Ok(differences) = Differences::new(&before, &after, &Settings::default()) else { return };
    let wanted = Wanted { nonzero: true, ..Wanted::default() };
    render::text(&mut Vec::new(), &differences, &wanted, Some(1.5), |_| ());
    let changes: Vec<_> = differences.iter().collect();
    let folded = diff::folded(&changes, false, true);
    render::csv(&mut Vec::new(), after.format, "host", &folded, &wanted, Some(1.5)).expect("memory takes everything");
});
