//! From a test to its cases: folds its layers, spells out its matrix, types and translates each case.

use std::{cell::Cell, collections::BTreeMap, sync::Arc, time::Duration};

use netcore::{measure::tcp_info::available_congestion_controls, spec::Pattern};

use super::{
    axis::normal,
    case::{Case, Find, Group, Member, Round, Survey, overlap},
    check,
    decode::decode,
    diagnostics::{Diagnostic, Diagnostics, Span, nearest},
    inventory,
    job::Job,
    keys::key,
    matrix::{Combination, Matrix, case_name},
    model::{self, Host, Skip, TestBody},
    pairs::{self, Slot},
    policy::{asserts, find, iterations, stop_when},
    resolve::{self, Layers},
    responsiveness,
    tree::{Entry, Node},
};

/// Most values of all tests and cases together, with those that they inherit.
const MAX_VALUES: usize = 4_000_000;

/// The least time beyond an iteration's own that its ends need to report.
const SHORTEST_GRACE: Duration = Duration::from_millis(100);

pub struct Expander<'a> {
    pub layers: &'a Layers,
    pub hosts: &'a BTreeMap<String, Host>,
    /// `run.pause`.
    pub pause: Duration,
    /// `run.timeout`.
    pub timeout: Option<Duration>,
    /// Values of the tests and cases so far.
    pub values: Cell<usize>,
}

#[derive(Debug, Default)]
pub struct Expanded {
    pub cases: Vec<Case>,
    pub surveys: Vec<Survey>,
    /// Number of combinations of swept values. Each has a case, or one for each pair.
    pub swept: usize,
    /// The swept keys.
    pub paths: Vec<Arc<str>>,
    /// The body with every layer merged and its matrix as written.
    pub resolved: Option<Node>,
}

/// Congestion controls of Linux, built in, as modules, or in widely used patches.
const CONGESTION_CONTROLS: [&str; 20] = [
    "bbr",
    "bbr2",
    "bbr3",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "prague",
    "reno",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
];

/// Warns of a congestion control that looks like a misspelt one. Only the kernel knows all that there are.
fn congestion_controls(tree: &Node, out: &mut Diagnostics) {
    for entry in tree.entries().unwrap_or_default() {
        let name = entry.value.text().filter(|_| &*entry.key == "congestion_control");
        let Some(name) = name else {
            congestion_controls(&entry.value, out);
            continue;
        };
        let here = available_congestion_controls().unwrap_or_default();
        let known: Vec<&str> = here.iter().map(String::as_str).chain(CONGESTION_CONTROLS).collect();
        if let Some(near) = nearest(name, known.iter().copied()).filter(|_| !known.contains(&name)) {
            let warning = Diagnostic::warning(entry.value.span, format!("unknown congestion control `{name}`"));
            out.push(warning.help(format!("did you mean `{near}`?")));
        }
    }
}

