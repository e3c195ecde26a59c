//! Values of an axis: how they are shown, conditions on them (`exclude`, `when`), and generators
//! (`{from, to, factor | step, half_steps, perturb}`).

use std::collections::BTreeMap;

use schemas::{
    assertion::Operator,
    units::{self, Rate},
};

use super::{
    decode::decode,
    diagnostics::{Diagnostic, Diagnostics, halves},
    keys::{self, KeyKind},
    model::{MatrixValue, Word},
    ranges,
    tree::{Entry, Node, Scalar, Value},
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

/// The settings of a test or a member, by their paths. What is about the whole test, and its hosts, are none.
pub fn settings(body: &Node) -> BTreeMap<String, String> {
    fn add(path: &str, value: &Node, found: &mut BTreeMap<String, String>) {
        match value.entries() {
            Some(inner) => inner.iter().for_each(|entry| add(&format!("{path}.{}", entry.key), &entry.value, found)),
            None => {
                found.insert(path.to_owned(), normal(path, value));
            }
        }
    }
    let mut found = BTreeMap::new();
    let is_whole = |name: &str| keys::of_whole_test().any(|key| key == name);
    for entry in body.entries().unwrap_or_default() {
        if !keys::names_hosts(&entry.key) && !is_whole(&entry.key) {
            add(&entry.key, &entry.value, &mut found);
        }
    }
    found
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

/// Most values of one axis.
pub(super) const MAX_VALUES: usize = 10_000;

/// A mistake: its key in the generator (empty: the whole), the sentence, and what to do.
type Wrong = (&'static str, String, &'static str);

/// The values of an axis written as a generator.
pub(super) fn generate(entry: &Entry, out: &mut Diagnostics) -> Option<Vec<Node>> {
    let (node, kind) = (&entry.value, keys::kind(&entry.key));
    if !kind.is_number() {
        out.error(node.span, format!("`{}` cannot be counted through", entry.key), "list the values: [a, b]");
        return None;
    }
    let mut mistakes = Diagnostics::default();
    let written: Option<MatrixValue> = decode(node, &mut mistakes);
    if mistakes.has_errors() {
        for mistake in mistakes.sorted() {
            out.push(mistake.clone());
        }
        return None;
    }
    let written = written?;
    match numbers(kind, &written) {
        Ok(numbers) => {
            let all = [Some(&written.from), Some(&written.to), written.step.as_ref(), written.perturb.as_ref()];
            let is_events = |word: &Word| matches!(units::parse_rate(&word.0), Ok(Rate::Events(_)));
            let events = kind == KeyKind::Rate && all.into_iter().flatten().any(is_events);
            let text = |n: f64| if events { format!("{n}/s") } else { kind.text(n) };
            let value = |n| Node { value: Value::Scalar(Scalar::plain(&text(n))), span: node.span };
            Some(numbers.into_iter().map(value).collect())
        }
        Err((key, message, help)) => {
            out.error(node.get(key).unwrap_or(node).span, message, help);
            None
        }
    }
}

fn numbers(kind: KeyKind, written: &MatrixValue) -> Result<Vec<f64>, Wrong> {
    let wrong = |message: &str, help| Err(("", message.to_owned(), help));
    let number = |key, word: &Word| kind.number(&word.0).map_err(|message| (key, message, ""));
    let optional = |key, word: &Option<Word>| word.as_ref().map(|word| number(key, word)).transpose();
    let (from, to) = (number("from", &written.from)?, number("to", &written.to)?);
    let (step, perturb) = (optional("step", &written.step)?, optional("perturb", &written.perturb)?);
    if from > to {
        return wrong("`from` is beyond `to`", "exchange them");
    }
    let numbers = match (written.factor, step) {
        (Some(factor), None) if !(factor > 1.0 && factor.is_finite()) => {
            return Err(("factor", format!("`{factor}` is not a factor"), "a number above 1"));
        }
        (Some(factor), None) if from > 0.0 => geometric(from, to, factor, written.half_steps == Some(true)),
        (Some(_), None) => return wrong("0 times a factor stays 0", "start above 0"),
        (None, Some(step)) if step > 0.0 => arithmetic(from, to, step),
        (None, Some(_)) => return wrong("a step of 0 never ends", "a step above 0"),
        _ => return wrong("a generator needs either `factor` or `step`", "factor: 2, or step: 1KiB"),
    };
    if numbers.len() > MAX_VALUES {
        return wrong(&format!("the generator makes over {MAX_VALUES} values"), "a larger factor or step");
    }
    let mut all: Vec<f64> = match perturb {
        Some(by) => numbers.iter().flat_map(|n| [n - by, *n, n + by]).filter(|n| *n >= from.min(1.0)).collect(),
        None => numbers,
    };
    if kind.is_whole() {
        for n in &mut all {
            *n = n.round();
        }
    }
    all.sort_by(f64::total_cmp);
    all.dedup();
    Ok(all)
}

/// Tolerance that keeps the last value despite rounding.
const SLACK: f64 = 1.0 + 1e-9;

fn geometric(from: f64, to: f64, factor: f64, half_steps: bool) -> Vec<f64> {
    let mut all = Vec::new();
    let mut value = from;
    while value <= to * SLACK && all.len() <= MAX_VALUES {
        all.push(value);
        if half_steps && value * 1.5 <= to * SLACK {
            all.push(value * 1.5);
        }
        value *= factor;
    }
    all
}

fn arithmetic(from: f64, to: f64, step: f64) -> Vec<f64> {
    (0..=MAX_VALUES).map(|n| from + step * n as f64).take_while(|v| *v <= to * SLACK).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{axis::*, diagnostics::Span};

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
