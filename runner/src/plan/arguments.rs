//! Options of the command line that change a plan: `--set` and `--only`.

use super::{
    diagnostics::{Diagnostic, Diagnostics, suggest},
    resolve::BodySet,
    source::{Sources, Span},
    tree::{Node, Value},
    vars::Vars,
    yaml,
};

/// The keys of a plan.
const TOP: [&str; 14] = [
    "version",
    "name",
    "description",
    "labels",
    "vars",
    "hosts",
    "require",
    "defaults",
    "profiles",
    "run",
    "tests",
    "baseline",
    "gate",
    "output",
];

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
    let parsed = yaml::parse(alone, &mut probe);
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
        [head, ..] if TOP.contains(head) && !["version", "name", "tests"].contains(head) => root.set(path, value),
        [head, ..] if TOP.contains(head) => {
            out.push(Diagnostic::bare(format!("--set {text}: `{head}` cannot be set from outside")));
        }
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
