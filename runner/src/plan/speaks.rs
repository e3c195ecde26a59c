//! Hosts where another program serves (`speaks`): what they cannot have, and where they can stand.

use super::{
    diagnostics::Diagnostics,
    inventory::Endpoint,
    keys::key,
    model::Host,
    source::Span,
    tree::{Entry, Node},
};

/// Checks an entry of `hosts`.
pub(super) fn check_host(entry: &Entry, host: &Host, out: &mut Diagnostics) {
    let Some(program) = host.speaks else { return };
    let span = |key: &str| entry.value.entry(key).map_or(entry.key_span, |e| e.key_span);
    let needless = [
        ("launch", host.launch.is_some(), "plumb starts daemons, and here another program serves"),
        ("netns", host.netns.is_some(), "plumb runs a daemon in `netns`, and here another program serves"),
        ("key_file", host.key_file.is_some(), "its protocol knows no key"),
        ("bind", host.bind.is_some(), "its protocol has no place for this"),
        ("cpus", host.cpus.is_some(), "its protocol has no place for this"),
    ];
    for (key, _, why) in needless.iter().filter(|(_, said, _)| *said) {
        out.error(span(key), format!("`speaks` and `{key}` exclude each other"), *why);
    }
    if host.address.as_deref() == Some("local") {
        let what = format!("`local` is this process, which does not speak {}", program.name());
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
            format!("`{}` speaks {}, which only serves: it cannot be `from`", from.name(), program.name()),
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
        let message = format!("{what} needs a daemon, and `{name}` speaks {}", program.name());
        out.error(node.span, message, "name another host");
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{
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
