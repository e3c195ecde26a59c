//! Two texts, split at a zero byte, through every reader and both writers of `beforeafter`.
#![no_main]

use analyze::counters::{Options, Snapshot, diff::{Settings, self}, render::{Wanted, self}};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let (before, after) = data.split_once('\0').unwrap_or((data, data));
    let options = Options::default();
    let Ok((before, after)) = Snapshot::read_pair(("b", before), ("a", after), &options) else { return };
    let Ok(changes) = diff::differences(&before, &after, &Settings::default()) else { return };
    let wanted = Wanted { nonzero: true, ..Wanted::default() };
    render::text(&after, &changes, &wanted, Some(1.5));
    let folded = diff::folded(&changes, false, true);
    render::csv(&mut Vec::new(), after.format, "host", &folded, &wanted, Some(1.5)).expect("memory takes everything");
});
