//! `${vars.x}`: declared parameters, substituted in strings. There are no expressions.

use std::{cell::Cell, collections::BTreeMap};

use super::{
    diagnostics::{Diagnostic, Diagnostics, suggest},
    source::Span,
    tree::{Node, Scalar, Value},
    yaml::MAX_BYTES,
};

#[derive(Debug, Default)]
pub struct Vars {
    /// The declared parameters with their values (`None`: not set) and places.
    declared: BTreeMap<String, (Option<String>, Span)>,
    /// Bytes of all strings that were substituted. A long value in many places would otherwise fill the memory.
    made: Cell<usize>,
}

impl Vars {
    /// Reads the plan's `vars`. A value in the environment wins over the default.
    pub fn declared(root: &Node, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let entries = root.get("vars").and_then(Node::entries).unwrap_or_default();
        let declared = entries
            .iter()
            .map(|entry| {
                let set = entry.value.get("env").and_then(Node::text).and_then(environment);
                let value = set.or_else(|| entry.value.get("default").and_then(Node::text).map(str::to_owned));
                (entry.key.to_string(), (value, entry.key_span))
            })
            .collect();
        Self { declared, made: Cell::new(0) }
    }

    /// Sets one from the command line; `false`: not declared.
    pub fn set(&mut self, name: &str, value: &str) -> bool {
        match self.declared.get_mut(name) {
            Some(slot) => {
                slot.0 = Some(value.to_owned());
                true
            }
            None => false,
        }
    }

    pub fn names(&self) -> Vec<&str> {
        self.declared.keys().map(String::as_str).collect()
    }

    /// Substitutes in every string of the tree but those under the keys in `skip`.
    pub fn substitute(&self, node: &mut Node, skip: &[&str], out: &mut Diagnostics) {
        if let Value::Map(entries) = &mut node.value {
            for entry in entries.iter_mut().filter(|e| !skip.contains(&&*e.key) && !e.key.starts_with("x-")) {
                self.walk(&mut entry.value, out);
            }
        } else {
            self.walk(node, out);
        }
    }

    fn walk(&self, node: &mut Node, out: &mut Diagnostics) {
        let span = node.span;
        if out.is_full() {
            return;
        }
        match &mut node.value {
            Value::Scalar(scalar) if scalar.text.contains("${") => *scalar = self.scalar(scalar, span, out),
            Value::Scalar(_) => {}
            Value::List(items) => items.iter_mut().for_each(|item| self.walk(item, out)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| self.walk(&mut entry.value, out)),
        }
    }

    fn scalar(&self, scalar: &Scalar, span: Span, out: &mut Diagnostics) -> Scalar {
        let mut text = String::new();
        let mut rest: &str = &scalar.text;
        // A string that is only one reference takes the type of its value.
        let whole = rest.starts_with("${") && rest.find('}') == Some(rest.len() - 1);
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                text.push_str(&rest[..at - 1]);
                text.push_str("${");
                rest = &rest[at + 2..];
                continue;
            }
            text.push_str(&rest[..at]);
            let Some(end) = rest[at..].find('}') else {
                out.error(span, "`${` without its `}`", "write ${vars.NAME}, or $${ for the characters");
                return scalar.clone();
            };
            let reference = &rest[at + 2..at + end];
            match self.value(reference, span, out) {
                Some(value) if self.made.get() + text.len() + value.len() > MAX_BYTES => {
                    out.error(
                        span,
                        format!("the plan grows beyond {} MiB here", MAX_BYTES >> 20),
                        "shorten the value of the variable",
                    );
                    return scalar.clone();
                }
                Some(value) => text.push_str(value),
                None => text.push_str(&rest[at..=at + end]),
            }
            rest = &rest[at + end + 1..];
        }
        text.push_str(rest);
        self.made.set(self.made.get() + text.len());
        Scalar { text: text.into(), plain: whole || scalar.plain }
    }

    fn value(&self, reference: &str, span: Span, out: &mut Diagnostics) -> Option<&str> {
        if reference == "run.id" {
            // Known only when the run starts; `output.dir` substitutes it then.
            return None;
        }
        let Some(name) = reference.strip_prefix("vars.") else {
            out.error(
                span,
                format!("`${{{reference}}}` is not known"),
                "only ${vars.NAME} is put in, and ${run.id} in output.dir; write $${ for the characters",
            );
            return None;
        };
        match self.declared.get(name) {
            Some((Some(value), _)) => Some(value),
            Some((None, declared)) => {
                out.push(
                    Diagnostic::error(span, format!("`vars.{name}` is not set"))
                        .help(format!("give it a default, set its environment variable, or --set vars.{name}=VALUE"))
                        .see(*declared, "declared here"),
                );
                None
            }
            None => {
                let help = if self.declared.is_empty() {
                    format!("declare it: vars: {{{name}: {{default: …}}}}")
                } else {
                    suggest(name, &self.names())
                };
                out.error(span, format!("`vars.{name}` is not declared"), help);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{diagnostics::Format, source::Sources, yaml::parse};

    fn run(text: &str) -> (serde_json::Value, String) {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        let mut out = Diagnostics::new(sources);
        let mut root = parse(source, &mut out).unwrap();
        let vars = Vars::declared(&root, &|name| (name == "SET").then(|| "from-env".to_owned()));
        vars.substitute(&mut root, &["vars"], &mut out);
        (root.to_json(), out.render(Format::Human))
    }

    #[test]
    fn values_come_from_the_environment_or_the_default_and_keep_their_type() {
        let (json, errors) = run(
            "vars: {n: {default: 4}, h: {default: a, env: SET}, d: {default: b, env: UNSET}}\na: \"${vars.n}\"\nb: x-${vars.h}-${vars.d}\nc: $${vars.n}\n",
        );
        assert_eq!(errors, "");
        assert_eq!(json["a"], 4);
        assert_eq!(json["b"], "x-from-env-b");
        assert_eq!(json["c"], "${vars.n}");
    }

    #[test]
    fn what_is_not_declared_or_not_set_is_said_at_its_line() {
        let (_, errors) = run("vars: {server: {}}\na: ${vars.sever}\nb: ${vars.server}\nc: ${env.HOME}\nd: ${vars.\n");
        for sentence in [
            "`vars.sever` is not declared",
            "did you mean `server`?",
            "`vars.server` is not set",
            "declared here",
            "`${env.HOME}` is not known",
            "without its `}`",
            "t.yaml:2:4",
        ] {
            assert!(errors.contains(sentence), "{sentence} not in:\n{errors}");
        }
    }
}
