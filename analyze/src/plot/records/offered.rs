//! Facts about a column that stand in another one of the row: the units of offered loads and of service demands, and what
//! was timed.

use super::{Record, Records};
use crate::plot::{identity, quantity::Quantity};
use schemas::{
    columns::results::column,
    units::Unit,
    words::{DemandUnit, LatencyKind, OfferedUnit},
};

/// Columns that tell more of another one.
pub const TELLING: &[&str] = &[column::service_demand_unit, column::latency_kind];

/// The column of offered loads.
const OFFERED: &str = column::offered_per_s;

impl Records {
    /// Offered loads in the unit that people write: datagrams are counted, but their rate is usually swept in bits.
    pub(super) fn scale_offered(&mut self) {
        let unit_of = |records: &Self, record: &Record| match records.text(record, column::offered_unit).parse() {
            Ok(OfferedUnit::Bits) => Some(Unit::BitsPerSecond),
            Ok(OfferedUnit::Transactions) => Some(Unit::PerSecond),
            Ok(OfferedUnit::Messages) => {
                // `rate` may name the column itself, which has messages.
                let swept =
                    identity::swept(records.text(record, column::case), identity::SWEPT_RATE).unwrap_or_default();
                let counted = !swept.is_empty() && !swept.contains("bit") && !swept.contains('B');
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
            self.offered = self.offered.or(unit);
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
            return Quantity { label: "offered rate".to_owned(), unit: self.offered, ..quantity };
        }
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
        let in_bits = column == OFFERED && self.offered == Some(Unit::BitsPerSecond);
        if in_bits { "offered_bits_per_s".to_owned() } else { column.to_owned() }
    }
}
