//! Any bytes as a file of a history. A history that can be read keeps its runs and series when faulty lines are removed.
#![no_main]

use analyze::history::{store::{Order, append, read}, thin::Period};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("m.csv"), bytes).expect("written");
    let _ = read(folder.path(), false);
    let Ok(before) = read(folder.path(), true) else { return };
    // Nothing is older than this.
    let order = Order { before: String::new(), keep: Period::Week, repair: true, is_dry: false };
    if compact(folder.path(), &order).is_ok() {
        let after = read(folder.path(), false).expect("faulty lines are gone");
        assert_eq!((before.series(), before.runs), (after.series(), after.runs));
    }
});
