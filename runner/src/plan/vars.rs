//! Values from outside: `${vars.x}`, `--set` and `--only`.
//!
//! `${vars.x}` is a declared parameter, substituted in strings. There are no expressions.

use std::{cell::Cell, collections::BTreeMap};

use super::{
    diagnostics::{Diagnostic, Diagnostics, Sources, Span, suggest},
    keys,
    resolve::BodySet,
    tree::{self, MAX_BYTES, Node, Scalar, Value},
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

/// `--set PATH=VALUE`.
pub(super) fn set(text: &str, root: &mut Node, vars: &mut Vars, sets: &mut Vec<BodySet>, out: &mut Diagnostics) {
    let Some((path, written)) = text.split_once('=') else {
        out.push(Diagnostic::bare(format!("--set {text}: no `=`")).help("write --set PATH=VALUE"));
        return;
    };
    let path = path.trim();
    if let Some(name) = path.strip_prefix("vars.") {
        if !vars.set(name, written) {
            out.push(
                Diagnostic::bare(format!("--set {text}: `vars.{name}` is not declared"))
                    .help(suggest(name, &vars.names())),
            );
        }
        return;
    }
    // Parsed alone, then moved: its columns are those of the whole argument.
    let source = out.sources.add("--set", text);
    let mut probe = Diagnostics::new(Sources::default());
    let alone = probe.sources.add("--set", written);
    let parsed = tree::parse(alone, &mut probe);
    let Some(mut value) = parsed.filter(|_| !probe.has_errors()) else {
        out.push(Diagnostic::bare(format!("--set {text}: the value is not YAML")).help("quote it: --set 'PATH=VALUE'"));
        return;
    };
    let start = u32::try_from(text.len() - written.len()).unwrap_or(0);
    relocate(&mut value, source, start);
    let segments: Vec<&str> = path.split('.').collect();
    match segments.as_slice() {
        [] | [""] => out.push(Diagnostic::bare(format!("--set {text}: no path")).help("write --set PATH=VALUE")),
        ["tests", name, _, ..] => {
            let names: Vec<&str> =
                root.get("tests").and_then(Node::entries).unwrap_or_default().iter().map(|e| &*e.key).collect();
            if names.contains(name) {
                sets.push(BodySet { test: Some((*name).to_owned()), path: segments[2..].join("."), value });
            } else {
                out.push(Diagnostic::bare(format!("--set {text}: unknown test `{name}`")).help(suggest(name, &names)));
            }
        }
        [head @ ("version" | "name" | "tests"), ..] => {
            out.push(Diagnostic::bare(format!("--set {text}: `{head}` cannot be set from outside")));
        }
        [head, ..] if keys::is_of_plan(head) => root.set(path, value),
        _ => sets.push(BodySet { test: None, path: path.to_owned(), value }),
    }
}

fn relocate(node: &mut Node, source: u16, by: u32) {
    let move_span = |span: &mut Span| *span = Span { source, start: span.start + by, end: span.end + by };
    move_span(&mut node.span);
    match &mut node.value {
        Value::Scalar(_) => {}
        Value::List(items) => items.iter_mut().for_each(|n| relocate(n, source, by)),
        Value::Map(entries) => {
            for entry in entries {
                move_span(&mut entry.key_span);
                relocate(&mut entry.value, source, by);
            }
        }
    }
}

/// Matches a glob: `*` is any text, `?` any character.
pub(super) fn matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if g < glob.len() && glob[g] == '*' {
            star = Some((g, t));
            g += 1;
        } else if g < glob.len() && (glob[g] == '?' || glob[g] == text[t]) {
            g += 1;
            t += 1;
        } else if let Some((sg, st)) = star {
            star = Some((sg, st + 1));
            g = sg + 1;
            t = st + 1;
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::{super::tree::parse, *};
    use crate::plan::diagnostics::Format;

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
