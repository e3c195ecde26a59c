//! The published JSON Schema of a plan, made from the types that read it.
//!
//! The program has the published text. What makes it stays out of the program: the code of all types' schemas is large.

use std::sync::LazyLock;

use miniz_oxide::inflate::decompress_to_vec_zlib;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    model::PlanFile,
    quantity::{Size, Time},
};

/// Names of tests, profiles, members and hosts stand in paths (`--set tests.NAME.streams`), case names and result columns,
/// where an identifier must not look like a number.
pub const NAME_PATTERN: &str = "^[A-Za-z][A-Za-z0-9_-]*$";

/// Names of hosts may also be written as ranges.
pub const HOSTS_PATTERN: &str = r"^[A-Za-z][A-Za-z0-9_, /\[\]-]*$";

/// Names the schema, wherever a copy of it lies. An address would promise a page that outlives each server.
const ID: &str = "urn:plumbline:plan:1";

/// `schemas/plan.schema.json`, as build.rs compressed it: to a seventh. A test holds it to [`plan_schema`].
pub static PUBLISHED: LazyLock<String> = LazyLock::new(|| {
    // The text is compiled in: a failure means a broken build, which every test shows.
    let bytes = decompress_to_vec_zlib(include_bytes!(concat!(env!("OUT_DIR"), "/plan.schema.json.zlib")));
    String::from_utf8(bytes.expect("the built-in schema is compressed")).expect("the built-in schema is a text")
});

/// The schema of the types, for tests and for `just schemas`.
pub fn plan_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    // netcore's quantities share these names and are plain numbers there. schemars keeps the first definition.
    generator.subschema_for::<Size>();
    generator.subschema_for::<Time>();
    let mut schema = generator.into_root_schema_for::<PlanFile>().to_value();
    open_extensions(&mut schema);
    for (section, pattern) in [("tests", NAME_PATTERN), ("profiles", NAME_PATTERN), ("hosts", HOSTS_PATTERN)] {
        if let Some(Value::Object(map)) = schema.pointer_mut(&format!("/properties/{section}")) {
            map.insert("propertyNames".to_owned(), json!({"pattern": pattern}));
        }
    }
    if let Some(Value::Object(map)) = schema.pointer_mut("/$defs/Concurrent/properties/members") {
        map.insert("propertyNames".to_owned(), json!({"pattern": NAME_PATTERN}));
    }
    if let Value::Object(map) = &mut schema {
        map.insert("title".to_owned(), "Plumbline plan, version 1".into());
        map.shift_insert(0, "$id".to_owned(), ID.into());
    }
    schema
}

/// Wherever unknown keys are refused, `x-…` is still allowed: the extension point.
fn open_extensions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("additionalProperties") == Some(&Value::Bool(false)) {
                let mut patterns = Map::new();
                patterns.insert("^x-".to_owned(), json!({}));
                map.insert("patternProperties".to_owned(), patterns.into());
            }
            map.values_mut().for_each(open_extensions);
        }
        Value::Array(items) => items.iter_mut().for_each(open_extensions),
        _ => {}
    }
}
