//! Texts that once made the check of a plan panic, fill the memory or take hours: each gives a sentence, or a plan.

use std::fmt::Write as _;

use super::{diagnostics::Format, load_str};

/// The sentences about a plan with this after its head.
fn complaint(text: &str) -> String {
    let text = format!("version: 1\nname: t\n{text}");
    load_str("t.yaml", &text, &super::LoadOptions::default())
        .map_or_else(|out| out.render(Format::Human), |_| String::new())
}

/// Lines of a text, each with its number.
fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", line(number));
        text
    })
}

#[test]
fn a_long_variable_in_many_places() {
    let places = "${vars.a}".repeat(50_000);
    let said = complaint(&format!("vars: {{a: {{default: {}}}}}\ntests: {{t: \"{places}\"}}\n", "x".repeat(1 << 20)));
    assert!(said.contains("grows beyond 4 MiB"), "{said}");
    let many = lines(20_000, |_| "- ${vars.a}".to_owned());
    let said = complaint(&format!("vars: {{a: {{default: {}}}}}\nx-a: 1\nlabels:\n{many}", "x".repeat(1 << 20)));
    assert!(said.contains("grows beyond 4 MiB"), "{said}");
}

#[test]
fn anchors_within_anchors() {
    let open = (0..60).fold(String::new(), |open, n| open + &format!("&a{n} ["));
    let said = complaint(&format!("x-a: {open}{}{}\n", "x, ".repeat(100_000), "]".repeat(60)));
    assert!(said.contains("grows beyond 200000 values"), "{said}");
}

#[test]
fn names_of_a_hundred_kilobytes() {
    let name = "x".repeat(100_000);
    let said = complaint(&format!("vars: {{{name}: {{default: 1}}}}\ntests: {{t: \"${{vars.{name}y}}\"}}\n"));
    assert!(said.contains("is not declared"), "{}", &said[said.len().saturating_sub(300)..]);
}

#[test]
fn a_hundred_thousand_mistakes() {
    let declared = lines(20_000, |n| format!("  abcdefg{n}: {{default: 1}}"));
    let unknown = lines(20_000, |n| format!("- ${{vars.zyxwv{n}}}"));
    let said = complaint(&format!("vars:\n{declared}labels:\n{unknown}"));
    assert!(said.contains("more than 1000 mistakes") && said.len() < 4 << 20, "{} bytes", said.len());
    let said = complaint(&lines(60_000, |n| format!("unknown{n}: 1")));
    assert!(said.contains("more than 1000 mistakes"), "{} bytes", said.len());
}

#[test]
fn a_chain_of_profiles() {
    let profiles = lines(20_000, |n| format!("  p{n}: {{extends: p{}}}", n + 1));
    let said = complaint(&format!("profiles:\n{profiles}tests: {{t: {{workload: tcp_rr, extends: p0}}}}\n"));
    assert!(said.contains("over 64 levels"), "{}", &said[..said.len().min(1000)]);
}

#[test]
fn a_long_profile_of_many_tests_cases_or_members() {
    let profile = format!("profiles: {{p: {{x-a: [{}]}}}}\n", "x, ".repeat(100_000));
    let tests = lines(20_000, |n| format!("  t{n}: {{extends: p}}"));
    let cases = "  t: {extends: p, workload: tcp_rr, matrix: {streams: {from: 1, to: 200, step: 1}}}\n";
    let members = lines(5_000, |n| format!("        m{n}: {{}}"));
    let members = format!("  t:\n    extends: p\n    workload: tcp_rr\n    concurrent:\n      members:\n{members}");
    for tests in [&tests, cases, &members] {
        let said = complaint(&format!("{profile}tests:\n{tests}"));
        assert!(said.contains("grow beyond 4000000 values"), "{}", &said[..said.len().min(1000)]);
    }
}

#[test]
fn sweeps_without_end() {
    let sweep = |matrix: &str| {
        complaint(&format!(
            "run: {{max_cases: 4000000000}}\ntests: {{t: {{workload: tcp_rr, matrix: {{{matrix}}}}}}}\n"
        ))
    };
    let axes: Vec<String> = ["streams", "inflight", "request_size", "response_size"]
        .iter()
        .map(|key| format!("{key}: {{from: 1, to: 9999, step: 1}}"))
        .collect();
    assert!(sweep(&axes.join(", ")).contains("over 200000 combinations"));
    assert!(sweep("streams: {from: 1, to: 1000000000, step: 1}").contains("over 10000 values"));
    assert!(sweep("request_size: {from: 1, to: 1GiB, factor: 1.0000000001}").contains("over 10000 values"));
    let excluded = "{streams: \">0\"}, ".repeat(30_000);
    let said = sweep(&format!("streams: {{from: 1, to: 9999, step: 1}}, exclude: [{excluded}]"));
    assert!(said.contains("comparisons"), "{said}");
    let keys: Vec<String> = (0..1000).map(|n| format!("concurrent.members.m{n}.streams: [1]")).collect();
    let said = sweep(&keys.join(", "));
    assert!(said.contains("over 64 keys"), "{said}");
}

#[test]
fn lengths_whose_sum_is_no_length() {
    let text =
        "tests: {a: {workload: tcp_rr, duration: 500000000000, iterations: 4000000000}, b: {workload: tcp_rr}}\n";
    let text = format!("version: 1\nname: t\nrun: {{pause: 1e18}}\n{text}");
    if let Ok(plan) = load_str("t.yaml", &text, &super::LoadOptions::default()) {
        plan.estimate();
    }
}

#[test]
fn an_expression_of_gigabytes() {
    let text =
        "tests: {a: {workload: command, command: {run: [x], regex: '(?<elapsed>(((.{100}){100}){100}){100})'}}}\n";
    assert!(complaint(text).contains("not a regular expression"));
}
