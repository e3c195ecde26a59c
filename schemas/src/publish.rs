//! The published form of the results contract: a Frictionless Table Schema made from the registry.

use serde_json::{Map, Value, json};

use crate::columns::{COLUMNS, ColumnType};

/// The published schema of a type that is one word of a plan.
#[macro_export]
macro_rules! published {
    ($type:ident as $name:literal, $schema:tt) => {
        impl ::schemars::JsonSchema for $type {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!($schema)
            }
        }
    };
}

/// The version of the results contract. Additive columns do not change it.
pub const RESULTS_VERSION: u64 = 1;

/// `schemas/results.schema.json`: a Frictionless Table Schema with the units and directions of the metrics.
pub fn results_schema() -> Value {
    let fields: Vec<Value> = COLUMNS
        .iter()
        .map(|column| {
            let mut field = Map::new();
            field.insert("name".into(), column.name.into());
            field.insert(
                "type".into(),
                match column.ty {
                    ColumnType::Text => "string",
                    ColumnType::Integer => "integer",
                    ColumnType::Number => "number",
                    ColumnType::Boolean => "boolean",
                    ColumnType::Time => "datetime",
                }
                .into(),
            );
            field.insert("description".into(), column.description().into());
            field.insert("group".into(), column.group.into());
            if let Some(metric) = &column.metric {
                field.insert("metric".into(), metric.name.into());
                field.insert("unit".into(), metric.unit.as_str().into());
                field.insert("better".into(), metric.better.as_str().into());
                field.insert("kind".into(), metric.kind.as_str().into());
            }
            Value::Object(field)
        })
        .collect();
    json!({
        "$schema": "https://specs.frictionlessdata.io/schemas/table-schema.json",
        "name": "plumbline-results",
        "version": RESULTS_VERSION,
        "description": "One row per observation. After these columns comes one text column `axis_<path>` per swept key that has no column of its own.",
        "missingValues": [""],
        "fields": fields,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_published() {
        let schema = results_schema();
        let fields = schema["fields"].as_array().expect("a list");
        assert_eq!(fields.len(), COLUMNS.len());
        assert!(fields.iter().all(|f| f["name"].is_string() && f["type"].is_string()));
    }
}
