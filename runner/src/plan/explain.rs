//! `plumb check --explain PATH`: a value, and every layer that set it.

use super::{
    diagnostics::{Diagnostic, Diagnostics, SourcePlace, Sources, Span, suggest},
    inventory,
    keys::{self, key},
    load::{LoadOptions, prepare},
    matrix::Matrix,
    resolve::{self, Layer, Layers, Origin, fold},
    responsiveness,
    tree::{Entry, Node, Value},
};

/// A value with its history.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    pub path: String,
    /// The final value as YAML on one line; `None`: not set, the system's default holds.
    pub value: Option<String>,
    /// First to last.
    pub set_by: Vec<SetBy>,
}

/// One layer that set the value.
#[derive(Clone, Debug, PartialEq)]
pub struct SetBy {
    /// `built-in`, `defaults`, `profile bulk`, `test`, `matrix`, `member up` or `--set`.
    pub origin: String,
    /// As YAML on one line; `~` where it removed the value.
    pub value: String,
    pub place: SourcePlace,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => writeln!(f, "{}: {value}", self.path)?,
            None => writeln!(f, "{}: not set; the system's default holds", self.path)?,
        }
        let width = self.set_by.iter().map(|s| s.origin.chars().count()).max().unwrap_or(0);
        for step in &self.set_by {
            writeln!(f, "  {:width$}  {}  {}", step.origin, step.place, step.value)?;
        }
        Ok(())
    }
}

/// Explains a path of the plan at `file`, as [`explain_str`] does.
pub fn explain(file: &str, options: &LoadOptions, path: &str) -> Result<Explanation, Diagnostics> {
    let (name, text) = super::load::read(file)?;
    explain_str(&name, &text, options, path)
}

/// Explains `tests.NAME.KEY` (also `tests.NAME.concurrent.members.MEMBER.KEY`, and any other path of the plan).
pub fn explain_str(name: &str, text: &str, options: &LoadOptions, path: &str) -> Result<Explanation, Diagnostics> {
    let mut out = Diagnostics::new(Sources::default());
    let Some(layers) = prepare(name, text, options, &mut out) else { return Err(out) };
    match history(&layers, path, &mut out) {
        Some(explanation) if !out.has_errors() => Ok(explanation),
        _ => Err(out),
    }
}

fn history(layers: &Layers, path: &str, out: &mut Diagnostics) -> Option<Explanation> {
    let root = &layers.root;
    let segments: Vec<&str> = path.split('.').collect();
    let (layers, key) = match segments.as_slice() {
        ["tests", test, rest @ ..] => {
            let tests = root.get("tests").and_then(Node::entries).unwrap_or_default();
            let Some(entry) = tests.iter().find(|e| &*e.key == *test) else {
                let known: Vec<&str> = tests.iter().map(|e| &*e.key).collect();
                out.push(
                    Diagnostic::bare(format!("--explain {path}: unknown test `{test}`")).help(suggest(test, &known)),
                );
                return None;
            };
            let mut all = layers.of_test(test, &entry.value, out);
            let is_spelled_out = spell_out(&mut all, &rest.join("."), out);
            match rest {
                ["concurrent", "members", member, key @ ..] => {
                    let folded = fold(&all);
                    let body = folded.at(&format!("concurrent.members.{member}"))?.clone();
                    for layer in &mut all {
                        layer.body = resolve::inherited_by_members(&layer.body);
                    }
                    let own = layers.of_member(test, member, &body, out).into_iter();
                    all.extend(own.filter(|layer| !is_spelled_out || layer.origin != Origin::Set));
                    (all, key.join("."))
                }
                key => {
                    let key = key.join(".");
                    insert_matrix(&mut all, &key);
                    (all, key)
                }
            }
        }
        ["hosts", name, rest @ ..] => {
            let key = key_of_host(root, name).unwrap_or(name);
            let path = ["hosts", key].iter().chain(rest).copied().collect::<Vec<_>>().join(".");
            (vec![Layer { origin: Origin::Test, body: root.clone() }], path)
        }
        _ => (vec![Layer { origin: Origin::Test, body: root.clone() }], path.to_owned()),
    };
    if segments.first() == Some(&"tests") && !key.is_empty() {
        known_key(path, &key, out)?;
    }
    let whole = fold(&layers);
    let node = if key.is_empty() { Some(&whole) } else { whole.at(&key) };
    let swept = layers.iter().any(|l| l.origin == Origin::Matrix && l.body.at(&key).is_some());
    let set_by = layers
        .iter()
        .filter_map(|layer| {
            let node = if key.is_empty() { &layer.body } else { layer.body.at(&key)? };
            Some(SetBy {
                origin: match layer.origin {
                    Origin::Test if segments.first() != Some(&"tests") => "plan".to_owned(),
                    ref other => other.to_string(),
                },
                value: line(node),
                place: out.sources.place(node.span),
            })
        })
        .collect();
    let value = node.map(line).map(|v| if swept { format!("each of {v}") } else { v });
    Some(Explanation { path: path.to_owned(), value, set_by })
}

/// The key under which the plan describes a host: its name, or a range with that name.
fn key_of_host<'a>(root: &'a Node, name: &str) -> Option<&'a str> {
    let is_of = |entry: &&Entry| inventory::names_of(entry).is_ok_and(|names| names.iter().any(|one| one == name));
    root.get("hosts").and_then(Node::entries)?.iter().find(is_of).map(|entry| &*entry.key)
}

