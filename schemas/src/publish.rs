//! The published form of the results contract: a Frictionless Table Schema made from the registry.

use serde_json::{Map, Value, json};

use crate::columns::{COLUMNS, ColumnType};
use crate::metrics::METRICS;

/// The version of the results contract. Additive columns do not change it.
pub const RESULTS_VERSION: u64 = 1;

/// `schemas/results.schema.json`: a Frictionless Table Schema with the units and directions of the metrics.
#[must_use]
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
            field.insert("description".into(), column.description.into());
            field.insert("group".into(), column.group.into());
            if let Some(metric) = METRICS.iter().find(|m| m.column == column.name) {
                field.insert("metric".into(), metric.name.into());
                field.insert("unit".into(), metric.unit.name().into());
                field.insert("better".into(), metric.better.name().into());
                field.insert("kind".into(), metric.kind.name().into());
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
