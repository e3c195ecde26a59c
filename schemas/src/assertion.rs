//! `metric op quantity`: the one-line statements of `assert`, and of `gate --assert`; in a group of members also
//! `member.metric - member.metric op quantity`; and `limited_by == word`.

use crate::{
    metrics::{self, Metric},
    units::{self, QuantityError, Range},
    vocabulary,
    words::LimitedBy,
};

crate::words! {
    /// The relation of the observed value to the limit.
    Operator {
        Less = "<",
        LessOrEqual = "<=",
        Greater = ">",
        GreaterOrEqual = ">=",
        Equal = "==",
        NotEqual = "!=",
    }
}

impl Operator {
    /// The operator that a text begins with, and the rest of the text.
    pub fn split(text: &str) -> Option<(Self, &str)> {
        // The longer ones first: `<` begins `<=` too.
        let all = [Self::LessOrEqual, Self::GreaterOrEqual, Self::Equal, Self::NotEqual, Self::Less, Self::Greater];
        all.into_iter().find_map(|operator| Some((operator, text.strip_prefix(operator.as_str())?)))
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
    /// The members whose values are subtracted; `None`: the statement is about values as they are.
    pub difference: Option<Difference>,
    /// The cause that a statement about [`metrics::LIMITED_BY`] names.
    pub cause: Option<LimitedBy>,
}

/// A value of one member of a group minus one of another, in the same iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The member whose [`Assertion::metric`] it is.
    pub member: String,
    /// The member whose value is subtracted.
    pub minus: String,
    /// The metric that is subtracted; its unit is that of the other.
    pub minus_metric: &'static str,
}

impl Difference {
    /// The metric that is subtracted.
    pub fn subtracted(&self) -> Option<&'static Metric> {
        metrics::find(self.minus_metric)
    }
}

impl Assertion {
    /// The values that can be observed. A difference has a sign.
    #[must_use]
    pub fn range(&self) -> Range {
        if self.difference.is_some() { Range::ANY } else { self.metric.range() }
    }
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
    /// A difference whose sides are not `MEMBER.METRIC`.
    #[error(
        "`{0}` is no side of a difference: write MEMBER.METRIC, for example `loaded.latency.p95 - idle.latency.p95 < 5ms`"
    )]
    NoMember(String),
    /// A minus without blanks, which may be a hyphen of a name.
    #[error(
        "`{0}`: write blanks around the minus, which is otherwise a hyphen of a name: `a.latency.p95 - b.latency.p95 < 5ms`"
    )]
    NoBlanks(String),
    /// Two quantities that cannot be subtracted.
    #[error("`{0}` is in {1} and `{2}` in {3}: only equal units can be subtracted")]
    Units(&'static str, &'static str, &'static str, &'static str),
    /// No cause of `limited_by`.
    #[error("`{0}` is no cause: `limited_by` is {causes}", causes = causes())]
    NoCause(String),
    /// A cause has no size.
    #[error("`{0}`: a cause has no size: write `limited_by == path` or `limited_by != sender_cpu`")]
    Order(String),
    /// The limit.
    #[error(transparent)]
    Limit(#[from] QuantityError),
}

fn causes() -> String {
    LimitedBy::ALL.iter().map(|cause| cause.key()).collect::<Vec<_>>().join(", ")
}

/// Reads one statement and checks its unit against the metric's.
pub fn parse(text: &str) -> Result<Assertion, AssertionError> {
    let (at, (operator, limit)) = text
        .char_indices()
        .find_map(|(at, _)| Some((at, Operator::split(&text[at..])?)))
        .ok_or_else(|| AssertionError::NoOperator(text.trim().to_owned()))?;
    let name = text[..at].trim();
    if name == metrics::LIMITED_BY.name {
        return about_cause(text.trim(), operator, limit.trim());
    }
    let (metric, difference) = match metrics::of_survey(name) {
        Some(figure) => (figure, None),
        None => subject(name)?,
    };
    let mut assertion =
        Assertion { metric, operator, limit: 0.0, text: text.trim().to_owned(), difference, cause: None };
    assertion.limit = match limit.trim_start().strip_prefix('-') {
        Some(size) if assertion.range().low < 0.0 => -units::parse_for(metric.unit, size)?,
        _ => units::parse_for(metric.unit, limit)?,
    };
    Ok(assertion)
}

/// `limited_by == path`
fn about_cause(text: &str, operator: Operator, word: &str) -> Result<Assertion, AssertionError> {
    if !matches!(operator, Operator::Equal | Operator::NotEqual) {
        return Err(AssertionError::Order(text.to_owned()));
    }
    let cause = LimitedBy::named(word).ok_or_else(|| AssertionError::NoCause(word.to_owned()))?;
    let (metric, limit, text) = (metrics::LIMITED_BY, cause.index(), text.to_owned());
    Ok(Assertion { metric, operator, limit, text, difference: None, cause: Some(cause) })
}

/// The subject of a statement: a metric, or the difference of two members' metrics. Names of members have hyphens and metrics
/// have dots, so a minus stands between blanks, and a member ends at the first dot.
fn subject(name: &str) -> Result<(&'static Metric, Option<Difference>), AssertionError> {
    let metric_of = |name: &str| vocabulary::metric(name).map_err(AssertionError::UnknownMetric);
    let minus = name.match_indices('-').map(|(at, _)| at).find(|at| {
        let blank = |c: Option<char>| c.is_some_and(char::is_whitespace);
        blank(name[..*at].chars().next_back()) && blank(name[at + 1..].chars().next())
    });
    let Some(at) = minus else {
        let is_difference = |at| side(&name[..at]).is_ok() && side(&name[at + 1..]).is_ok();
        let joined = name.match_indices('-').any(|(at, _)| is_difference(at));
        return if joined { Err(AssertionError::NoBlanks(name.to_owned())) } else { Ok((metric_of(name)?, None)) };
    };
    let ((member, metric), (minus, minus_metric)) = (side(&name[..at])?, side(&name[at + 1..])?);
    if metric.unit != minus_metric.unit {
        let (a, b) = (metric, minus_metric);
        return Err(AssertionError::Units(a.name, a.unit.as_str(), b.name, b.unit.as_str()));
    }
    let (member, minus) = (member.to_owned(), minus.to_owned());
    Ok((metric, Some(Difference { member, minus, minus_metric: minus_metric.name })))
}

