//! Facts about a column that stand in another one of the row: the units of offered loads and of service demands, and what
//! was timed.

use super::{Record, Records};
use crate::plot::quantity::Quantity;
use schemas::{
    columns::{AXIS_PREFIX, results::column},
    text::case_parts,
    units::{Rate, Unit, parse_rate, parse_with_unit},
    words::{DemandUnit, LatencyKind, OfferedUnit},
};

/// Columns that tell more of another one.
pub const TELLING: &[&str] = &[column::service_demand_unit, column::latency_kind];

/// The column of offered loads.
const OFFERED: &str = column::offered_per_s;

impl Records {
    /// Reads the values of axis columns that say their unit, as `50ms` does, as numbers of that unit.
    pub(super) fn read_units(&mut self) {
        let axes: Vec<(String, usize)> = self
            .columns
            .iter()
            .filter(|(name, _)| name.starts_with(AXIS_PREFIX))
            .map(|(n, at)| (n.clone(), *at))
            .collect();
        for (name, at) in axes {
            let cells = || self.list.iter().map(|record| &*record.cells[at]).filter(|cell| !cell.is_empty());
            let Some((unit, _)) = cells().next().and_then(parse_with_unit) else { continue };
            if !cells().all(|cell| parse_with_unit(cell).is_some_and(|(other, _)| other == unit)) {
                continue;
            }
            for record in self.list.iter_mut().chain(&mut self.answers) {
                if let Some((_, value)) = parse_with_unit(&record.cells[at]) {
                    record.cells[at] = schemas::columns::number(value).into();
                }
            }
            self.units.insert(name, unit);
        }
    }

    /// Offered loads in the unit that people write: datagrams are counted, but their rate is usually swept in bits.
    pub(super) fn scale_offered(&mut self) {
        let unit_of = |records: &Self, record: &Record| match records.text(record, column::offered_unit).parse() {
            Ok(OfferedUnit::Bits) => Some(Unit::BitsPerSecond),
            Ok(OfferedUnit::Transactions) => Some(Unit::PerSecond),
            Ok(OfferedUnit::Messages) => {
                // The column has messages; the case's name has the rate as it was written.
                let swept = case_parts(records.text(record, column::case)).1.into_iter().find(|pair| pair.0 == "rate");
                let counted = swept.is_some_and(|(_, rate)| matches!(parse_rate(rate), Ok(Rate::Events(_))));
                let sized = records.number(record, column::message_bytes).is_some();
                Some(if counted || !sized { Unit::PerSecond } else { Unit::BitsPerSecond })
            }
            Err(_) => None,
        };
        let Some(&place) = self.columns.get(OFFERED) else { return };
        let mut list = std::mem::take(&mut self.list);
        let mut answers = std::mem::take(&mut self.answers);
        for record in list.iter_mut().chain(&mut answers) {
            let unit = unit_of(self, record);
            if let Some(unit) = unit {
                self.units.entry(OFFERED.to_owned()).or_insert(unit);
            }
            let messages = self.text(record, column::offered_unit) == OfferedUnit::Messages.as_str();
            if unit != Some(Unit::BitsPerSecond) || !messages {
                continue;
            }
            let (bytes, load) = (self.number(record, column::message_bytes), self.number(record, OFFERED));
            let Some(bits) = bytes.zip(load).map(|(bytes, load)| bytes * load * 8.0) else { continue };
            // The rate was written in bits and divided by the size: the product is off by the last digits.
            let bits = format!("{bits:.9e}").parse().unwrap_or(bits);
            record.cells[place] = schemas::columns::number(bits).into();
        }
        self.list = list;
        self.answers = answers;
    }

    /// The latency that the rows are about: a round trip is twice what `plumb fit` and a signature show.
    pub fn latency(&self) -> &'static str {
        let kind = match self.distinct(column::latency_kind)[..] {
            [kind] => kind.parse().ok(),
            _ => None,
        };
        match kind {
            Some(LatencyKind::RoundTrip) => "round-trip latency",
            Some(LatencyKind::Response) => "response latency, from the intended send",
            Some(LatencyKind::Connect) => "connect latency",
            Some(LatencyKind::Send) => "send latency",
            Some(LatencyKind::Receive) => "receive latency",
            Some(LatencyKind::Operation) => "time of an operation",
            None => "latency",
        }
    }

    /// The quantity of a column. Service demand and offered loads take their unit from the rows, latencies their name.
    pub fn quantity(&self, column: &str) -> Quantity {
        let mut quantity = Quantity::of_column(column);
        if column == OFFERED {
            return Quantity { label: "offered rate".to_owned(), unit: self.units.get(OFFERED).copied(), ..quantity };
        }
        quantity.unit = self.units.get(column).copied().or(quantity.unit);
        if let Some(which) = quantity.label.strip_prefix("latency, ") {
            quantity.label = format!("{}, {which}", self.latency());
        }
        if quantity.unit == Some(Unit::ServiceDemand)
            && let [per] = self.distinct(column::service_demand_unit)[..]
        {
            quantity.per = per.parse::<DemandUnit>().ok().map(|unit| unit.per().to_owned());
        }
        quantity
    }

    /// The name of a column in the points that a picture writes. The name of an offered load's column says the unit of its
    /// values.
    pub fn header(&self, column: &str) -> String {
        let in_bits = column == OFFERED && self.units.get(OFFERED) == Some(&Unit::BitsPerSecond);
        if in_bits { "offered_bits_per_s".to_owned() } else { column.to_owned() }
    }
}
