use crate::plan::{
    case::Plan,
    diagnostics::Format,
    load::{LoadOptions, load_str},
};

const HOSTS: &str = "hosts:\n  node[1-64]: {address: \"{host}.lab\"}\n  b: {address: b.lab}\n";

fn load(body: &str) -> Result<Plan, String> {
    let workload = match body.split("extends: ").nth(1) {
        Some("c") => "workload: command, ",
        Some("r") => "workload: nas_ep, ",
        _ => "workload: tcp_stream, ",
    };
    let text = format!(
        "version: 1\nname: t\n{HOSTS}profiles: {{c: {{command: {{run: [x]}}}}, r: {{ranks: 2}}}}\ntests:\n  t: {{{workload}{body}}}\n"
    );
    load_str("t.yaml", &text, &LoadOptions::default()).map_err(|out| out.render(Format::Human))
}

fn good(test: &str) -> Plan {
    load(test).unwrap_or_else(|e| panic!("{e}"))
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.cases.iter().map(|case| case.name.as_str()).collect()
}

#[test]
fn pairs_are_cases_with_their_ends_and_their_round() {
    let plan = good("duration: 1s, pairs: {of: \"node[1-4]\"}, matrix: {streams: [1, 2]}");
    assert_eq!((plan.cases.len(), plan.surveys.len()), (24, 2));
    let case = &plan.cases[0];
    assert!(case.name.starts_with("t[streams=1,from=node"), "{}", case.name);
    assert_eq!(case.round.as_ref().map(|r| (&*r.survey, r.number, r.of)), Some(("t[streams=1]", 1, 6)));
    let ids: std::collections::HashSet<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(ids.len(), 24);
    assert!(plan.axis_paths.iter().all(|path| path == "from" || path == "to" || path == "streams"));
    // The pairs of a round take no more time than one.
    assert_eq!(plan.estimate().least.as_millis(), 12 * 1100);
    let alone = good("duration: 1s, pairs: {of: \"node[1-4]\", alone: true}");
    assert_eq!(alone.estimate().least.as_millis(), 12 * 1100);
}

#[test]
fn a_survey_of_64_hosts_needs_no_higher_limit() {
    let plan = good("pairs: {of: node, shape: all, both_ways: true}");
    assert_eq!(plan.cases.len(), 64 * 63);
    assert_eq!(plan.cases.iter().filter_map(|case| Some(case.round.as_ref()?.number)).max(), Some(126));
    let error = load("matrix: {streams: {from: 1, to: 300, step: 1}}, pairs: {of: \"node[1-2]\"}").unwrap_err();
    assert!(error.contains("more than 256 cases") && error.contains("run.max_cases"), "{error}");
}

#[test]
fn a_load_is_one_group_of_its_pairs() {
    let plan = good("pairs: {of: \"node[1-4]\", shape: bisection}");
    let members: Vec<&str> = plan.cases[0].members.iter().map(|m| m.name.as_str()).collect();
    assert_eq!((names(&plan), members), (vec!["t"], vec!["node1-node3", "node2-node4"]));
    assert!(plan.cases[0].group.is_some() && plan.cases[0].round.is_none());
    let plan = good("pairs: {of: node, to: \"node[1]\", shape: incast}, concurrent: {start: {max_skew: 1s}}");
    let members = &plan.cases[0].members;
    assert_eq!((members.len(), members[0].from.name(), members[0].to.name()), (63, "node2", "node1"));
    assert_eq!(plan.cases[0].group.as_ref().unwrap().max_skew.as_secs(), 1);
    let plan = good(
        "pairs: {of: \"node[1-3]\", from: b, shape: outcast}, assert: [{that: throughput > 1Mbit/s, member: b-node2}]",
    );
    assert_eq!((plan.cases[0].members.len(), plan.cases[0].asserts.len()), (3, 1));
    let plan = good(
        "pairs: {of: \"node[1-3]\", shape: ring, alone: true}, find: {metric: retransmits, at_most: 0, by: rate, from: 1Mbit/s}",
    );
    assert_eq!(names(&plan), ["t[from=node1,to=node2]", "t[from=node2,to=node3]", "t[from=node3,to=node1]"]);
}

