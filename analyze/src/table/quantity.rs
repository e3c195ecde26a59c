//! The name and unit of a column's values.

use schemas::{
    metrics::{self, Range},
    text::shown_way,
    units::{Unit, human},
};

/// The label of `inflight`.
const IN_FLIGHT: &str = "transactions in flight";

/// The name and unit of what an axis shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    pub label: String,
    /// `None` where it is unknown.
    pub unit: Option<Unit>,
    /// The unit of work of a service demand: `KiB` or `transaction`.
    pub per: Option<String>,
    /// The values that there can be. Axes and intervals do not reach beyond them.
    pub range: Range,
}

impl Quantity {
    /// The quantity of a column, by any of its names: from the registry, or from the unit at the end of its name.
    pub fn of_column(name: &str) -> Self {
        let name = &*schemas::vocabulary::canonical(name);
        if let Some(metric) = metrics::find(name) {
            return Self { label: metric.label.to_owned(), unit: Some(metric.unit), per: None, range: metric.range() };
        }
        let (stem, unit) = Unit::of_column(name).map_or((name, None), |(stem, unit)| (stem, Some(unit)));
        let stem = stem.strip_prefix(schemas::columns::AXIS_PREFIX).unwrap_or(stem);
        let unit = unit.or_else(|| stem.ends_with("_buffer").then_some(Unit::Bytes));
        let label =
            if stem == "inflight" { IN_FLIGHT.to_owned() } else { stem.replace("socket_", "").replace('_', " ") };
        Self::new(label, unit)
    }

    pub fn new(label: impl Into<String>, unit: Option<Unit>) -> Self {
        Self { label: label.into(), unit, per: None, range: Range::ANY }
    }

    /// Whether it counts parallel things: whole numbers, which usually are powers of two.
    pub fn is_parallel(&self) -> bool {
        matches!(self.label.as_str(), "streams" | "threads" | IN_FLIGHT)
    }

    pub fn within(self, range: Range) -> Self {
        Self { range, ..self }
    }

    /// A cell for people: `65536` of a size becomes `64 KiB`. Text stays as it is.
    pub fn name(&self, text: &str) -> String {
        match text {
            "~" => return "none".to_owned(),
            _ if self.label == "direction" => return shown_way(text).to_owned(),
            _ => {}
        }
        if let (Some(Unit::Bytes), Ok(size)) = (self.unit, text.parse()) {
            return schemas::text::bytes(size);
        }
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
        assert_eq!(Quantity::of_column("axis_socket_mss").label, "mss");
        assert_eq!(Quantity::of_column("socket.send_buffer"), Quantity::new("send buffer", Some(Unit::Bytes)));
        assert_eq!(["65536", "65537"].map(|size| Quantity::of_column("queue_bytes").name(size)), ["64 KiB", "65537 B"]);
        assert_eq!(Quantity::of_column("queue_bytes"), Quantity::new("queue", Some(Unit::Bytes)));
        assert_eq!(Quantity::of_column("streams"), Quantity::new("streams", None));
    }
}
