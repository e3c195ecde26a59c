//! The table reader on any bytes: it must give rows or an error, never panic, and rows must be as wide as the header.
#![no_main]

use analyze::table::{Selection, Picker, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut table) = Table::from_text("fuzz", bytes) else { return };
    let width = table.header().names().len();
    let mut picker = Picker::new(&Selection::default(), &table).expect("the default selection fits every table");
    while let Ok(Some(row)) = table.next_row() {
        assert_eq!(row.cells().count(), width);
        let _ = picker.pick(&row);
        for column in 0..width {
            let _ = row.number(column);
        }
    }
});
