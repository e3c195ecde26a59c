//! The cells of `latency_histogram` on any text.
#![no_main]

use analyze::stats::histogram::Latencies;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|cell: &str| {
    let Ok(one) = Latencies::decode(cell) else { return };
    let mut all = Latencies::default();
    if all.merge(&one).is_ok() {
        let _ = (all.quantile_us(0.99), all.max_us(), all.stddev_us());
    }
});
