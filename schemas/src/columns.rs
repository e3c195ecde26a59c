//! The tables: for each, one list of columns from which its typed row, header, dictionary and metrics are made.
//!
//! - [`results`]: one row per observation
//! - [`verdicts`]: one row per assertion or comparison, and case
//! - [`counters`]: one row per counter of a kernel or an interface
//! - [`hops`]: one row per hop of a path
//! - [`history`]: one row per run, case and metric
//! - [`cycles`]: one row per cycle of a watched plan
//! - [`metric`]: a column that is compared, asserted on and plotted

pub mod counters;
pub mod cycles;
pub mod history;
pub mod hops;
pub mod metric;
pub mod results;
mod value;
pub mod verdicts;

use crate::words::{self, Word};
use metric::Metric;
pub use value::Timestamp;
use value::may_be_empty;
pub(crate) use value::{Cell, Value};

pub use counters::CounterRow;
pub use cycles::CycleRow;
pub use history::HistoryRow;
pub use hops::HopRow;
pub use results::{COLUMNS, Row};
pub use verdicts::VerdictRow;

/// The type of a column's cells. A cell of any type may be empty: empty means "not defined for this row".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// UTF-8 text; identifiers among them never look like numbers.
    Text,
    /// A whole number, 0 … 2^63−1.
    Integer,
    /// A finite decimal number in the shortest form that reads back the same.
    Number,
    /// `true` or `false`.
    Boolean,
    /// RFC 3339 in UTC with a `Z`.
    Time,
}

impl ColumnType {
    pub fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Number)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its header: ASCII `snake_case`, the unit last.
    pub name: &'static str,
    pub ty: ColumnType,
    /// The group of the contract it belongs to (`identity`, `latency`, …).
    pub group: &'static str,
    /// For the data dictionary; `{words}` stands for the list of words, `{end}` and `{side}` for the end of its name.
    text: &'static str,
    words: &'static [Word],
    /// The metric that it holds.
    pub metric: Option<Metric>,
}

impl Column {
    /// For the data dictionary.
    pub fn description(&self) -> String {
        let [side, end] = if self.name.starts_with("local_") { ["local", "from"] } else { ["remote", "to"] };
        let text = self.text.replace("{words}", &words::listed(self.words));
        text.replace("{side}", side).replace("{end}", end)
    }

    /// Whether it is a parameter: rows that differ in one are not comparable. Buffers and MSS as the kernel reports them
    /// at the end are results.
    pub fn is_parameter(&self) -> bool {
        self.group == "what ran" && !self.name.ends_with("_buffer_bytes") && self.name != "mss_bytes"
    }
}

/// Why a cell was not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    #[error("there is no column `{0}`")]
    NoColumn(String),
    #[error("{0}")]
    Value(String),
}

/// A cell of `table` set from text; an empty one where it may be empty.
fn set<C: Cell>(cell: &mut C, text: &str) -> Result<(), CellError> {
    let value = if text.is_empty() { None } else { Some(C::Value::parse(text).map_err(CellError::Value)?) };
    cell.put(value);
    Ok(())
}

fn set_number<C: Cell>(cell: &mut C, value: Option<f64>) {
    if C::Value::TYPE.is_number() {
        cell.put(value.and_then(C::Value::of_number));
    }
}

