#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| netcore::fuzz::stamp(bytes));
