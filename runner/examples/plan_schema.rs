//! Writes `schemas/plan.schema.json`, made from the types that read a plan: `cargo run -p runner --example plan_schema`.

use runner::plan::{
    model::PlanFile,
    quantity::{Size, Time},
};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

/// Names of tests, profiles, members and hosts stand in paths (`--set tests.NAME.streams`), case names and result columns,
/// where an identifier must not look like a number.
const NAME_PATTERN: &str = "^[A-Za-z][A-Za-z0-9_-]*$";

/// Names of hosts may also be written as ranges.
const HOSTS_PATTERN: &str = r"^[A-Za-z][A-Za-z0-9_, /\[\]-]*$";

/// Names the schema, wherever a copy of it lies. An address would promise a page that outlives each server.
const ID: &str = "urn:plumbline:plan:1";

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/plan.schema.json");
    std::fs::write(path, format!("{:#}\n", plan_schema()))
}

/// The schema of the types.
pub fn plan_schema() -> Json {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    // netcore's quantities share these names and are plain numbers there. schemars keeps the first definition.
    generator.subschema_for::<Size>();
    generator.subschema_for::<Time>();
    let mut schema = generator.into_root_schema_for::<PlanFile>().to_value();
    open_extensions(&mut schema);
    for (section, pattern) in [("tests", NAME_PATTERN), ("profiles", NAME_PATTERN), ("hosts", HOSTS_PATTERN)] {
        if let Some(Json::Object(map)) = schema.pointer_mut(&format!("/properties/{section}")) {
            map.insert("propertyNames".to_owned(), json!({"pattern": pattern}));
        }
    }
    if let Some(Json::Object(map)) = schema.pointer_mut("/$defs/Concurrent/properties/members") {
        map.insert("propertyNames".to_owned(), json!({"pattern": NAME_PATTERN}));
    }
    if let Json::Object(map) = &mut schema {
        map.insert("title".to_owned(), "Plumbline plan, version 1".into());
        map.shift_insert(0, "$id".to_owned(), ID.into());
    }
    schema
}

/// Wherever unknown keys are refused, `x-…` is still allowed: the extension point. A default of null says nothing.
fn open_extensions(value: &mut Json) {
    match value {
        Json::Object(map) => {
            if map.get("additionalProperties") == Some(&Json::Bool(false)) {
                let mut patterns = Map::new();
                patterns.insert("^x-".to_owned(), json!({}));
                map.insert("patternProperties".to_owned(), patterns.into());
            }
            map.retain(|key, value| key != "default" || !value.is_null());
            map.values_mut().for_each(open_extensions);
        }
        Json::Array(items) => items.iter_mut().for_each(open_extensions),
        _ => {}
    }
}
