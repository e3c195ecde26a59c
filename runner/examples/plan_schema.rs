//! Writes `schemas/plan.schema.json`: `cargo run -p runner --example plan_schema`.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/plan.schema.json");
    std::fs::write(path, format!("{:#}\n", runner::plan::keys::plan_schema()))
}
