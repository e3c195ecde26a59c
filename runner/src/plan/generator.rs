//! Values that are counted out: `{from, to, factor | step, half_steps, perturb}`.

use super::{
    condition::KeyKind,
    diagnostics::{Diagnostic, Diagnostics, suggest},
    keys,
    matrix::MAX_VALUES,
    tree::{Entry, Node, Scalar, Value},
};

#[derive(Default)]
struct Generator {
    from: Option<f64>,
    to: Option<f64>,
    factor: Option<f64>,
    step: Option<f64>,
    perturb: Option<f64>,
    half_steps: bool,
    /// Of a rate: whether it counts events, not bits.
    events: bool,
}

/// `{from, to, factor | step, half_steps, perturb}` spelled out.
pub(super) fn generate(entry: &Entry, out: &mut Diagnostics) -> Option<Vec<Node>> {
    const KEYS: [&str; 6] = ["from", "to", "factor", "step", "half_steps", "perturb"];
    let kind = keys::kind(&entry.key);
    if !kind.is_number() {
        out.error(entry.value.span, format!("`{}` is no number to count with", entry.key), "list the values: [a, b]");
        return None;
    }
    let before = out.sorted().len();
    let mut g = Generator::default();
    for item in entry.value.entries().unwrap_or_default() {
        let text = item.value.text().unwrap_or("");
        let slot = match &*item.key {
            "half_steps" => {
                match text {
                    "true" => g.half_steps = true,
                    "false" => {}
                    _ => out.error(item.value.span, "expected true or false", ""),
                }
                continue;
            }
            "factor" => {
                match text.parse::<f64>() {
                    Ok(factor) if factor > 1.0 && factor.is_finite() => g.factor = Some(factor),
                    _ => out.error(item.value.span, format!("`{text}` is no factor"), "a number above 1"),
                }
                continue;
            }
            "from" => &mut g.from,
            "to" => &mut g.to,
            "step" => &mut g.step,
            "perturb" => &mut g.perturb,
            other => {
                out.error(item.key_span, format!("unknown key `{other}` of a generator"), suggest(other, &KEYS));
                continue;
            }
        };
        match kind.number(text) {
            Ok(number) => {
                *slot = Some(number);
                g.events |= matches!(schemas::units::parse_rate(text), Ok(schemas::units::Rate::Events(_)));
            }
            Err(error) => out.error(item.value.span, error, ""),
        }
    }
    if out.sorted().len() > before {
        return None;
    }
    let fault = |message: &str, help: &str| Diagnostic::error(entry.value.span, message.to_owned()).help(help);
    let (Some(from), Some(to)) = (g.from, g.to) else {
        out.push(fault("a generator needs `from` and `to`", "{from: 1, to: 1MiB, factor: 2}"));
        return None;
    };
    if from > to {
        out.push(fault("`from` is beyond `to`", "exchange them"));
        return None;
    }
    let numbers = match (g.factor, g.step) {
        (Some(factor), None) if from > 0.0 => geometric(from, to, factor, g.half_steps),
        (Some(_), None) => {
            out.push(fault("0 times a factor stays 0", "start above 0"));
            return None;
        }
        (None, Some(step)) if step > 0.0 => arithmetic(from, to, step),
        (None, Some(_)) => {
            out.push(fault("a step of 0 never ends", "a step above 0"));
            return None;
        }
        _ => {
            out.push(fault("a generator needs either `factor` or `step`", "factor: 2, or step: 1KiB"));
            return None;
        }
    };
    if numbers.len() > MAX_VALUES {
        out.push(fault(&format!("the generator makes over {MAX_VALUES} values"), "a larger factor or step"));
        return None;
    }
    let mut all: Vec<f64> = match g.perturb {
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
    Some(
        all.into_iter()
            .map(|n| if g.events && kind == KeyKind::Rate { format!("{n}/s") } else { kind.text(n) })
            .map(|text| Node { value: Value::Scalar(Scalar::plain(&text)), span: entry.value.span })
            .collect(),
    )
}

/// A little beyond, so that rounding does not lose the last value.
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
