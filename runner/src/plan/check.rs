//! Checks of the top level: hosts, preconditions, comparisons.
//!
//! Hosts where another program serves (`speaks`) have checks of their own: which keys they cannot have, and which ends they
//! can be.

use std::collections::BTreeMap;

use analyze::judge::environment;
use netcore::peers::Program;
use schemas::{metrics, units};

use super::{
    case::Case,
    diagnostics::{Diagnostic, Diagnostics, Span, suggest},
    inventory::{self, Endpoint},
    keys::key,
    model::{Host, PlanFile},
    ranges,
    spec::bind_parts,
    tree::{Entry, Node},
};

/// Checks everything but the tests.
pub fn top(root: &Node, hosts: &BTreeMap<String, Host>, file: Option<&PlanFile>, out: &mut Diagnostics) {
    names(root, out);
    check_hosts(root, hosts, out);
    if let Some(defaults) = root.get("defaults").and_then(|n| n.entry(key::extends)) {
        out.error(defaults.key_span, "`defaults` cannot extend", "write `extends` in the tests");
    }
    if let Some(defaults) = root.get("defaults").and_then(|n| n.entry(key::matrix)) {
        // Sweeping every test by accident is how plans grow to thousands of cases.
        out.error(defaults.key_span, "`defaults` cannot sweep", "put the matrix into a profile or a test");
    }
    requirements(root, hosts, out);
    comparisons(root, file, out);
}

fn names(root: &Node, out: &mut Diagnostics) {
    let tests = root.get("tests").and_then(Node::entries).unwrap_or_default();
    let members = tests.iter().filter_map(|t| t.value.at("concurrent.members"));
    let sections = ["tests", "profiles"].into_iter().filter_map(|key| root.get(key));
    let entries = sections.chain(members).flat_map(|n| n.entries().unwrap_or_default());
    // Ranges were read with the inventory.
    let hosts = root.get("hosts").and_then(Node::entries).unwrap_or_default();
    for entry in entries.chain(hosts.iter().filter(|host| !ranges::is_range(&host.key))) {
        if !ranges::is_name(&entry.key) {
            out.error(
                entry.key_span,
                format!("`{}` cannot be a name", entry.key),
                "a letter, then letters, digits, hyphens and underscores",
            );
        }
    }
}

fn check_hosts(root: &Node, hosts: &BTreeMap<String, Host>, out: &mut Diagnostics) {
    for entry in root.get("hosts").and_then(Node::entries).unwrap_or_default() {
        // A range that cannot be read was reported with the inventory.
        let names = inventory::names_of(entry).unwrap_or_default();
        if names.iter().any(|name| name == "local") {
            out.error(entry.key_span, "`local` is this process already", "choose another name");
        }
        let theirs: Vec<(&String, &Host)> = names.iter().filter_map(|name| hosts.get_key_value(name)).collect();
        let is_without = |host: &Host| host.address.is_none() && host.launch.is_none();
        let without = theirs.iter().filter(|(_, host)| is_without(host)).map(|(name, _)| name.as_str());
        let without = ranges::fold(without);
        if !without.is_empty() && entry.value.get("address").is_none() {
            let option =
                if ranges::is_range(&without) { format!("'{without}=ADDRESS'") } else { format!("{without}=ADDRESS") };
            out.error(
                entry.key_span,
                format!("host `{without}` has no address"),
                format!("add `address:`, or --host {option}"),
            );
        }
        if let [(_, first), rest @ ..] = theirs.as_slice()
            && !rest.is_empty()
            && first.address.as_deref().is_some_and(|address| address != "local")
            && theirs.iter().all(|(_, host)| {
                host.netns.is_none()
                    && host.launch.is_none()
                    && (&host.address, &host.control) == (&first.address, &first.control)
            })
        {
            let address = first.address.as_deref().unwrap_or_default();
            let span = entry.value.get("address").map_or(entry.key_span, |node| node.span);
            let what = format!("every host of `{}` is at {address}", entry.key);
            out.push(
                Diagnostic::warning(span, what)
                    .help("write {host} in `address` or `control`, which is the host's name"),
            );
        }
        if let Some((_, host)) = theirs.first() {
            // The hosts of a range have the same rules.
            check_host(entry, host, out);
        }
        let any = |has: fn(&Host) -> bool| theirs.iter().any(|(_, host)| host.netns.is_some() && has(host));
        let others =
            [("control", any(|host| host.control.is_some())), ("key_file", any(|host| host.key_file.is_some()))];
        for (other, _) in others.iter().filter(|(_, said)| *said) {
            let span = entry.value.entry("netns").map_or(entry.key_span, |e| e.key_span);
            out.error(
                span,
                format!("`netns` and `{other}` exclude each other"),
                "plumb runs the daemon in `netns` itself; one that runs already was put there: plumb serve --netns",
            );
        }
        if let Some(node) = entry.value.get("bind") {
            let list = node.items().unwrap_or(std::slice::from_ref(node));
            for node in list {
                if let Some(Err(message)) = node.text().map(bind_parts) {
                    out.error_of(node.span, &message);
                }
            }
        }
    }
}

