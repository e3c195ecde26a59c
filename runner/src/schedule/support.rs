//! What a plan may say and this program does not do yet: refused by name, at its place, never ignored.

use crate::plan::{
    Plan,
    case::Case,
    diagnostics::{Diagnostic, Diagnostics},
    source::Span,
    tree::Node,
    yaml,
};

/// Everything in the plan that could not be run as it is written.
#[must_use]
pub fn check(plan: &Plan) -> Diagnostics {
    let mut out = Diagnostics::new(plan.sources.clone());
    let places = Places::of_plan(plan);
    for case in &plan.cases {
        of_case(case, &places, &mut out);
    }
    out
}

fn of_case(case: &Case, places: &Places, out: &mut Diagnostics) {
    let mut refuse = |key: &str, what: &str, help: &str| {
        let span = places.of(&case.test, key).unwrap_or(case.span);
        out.push(Diagnostic::error(span, format!("{what} is not available yet")).help(help));
    };
    if case.members.iter().any(|m| m.warmup_auto.is_some()) {
        refuse("warmup", "`warmup: auto`", "give a length, and look with `plumb steady` whether it is long enough");
    }
}

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
