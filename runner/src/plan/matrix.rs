//! Swept keys: axes, generators, `zip`, `include`, `exclude`, and their combinations.

use std::{collections::HashSet, sync::Arc};

use super::{
    axis::{Condition, MAX_VALUES, generate, normal},
    diagnostics::{Diagnostics, Span, suggest},
    keys, ranges,
    tree::{Entry, Node, Scalar, Value},
};

/// Most combinations, the excluded ones included.
const MAX_COMBINATIONS: usize = 200_000;
/// Most swept keys of a test.
const MAX_KEYS: usize = 64;
/// Most comparisons of a combination with the conditions of an `exclude`.
const MAX_COMPARISONS: usize = 10_000_000;

/// One or more keys swept together.
#[derive(Clone, Debug)]
struct Axis {
    /// Dotted keys; several where they are zipped.
    paths: Vec<Arc<str>>,
    /// Per step, a value for each key.
    steps: Vec<Vec<Node>>,
}

/// The place of an `exclude`, and its conditions, which must all hold.
type Exclude = (Span, Vec<(Arc<str>, Condition)>);

/// The swept values of one case, in the order of the axes.
pub type Combination = Vec<(Arc<str>, Node)>;

/// The axes of a test.
#[derive(Clone, Debug, Default)]
pub struct Matrix {
    axes: Vec<Axis>,
    excluded: Vec<Exclude>,
    included: Vec<Combination>,
}

impl Matrix {
    pub fn read(node: &Node, out: &mut Diagnostics) -> Self {
        let mut matrix = Self::default();
        let Some(entries) = node.entries() else {
            out.error(node.span, "expected a map here", "each key of the test with its values");
            return matrix;
        };
        for entry in entries {
            match &*entry.key {
                "exclude" | "include" | "zip" => {}
                key if key.starts_with("x-") => {}
                _ if matrix.axes.len() == MAX_KEYS => {
                    out.error(entry.key_span, format!("the matrix sweeps over {MAX_KEYS} keys"), "sweep fewer");
                    return Self::default();
                }
                _ => {
                    if let Some(values) = values(entry, out) {
                        let steps = values.into_iter().map(|v| vec![v]).collect();
                        matrix.axes.push(Axis { paths: vec![entry.key.clone()], steps });
                    }
                }
            }
        }
        for entry in entries {
            match &*entry.key {
                "zip" => matrix.read_zip(&entry.value, out),
                "include" => matrix.read_include(&entry.value, out),
                "exclude" => matrix.read_exclude(&entry.value, out),
                _ => {}
            }
        }
        matrix
    }

    /// The swept keys, in order.
    pub fn paths(&self) -> Vec<Arc<str>> {
        let swept = self.axes.iter().flat_map(|a| &a.paths);
        let mut seen = HashSet::new();
        let all = swept.chain(self.included.iter().flatten().map(|(path, _)| path));
        all.filter(|path| seen.insert(Arc::clone(path))).cloned().collect()
    }

    /// Removes the axis of a key that `--set` fixes.
    pub fn fix(&mut self, path: &str) {
        for axis in &mut self.axes {
            if let Some(at) = axis.paths.iter().position(|p| &**p == path) {
                axis.paths.remove(at);
                for step in &mut axis.steps {
                    step.remove(at);
                }
            }
        }
        self.axes.retain(|axis| !axis.paths.is_empty());
        for (_, conditions) in &mut self.excluded {
            conditions.retain(|(p, _)| &**p != path);
        }
        self.excluded.retain(|(_, conditions)| !conditions.is_empty());
        for included in &mut self.included {
            included.retain(|(p, _)| &**p != path);
        }
    }

