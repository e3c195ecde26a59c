//! Where the keys of a checked plan are written, for whoever finds something wrong with one later.

use super::{Plan, diagnostics::Diagnostics, source::Span, tree::Node, yaml};

/// Where keys are written.
pub(crate) struct Places {
    root: Option<Node>,
}

impl Places {
    /// Of a plan that was read without a fault: this finds none either.
    pub(crate) fn of_plan(plan: &Plan) -> Self {
        Self { root: yaml::parse(0, &mut Diagnostics::new(plan.sources.clone())) }
    }

    /// The key of a test: in the test, or else in what it may have inherited.
    pub(crate) fn of(&self, test: &str, key: &str) -> Option<Span> {
        let root = self.root.as_ref()?;
        let body = root.get("tests")?.get(test);
        let profiles = root.get("profiles").and_then(Node::entries).unwrap_or_default();
        body.into_iter()
            .chain(root.get("defaults"))
            .chain(profiles.iter().map(|e| &e.value))
            .find_map(|node| node.entry(key))
            .map(|entry| entry.key_span)
    }
}
