//! Layers of test bodies: built-in ← defaults ← profiles ← test ← matrix value ← member ← `--set`.

use std::{collections::HashSet, sync::Arc};

use super::{
    diagnostics::{Diagnostics, Span, suggest},
    keys::{self, Scope, key},
    tree::{Entry, Node, Value},
};

/// The lowest layer of every test, as a plan would write it.
pub const BUILT_IN: &str = "\
streams: 1
inflight: 1
io: auto
receive: copy
payload: random
integrity: false
warmup: 0s
cooldown: 0s
duration: 10s
interval: 0s
iterations: 1
collect: [cpu, limits, tcp_info]
";

/// A test has one stop rule: a layer that sets one removes those of lower layers.
const STOP_RULES: [&str; 3] = [key::duration, key::bytes, key::transactions];

/// Merges a test body over another: maps merge by key, scalars and lists replace, `assert+` appends, `~` removes.
pub fn merge(mut under: Node, over: &Node) -> Node {
    if STOP_RULES.iter().any(|rule| over.get(rule).is_some_and(|value| !value.is_null())) {
        for rule in STOP_RULES {
            under.remove(rule);
        }
    }
    let mut merged = merge_node(under, over);
    if let Some(more) = merged.remove(key::assert_more) {
        append(&mut merged, more);
    }
    merged
}

fn append(merged: &mut Node, more: Entry) {
    let Value::Map(entries) = &mut merged.value else { return };
    match entries.iter_mut().find(|e| &*e.key == key::assert) {
        Some(Entry { value: Node { value: Value::List(list), .. }, .. }) => {
            if let Value::List(items) = more.value.value {
                list.extend(items);
            }
        }
        _ => entries.push(Entry { key: key::assert.into(), ..more }),
    }
}

fn merge_node(under: Node, over: &Node) -> Node {
    let (Value::Map(mut entries), Value::Map(above)) = (under.value, &over.value) else { return over.clone() };
    for entry in above {
        match entries.iter_mut().find(|e| e.key == entry.key) {
            Some(below) => {
                let lower = std::mem::replace(&mut below.value, Node::empty_map(entry.value.span));
                below.value = merge_node(lower, &entry.value);
                below.key_span = entry.key_span;
            }
            None => entries.push(entry.clone()),
        }
    }
    Node { value: Value::Map(entries), span: over.span }
}

/// Options of the near end, and those of the far end, which takes over what it does not set itself.
const ENDS: [(&str, &str); 2] = [(key::socket, key::remote_socket), (key::buffers, key::remote_buffers)];

/// Removes nulls (`~`) from maps at every depth. Those of the far end's options stay: there a null says that the far end does
/// not take over the near end's value.
pub fn prune(node: &mut Node) {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|e| !e.value.is_null());
        for entry in entries.iter_mut().filter(|entry| ENDS.iter().all(|(_, far)| *entry.key != **far)) {
            prune(&mut entry.value);
        }
    }
}

/// A test with these values of its matrix.
pub fn combined(test: &Node, values: &[(Arc<str>, Node)]) -> Node {
    let mut combined = test.clone();
    for (path, value) in values {
        let mut layer = Node::empty_map(value.span);
        layer.set(path, value.clone());
        combined = merge(combined, &layer);
    }
    prune(&mut combined);
    combined
}

/// The test with the options spelled out that its far end takes from its near end.
pub fn with_far_end(test: &Node) -> Node {
    let mut test = test.clone();
    for (near, far) in ENDS {
        let Some(mut under) = test.get(near).filter(|under| under.entries().is_some()).cloned() else { continue };
        // The name of an interface belongs to one machine; the IP version is set once for both ends.
        under.remove("device");
        under.remove("ipv6");
        let merged = test.get(far).map_or_else(|| under.clone(), |over| merge_node(under.clone(), over));
        test.set(far, merged);
    }
    test
}

/// The part of a test that its members inherit.
pub fn inherited_by_members(test: &Node) -> Node {
    let mut node = test.clone();
    for key in keys::of_whole_test() {
        node.remove(key);
    }
    node
}