    /// Every combination that is not excluded, the last axis fastest, then those included; `limit` + 1 at most.
    pub fn combinations(&self, limit: usize, out: &mut Diagnostics) -> Vec<Combination> {
        let total = self.axes.iter().try_fold(1usize, |n, axis| n.checked_mul(axis.steps.len()));
        let Some(total) = total.filter(|n| *n <= MAX_COMBINATIONS) else {
            let span = self.axes.iter().flat_map(|a| a.steps.iter().flatten()).map(|n| n.span).next();
            out.error(
                span.unwrap_or_default(),
                format!("the matrix has over {MAX_COMBINATIONS} combinations"),
                "fewer values, or zip",
            );
            return Vec::new();
        };
        let conditions: usize = self.excluded.iter().map(|(_, conditions)| conditions.len()).sum();
        if let Some((span, _)) = self.excluded.first().filter(|_| total.saturating_mul(conditions) > MAX_COMPARISONS) {
            out.error(
                *span,
                format!("{conditions} conditions for {total} combinations are over {MAX_COMPARISONS} comparisons"),
                "fewer excludes, or include what is wanted",
            );
            return Vec::new();
        }
        let mut matched = vec![false; self.excluded.len()];
        let mut all = Vec::new();
        for index in 0..total {
            let mut rest = index;
            let mut swept: Vec<(&Arc<str>, &Node)> = Vec::with_capacity(self.axes.len());
            for axis in self.axes.iter().rev() {
                let step = &axis.steps[rest % axis.steps.len()];
                rest /= axis.steps.len();
                swept.extend(axis.paths.iter().zip(step).rev());
            }
            swept.reverse();
            let mut keep = true;
            for (at, (_, conditions)) in self.excluded.iter().enumerate() {
                let holds = conditions.iter().all(|(path, condition)| {
                    swept.iter().find(|(p, _)| *p == path).is_some_and(|(_, v)| condition.holds(v))
                });
                if holds {
                    matched[at] = true;
                    keep = false;
                }
            }
            if keep {
                all.push(swept.into_iter().map(|(path, value)| (path.clone(), value.clone())).collect());
                // The plan is rejected for its size; later excludes stay unchecked.
                if all.len() > limit {
                    return all;
                }
            }
        }
        for ((span, _), matched) in self.excluded.iter().zip(matched) {
            if !matched {
                out.error(
                    *span,
                    "this exclude matches no combination",
                    "compare with the values of the axes, or remove it",
                );
            }
        }
        all.extend(self.included.iter().cloned());
        all
    }

    fn read_zip(&mut self, node: &Node, out: &mut Diagnostics) {
        for group in maps(node, "zip", out) {
            let mut axis = Axis { paths: Vec::new(), steps: Vec::new() };
            for entry in group.entries().unwrap_or_default() {
                if self.axes.iter().any(|a| a.paths.contains(&entry.key)) {
                    out.error(entry.key_span, format!("`{}` is swept already", entry.key), "keep it in one place");
                    continue;
                }
                let Some(values) = values(entry, out) else { continue };
                if axis.paths.is_empty() {
                    axis.steps = vec![Vec::new(); values.len()];
                } else if axis.steps.len() != values.len() {
                    out.error(
                        entry.value.span,
                        format!("`{}` has {} values", entry.key, values.len()),
                        format!("`{}` has {}: zipped keys go step by step", axis.paths[0], axis.steps.len()),
                    );
                    continue;
                }
                if self.axes.len() + axis.paths.len() >= MAX_KEYS {
                    out.error(entry.key_span, format!("the matrix sweeps over {MAX_KEYS} keys"), "sweep fewer");
                    return;
                }
                axis.paths.push(entry.key.clone());
                for (step, value) in axis.steps.iter_mut().zip(values) {
                    step.push(value);
                }
            }
            if !axis.paths.is_empty() {
                self.axes.push(axis);
            }
        }
    }

    fn read_include(&mut self, node: &Node, out: &mut Diagnostics) {
        for group in maps(node, "include", out) {
            let mut combination = Combination::new();
            let entries = group.entries().unwrap_or_default();
            if entries.len() > MAX_KEYS {
                out.error(group.span, format!("an include with over {MAX_KEYS} keys"), "set fewer");
                continue;
            }
            for entry in entries {
                check_path(entry, std::slice::from_ref(&entry.value), out);
                combination.push((entry.key.clone(), entry.value.clone()));
            }
            self.included.push(combination);
        }
    }