impl Expander<'_> {
    /// Counts values before they are copied; `false`: they are too many. A long profile of many tests, or of many cases, would
    /// otherwise fill the memory.
    pub(super) fn admit(&self, values: usize, span: Span, out: &mut Diagnostics) -> bool {
        let before = self.values.get();
        self.values.set(before.saturating_add(values));
        if before <= MAX_VALUES && self.values.get() > MAX_VALUES {
            out.error(
                span,
                format!("the tests grow beyond {MAX_VALUES} values here, with what they inherit"),
                "shorten `defaults` and profiles, or sweep fewer values",
            );
        }
        self.values.get() <= MAX_VALUES
    }

    /// Expands one test, up to `limit` combinations: with more the plan is rejected anyway.
    pub fn test(&self, entry: &Entry, limit: usize, out: &mut Diagnostics) -> Expanded {
        let name = &entry.key;
        if entry.value.entries().is_none() {
            // Reported when the file was read.
            return Expanded::default();
        }
        if !self.admit(1, entry.key_span, out) {
            return Expanded::default();
        }
        let layers = self.layers.of_test(name, &entry.value, out);
        if !self.admit(layers.iter().map(|layer| layer.body.size()).sum(), entry.key_span, out) {
            return Expanded::default();
        }
        let mut body = resolve::fold(&layers);
        let resolved = Some(body.clone());
        let mut matrix = body.remove(key::matrix).map(|m| Matrix::read(&m.value, out)).unwrap_or_default();
        for set in self.layers.sets.iter().filter(|s| s.test.as_deref().is_none_or(|t| t == &**name)) {
            matrix.fix(&set.path);
        }
        let combinations = matrix.combinations(limit, out);
        let mut paths = matrix.paths();
        let mut expanded = Expanded { resolved, ..Expanded::default() };
        let Some(slots) = pairs::take(&mut body, &paths, self.hosts, out) else { return expanded };
        // All cases of a broken test would repeat its mistakes.
        let take = if out.has_errors() { 1 } else { limit };
        let size = body.size();
        'all: for combination in combinations.iter().take(take) {
            expanded.swept += 1;
            if let Some(Slot { round: Some(_), .. }) = slots.first() {
                expanded.surveys.extend(pairs::survey(&entry.key, &body, combination, out));
            }
            for slot in &slots {
                if !self.admit(size, entry.key_span, out) {
                    break 'all;
                }
                let ends = [combination.as_slice(), &slot.ends].concat();
                let round = |(number, of)| Round { survey: case_name(&entry.key, combination).into(), number, of };
                expanded.cases.extend(self.case(entry, &body, &ends, &paths, slot.round.map(round), out));
                if out.has_errors() {
                    break;
                }
            }
        }
        paths.extend(slots.first().into_iter().flat_map(|slot| &slot.ends).map(|(path, _)| path.clone()));
        Expanded { paths, ..expanded }
    }

    fn case(
        &self,
        entry: &Entry,
        body: &Node,
        combination: &Combination,
        paths: &[Arc<str>],
        round: Option<Round>,
        out: &mut Diagnostics,
    ) -> Option<Case> {
        let mut tree = resolve::combined(body, combination);
        searched_load(&mut tree, out);
        let stands_for_a_group = responsiveness::is_of(&tree);
        if stands_for_a_group {
            tree = responsiveness::expanded(&tree, out);
        }
        let typed: TestBody = decode(&resolve::with_far_end(&tree), out)?;
        congestion_controls(&tree, out);
        let mut members = self.members(entry, &tree, &typed, stands_for_a_group, out)?;
        one_prober(&mut members);
        // All members of a group are traffic; one of another kind is already a mistake.
        let job = &members.iter().find(|m| m.spec().is_none()).or(members.first())?.job;
        // `defaults` are written for every test and may have other keys.
        for (key, span) in written(entry, paths) {
            if let Some((message, help)) = job.refuses(key) {
                out.error(span, message, help);
            }
        }
        let grace = typed.timeout.map(|t| t.0).or(self.timeout).unwrap_or(job.grace());
        let place = |key: &str| tree.key_span(key).unwrap_or(entry.key_span);
        if grace < SHORTEST_GRACE {
            let what = "`timeout` leaves the ends no time to report: every iteration would fail";
            out.error(place(key::timeout), what, "at least 100ms; without it there is time enough");
        }
        let policy = iterations(&typed, &members, &place, out);
        let asserts = asserts(&tree, &typed, &members, round.is_some(), out);
        let find = find(&typed, &members, &place, out);
        let group = typed.concurrent.as_ref().map(|c| Group {
            max_skew: c.start.as_ref().and_then(|s| s.max_skew).map_or(Duration::from_millis(5), |t| t.0),
            window: c.window.unwrap_or(model::Window::Intersection),
            has_total: overlap(&members),
        });
        if group.as_ref().is_some_and(|group| !group.has_total && group.window == model::Window::Intersection) {
            let what = "the group has no total: by their lengths and `after`, its members never run at the same time";
            out.push(Diagnostic::warning(place(key::concurrent), what).help("`window: own` leaves the total out"));
        }
        Some(Case {
            test: entry.key.clone(),
            // The bound of a search is part of the measurement.
            id: super::case::case_id(&members, &find.as_ref().map(Find::bound).unwrap_or_default()),
            name: case_name(&entry.key, combination),
            axes: combination.iter().map(|(p, v)| (p.clone(), normal(p, v))).collect(),
            group,
            policy,
            asserts,
            stop_when: stop_when(&typed, &members, paths, &place, out),
            find,
            round,
            hooks: self.hooks(&tree, &typed, out),
            tags: typed.tags.clone().unwrap_or_default(),
            skip: match &typed.skip {
                Some(Skip::Plain(true)) => Some(String::new()),
                Some(Skip::Because(reason)) => Some(reason.clone()),
                Some(Skip::Plain(false)) | None => None,
            },
            pause: typed.pause.map_or(self.pause, |t| t.0),
            grace,
            command_span: place(key::command),
            hooks_span: place(key::hooks),
            members,
        })
    }

    fn hooks(&self, tree: &Node, typed: &TestBody, out: &mut Diagnostics) -> model::Hooks {
        let hooks = typed.hooks.clone().unwrap_or_default();
        for (name, hook) in hooks.all() {
            let node = tree.at(&format!("hooks.{name}"));
            let span = node.map(|n| n.span).unwrap_or_default();
            if hook.run.is_empty() {
                out.error(span, "a hook without a program", "[program, argument, …]");
            }
            if let Some(after) = node.and_then(|n| n.get("after")).filter(|_| name != "during") {
                out.error(after.span, "`after` is of the hook `during`", "leave it out");
            }
            if name == "during" && typed.command.is_some() {
                out.error(span, "a command tells nobody when its measurement begins", "leave `during` out");
            }
            if let Some(on) = node.and_then(|n| n.get("on")) {
                let names = inventory::known(on, self.hosts, &["local"], out);
                let hosts = names.iter().filter_map(|name| Some((name.as_str(), self.hosts.get(name)?)));
                check::check_daemon(on, "a hook", hosts, out);
            }
        }
        hooks
    }
}

