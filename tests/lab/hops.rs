//! The link of a queue: each link of a chain in turn, and each way.

use std::process::Stdio;

use crate::netns::Chain;

/// Ways, and how often of eight times the right link must be named.
const WAYS: [bool; 2] = [true, false];
const RIGHT: usize = 7;

#[test]
fn each_link_is_named_where_its_bucket_is() {
    let (mut right, mut said) = (0, Vec::new());
    for behind in 0..4 {
        for forward in WAYS {
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
    }
    assert!(right >= RIGHT, "{right} of 8: {said:#?}");
}