/// Puts the group that a workload stands for in the place of its layers, where the path leads into the group. A test with a
/// matrix is shown with the first of its combinations. Returns whether there is such a group.
fn spell_out(layers: &mut Vec<Layer>, key: &str, out: &mut Diagnostics) -> bool {
    if key.split('.').next() != Some(key::concurrent) {
        return false;
    }
    let mut test = fold(layers);
    let matrix = test.remove(key::matrix).map(|matrix| Matrix::read(&matrix.value, out)).unwrap_or_default();
    if let Some(first) = matrix.combinations(1, out).first() {
        test = resolve::combined(&test, first);
    }
    let is_group = responsiveness::is_of(&test);
    if is_group {
        *layers = vec![Layer { origin: Origin::Workload, body: responsiveness::expanded(&test, out) }];
    }
    is_group
}

/// Adds the test's matrix as a layer: above all others but `--set`.
fn insert_matrix(layers: &mut Vec<Layer>, key: &str) {
    let folded = fold(layers);
    let Some(values) = folded.get(key::matrix).and_then(|m| m.get(key)) else { return };
    let at = layers.iter().position(|l| l.origin == Origin::Set).unwrap_or(layers.len());
    // `--set` of the same key replaces the axis.
    if layers[at..].iter().any(|l| l.body.at(key).is_some()) {
        return;
    }
    let mut body = Node::empty_map(values.span);
    body.set(key, values.clone());
    layers.insert(at, Layer { origin: Origin::Matrix, body });
}

fn known_key(path: &str, key: &str, out: &mut Diagnostics) -> Option<()> {
    let span = Span::default();
    let mistakes = keys::mistakes(key, Node::null(span), span);
    let Some(unknown) = mistakes.into_iter().find(|m| m.message.starts_with("unknown key")) else { return Some(()) };
    out.push(Diagnostic::bare(format!("--explain {path}: {}", unknown.message)).help(unknown.help));
    None
}

fn line(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if node.is_null() && scalar.text.is_empty() => "~".to_owned(),
        Value::Scalar(scalar) => scalar.text.to_string(),
        Value::List(items) => format!("[{}]", items.iter().map(line).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let inner: Vec<String> = entries.iter().map(|e| format!("{}: {}", e.key, line(&e.value))).collect();
            format!("{{{}}}", inner.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::diagnostics::Format;

    const PLAN: &str = "\
version: 1
name: t
defaults: {workload: tcp_stream, socket: {no_delay: false}}
profiles:
  fast:
    socket: {no_delay: true}
hosts: {'n[1-4]': {address: '{host}.lab'}}
tests:
  a:
    extends: fast
    matrix: {message_size: [1, 2]}
  b:
    socket: {no_delay: ~}
  c:
    streams: 2
    concurrent: {members: {up: {rate: 1Gbit/s}}}
  d:
    workload: responsiveness
    matrix: {duration: [4s, 8s]}
";

    fn ask(path: &str, sets: &[&str]) -> Result<Explanation, String> {
        let options = LoadOptions { sets: sets.iter().map(|s| (*s).to_owned()).collect(), ..LoadOptions::default() };
        explain_str("t.yaml", PLAN, &options, path).map_err(|out| out.render(Format::Human))
    }

    #[test]
    fn everything_that_set_a_value_is_shown_with_its_place() {
        let shown = ask("tests.a.socket.no_delay", &["socket.no_delay=false"]).unwrap().to_string();
        assert_eq!(
            shown,
            "tests.a.socket.no_delay: false\n  defaults      t.yaml:3:53  false\n  profile fast  t.yaml:6:24  true\n  --set         --set:1:17  false\n"
        );
    }

    #[test]
    fn built_in_values_axes_members_and_removals_too() {
        let step = |path: &str| ask(path, &[]).unwrap();
        assert_eq!(step("tests.a.streams").set_by[0].origin, "built-in");
        assert_eq!(step("tests.a.message_size").value.as_deref(), Some("each of [1, 2]"));
        let removed = step("tests.b.socket.no_delay");
        assert_eq!((removed.value, removed.set_by[1].value.as_str()), (None, "~"));
        let member = step("tests.c.concurrent.members.up.streams");
        assert_eq!(member.value.as_deref(), Some("2"));
        assert_eq!(step("tests.c.concurrent.members.up.rate").set_by[0].origin, "member up");
        assert_eq!(step("name").value.as_deref(), Some("t"));
    }

    #[test]
    fn a_workload_that_stands_for_a_group_shows_it() {
        let step = |path: &str, sets: &[&str]| ask(&format!("tests.d.concurrent.members.{path}"), sets).unwrap();
        let after = step("download-tcp.after", &[]);
        assert_eq!((after.value.as_deref(), after.set_by[0].origin.as_str()), (Some("14000ms"), "member download-tcp"));
        assert_eq!(step("download.streams", &["streams=2"]).value.as_deref(), Some("2"));
        assert_eq!(step("download-tcp.streams", &["streams=2"]).value, None, "a probe has one");
        assert_eq!(step("download-tcp.duration", &[]).value.as_deref(), Some("4s"));
        let group = ask("tests.d.concurrent", &[]).unwrap();
        assert!(group.value.unwrap().contains(
            "upload-tcp: {workload: tcp_rr, rate: 100/s, pacing: {catch_up: 0}, idle: idle-tcp, after: 7000ms}"
        ));
    }

    #[test]
    fn a_host_is_explained_by_its_range() {
        let shown = ask("hosts.n3.address", &[]).unwrap();
        assert_eq!(shown.value.as_deref(), Some("{host}.lab"));
        assert_eq!(shown.set_by[0].place.to_string(), "t.yaml:7:29");
    }

    #[test]
    fn what_does_not_exist_is_said() {
        assert!(ask("tests.z.streams", &[]).unwrap_err().contains("unknown test `z`"));
        assert!(ask("tests.a.socket.nodelay", &[]).unwrap_err().contains("did you mean `no_delay`?"));
    }
}
