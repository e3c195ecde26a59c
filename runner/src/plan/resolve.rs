//! The layers of a test (built-in ← defaults ← profiles ← test), and those that a member adds.

use std::collections::HashSet;

use super::{
    diagnostics::{Diagnostics, suggest},
    keys::{self, Scope, key},
    merge,
    tree::{Node, Value},
};

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
pub struct Layers<'a> {
    pub root: &'a Node,
    pub built_in: &'a Node,
    pub sets: &'a [BodySet],
}

/// Longest chain of profiles that extend each other.
const MAX_CHAIN: usize = 64;

impl Layers<'_> {
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
    let Some(first) = bodies.next() else { return Node::empty_map(super::source::Span::default()) };
    let mut merged = bodies.fold(first.clone(), merge::body);
    merge::prune(&mut merged);
    merged
}