/// Checks of `require`, each with the unit of its values.
const CHECKS: [(&str, Option<units::Unit>); 6] = [
    ("cpu_governor", None),
    ("kernel", None),
    ("nic_speed", Some(units::Unit::BitsPerSecond)),
    ("mtu", Some(units::Unit::Bytes)),
    ("clock_offset", Some(units::Unit::Microseconds)),
    ("free_cpus", Some(units::Unit::Count)),
];

fn requirements(root: &Node, hosts: &BTreeMap<String, Host>, out: &mut Diagnostics) {
    for item in root.get("require").and_then(Node::items).unwrap_or_default() {
        if let Some(node) = item.get("host") {
            let names = inventory::known(node, hosts, &["local", "*"], out);
            let theirs = names.iter().filter_map(|name| Some((name.as_str(), hosts.get(name)?)));
            check_daemon(node, "a condition", theirs, out);
        }
        let Some(node) = item.get("check") else { continue };
        let Some(check) = node.text() else { continue };
        let unit = match CHECKS.iter().find(|(name, _)| *name == check) {
            Some((_, unit)) => *unit,
            None if check.starts_with("sysctl.") && check.len() > "sysctl.".len() => None,
            None => {
                let mut known: Vec<&str> = CHECKS.iter().map(|(name, _)| *name).collect();
                known.push("sysctl.<name>");
                out.error(node.span, format!("unknown check `{check}`"), suggest(check, &known));
                continue;
            }
        };
        let bounds: Vec<(&str, &Node)> =
            ["equals", "at_least", "at_most"].iter().filter_map(|key| item.get(key).map(|n| (*key, n))).collect();
        if bounds.is_empty() {
            out.error(
                node.span,
                format!("`{check}` has nothing to be checked against"),
                "add equals, at_least or at_most",
            );
        }
        for (key, node) in bounds {
            let text = node.text().unwrap_or("");
            match unit {
                Some(unit) => {
                    if let Err(error) = units::parse_for(unit, text) {
                        out.error_of(node.span, &error.to_string());
                    }
                }
                // Versions are compared part by part, sysctls as numbers; governors have no order.
                None if key != "equals" && check == "cpu_governor" => {
                    out.error(node.span, "a governor is not more or less", "use equals");
                }
                None => {}
            }
        }
    }
}

fn comparisons(root: &Node, file: Option<&PlanFile>, out: &mut Diagnostics) {
    let Some(baseline) = root.get("baseline").filter(|n| n.entries().is_some()) else { return };
    let items = baseline.get("compare").and_then(Node::items).unwrap_or_default();
    if items.is_empty() {
        let span = root.key_span("baseline").unwrap_or_default();
        out.error(span, "a baseline without comparisons", "compare: [{metric: throughput, max_regression: 3%}]");
    }
    for node in baseline.get("require_same").and_then(Node::items).unwrap_or_default() {
        let name = node.text().unwrap_or("");
        if !environment::is_fact(name) {
            out.error(
                node.span,
                format!("`{name}` is not a known fact of a run"),
                suggest(name, &environment::names()),
            );
        }
    }
    for (node, comparison) in
        items.iter().zip(file.and_then(|f| f.baseline.as_ref()).map(|b| b.compare.as_slice()).unwrap_or_default())
    {
        let metric = comparison.metric.0;
        if metric.better == metrics::Better::Neither {
            let span = node.get("metric").map_or(node.span, |n| n.span);
            out.error(
                span,
                format!("`{}` has no better or worse", metric.name),
                "compare throughput, transaction_rate, latency.p99, …",
            );
        }
        if let (Some(effect), Some(node)) = (&comparison.min_effect, node.get("min_effect"))
            && let Err(error) = units::parse_for(metric.unit, &effect.0)
        {
            out.error_of(node.span, &error.to_string());
        }
        if comparison.alpha.is_some_and(|a| a.0 <= 0.0 || a.0 >= 0.5) {
            let span = node.get("alpha").map_or(node.span, |n| n.span);
            out.error(span, "alpha is a small probability", "for example 0.01");
        }
    }
}

/// Rejects comparisons of a metric that no case measures: they could never fail.
pub fn compared(root: &Node, file: Option<&PlanFile>, cases: &[Case], out: &mut Diagnostics) {
    let items = root.at("baseline.compare").and_then(Node::items).unwrap_or_default();
    let comparisons = file.and_then(|f| f.baseline.as_ref()).map(|b| b.compare.as_slice()).unwrap_or_default();
    for (node, comparison) in items.iter().zip(comparisons) {
        let metric = comparison.metric.0;
        let mut jobs = cases.iter().flat_map(|c| &c.members).map(|m| m.lacks(metric));
        if let Some(Some(reason)) = jobs.next()
            && jobs.all(|lacks| lacks.is_some())
        {
            let span = node.get("metric").map_or(node.span, |n| n.span);
            out.error(span, format!("no test of the plan measures `{}`", metric.name), reason);
        }
    }
}