    fn read_exclude(&mut self, node: &Node, out: &mut Diagnostics) {
        let paths: Vec<Arc<str>> = self.axes.iter().flat_map(|a| a.paths.iter().cloned()).collect();
        let names: Vec<&str> = paths.iter().map(|p| &**p).collect();
        for group in maps(node, "exclude", out) {
            let mut conditions = Vec::new();
            for entry in group.entries().unwrap_or_default() {
                if !names.contains(&&*entry.key) {
                    out.error(
                        entry.key_span,
                        format!("`{}` is not an axis of this matrix", entry.key),
                        suggest(&entry.key, &names),
                    );
                    continue;
                }
                match Condition::read(&entry.key, &entry.value) {
                    Ok(condition) => conditions.push((entry.key.clone(), condition)),
                    Err(diagnostic) => out.push(*diagnostic),
                }
            }
            if !conditions.is_empty() {
                self.excluded.push((group.span, conditions));
            }
        }
    }
}

fn maps<'a>(node: &'a Node, word: &str, out: &mut Diagnostics) -> Vec<&'a Node> {
    let items = node.items().unwrap_or_default();
    let good: Vec<&Node> = items.iter().filter(|n| n.entries().is_some()).collect();
    if node.items().is_none() || good.len() != items.len() {
        out.error(node.span, format!("`{word}` is a list of maps"), "- {key: value, …}");
    }
    good
}

/// The values of an axis, checked as values of its key.
fn values(entry: &Entry, out: &mut Diagnostics) -> Option<Vec<Node>> {
    let values = match &entry.value.value {
        Value::List(items) if keys::names_hosts(&entry.key) => hosts(items, out)?,
        Value::Scalar(scalar) if keys::names_hosts(&entry.key) && ranges::is_range(&scalar.text) => {
            hosts(std::slice::from_ref(&entry.value), out)?
        }
        Value::List(items) => items.clone(),
        Value::Map(_) => generate(entry, out)?,
        Value::Scalar(_) => {
            out.error(
                entry.value.span,
                format!("the axis `{}` needs a list of values", entry.key),
                "write [a, b], or a generator such as {from: 1, to: 1MiB, factor: 2}",
            );
            return None;
        }
    };
    if values.is_empty() {
        out.error(entry.value.span, format!("the axis `{}` has no values", entry.key), "");
        return None;
    }
    if values.len() > MAX_VALUES {
        out.error(entry.value.span, format!("the axis has over {MAX_VALUES} values"), "");
        return None;
    }
    check_path(entry, &values, out).then_some(values)
}

/// The hosts of an axis, with its ranges spelt out; more than [`MAX_VALUES`] only where the axis is refused for it.
fn hosts(items: &[Node], out: &mut Diagnostics) -> Option<Vec<Node>> {
    let mut all = Vec::new();
    for item in items {
        let Some(text) = item.text().filter(|text| ranges::is_range(text)) else {
            all.push(item.clone());
            continue;
        };
        match ranges::expand(text) {
            Ok(names) => all.extend(names.into_iter().map(|name| Node {
                value: Value::Scalar(Scalar { text: name.into(), plain: false }),
                span: item.span,
            })),
            Err(sentence) => {
                out.error_of(item.span, &sentence);
                return None;
            }
        }
        if all.len() > MAX_VALUES {
            break;
        }
    }
    Some(all)
}