/// The keys that the test itself sets or sweeps, with their places.
fn written<'a>(entry: &'a Entry, paths: &'a [Arc<str>]) -> impl Iterator<Item = (&'a Arc<str>, Span)> {
    let matrix = entry.value.get(key::matrix);
    let axes = paths.iter().filter_map(move |path| Some((path, matrix?.entry(path)?.key_span)));
    entry.value.entries().unwrap_or_default().iter().map(|e| (&e.key, e.key_span)).chain(axes)
}

/// Gives a test that searches a load the lowest one, which pacing, arrival and metrics need to mean something. Setting the
/// load itself beside the search is a mistake.
fn searched_load(tree: &mut Node, out: &mut Diagnostics) {
    let Some(find) = tree.get(key::find) else { return };
    let key = match find.get("by").and_then(Node::text) {
        Some(key::rate) => key::rate,
        Some(key::inflight) => key::inflight,
        _ => return,
    };
    let lowest = find.get("from").cloned();
    if let Some(set) = tree.entry(key).filter(|e| e.value.span.source != super::diagnostics::BUILT_IN_SOURCE) {
        out.error(
            set.key_span,
            format!("`{key}` is what `find` searches"),
            format!("leave `{key}` out, or search something else"),
        );
    } else if let Some(lowest) = lowest {
        tree.set(key, lowest);
    }
}