/// One side of a difference: the member and its metric.
fn side(text: &str) -> Result<(&str, &'static Metric), AssertionError> {
    let no_member = || AssertionError::NoMember(text.trim().to_owned());
    let (member, metric) = text.trim().split_once('.').ok_or_else(no_member)?;
    let is_name = member.starts_with(|c: char| c.is_ascii_alphabetic())
        && member.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    let metric = vocabulary::metric(metric).map_err(AssertionError::UnknownMetric)?;
    if is_name { Ok((member, metric)) } else { Err(no_member()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    #[test]
    fn a_cause_is_named_by_its_word() {
        for (text, cause) in [
            ("limited_by == path", LimitedBy::Path),
            ("limited_by != sender_cpu", LimitedBy::SenderCpu),
            ("limited_by==sender CPU", LimitedBy::SenderCpu),
            ("limited_by == round_trip", LimitedBy::RoundTrip),
        ] {
            assert_eq!(parse(text).unwrap().cause, Some(cause), "{text}");
        }
        assert!(LimitedBy::ALL.iter().all(|cause| LimitedBy::at(cause.index()) == Some(*cause)));
        assert!(LimitedBy::ALL.iter().all(|cause| LimitedBy::named(&cause.key()) == Some(*cause)));
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        let list = wrong("limited_by == cpu");
        assert!(
            list.contains("`cpu` is no cause") && list.contains("path, wire") && list.contains("sender_cpu"),
            "{list}"
        );
        assert!(wrong("limited_by < path").contains("has no size"));
        assert!(matches!(parse("limited_by.mean == path"), Err(AssertionError::UnknownMetric(_))));
    }

    #[test]
    fn a_difference_is_between_two_members() {
        let a = parse("up-tcp.latency.p95 - idle-tcp.latency.p50 < 5ms").unwrap();
        let difference = a.difference.clone().unwrap();
        assert_eq!((difference.member.as_str(), a.metric.name), ("up-tcp", "latency.p95"));
        assert_eq!((difference.minus.as_str(), difference.subtracted().unwrap().name), ("idle-tcp", "latency.p50"));
        assert!((a.limit - 5000.0).abs() < 1e-9 && a.range() == Range::ANY);
        assert!((parse("a.throughput - b.throughput > -1Gbit/s").unwrap().limit + 1e9).abs() < 1.0);
        // A member may have the name of a metric.
        assert_eq!(parse("latency.rtt - rtt.rtt < 1ms").unwrap().difference.unwrap().member, "latency");
        assert!(parse("latency.p95 < 5ms").unwrap().difference.is_none());
        let wrong = |text: &str| parse(text).unwrap_err();
        assert!(matches!(wrong("latency.p95 - idle.latency.p95 < 5ms"), AssertionError::UnknownMetric(_)));
        assert!(matches!(wrong("up - idle < 5ms"), AssertionError::NoMember(_)));
        assert!(matches!(wrong("a.latency.p95-b.latency.p95 < 5ms"), AssertionError::NoBlanks(_)));
        assert!(matches!(wrong("a.latency.p95 - b.throughput < 5ms"), AssertionError::Units(..)));
        assert!(matches!(wrong("a.latency.p95 - b.latency.p95 < 5Mbit/s"), AssertionError::Limit(_)));
    }

    proptest! {
        #[test]
        fn members_with_any_name_are_found_again(
            a in "[A-Za-z][A-Za-z0-9_-]{0,12}", b in "[A-Za-z][A-Za-z0-9_-]{0,12}",
            m in 0..metrics::METRICS.len(), n in 0..metrics::METRICS.len(),
            blank in " {1,3}", operator in "<|<=|>|>=",
        ) {
            let (m, n) = (&metrics::METRICS[m], &metrics::METRICS[n]);
            let text = format!("{a}.{}{blank}-{blank}{b}.{}{blank}{operator}{blank}", m.name, n.name);
            let limit = match m.unit {
                units::Unit::BitsPerSecond => "3Mbit/s",
                units::Unit::PerSecond => "3/s",
                units::Unit::MopsPerSecond => "3Mop/s",
                units::Unit::Bytes => "3KiB",
                units::Unit::Seconds | units::Unit::Microseconds => "3ms",
                units::Unit::Ratio => "3%",
                units::Unit::Count => "3",
                units::Unit::ServiceDemand => "3us/KiB",
            };
            match parse(&format!("{text}{limit}")) {
                Ok(found) => {
                    let difference = found.difference.unwrap();
                    prop_assert_eq!((difference.member, difference.minus), (a, b));
                    prop_assert_eq!((found.metric.name, difference.minus_metric), (m.name, n.name));
                    prop_assert_eq!(m.unit, n.unit);
                }
                Err(AssertionError::Units(..)) => prop_assert!(m.unit != n.unit),
                Err(other) => prop_assert!(false, "{text}{limit}: {other}"),
            }
        }

        #[test]
        fn no_statement_makes_it_panic(text in "[a-z.<>=! -]{0,40}|\\PC{0,20}") {
            let _ = parse(&text);
        }
    }
}
