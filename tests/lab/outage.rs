//! The length of an outage against that of a route which drops all packets.

use std::{thread, time::Duration};

use crate::{
    netns::{Chain, Waiting},
    program::{Folder, number, of, parse},
};

/// A route drops packets from the call that adds it to the one that removes it, and leaves neighbours and links as they are.
#[test]
fn an_outage_is_measured_to_two_milliseconds() {
    /// Error of an outage's length, microseconds.
    const ERROR_US: f64 = 2_000.0;
    let Some(chain) = Chain::new(3) else { return };
    let (_daemon, hosts) = chain.serve(false);
    for (workload, says) in [("udp_rr", "requests (upload)"), ("udp_stream, message_size: 200", "messages")] {
        for length_ms in [30, 137, 400] {
            let folder = Folder::new();
            let keys = "to: far, rate: 1k/s, outage: 20ms, warmup: 200ms, duration: 2s, iterations: 1";
            let plan = folder.plan(&hosts, &format!("  it: {{workload: {workload}, {keys}}}"));
            let mut router = Waiting::new(&chain.0[1]);
            let child = chain.0[0].start(&plan);
            thread::sleep(Duration::from_millis(1200));
            let [drop, pass] = ["add", "del"].map(|verb| format!("route {verb} blackhole {}/32", chain.far(false)));
            let (most, least) = router.for_a_time(&drop, Duration::from_millis(length_ms), &pass);
            let ran = crate::program::end(child);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let rows = parse(&ran.stdout);
            let row = of(&rows, "iteration").into_iter().find(|row| row["phase"] == "measure").unwrap();
            let found = number(row, "outage_max_us");
            assert!((least - ERROR_US..=most + ERROR_US).contains(&found), "{workload}: {found} µs, {least} to {most}");
            let because = &row["outage_because"];
            assert!(row["outages"] == "1" && because.contains(says), "{workload}: {because}");
        }
    }
}
