//! The link of a queue: each link of a chain in turn, and each way.

use std::process::Stdio;

use crate::netns::Chain;

/// Places of the bucket: the links behind these hops, upload or download. tests/bench/hops tries all of them.
const PLACES: [(usize, bool); 3] = [(0, false), (1, true), (3, false)];

#[test]
fn each_link_is_named_where_its_bucket_is() {
    let (mut right, mut said) = (0, Vec::new());
    for (behind, forward) in PLACES {
        let Some(chain) = Chain::new(5) else { return };
        if !chain.limit(behind, forward, "20mbit") {
            return;
        }
        let (_daemon, _) = chain.serve(false);
        let mut measure = chain.0[0].command(env!("CARGO_BIN_EXE_plumb"));
        let way = if forward { "upload" } else { "download" };
        measure.args(["measure", &chain.far(false), "--hops", "-J"]).stdin(Stdio::null());
        let output = measure.output().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let rows = answer["rows"].as_array().unwrap();
        let load = rows.iter().find(|row| row["case"] == way && row["member"] == "load").unwrap();
        let hop = load["queue_hop"].as_u64();
        said.push(format!("{behind} {way}: {}", load["queue_hop_because"]));
        assert!(hop.is_none_or(|hop| hop == behind as u64), "{said:#?}");
        right += usize::from(hop.is_some() && load["queue_hop_last"].as_u64() == hop);
    }
    // A range of links is an honest answer, once.
    assert!(right + 1 >= PLACES.len(), "{right} of {}: {said:#?}", PLACES.len());
}
