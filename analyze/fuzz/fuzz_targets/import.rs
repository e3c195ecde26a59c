//! Any text through the readers of `import`; what comes out must be writable.
#![no_main]

use analyze::import::ImportedRows;
use libfuzzer_sys::fuzz_target;
use schemas::columns::{COLUMNS, ColumnType};

fuzz_target!(|data: &str| {
    let mut imported = ImportedRows::default();
    let _ = imported.read("f", data, None);
    for row in imported.finish() {
        let mut columns = COLUMNS.iter();
        row.for_each_cell(|cell| {
            // Names may be anything, also `NaN`; what is called a number has to be one.
            let number = columns.next().is_some_and(|c| matches!(c.ty, ColumnType::Number | ColumnType::Integer));
            assert!(!number || cell.is_empty() || cell.parse::<f64>().is_ok_and(f64::is_finite), "{cell}");
        });
    }
});
