//! Conditions on the cells of a row: `--where`.

use schemas::{
    assertion::Operator,
    columns::{self, results::column, verdicts},
    units::{self, Rate, Unit},
    vocabulary::{self, Meaning},
};

use super::super::{Cells, Table, parse_number};
use crate::error::Error;

/// A condition of `--where`, resolved for one table.
#[derive(Debug, Clone)]
pub(super) struct Condition {
    pub(super) column: usize,
    /// As it was written.
    pub(super) asked: String,
    test: Test,
    text: String,
    scale: Scale,
    number: Option<f64>,
}

/// The way in which the values of a column are read as numbers.
#[derive(Debug, Clone, Copy)]
enum Scale {
    /// Plain numbers; a condition may write them in this unit.
    Column(Option<Unit>),
    /// An offered load: plain numbers; a condition may write bits or events per second.
    Load,
    /// The values of a swept key, as the plan wrote them: plain numbers, or quantities with a unit.
    Axis,
}

impl Scale {
    fn of(column: &str) -> Self {
        match column {
            _ if column.starts_with(columns::AXIS_PREFIX) => Self::Axis,
            // The row's `offered_unit` says whether they are bits or events.
            column::offered_per_s | column::search_above => Self::Load,
            _ => Self::Column(Meaning::of(column).unit),
        }
    }

    /// The number that a condition writes, in the unit of the column's cells.
    fn read(self, text: &str) -> Option<f64> {
        let plain = || text.parse().ok();
        let number = match self {
            Self::Axis => quantity(text),
            Self::Column(None) => plain().or_else(|| units::parse_for(Unit::Count, text).ok()),
            Self::Load => plain().or_else(|| rate(text)),
            Self::Column(Some(unit)) => plain().or_else(|| units::parse_for(unit, text).ok()),
        };
        number.filter(|v: &f64| v.is_finite())
    }

    /// The number in a cell.
    fn cell(self, text: &str) -> Option<f64> {
        match self {
            Self::Axis => quantity(text),
            Self::Load | Self::Column(_) => parse_number(text).ok().flatten(),
        }
    }

    /// A sentence about a value that [`Self::read`] does not read.
    fn refusal(self, column: &str, value: &str) -> String {
        let reason = match self {
            Self::Column(Some(unit)) => units::parse_for(unit, value).err().map(|e| e.to_string()),
            Self::Load => units::parse_rate(value).err().map(|e| e.to_string()),
            _ => None,
        };
        reason.unwrap_or_else(|| format!("`{value}` is not a number, and `{column}` is compared by size"))
    }
}

fn rate(text: &str) -> Option<f64> {
    units::parse_rate(text).ok().map(|rate| match rate {
        Rate::Bits(v) | Rate::Events(v) => v,
    })
}

/// Whether a cell of a column has the value that somebody wrote: the same text, or the same quantity.
pub(crate) fn means(column: &str, cell: &str, written: &str) -> bool {
    let scale = Scale::of(column);
    cell == written || scale.read(written).is_some_and(|value| scale.cell(cell) == Some(value))
}

/// A quantity of any kind in its base unit: a count, bytes, seconds, bits or events per second, a ratio.
pub(crate) fn quantity(text: &str) -> Option<f64> {
    let duration = || units::parse_duration(text).ok().map(|v| v.as_secs_f64());
    // `10m` is ten minutes in a plan's times, and a size only with netperf's suffixes: the duration comes first.
    let size = || units::parse_size(text).ok().map(|v| v as f64);
    text.parse().ok().or_else(duration).or_else(size).or_else(|| rate(text)).or_else(|| units::parse_ratio(text).ok())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    Is(Operator),
    Contains,
}

impl Condition {
    pub(super) fn parse(text: &str, table: &Table) -> Result<Self, Error> {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        const TESTS: [(&str, Test); 8] = [
            ("==", Test::Is(Equal)),
            ("!=", Test::Is(NotEqual)),
            ("<=", Test::Is(LessOrEqual)),
            (">=", Test::Is(GreaterOrEqual)),
            ("=", Test::Is(Equal)),
            ("<", Test::Is(Less)),
            (">", Test::Is(Greater)),
            ("~", Test::Contains),
        ];
        let (at, symbol, test) = text
            .char_indices()
            .find_map(|(at, _)| TESTS.iter().find(|t| text[at..].starts_with(t.0)).map(|t| (at, t.0, t.1)))
            .ok_or_else(|| {
                Error::Usage(format!(
                    "--where `{text}`: a condition is COLUMN=VALUE, for example streams=4 or message_bytes>=64KiB"
                ))
            })?;
        let name = text[..at].trim();
        let value = text[at + symbol.len()..].trim();
        let column = table.asked(name)?;
        let name = &table.header().names()[column];
        let scale = Scale::of(name);
        let number = scale.read(value);
        let ordered = matches!(test, Test::Is(Less | LessOrEqual | Greater | GreaterOrEqual));
        if ordered && number.is_none() {
            return Err(Error::Usage(format!("--where `{text}`: {}", scale.refusal(name, value))));
        }
        // Verdicts name the column that was judged; people name its metric.
        let value = if name == verdicts::column::metric { vocabulary::canonical(value) } else { value.into() };
        Ok(Self { column, asked: text.to_owned(), test, text: value.into_owned(), scale, number })
    }

    pub(super) fn holds(&self, row: &impl Cells) -> Result<bool, Error> {
        let cell = row.get(self.column);
        Ok(match (self.test, self.number) {
            (Test::Contains, _) => cell.contains(&self.text),
            (Test::Is(operator @ (Operator::Equal | Operator::NotEqual)), limit) => {
                let equal = cell == self.text || limit.is_some_and(|v| self.scale.cell(cell) == Some(v));
                equal == (operator == Operator::Equal)
            }
            (Test::Is(operator), limit) => {
                self.number(row)?.zip(limit).is_some_and(|(value, limit)| operator.holds(value, limit))
            }
        })
    }

    /// The number in the row's cell; cells of swept keys may hold words.
    fn number(&self, row: &impl Cells) -> Result<Option<f64>, Error> {
        match self.scale {
            Scale::Axis => Ok(self.scale.cell(row.get(self.column))),
            Scale::Load | Scale::Column(_) => row.number(self.column),
        }
    }
}