/// Leaves `hops` to one member of a group that inherits it, the first stream: routers answer too seldom for several.
fn one_prober(members: &mut [Member]) {
    let is_asked = |member: &Member| member.spec().is_some_and(|spec| spec.hops);
    let is_stream = |member: &Member| member.spec().is_some_and(|spec| spec.pattern == Pattern::Stream);
    let chosen = members.iter().position(|member| is_asked(member) && is_stream(member));
    let chosen = chosen.or_else(|| members.iter().position(is_asked));
    for (number, member) in members.iter_mut().enumerate() {
        if let Job::Traffic(spec) = &mut member.job {
            spec.hops &= chosen == Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{
        case::Plan,
        diagnostics::Format,
        load::{LoadOptions, load_str},
        model::FindBy,
    };
    use proptest::prelude::*;

    fn load(tests: &str) -> Result<Plan, String> {
        let text = format!("version: 1\nname: t\nhosts: {{h: {{address: 10.0.0.1, cpus: 3}}}}\ntests:\n{tests}\n");
        load_str("t.yaml", &text, &LoadOptions::default()).map_err(|out| out.render(Format::Human))
    }

    fn good(tests: &str) -> Plan {
        load(tests).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn members_inherit_what_is_theirs() {
        let plan = good(
            "  g:\n    workload: tcp_stream\n    duration: 2s\n    iterations: 4\n    matrix: {streams: [1, 2]}\n    concurrent:\n      start: {max_skew: 1ms}\n      members:\n        up: {}\n        down: {direction: reverse, duration: 3s, to: h}\n        probe: {workload: tcp_rr, streams: 1}\n",
        );
        assert_eq!(plan.cases.len(), 2);
        let case = &plan.cases[1];
        assert_eq!(case.group.as_ref().unwrap().max_skew.as_millis(), 1);
        assert_eq!((case.policy.min, case.policy.max), (4, 4));
        let streams: Vec<u32> = case.members.iter().map(|m| m.job.spec().unwrap().streams).collect();
        assert_eq!(streams, [2, 2, 1]);
        assert_eq!(case.members[1].to.name(), "h");
        assert_eq!(case.members[1].job.spec().unwrap().far.cpus.as_ref().unwrap().to_string(), "3");
        assert_eq!(case.estimate().least.as_millis(), 4 * 3100);
    }

    #[test]
    fn members_may_start_later() {
        let group = |rest: &str| format!("  g:\n    workload: tcp_rr\n    duration: 2s\n    concurrent: {{{rest}}}\n");
        let plan = good(&group("members: {a: {}, b: {after: 1500ms}}"));
        let case = &plan.cases[0];
        assert_eq!(case.members.iter().map(|m| m.after.as_millis()).collect::<Vec<_>>(), [0, 1500]);
        assert!(case.group.as_ref().unwrap().has_total);
        assert_eq!(case.estimate().least.as_millis(), 3600);
        let at_once = good(&group("members: {a: {}, b: {after: 0s}}"));
        assert!(at_once.cases[0].id != case.id, "a later start is another workload");
        assert_eq!(at_once.cases[0].id, good(&group("members: {a: {}, b: {}}")).cases[0].id);
        let never = good(&group("members: {a: {}, b: {after: 2s}}"));
        assert!(!never.cases[0].group.as_ref().unwrap().has_total);
        assert!(never.warnings.render(Format::Human).contains("never run at the same time"));
        let own = good(&group("window: own, members: {a: {}, b: {after: 2s}}"));
        assert!(!own.warnings.render(Format::Human).contains("never run"));
        assert!(load(&group("members: {a: {}, b: {after: 1h}}")).unwrap_err().contains("armed 540 s ahead"));
        let alone = load("  a: {workload: tcp_rr, after: 1s}").unwrap_err();
        assert!(alone.contains("for members of a group"), "{alone}");
    }

    #[test]
    fn confidence_has_defaults_and_a_headline() {
        let plan =
            good("  a: {workload: tcp_rr, iterations: {}}\n  b: {workload: tcp_stream, iterations: {min: 40}}\n");
        let policy = |case: usize| &plan.cases[case].policy;
        assert_eq!((policy(0).min, policy(0).max, policy(0).margin), (3, 30, Some(0.025)));
        assert_eq!(policy(0).metrics[0].name, "transaction_rate");
        assert_eq!((policy(1).min, policy(1).max), (40, 40));
    }

    #[test]
    fn a_rate_of_the_plan_is_no_result_and_one_that_is_searched_is() {
        let plan = good(
            "  a: {workload: tcp_rr, rate: 9/s, iterations: {}}\n  b: {workload: tcp_crr, rate: 9/s}\n  \
             c: {workload: tcp_rr, find: {metric: latency.p99, at_most: 1s, by: rate, from: 9/s}}\n  \
             d: {workload: tcp_stream, rate: 9Mbit/s}\n",
        );
        let metrics = plan.cases.iter().map(|case| (case.policy.metrics[0].name, case.members[0].headline()));
        let names = metrics.map(|(name, headline)| (name, headline.map(|m| m.name)));
        let expected = ["latency.p50", "latency.p50", "transaction_rate", "throughput"];
        assert_eq!(names.collect::<Vec<_>>(), expected.map(|name| (name, Some(name))));
    }

    #[test]
    fn conditions_choose_the_cases_of_an_assertion() {
        let plan = good(
            "  a:\n    workload: tcp_rr\n    matrix: {inflight: [1, 16]}\n    assert:\n      - latency.p99 < 1s\n      - {that: latency.p50 < 1s, when: {inflight: \"<4\", streams: 1}}\n",
        );
        assert_eq!(plan.cases[0].asserts.len(), 2);
        assert_eq!(plan.cases[1].asserts.len(), 1);
        assert_eq!(plan.cases[1].asserts[0].place.to_string(), "t.yaml:9:9");
    }

    #[test]
    fn searches_and_stops_are_resolved() {
        let plan = good(
            "  a: {workload: tcp_rr, find: {metric: latency.p99, at_most: 100us, by: inflight, to: 64}}\n  b: {workload: tcp_stream, matrix: {streams: [1, 2]}, stop_when: throughput < 1bit/s}\n",
        );
        let find = plan.cases[0].find.as_ref().unwrap();
        assert_eq!((find.by, find.from, find.to, find.max_probes), (FindBy::Inflight, 1.0, Some(64.0), 40));
        assert!((find.at_most.unwrap() - 100.0).abs() < 1e-9);
        assert_eq!(&*plan.cases[1].stop_when.as_ref().unwrap().axis, "streams");
    }

    /// A value of a plan: mostly words that mean something, often in the wrong place.
    fn value() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            Just("tcp_stream".to_owned()),
            Just("1".to_owned()),
            Just("0".to_owned()),
            Just("-1".to_owned()),
            Just("64KiB".to_owned()),
            Just("1e999".to_owned()),
            Just("10Gbit/s".to_owned()),
            Just("~".to_owned()),
            Just("true".to_owned()),
            Just("\"${vars.x}\"".to_owned()),
            Just("\"throughput > 1\"".to_owned()),
            Just("\"n[1-3]\"".to_owned()),
            Just("h,local".to_owned()),
            Just("auto".to_owned()),
            "[a-z0-9.%-]{1,6}".prop_map(|w| format!("\"{w}\"")),
        ];
        word.prop_recursive(4, 24, 4, |inner| {
            let key = prop_oneof![
                Just("workload"),
                Just("matrix"),
                Just("concurrent"),
                Just("members"),
                Just("streams"),
                Just("message_size"),
                Just("socket.mss"),
                Just("socket"),
                Just("assert"),
                Just("assert+"),
                Just("that"),
                Just("when"),
                Just("from"),
                Just("to"),
                Just("factor"),
                Just("step"),
                Just("perturb"),
                Just("exclude"),
                Just("include"),
                Just("zip"),
                Just("iterations"),
                Just("find"),
                Just("by"),
                Just("at_most"),
                Just("metric"),
                Just("rate"),
                Just("pacing"),
                Just("every"),
                Just("warmup"),
                Just("duration"),
                Just("extends"),
                Just("hooks"),
                Just("setup"),
                Just("stop_when"),
                Just("cpu"),
                Just("skip"),
                Just("x-y"),
                Just("zzz"),
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(|v| format!("[{}]", v.join(", "))),
                proptest::collection::btree_map(key, inner, 0..5).prop_map(|m| {
                    format!("{{{}}}", m.iter().map(|(k, v)| format!("{k}: {v}")).collect::<Vec<_>>().join(", "))
                }),
            ]
        })
    }

    proptest! {
        // Each input is a whole plan, so a few find much.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_plan_makes_it_panic(
            defaults in value(), profile in value(), test in value(), run in value(), output in value(), set in value(),
        ) {
            let text = format!(
                "version: 1\nname: t\ndefaults: {defaults}\nprofiles: {{p: {profile}}}\nrun: {run}\noutput: {output}\ntests:\n  a: {test}\n  b: {{extends: p, workload: tcp_rr}}\n"
            );
            let options = LoadOptions { sets: vec![format!("tests.a.matrix={set}"), format!("socket={set}")], ..LoadOptions::default() };
            if let Err(out) = load_str("t.yaml", &text, &options) {
                prop_assert!(out.has_errors());
                prop_assert!(!out.render(Format::Human).is_empty());
            }
        }
    }
}
