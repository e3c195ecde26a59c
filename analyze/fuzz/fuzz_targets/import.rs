//! Any text through the readers of `import`; what comes out must be writable.
#![no_main]

use analyze::import::Sheet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let mut sheet = Sheet::default();
    let _ = sheet.read("f", data, None);
    for row in sheet.finish() {
        row.for_each_cell(|cell| assert!(!matches!(cell, "NaN" | "inf" | "-inf")));
    }
});