/// Makes a table of one list: the columns, their metrics and names, and a row with a field per column.
///
/// A column is `name: type = "meaning";`, with `=> (metric, unit, better, kind, label)` behind it where it holds a metric.
/// `at_least(low)` or `any()` after the label is the metric's range if it is another than the unit's. `@ends { … }` has
/// columns of both ends, each once, `name (local_name remote_name): …`: first those of `from` are written, then those of `to`. In a meaning `{end}` is `from` or
/// `to`, and `{side}` `local` or `remote`; a label gets `here` or `there`.
macro_rules! columns {
    (
        $(#[$meta:meta])*
        $row:ident, $columns:ident, $metrics:tt $(, $extra:ident: $extra_type:ty)?;
        $( $group:literal {
            $( $name:ident : $ty:ty = $text:literal $(=> $metric:tt)?; )*
            $(
                @ends { $(
                    $stem:ident ($local:ident $remote:ident) : $end:ty = $end_text:literal
                    $(=> ($near:literal $far:literal, $unit:ident, $better:ident, $kind:ident, $label:literal))?;
                )* }
                $( $later:ident : $later_ty:ty = $later_text:literal $(=> $later_metric:tt)?; )*
            )*
        } )*
    ) => {
        /// The columns of both ends, as `[local, remote]`.
        pub mod ends {
            $( $( $(
                #[expect(non_upper_case_globals, reason = "spelt like the columns")]
                pub const $stem: [&str; 2] = [stringify!($local), stringify!($remote)];
            )* )* )*
        }

        $crate::columns::table! {
            $(#[$meta])*
            $row, $columns, $metrics $(, $extra: $extra_type)?;
            $( $group {
                $( $name: $ty = $text $(=> $metric)?; )*
                $(
                    $( $local: $end = $end_text
                        $(=> ($near, $unit, $better, $kind, concat!($label, " here")))?; )*
                    $( $remote: $end = $end_text
                        $(=> ($far, $unit, $better, $kind, concat!($label, " there")))?; )*
                    $( $later: $later_ty = $later_text $(=> $later_metric)?; )*
                )*
            } )*
        }
    };
}

/// The table of [`columns`], whose columns stand in one list.
macro_rules! table {
    (
        $(#[$meta:meta])*
        $row:ident, $columns:ident, $metrics:tt $(, $extra:ident: $extra_type:ty)?;
        $( $group:literal { $(
            $name:ident : $ty:ty = $text:literal
            $(=> ($metric:literal, $unit:ident, $better:ident, $kind:ident, $label:expr
                $(, $range:ident($($low:literal)?))?))?;
        )* } )*
    ) => {
        /// Every fixed column, in the order in which it is written.
        pub const $columns: &[$crate::columns::Column] = &[$( $( $crate::columns::Column {
            name: stringify!($name),
            ty: <<$ty as $crate::columns::Cell>::Value as $crate::columns::Value>::TYPE,
            group: $group,
            text: $text,
            words: <<$ty as $crate::columns::Cell>::Value as $crate::columns::Value>::WORDS,
            metric: $crate::columns::table!(@option $(
                $crate::columns::table!(@metric $name, $metric, $unit, $better, $kind, $label $(, $range($($low)?))?)
            )?),
        }, )* )*];

        pub const $metrics: &[$crate::columns::metric::Metric] =
            &[$( $( $( $crate::columns::table!(@metric $name, $metric, $unit, $better, $kind, $label $(, $range($($low)?))?), )? )* )*];

        $(#[$meta])*
        pub struct $row {
            $( $( #[doc = $text] pub $name: $ty, )* )*
            $( pub $extra: $extra_type, )?
        }

        /// The columns, in their order. One that is misspelt in code does not compile.
        #[expect(non_camel_case_types, reason = "spelt like the columns")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field {
            $( $( $name, )* )*
        }

        impl Field {
            /// The column's header.
            pub fn name(self) -> &'static str {
                $columns[self as usize].name
            }
        }

        /// The names of the columns, as text.
        #[expect(non_upper_case_globals, reason = "spelt like the columns")]
        pub mod column {
            $( $( pub const $name: &str = stringify!($name); )* )*
        }

        impl $row {
            /// Calls `write` once per cell, in the order of the columns. Undefined and non-finite values are empty cells.
            pub fn for_each_cell(&self, mut write: impl FnMut(&str)) {
                use $crate::columns::{Cell, Value};
                $( $( write(&self.$name.get().map(Value::text).unwrap_or_default()); )* )*
                $( for cell in &self.$extra { write(cell); } )?
            }

            /// The cell of that fixed column as it stands in a table; empty where it is undefined.
            pub fn text(&self, column: &str) -> String {
                use $crate::columns::{Cell, Value};
                match column {
                    $( $( stringify!($name) => self.$name.get().map(Value::text).unwrap_or_default().into_owned(), )* )*
                    _ => String::new(),
                }
            }

            /// The cell of that fixed column as a number; `None` where it is empty or holds no number.
            pub fn number(&self, column: &str) -> Option<f64> {
                use $crate::columns::{Cell, Value};
                match column {
                    $( $( stringify!($name) => self.$name.get().and_then(Value::number), )* )*
                    _ => None,
                }
            }

            /// Sets the cell of that fixed column to a number, whole where the column is, or empties it. Cells that hold
            /// no numbers are left alone.
            pub fn set_number(&mut self, column: &str, value: Option<f64>) {
                match column {
                    $( $( stringify!($name) => $crate::columns::set_number(&mut self.$name, value), )* )*
                    _ => {}
                }
            }

            /// Sets the cell of that fixed column from text as it stands in a table; empty text empties it.
            pub fn set(&mut self, column: &str, text: &str) -> Result<(), $crate::columns::CellError> {
                match column {
                    $( $( stringify!($name) => $crate::columns::set(&mut self.$name, text), )* )*
                    _ => Err($crate::columns::CellError::NoColumn(column.to_owned())),
                }
            }
        }
    };
    (@option) => { None };
    (@option $metric:expr) => { Some($metric) };
    (@metric $name:ident, $metric:literal, $unit:ident, $better:ident, $kind:ident, $label:expr
        $(, $range:ident($($low:literal)?))?) => {
        $crate::columns::metric::Metric {
            name: $metric,
            column: stringify!($name),
            unit: $crate::units::Unit::$unit,
            better: $crate::columns::metric::Better::$better,
            kind: $crate::columns::metric::Kind::$kind,
            label: $label,
            own_range: $crate::columns::table!(@option $($crate::units::Range::$range($($low)?))?),
        }
    };
}

pub(crate) use columns;
pub(crate) use table;

/// A number as the contract writes it: shortest form that reads back the same; empty where it is not finite.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    // `-0` would survive a round trip but surprises everybody who reads it.
    let value = if value == 0.0 { 0.0 } else { value };
    value.to_string()
}

/// The prefix of the columns of swept keys whose values no other column tells.
pub const AXIS_PREFIX: &str = "axis_";

/// The name of the axis column of a dotted path: `socket.mss` → `axis_socket_mss`.
pub fn axis_column(path: &str) -> String {
    let mut name = String::from(AXIS_PREFIX);
    name.extend(path.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }));
    name
}

/// The header of the results table: every fixed column, then one per axis path in the order given.
pub fn header(axis_paths: &[String]) -> Vec<String> {
    names(COLUMNS).map(str::to_owned).chain(axis_paths.iter().map(|p| axis_column(p))).collect()
}

/// The header of a table without axes.
pub fn names(columns: &'static [Column]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|c| c.name)
}

/// The fixed column of the results table of that name.
pub fn find(name: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|c| c.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::{Status, Way};

    #[test]
    fn names_are_unique_ascii_snake_case() {
        for table in
            [COLUMNS, verdicts::VERDICT_COLUMNS, counters::COUNTER_COLUMNS, hops::HOP_COLUMNS, cycles::CYCLE_COLUMNS]
        {
            let mut seen = std::collections::HashSet::new();
            for column in table {
                assert!(seen.insert(column.name), "{} twice", column.name);
                assert!(column.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
            }
        }
    }

    #[test]
    fn a_row_has_a_cell_per_header() {
        let row = Row { axes: vec!["true".into()], ..Row::default() };
        let mut cells = 0;
        row.for_each_cell(|_| cells += 1);
        assert_eq!(cells, header(&["socket.no_delay".into()]).len());
    }

    #[test]
    fn cells_are_read_and_set_by_name() {
        let mut row = Row { io: Some("blocking".into()), ..Row::default() };
        row.set_number("bytes_sent", Some(41.6));
        row.set_number("sent_bits_per_s", Some(0.5));
        row.set_number("io", Some(1.0));
        assert_eq!((row.bytes_sent, row.number("bytes_sent")), (Some(42), Some(42.0)));
        assert_eq!((row.number("sent_bits_per_s"), row.number("io")), (Some(0.5), None));
        assert_eq!(row.io.as_deref(), Some("blocking"));
        row.set_number("bytes_sent", None);
        assert_eq!(row.bytes_sent, None);
    }

    #[test]
    fn cells_are_set_from_their_own_text() {
        let row = Row {
            status: Some(Status::Confirm),
            direction: Some(Way::Reverse),
            time: Some(Timestamp("2026-01-02T03:04:05Z".into())),
            no_delay: Some(true),
            transactions: Some(7),
            rtt_us: Some(0.1 + 0.2),
            receive_call_histogram: Some("HISTFA".into()),
            ..Row::default()
        };
        let (mut cells, mut again) = (Vec::new(), Row::default());
        row.for_each_cell(|cell| cells.push(cell.to_owned()));
        for (column, cell) in COLUMNS.iter().zip(&cells) {
            again.set(column.name, cell).unwrap();
        }
        assert_eq!(again, row);
        again.set("status", "").unwrap();
        assert_eq!(again.status, None);
        for (column, cell) in [("transactions", "7.5"), ("rtt_us", "inf"), ("no_delay", "yes"), ("status", "fine")] {
            assert!(matches!(again.set(column, cell), Err(CellError::Value(_))), "{column} = {cell}");
        }
        assert!(matches!(again.set("colour", "x"), Err(CellError::NoColumn(_))));
    }

    #[test]
    fn undefined_numbers_are_empty() {
        assert_eq!(number(f64::NAN), "");
        assert_eq!(number(f64::INFINITY), "");
        assert_eq!(number(-0.0), "0");
        assert_eq!(number(0.1 + 0.2), "0.30000000000000004");
    }

    #[test]
    fn axis_columns_are_identifiers() {
        assert_eq!(axis_column("socket.no_delay"), "axis_socket_no_delay");
    }
}
