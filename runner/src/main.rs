//! plumb
fn main() {}
