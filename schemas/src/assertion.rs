//! `metric op quantity`: the one-line statements of `assert`, and of `gate --assert`.

use crate::{
    metrics::{self, Metric},
    units::{self, QuantityError},
    vocabulary,
};

/// The relation of the observed value to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Operator {
    /// As it is written.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }

    /// The operator that a text begins with, and the rest of the text.
    pub fn split(text: &str) -> Option<(Self, &str)> {
        // The longer ones first: `<` begins `<=` too.
        let all = [Self::LessOrEqual, Self::GreaterOrEqual, Self::Equal, Self::NotEqual, Self::Less, Self::Greater];
        all.into_iter().find_map(|operator| Some((operator, text.strip_prefix(operator.symbol())?)))
    }

    /// Whether `value op limit` holds.
    #[must_use]
    #[expect(clippy::float_cmp, reason = "`==` is for counts, which are exact")]
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::Less => value < limit,
            Self::LessOrEqual => value <= limit,
            Self::Greater => value > limit,
            Self::GreaterOrEqual => value >= limit,
            Self::Equal => value == limit,
            Self::NotEqual => value != limit,
        }
    }
}

/// A statement about a metric.
#[derive(Clone, Debug)]
pub struct Assertion {
    /// The metric that is judged.
    pub metric: &'static Metric,
    /// The relation to the limit.
    pub operator: Operator,
    /// Against which value, in the unit of the metric's column.
    pub limit: f64,
    /// As it was written.
    pub text: String,
}

/// Why a statement was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssertionError {
    /// No operator.
    #[error(
        "`{0}` is no assertion: write METRIC OP LIMIT, for example `throughput >= 9Gbit/s` or `latency.p99 < 80us`"
    )]
    NoOperator(String),
    /// The name is not a metric's: a sentence that suggests one.
    #[error("{0}")]
    UnknownMetric(String),
    /// The limit.
    #[error(transparent)]
    Limit(#[from] QuantityError),
}

/// Reads one statement and checks its unit against the metric's.
pub fn parse(text: &str) -> Result<Assertion, AssertionError> {
    let (at, (operator, limit)) = text
        .char_indices()
        .find_map(|(at, _)| Some((at, Operator::split(&text[at..])?)))
        .ok_or_else(|| AssertionError::NoOperator(text.trim().to_owned()))?;
    let name = text[..at].trim();
    let metric = match metrics::of_survey(name) {
        Some(figure) => figure,
        None => vocabulary::metric(name).map_err(AssertionError::UnknownMetric)?,
    };
    let limit = match limit.trim_start().strip_prefix('-') {
        Some(size) if metric.range().low < 0.0 => -units::parse_for(metric.unit, size)?,
        _ => units::parse_for(metric.unit, limit)?,
    };
    Ok(Assertion { metric, operator, limit, text: text.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_plans_say() {
        let a = parse("throughput >= 9Gbit/s").unwrap();
        assert_eq!((a.metric.column, a.operator, a.limit), ("throughput_bits_per_s", Operator::GreaterOrEqual, 9e9));
        let a = parse("latency.p99<80us").unwrap();
        assert_eq!((a.metric.name, a.operator), ("latency.p99", Operator::Less));
        assert!((a.limit - 80.0).abs() < 1e-9);
        assert!((parse("rate_error > -1%").unwrap().limit + 0.01).abs() < 1e-12, "a signed metric");
        assert!(matches!(parse("loss_ratio > -1%"), Err(AssertionError::Limit(_))));
        assert!(parse("retransmits == 0").unwrap().limit.abs() < f64::EPSILON);
        let a = parse("spread < 5%").unwrap();
        assert_eq!((a.metric.column, metrics::find("spread").is_none()), ("spread_ratio", true));
    }

    #[test]
    fn refuses_what_cannot_be_judged() {
        assert!(matches!(parse("avg=123"), Err(AssertionError::NoOperator(_))));
        assert!(matches!(parse("thruput > 1Gbit/s"), Err(AssertionError::UnknownMetric(_))));
        assert!(matches!(parse("latency.p99 < 80Mbit/s"), Err(AssertionError::Limit(_))));
    }
}