/// Checks an entry of `hosts`.
fn check_host(entry: &Entry, host: &Host, out: &mut Diagnostics) {
    let Some(program) = host.speaks else { return };
    let span = |key: &str| entry.value.entry(key).map_or(entry.key_span, |e| e.key_span);
    let needless = [
        ("launch", host.launch.is_some(), "plumb starts daemons, and here another program serves"),
        ("netns", host.netns.is_some(), "plumb runs a daemon in `netns`, and here another program serves"),
        ("key_file", host.key_file.is_some() && program != Program::Stamp, "its protocol knows no key"),
        ("bind", host.bind.is_some(), "its protocol has no place for this"),
        ("cpus", host.cpus.is_some(), "its protocol has no place for this"),
    ];
    for (key, _, why) in needless.iter().filter(|(_, said, _)| *said) {
        out.error(span(key), format!("`speaks` and `{key}` exclude each other"), *why);
    }
    if host.address.as_deref() == Some("local") {
        let what = format!("`local` is this process, which does not speak {}", program.as_str());
        out.error(span("address"), what, format!("for {} on this machine: 127.0.0.1", program.server()));
    }
}

/// Checks the ends of a test.
pub(super) fn check_ends(
    tree: &Node,
    at: Span,
    (from, near): (&Endpoint, Option<&Host>),
    far: Option<&Host>,
    out: &mut Diagnostics,
) {
    let span = tree.get(key::from).map_or(at, |node| node.span);
    if let Some(program) = near.and_then(|host| host.speaks) {
        out.error(
            span,
            format!("`{}` speaks {}, which only serves: it cannot be `from`", from.name(), program.as_str()),
            "exchange `from` and `to`; `direction: reverse` lets the far end of a stream send",
        );
    } else if let Some(program) = far.and_then(|host| host.speaks)
        && *from != Endpoint::Local
    {
        out.error(
            span,
            format!(
                "a test with {} begins in this process: it has no daemon to agree with `{}`",
                program.server(),
                from.name()
            ),
            "leave `from` out, and run plumb on that host",
        );
    }
}

/// A place in the plan that needs a daemon on these hosts.
pub(super) fn check_daemon<'a>(
    node: &Node,
    what: &str,
    mut hosts: impl Iterator<Item = (&'a str, &'a Host)>,
    out: &mut Diagnostics,
) {
    if let Some((name, program)) = hosts.find_map(|(name, host)| Some((name, host.speaks?))) {
        let message = format!("{what} needs a daemon, and `{name}` speaks {}", program.as_str());
        out.error(node.span, message, "name another host");
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        diagnostics::Format,
        load::{LoadOptions, load_str},
    };

    /// The mistakes in a plan with these hosts and this test.
    fn errors(hosts: &str, test: &str) -> String {
        let plan = format!("version: 1\nname: x\nhosts: {{{hosts}}}\ntests:\n  a: {{{test}}}\n");
        let found = load_str("plan.yaml", &plan, &LoadOptions::default());
        found.map_or_else(|diagnostics| diagnostics.render(Format::Human), |_| String::new())
    }

    #[test]
    fn a_program_that_serves_needs_only_an_address() {
        let test = "workload: tcp_stream, to: b";
        assert_eq!(errors("b: {address: 10.0.0.9, speaks: netperf}", test), "");
        assert_eq!(errors("b: {address: 10.0.0.9, control: \"10.0.0.8:5301\", speaks: iperf3}", test), "");
        for (key, value) in [("launch", "ssh"), ("netns", "red"), ("key_file", "k"), ("cpus", "\"1\"")] {
            let found = errors(&format!("b: {{speaks: netperf, address: 10.0.0.9, {key}: {value}}}"), test);
            assert!(found.contains(&format!("`{key}` exclude each other")), "{found}");
        }
        let found = errors("b: {address: local, speaks: netperf}", test);
        assert!(found.contains("does not speak netperf"), "{found}");
        let found = errors("b: {address: 10.0.0.9, speaks: iperf2}", test);
        assert!(found.contains("unknown value `iperf2`"), "{found}");
    }

    #[test]
    fn it_is_the_far_end_of_this_process() {
        let hosts = "b: {address: 10.0.0.9, speaks: netperf}, c: {address: 10.0.0.8}";
        for (test, sentence) in [
            ("workload: tcp_stream, from: b, to: c", "cannot be `from`"),
            ("workload: tcp_stream, from: c, to: b", "begins in this process"),
            ("workload: tcp_stream, to: c, hooks: {setup: {run: [x], on: b}}", "needs a daemon"),
            ("workload: udp_stream, to: b, control: none, remote_ports: 9", "`speaks` a protocol"),
        ] {
            let found = errors(hosts, test);
            assert!(found.contains(sentence), "{test}: {found}");
        }
    }
}