/// Checks that the key can be swept and has these values.
fn check_path(entry: &Entry, values: &[Node], out: &mut Diagnostics) -> bool {
    let sweeps = keys::of_path(&entry.key).is_none_or(|key| key.sweeps);
    if !sweeps && !entry.key.starts_with("concurrent.members.") {
        out.error(entry.key_span, format!("`{}` cannot be swept", entry.key), "");
        return false;
    }
    let mut good = true;
    for value in values {
        let mistakes = keys::mistakes(&entry.key, value.clone(), entry.key_span);
        good &= mistakes.is_empty();
        // An unknown key is one mistake, not one per value.
        let wrong_key = mistakes.iter().any(|d| d.span == Some(entry.key_span));
        for mistake in mistakes {
            out.push(mistake);
        }
        if wrong_key {
            break;
        }
    }
    good
}

/// `bulk[message_size=65536,streams=4]`.
pub fn case_name(test: &str, combination: &Combination) -> String {
    if combination.is_empty() {
        return test.to_owned();
    }
    let axes: Vec<String> = combination.iter().map(|(path, value)| format!("{path}={}", normal(path, value))).collect();
    format!("{test}[{}]", axes.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::diagnostics::Sources;
    use super::super::tree::parse;
    use super::*;
    use crate::plan::diagnostics::Format;
    use proptest::prelude::*;

    fn expand(text: &str) -> Result<Vec<String>, String> {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        let mut out = Diagnostics::new(sources);
        let node = parse(source, &mut out).unwrap();
        let all = Matrix::read(&node, &mut out).combinations(MAX_COMBINATIONS, &mut out);
        if out.has_errors() {
            return Err(out.render(Format::Human));
        }
        Ok(all.iter().map(|c| case_name("", c)).collect())
    }

    fn values(text: &str) -> Vec<String> {
        expand(text).unwrap().iter().map(|name| name.split(['=', ']']).nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn generators_count_as_their_models_do() {
        assert_eq!(values("{message_size: {from: 1, to: 8, factor: 2}}"), ["1", "2", "4", "8"]);
        assert_eq!(
            values("{message_size: {from: 1, to: 8, factor: 2, half_steps: true}}"),
            ["1", "2", "3", "4", "6", "8"]
        );
        assert_eq!(values("{streams: {from: 2, to: 9, step: 3}}"), ["2", "5", "8"]);
        assert_eq!(
            values("{rate: {from: 500Mbit/s, to: 1500Mbit/s, step: 500Mbit/s}}"),
            ["500Mbit/s", "1Gbit/s", "1.5Gbit/s"]
        );
        assert_eq!(values("{rate: {from: 10k/s, to: 20k/s, step: 10k/s}}"), ["10000/s", "20000/s"]);
        assert_eq!(values("{duration: {from: 500ms, to: 2s, factor: 2}}"), ["0.5s", "1s", "2s"]);
        // NetPIPE's schedule from 1 byte to 8 MiB: n - 3, n, n + 3 around every power of two, each size once.
        let netpipe = values("{message_size: {from: 1, to: 8MiB, factor: 2, perturb: 3}}");
        assert_eq!(netpipe.len(), 67);
        assert_eq!(netpipe[..7], ["1", "2", "4", "5", "7", "8", "11"]);
    }

    #[test]
    fn combinations_go_in_order_the_last_axis_fastest() {
        assert_eq!(
            expand("{streams: [1, 2], socket.no_delay: [true, false]}").unwrap(),
            [
                "[streams=1,socket.no_delay=true]",
                "[streams=1,socket.no_delay=false]",
                "[streams=2,socket.no_delay=true]",
                "[streams=2,socket.no_delay=false]"
            ]
        );
        assert_eq!(
            expand(
                "{streams: [1, 2], zip: [{request_size: [1, 64], response_size: [2, 1KiB]}], include: [{streams: 9}]}"
            )
            .unwrap(),
            [
                "[streams=1,request_size=1,response_size=2]",
                "[streams=1,request_size=64,response_size=1024]",
                "[streams=2,request_size=1,response_size=2]",
                "[streams=2,request_size=64,response_size=1024]",
                "[streams=9]"
            ]
        );
        let kept = expand(
            "{message_size: [1, 64KiB, 1MiB], streams: [1, 16], exclude: [{message_size: \">64KiB\", streams: 16}]}",
        );
        assert_eq!(kept.unwrap().len(), 5);
    }

    #[test]
    fn what_cannot_be_swept_is_said_at_the_axis() {
        for (text, sentence) in [
            ("{mesage_size: [1]}", "did you mean `message_size`?"),
            ("{socket.nodelay: [true]}", "did you mean `no_delay`?"),
            ("{extends: [a]}", "cannot be swept"),
            ("{streams: 4}", "needs a list of values"),
            ("{streams: []}", "has no values"),
            ("{message_size: [64kib]}", "write KiB"),
            ("{message_size: {from: 8, to: 1, factor: 2}}", "`from` is beyond `to`"),
            ("{message_size: {from: 1, to: 8}}", "either `factor` or `step`"),
            ("{message_size: {from: 1, to: 8, factor: 1}}", "a number above 1"),
            ("{message_size: {from: 1, to: 8, fcator: 2}}", "did you mean `factor`?"),
            ("{message_size: {from: 0, to: 8, factor: 2}}", "start above 0"),
            ("{message_size: {from: 1, to: 8, step: 0}}", "never ends"),
            ("{message_size: {from: 1, to: 1GiB, step: 1}}", "over 10000 values"),
            ("{direction: {from: 1, to: 8, factor: 2}}", "cannot be counted through"),
            ("{streams: [1], exclude: [{streams: 2}]}", "matches no combination"),
            ("{streams: [1], exclude: [{threads: 2}]}", "not an axis of this matrix"),
            ("{streams: [1], exclude: {streams: 1}}", "a list of maps"),
            ("{zip: [{streams: [1, 2], threads: [1]}]}", "step by step"),
            ("{zip: [1]}", "a list of maps"),
            ("{streams: [1], zip: [{streams: [1]}]}", "swept already"),
        ] {
            let error = expand(text).expect_err(text);
            assert!(error.contains(sentence), "{text}: {sentence} not in:\n{error}");
        }
    }

    #[test]
    fn millions_of_combinations_are_refused_before_they_are_made() {
        let list = (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        let text = format!("{{streams: [{list}], threads: [{list}], inflight: [{list}]}}");
        assert!(expand(&text).unwrap_err().contains("combinations"));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_naive_product(
            streams in proptest::collection::btree_set(1u32..20, 1..5),
            sizes in proptest::collection::btree_set(1u32..5000, 1..5),
            inflight in proptest::collection::btree_set(1u32..9, 1..4),
            limit in 0u32..5000,
        ) {
            let list = |set: &std::collections::BTreeSet<u32>| {
                set.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            };
            let first = *streams.iter().next().unwrap();
            let excluded = sizes.iter().filter(|s| **s > limit).count() * inflight.len();
            let mut text = format!(
                "streams: [{}]\nmessage_size: [{}]\ninflight: [{}]\n", list(&streams), list(&sizes), list(&inflight)
            );
            if excluded > 0 {
                text = format!("{text}exclude: [{{message_size: \">{limit}\", streams: {first}}}]\n");
            }
            let names = expand(&text).unwrap();
            prop_assert_eq!(names.len(), streams.len() * sizes.len() * inflight.len() - excluded);
            let unique: HashSet<_> = names.iter().collect();
            prop_assert_eq!(unique.len(), names.len());
        }

        #[test]
        fn generated_sizes_stay_within_their_bounds(from in 1u64..100, span in 0u64..100_000, factor in 1.1f64..5.0) {
            let to = from + span;
            let values = values(&format!("{{message_size: {{from: {from}, to: {to}, factor: {factor}}}}}"));
            let numbers: Vec<u64> = values.iter().map(|v| v.parse().unwrap()).collect();
            prop_assert_eq!(numbers[0], from);
            prop_assert!(numbers.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(numbers.iter().all(|n| *n <= to + 1));
        }
    }
}
