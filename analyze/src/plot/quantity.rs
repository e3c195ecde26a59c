//! What a column's values are called, and in which unit they are.

use schemas::{
    metrics,
    units::{Unit, human},
};

/// What an axis shows: the words and the unit of its column.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// What a person calls it.
    pub label: String,
    /// Its unit, where one is known.
    pub unit: Option<Unit>,
    /// What service demand is counted per (`KiB` or `transaction`), where that is the unit.
    pub per: Option<String>,
}

impl Quantity {
    /// The quantity that a column holds: from the registry, or from the unit at the end of the column's name.
    #[must_use]
    pub fn of_column(name: &str) -> Self {
        if let Some(metric) = metrics::find(name) {
            return Self { label: metric.label.to_owned(), unit: Some(metric.unit), per: None };
        }
        let (stem, unit) = Unit::of_column(name).map_or((name, None), |(stem, unit)| (stem, Some(unit)));
        let stem = stem.strip_prefix(schemas::columns::AXIS_PREFIX).unwrap_or(stem);
        Self { label: stem.replace('_', " "), unit, per: None }
    }

    /// A quantity with its own words.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: Option<Unit>) -> Self {
        Self { label: label.into(), unit, per: None }
    }
}

impl Quantity {
    /// A cell's text in words: `65536` of a size is `64 KiB`; what is no number stays as it is.
    #[must_use]
    pub fn name(&self, text: &str) -> String {
        match (self.unit, text.parse::<f64>()) {
            (Some(unit), Ok(value)) => human(unit, value),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_outside_the_registry_take_the_unit_of_their_name() {
        assert_eq!(Quantity::of_column("axis_socket_mss").label, "socket mss");
        assert_eq!(Quantity::of_column("queue_bytes"), Quantity::new("queue", Some(Unit::Bytes)));
        assert_eq!(Quantity::of_column("streams"), Quantity::new("streams", None));
    }
}
