//! Conditions on the values of keys (`exclude`, `when`), and how axis values are shown.

use schemas::{assertion::Operator, units};

use super::{
    diagnostics::{Diagnostic, halves},
    keys::{self, KeyKind},
    ranges,
    tree::{Node, Value},
};

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
