//! Conditions on the values of keys (`exclude`, `when`), and how axis values are shown.

use schemas::{
    assertion::Operator,
    units::{self, Rate},
};

use super::{
    diagnostics::{Diagnostic, halves},
    keys, ranges,
    tree::{Node, Value},
};

/// The kind of quantity that a key of a test holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Bytes.
    Size,
    Time,
    /// An offered load.
    Rate,
    Count,
    Word,
}

impl KeyKind {
    /// Whether a generator can count through its values.
    pub fn is_number(self) -> bool {
        self != Self::Word
    }

    pub fn is_whole(self) -> bool {
        matches!(self, Self::Size | Self::Count)
    }

    /// The value in its base unit: bytes, seconds, bits (or events) per second, a count.
    pub fn number(self, text: &str) -> Result<f64, String> {
        match self {
            Self::Size => units::parse_size(text).map(|v| v as f64).map_err(|e| e.to_string()),
            Self::Time => units::parse_duration(text).map(|v| v.as_secs_f64()).map_err(|e| e.to_string()),
            Self::Rate => units::parse_rate(text).map_err(|e| e.to_string()).map(|r| match r {
                Rate::Bits(v) | Rate::Events(v) => v,
            }),
            Self::Count => text
                .parse::<f64>()
                .ok()
                .filter(|v| *v >= 0.0 && v.is_finite())
                .ok_or_else(|| format!("`{text}` is not a count: write a whole number")),
            Self::Word => Err(format!("`{text}` is not compared by size")),
        }
    }

    /// A number of the base unit as a plan would write it.
    pub fn text(self, number: f64) -> String {
        match self {
            Self::Rate => {
                let steps = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
                // The largest prefix that leaves at most three decimals.
                let (step, unit) = steps
                    .into_iter()
                    .find(|(step, _)| number >= *step && (number / step * 1e3).fract() == 0.0)
                    .unwrap_or((1.0, "bit/s"));
                format!("{}{unit}", number / step)
            }
            Self::Time => format!("{number}s"),
            Self::Size | Self::Count | Self::Word => number.to_string(),
        }
    }
}

/// The value in case names and axis columns: sizes in bytes, everything else as written.
pub fn normal(path: &str, value: &Node) -> String {
    match &value.value {
        Value::Scalar(scalar) => match keys::kind(path) {
            KeyKind::Size => {
                units::parse_size(&scalar.text).map_or_else(|_| scalar.text.to_string(), |bytes| bytes.to_string())
            }
            _ => scalar.text.to_string(),
        },
        Value::List(items) => items.iter().map(|n| normal(path, n)).collect::<Vec<_>>().join("+"),
        Value::Map(_) => value.to_json().to_string(),
    }
}

/// A condition on a key: a value, or a comparison such as `">64KiB"`.
#[derive(Clone, Debug)]
pub struct Condition {
    kind: KeyKind,
    operator: Operator,
    text: String,
    number: Option<f64>,
    /// The hosts of a range.
    hosts: Vec<String>,
}

impl Condition {
    pub fn read(path: &str, node: &Node) -> Result<Self, Box<Diagnostic>> {
        let Some(text) = node.text() else {
            return Err(Box::new(
                Diagnostic::error(node.span, "expected a value or a comparison").help("64KiB, or \">64KiB\""),
            ));
        };
        Self::parse(path, text).map_err(|sentence| {
            let (message, help) = halves(&sentence);
            Box::new(Diagnostic::error(node.span, message).help(help))
        })
    }

    pub fn parse(path: &str, text: &str) -> Result<Self, String> {
        let (operator, rest) = Operator::split(text).map_or((Operator::Equal, text), |(op, rest)| (op, rest.trim()));
        let compares = !matches!(operator, Operator::Equal | Operator::NotEqual);
        let kind = keys::kind(path);
        let number = if kind.is_number() {
            // Some values of these keys are words: a CPU list, `warmup: auto`.
            match kind.number(rest) {
                Ok(number) => Some(number),
                Err(error) if compares => return Err(error),
                Err(_) => None,
            }
        } else if compares {
            return Err(format!("`{path}` cannot be compared by size: write its value"));
        } else {
            None
        };
        let hosts = if keys::names_hosts(path) { ranges::names(rest)? } else { Vec::new() };
        Ok(Self { kind, operator, text: rest.to_owned(), number, hosts })
    }

    pub fn holds(&self, value: &Node) -> bool {
        let text = value.text().unwrap_or("");
        if let (Some(limit), Ok(number)) = (self.number, self.kind.number(text)) {
            // 800 Mbit/s and 100 MB/s are equal, despite rounding.
            let close = (number - limit).abs() <= 1e-9 * limit.abs();
            return self.operator.holds(if close { limit } else { number }, limit);
        }
        let equal = text == self.text || self.hosts.iter().any(|host| host == text);
        match self.operator {
            Operator::Equal => equal,
            Operator::NotEqual => !equal,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{source::Span, tree::Scalar};

    fn holds(path: &str, condition: &str, value: &str) -> bool {
        let value = Node { value: Value::Scalar(Scalar::plain(value)), span: Span::default() };
        Condition::parse(path, condition).unwrap().holds(&value)
    }

    #[test]
    fn quantities_are_compared_by_value() {
        assert!(holds("message_size", ">64KiB", "1MiB"));
        assert!(!holds("message_size", ">64KiB", "65536"));
        assert!(holds("message_size", "64KiB", "65536"));
        assert!(holds("rate", "<=800Mbit/s", "100MB/s"));
        assert!(holds("socket.congestion_control", "cubic", "cubic"));
        assert!(holds("socket.congestion_control", "!=cubic", "bbr"));
        assert!(holds("inflight", "1", "1"));
        assert!(Condition::parse("workload", ">tcp_rr").unwrap_err().contains("by size"));
        assert!(Condition::parse("rate", ">10Mbps").unwrap_err().contains("bits or bytes"));
    }
}
