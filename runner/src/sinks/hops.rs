//! The `hops` table: round trips to the hops of the path of each test that probed them.

use analyze::stats::quantiles::select_median;
use netcore::report::RoundTrips;
use schemas::columns::HopRow;

use super::csv::LineWriter;
use crate::schedule::{
    Measured,
    rows::{self, hops},
    step::Step,
};

/// The lines of an iteration.
pub fn lines(step: &Step, iteration: u32, measured: &Measured) -> Vec<u8> {
    let mut text = LineWriter::new();
    for ((member, identity), reports) in step.members_with_identity().zip(&measured.members) {
        let Some(path) = &reports.near.path else { continue };
        let way = member.spec().and_then(|spec| rows::ways(spec.direction).last().copied());
        let (judged, _) = hops::judged(path);
        for (number, (hop, judged)) in (1..).zip(path.hops.iter().zip(judged)) {
            let slow = judged.is_odd().then(|| "answers slowly by itself".to_owned());
            let notes: Vec<String> = slow.into_iter().chain(hops::others(hop)).collect();
            let row = HopRow {
                run_id: identity.run_id.clone(),
                case_id: identity.case_id.clone(),
                case: identity.case.clone(),
                member: identity.member.clone(),
                iteration: Some(iteration.into()),
                direction: way,
                hop: Some(number),
                address: hop.addresses.first().map(ToString::to_string),
                idle_us: median(&hop.idle),
                loaded_us: median(&hop.loaded),
                added_us: judged.added.map(|added| added.centre),
                added_low_us: judged.added.map(|added| added.low),
                added_high_us: judged.added.map(|added| added.high),
                idle_answers: Some(hop.idle.answers().count() as u64),
                idle_probes: Some(hop.idle.asked.into()),
                loaded_answers: Some(hop.loaded.answers().count() as u64),
                loaded_probes: Some(hop.loaded.asked.into()),
                note: (!notes.is_empty()).then(|| notes.join("; ")),
            };
            row.for_each_cell(|cell| text.cell(cell));
            text.end();
        }
    }
    text.finish()
}

fn median(trips: &RoundTrips) -> Option<f64> {
    let mut us: Vec<f64> = trips.answers().map(f64::from).collect();
    select_median(&mut us)
}