#[test]
fn figures_of_a_survey_are_asserted_once() {
    let plan = good(
        "pairs: {of: \"node[1-3]\"}, matrix: {streams: [1, 2]}, assert: [suspects == 0, {that: spread < 5%, when: {streams: 2}, severity: warn}, throughput > 1Mbit/s]",
    );
    assert!(plan.cases.iter().all(|case| case.asserts.len() == 1));
    let asserted: Vec<usize> = plan.surveys.iter().map(|survey| survey.asserts.len()).collect();
    assert_eq!(asserted, [1, 2]);
    for (test, sentence) in [
        ("to: b, assert: [suspects == 0]", "tcp_stream does not measure `suspects`"),
        ("pairs: {of: node, shape: ring}, assert: [spread < 5%]", "`assert` in a test with `pairs`"),
        ("pairs: {of: node}, stop_when: suspects > 0", "`stop_when` decides for one case"),
        ("pairs: {of: node}, assert: [{that: suspects == 0, when: {from: node1}}]", "has no part to choose"),
        ("pairs: {of: node}, assert: [{that: suspects == 0, scope: stream}]", "has no part to choose"),
        ("pairs: {of: node}, assert: [suspects < 5%]", "suspects"),
    ] {
        let error = load(test).expect_err(test);
        assert!(error.contains(sentence), "{test}: {error}");
    }
}

#[test]
fn mistakes_are_said_at_their_words() {
    for (test, sentences) in [
        ("pairs: all", &["`pairs` needs the hosts", "t.yaml:8:"][..]),
        ("pairs: {shape: all}", &["does not say among which hosts"]),
        ("pairs: {of: node, shape: mesh}", &["mesh", "neighbours"]),
        ("pairs: {of: node, shap: all}", &["did you mean `shape`"]),
        ("pairs: {of: nose}", &["unknown host `nose`"]),
        ("pairs: {of: \"node[]\"}", &["has nothing between brackets"]),
        ("pairs: {of: \"node[1-4,3]\"}", &["has host `node3` twice"]),
        ("pairs: {of: [\"node[1-4]\", node2]}", &["host `node2` is in `of` twice"]),
        ("pairs: {of: \"node[60-70]\"}", &["unknown host `node[65-70]`"]),
        ("pairs: {of: b}", &["`of` is one host, `b`", "takes two"]),
        ("pairs: {of: b, to: b, shape: incast}", &["`of` is one host, `b`"]),
        ("pairs: {of: node, shape: incast}", &["does not say which host is in every pair", "to: HOST"]),
        (
            "pairs: {of: node, shape: outcast, to: b}",
            &["`outcast` has no host that is in every pair, and so no `to`", "shape: incast"],
        ),
        ("pairs: {of: node, to: b}", &["`all` has no host that is in every pair"]),
        ("pairs: {of: node, shape: incast, to: x}", &["unknown host `x`"]),
        ("pairs: {of: node, shape: incast, to: \"node[1-2]\"}", &["`to` is 2 hosts"]),
        ("pairs: {of: node}, to: b", &["`to` and `pairs` exclude each other", "`pairs` is here"]),
        ("pairs: {of: node}, from: node1", &["`from` and `pairs` exclude each other"]),
        ("pairs: {of: node}, extends: c", &["a command runs on this machine", "leave `pairs` out"]),
        ("pairs: {of: node}, extends: r", &["`ranks` names", "leave `pairs` out"]),
        ("pairs: {of: node}, matrix: {to: [b]}", &["a matrix over `to` and `pairs`"]),
        ("pairs: {of: node}, concurrent: {members: {a: {}}}", &["`members` and `pairs` exclude each other"]),
        ("pairs: {of: node}, concurrent: {start: {max_skew: 1s}}", &["measurements of their own, and no group"]),
        ("pairs: {of: node}, matrix: {pairs.shape: [all]}", &["`pairs.shape` cannot be swept"]),
    ] {
        let error = load(test).expect_err(test);
        for sentence in sentences {
            assert!(error.contains(sentence), "{test}: {sentence} not in:\n{error}");
        }
    }
    let hosts = "hosts: {\"n[1-300]\": {address: \"{host}\"}}";
    let text = format!("version: 1\nname: t\n{hosts}\ntests: {{t: {{workload: tcp_stream, pairs: {{of: n}}}}}}\n");
    let error = load_str("t.yaml", &text, &LoadOptions::default()).unwrap_err().render(Format::Human);
    assert!(error.contains("all of 300 hosts is 89700 pairs, more than 20000"), "{error}");
}