/// The source of a layer, as `check --explain` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program's own defaults.
    BuiltIn,
    /// `defaults`.
    Defaults,
    /// A profile.
    Profile(String),
    /// The test itself.
    Test,
    /// An axis of the test's matrix.
    Matrix,
    /// A workload that stands for a group.
    Workload,
    /// A member of a concurrent group.
    Member(String),
    /// `--set`.
    Set,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::Defaults => f.write_str("defaults"),
            Self::Profile(name) => write!(f, "profile {name}"),
            Self::Test => f.write_str("test"),
            Self::Matrix => f.write_str("matrix"),
            Self::Workload => f.write_str("workload"),
            Self::Member(name) => write!(f, "member {name}"),
            Self::Set => f.write_str("--set"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Layer {
    pub origin: Origin,
    pub body: Node,
}

/// A `--set` that changes test bodies.
#[derive(Clone, Debug)]
pub struct BodySet {
    /// `None`: every test.
    pub test: Option<String>,
    /// Dotted, within the body.
    pub path: String,
    pub value: Node,
}

/// The sources of test bodies.
#[derive(Debug)]
pub struct Layers {
    /// A plan's tree with variables and `--set` applied, before its tests are expanded.
    pub root: Node,
    pub built_in: Node,
    pub sets: Vec<BodySet>,
}

/// Longest chain of profiles that extend each other.
const MAX_CHAIN: usize = 64;

impl Layers {
    /// The layers of a test, lowest first, `--set` last.
    pub fn of_test(&self, name: &str, body: &Node, out: &mut Diagnostics) -> Vec<Layer> {
        let mut layers = vec![Layer { origin: Origin::BuiltIn, body: self.built_in.clone() }];
        if let Some(defaults) = self.root.get("defaults").filter(|n| n.entries().is_some()) {
            layers.push(Layer { origin: Origin::Defaults, body: defaults.clone() });
        }
        self.profiles(body, &mut layers, out);
        layers.push(Layer { origin: Origin::Test, body: body.clone() });
        self.add_sets(name, None, &mut layers);
        layers
    }

    /// The layers that a member adds to what it inherits from its test.
    pub fn of_member(&self, test: &str, member: &str, body: &Node, out: &mut Diagnostics) -> Vec<Layer> {
        let mut layers = Vec::new();
        self.profiles(body, &mut layers, out);
        layers.push(Layer { origin: Origin::Member(member.to_owned()), body: body.clone() });
        self.add_sets(test, Some(member), &mut layers);
        layers
    }

    fn add_sets(&self, test: &str, member: Option<&str>, layers: &mut Vec<Layer>) {
        for set in self.sets.iter().filter(|s| s.test.as_deref().is_none_or(|t| t == test)) {
            // Keys of the whole test are set there; a member would reject them.
            if member.is_some() && keys::of_path(&set.path).is_some_and(|key| key.scope == Scope::Test) {
                continue;
            }
            let mut body = Node::empty_map(set.value.span);
            body.set(&set.path, set.value.clone());
            layers.push(Layer { origin: Origin::Set, body });
        }
    }

    /// Adds the profiles that a body extends, each after those that it extends itself.
    fn profiles(&self, body: &Node, layers: &mut Vec<Layer>, out: &mut Diagnostics) {
        let mut path = Vec::new();
        let mut done = HashSet::new();
        self.extend(body, &mut path, &mut done, layers, out);
    }

    fn extend(
        &self,
        body: &Node,
        path: &mut Vec<String>,
        done: &mut HashSet<String>,
        layers: &mut Vec<Layer>,
        out: &mut Diagnostics,
    ) {
        let Some(extends) = body.get(key::extends) else { return };
        let names: Vec<&Node> = match &extends.value {
            Value::List(items) => items.iter().collect(),
            _ => vec![extends],
        };
        let profiles = self.root.get("profiles").and_then(Node::entries).unwrap_or_default();
        for node in names {
            let Some(name) = node.text() else { continue };
            let Some(profile) = profiles.iter().find(|e| &*e.key == name) else {
                let known: Vec<&str> = profiles.iter().map(|e| &*e.key).collect();
                let help = if known.is_empty() {
                    "there are no profiles: add `profiles:` at the top level".to_owned()
                } else {
                    suggest(name, &known)
                };
                out.error(node.span, format!("unknown profile `{name}`"), help);
                continue;
            };
            if path.iter().any(|p| p == name) {
                let circle = path.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(" → ");
                out.error(
                    node.span,
                    format!("profiles extend each other in a circle: {circle}"),
                    "remove one `extends`",
                );
                continue;
            }
            if done.contains(name) {
                continue;
            }
            if path.len() == MAX_CHAIN {
                out.error(
                    node.span,
                    format!("profiles extend each other over {MAX_CHAIN} levels"),
                    "merge some of them",
                );
                continue;
            }
            path.push(name.to_owned());
            self.extend(&profile.value, path, done, layers, out);
            path.pop();
            done.insert(name.to_owned());
            layers.push(Layer { origin: Origin::Profile(name.to_owned()), body: profile.value.clone() });
        }
    }
}

/// All layers in one body, without what `~` removed.
pub fn fold(layers: &[Layer]) -> Node {
    let mut bodies = layers.iter().map(|l| &l.body);
    let Some(first) = bodies.next() else { return Node::empty_map(Span::default()) };
    let mut merged = bodies.fold(first.clone(), merge);
    prune(&mut merged);
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{diagnostics::Sources, tree::parse},
        *,
    };

    fn read(text: &str) -> Node {
        let mut sources = Sources::default();
        let source = sources.add("t.yaml", text);
        parse(source, &mut Diagnostics::new(sources)).unwrap()
    }

    fn merged(under: &str, over: &str) -> String {
        let mut node = merge(read(under), &read(over));
        prune(&mut node);
        node.to_json().to_string()
    }

    #[test]
    fn maps_merge_and_everything_else_replaces() {
        assert_eq!(
            merged("{socket: {no_delay: true, mss: 1400}, tags: [a]}", "{socket: {mss: 500}, tags: [b], streams: 2}"),
            r#"{"socket":{"no_delay":true,"mss":500},"tags":["b"],"streams":2}"#
        );
    }

    #[test]
    fn null_removes_and_assert_plus_appends() {
        assert_eq!(merged("{socket: {mss: 1}, streams: 3}", "{streams: ~, socket: {mss: ~}}"), r#"{"socket":{}}"#);
        assert_eq!(merged("{assert: [a]}", "{assert+: [b]}"), r#"{"assert":["a","b"]}"#);
        assert_eq!(merged("{assert: [a]}", "{assert: [c], assert+: [b]}"), r#"{"assert":["c","b"]}"#);
        assert_eq!(merged("{}", "{assert+: [b]}"), r#"{"assert":["b"]}"#);
    }

    #[test]
    fn the_far_end_has_what_the_near_end_has() {
        let far = |test: &str| with_far_end(&read(test)).to_json()["remote_socket"].to_string();
        assert_eq!(far("{socket: {mss: 1, device: a, ipv6: true}}"), r#"{"mss":1}"#);
        assert_eq!(
            far("{socket: {mss: 1, ttl: 2}, remote_socket: {mss: 3, device: b}}"),
            r#"{"mss":3,"ttl":2,"device":"b"}"#
        );
        assert_eq!(far("{remote_socket: {mss: 3}}"), r#"{"mss":3}"#);
        let mut test = read("{socket: {mss: 1, ttl: 2}, remote_socket: {mss: ~}, buffers: ~}");
        prune(&mut test);
        let whole = with_far_end(&test).to_json();
        assert_eq!(whole["remote_socket"].to_string(), r#"{"mss":null,"ttl":2}"#, "a null is not overwritten");
        assert!(whole.get("buffers").is_none());
    }

    #[test]
    fn a_stop_rule_replaces_another() {
        assert_eq!(merged("{duration: 10s}", "{bytes: 1GB}"), r#"{"bytes":"1GB"}"#);
        assert_eq!(merged("{bytes: 1GB}", "{streams: 1}"), r#"{"bytes":"1GB","streams":1}"#);
    }

    #[test]
    fn built_in_is_a_plan_that_reads() {
        assert!(read(BUILT_IN).get("duration").is_some());
    }

    fn any_map() -> impl Strategy<Value = String> {
        proptest::collection::btree_map("[a-d]", "[0-9]{1,3}", 0..4)
            .prop_map(|m| format!("{{{}}}", m.iter().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>().join(", ")))
    }

    proptest! {
        #[test]
        fn merging_keeps_all_keys_and_the_upper_values(under in any_map(), over in any_map()) {
            let (under, over) = (read(&under), read(&over));
            let all = merge(under.clone(), &over);
            for entry in under.entries().unwrap() {
                let upper = over.get(&entry.key).or(Some(&entry.value));
                prop_assert_eq!(all.get(&entry.key).and_then(Node::text), upper.and_then(Node::text));
            }
            for entry in over.entries().unwrap() {
                prop_assert_eq!(all.get(&entry.key).and_then(Node::text), entry.value.text());
            }
        }

        #[test]
        fn merging_is_associative(a in any_map(), b in any_map(), c in any_map()) {
            let (a, b, c) = (read(&a), read(&b), read(&c));
            let sorted = |n: Node| {
                let mut all: Vec<_> = n.entries().unwrap().iter().map(|e| (e.key.clone(), e.value.text().map(str::to_owned))).collect();
                all.sort();
                all
            };
            prop_assert_eq!(sorted(merge(merge(a.clone(), &b), &c)), sorted(merge(a, &merge(b, &c))));
        }
    }
}
