//! Generators of axis values: `{from, to, factor | step, half_steps, perturb}`.

use schemas::units::{self, Rate};

use super::{
    decode::decode,
    diagnostics::Diagnostics,
    keys::{self, KeyKind},
    model::{MatrixValue, Word},
    tree::{Entry, Node, Scalar, Value},
};

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
