//! `launch` of hosts: its rules, and the ends that one launch brings.

use std::{collections::BTreeMap, env};

use netcore::daemon::Network;

use super::{
    diagnostics::{Diagnostics, Span},
    inventory,
    model::{BY_LAUNCHER, Host, Launch, LaunchGroup, Mpi},
    ranges,
    tree::Node,
};

/// Checks `launch` of every host, and replaces a host whose launch brings several ends by these: `node` becomes `node1`,
/// `node2`, ….
pub(super) fn groups(root: &Node, mut hosts: BTreeMap<String, Host>, out: &mut Diagnostics) -> BTreeMap<String, Host> {
    for entry in root.get("hosts").and_then(Node::entries).unwrap_or_default() {
        let span = |key: &str| entry.value.get(key).map_or(entry.value.span, |node| node.span);
        // A range that cannot be read was reported with the inventory.
        let names = inventory::names_of(entry).unwrap_or_default();
        let is_numbered = inventory::is_numbered(entry);
        let Some(host) = names.iter().find_map(|name| hosts.get(name)) else { continue };
        // The hosts of a range have the same rules.
        check(host, is_numbered, &span, out);
        let Some(brings) = host.launch.as_ref().and_then(Launch::brings) else { continue };
        if is_numbered {
            // The launch brings its hosts, one for each address.
            let of = u32::try_from(names.len()).unwrap_or(u32::MAX);
            if let Some(said) = brings.said.filter(|said| *said != of) {
                let message = format!("`address` is {of} addresses, and `launch` brings {said} ends");
                out.error(span("address"), message, "write one for each");
            }
            for (index, name) in (0..).zip(names) {
                if let Some(host) = hosts.get_mut(&name) {
                    host.group = Some(LaunchGroup { name: entry.key.to_string(), index, of });
                }
            }
            continue;
        }
        let count = match brings.count() {
            Ok(count) => count,
            Err((message, help)) => {
                out.error(span("launch"), message, help);
                continue;
            }
        };
        if hosts.len() + names.len() * count as usize > ranges::MAX_HOSTS {
            let message = format!("the plan has more than {} hosts here", ranges::MAX_HOSTS);
            out.error(span("launch"), message, "start fewer");
            break;
        }
        for name in names {
            let Some(host) = hosts.remove(&name) else { continue };
            for index in 0..count {
                let group = LaunchGroup { name: name.clone(), index, of: count };
                let end = format!("{name}{}", index + 1);
                if hosts.insert(end.clone(), Host { group: Some(group), ..host.clone() }).is_some() {
                    let help = format!("`{name}` brings {count} ends: rename one");
                    out.error(span("launch"), format!("host `{end}` is in the plan already"), help);
                    break;
                }
            }
        }
    }
    hosts
}

/// `is_numbered`: each of the ends has its own address.
fn check(host: &Host, is_numbered: bool, span: &impl Fn(&str) -> Span, out: &mut Diagnostics) {
    let Some(launch) = &host.launch else {
        for (key, said) in [("interface", host.interface.is_some()), ("network", host.network.is_some())] {
            if said {
                out.error(
                    span(key),
                    format!(
                        "`{key}` chooses among the addresses that a launched host reports, and this one has no `launch`"
                    ),
                    "write its `address`",
                );
            }
        }
        if host.control.as_deref() == Some(BY_LAUNCHER) {
            out.error(span("control"), "`control: launcher` needs a `launch`", "launch: ssh");
        }
        return;
    };
    let engines = launch.engines();
    let names = engines.iter().map(|engine| engine.name).collect::<Vec<_>>().join(" and ");
    if engines.len() != 1 {
        let found = if engines.is_empty() { "no engine" } else { &names };
        out.error(span("launch"), format!("`launch` names {found}"), "one of ssh, command, slurm, mpi, kubernetes");
    }
    let excluded = [
        ("netns", host.netns.is_some(), "plumb runs the daemon in `netns` itself"),
        ("key_file", host.key_file.is_some(), "a launched daemon gets a key of its own"),
    ];
    for (key, said, why) in excluded {
        if said {
            out.error(span(key), format!("`launch` and `{key}` exclude each other"), why);
        }
    }
    for (key, said) in [("interface", host.interface.is_some()), ("network", host.network.is_some())] {
        if said && host.address.is_some() {
            out.error(span(key), format!("`address` and `{key}` exclude each other"), "leave one out");
        }
    }
    if let Some(Err(wrong)) = host.network.as_deref().map(str::parse::<Network>) {
        out.error_of(span("network"), &wrong.to_string());
    }
    if host.address.as_deref() == Some("local") {
        out.error(span("address"), "`local` is this process, which needs no launch", "remove `launch`");
    }
    let is_group = launch.brings().is_some_and(|brings| matches!(brings.count(), Ok(2..)));
    if is_group && host.address.is_some() && !is_numbered {
        out.error(
            span("address"),
            "one `address` cannot be that of several ends",
            "write a range, 10.1.0.[1-64], or choose with `interface` or `network`",
        );
    }
    match host.control.as_deref() {
        Some(BY_LAUNCHER) if engines.iter().any(|engine| engine.shares_stream) => out.error(
            span("control"),
            format!("`control: launcher` is not available with {names}"),
            "its ends share one stream: leave `control` out",
        ),
        Some(control) if has_port(control) => out.error(
            span("control"),
            format!("`{control}` has a port, and a launched daemon chooses its own"),
            "leave the port out",
        ),
        _ => {}
    }
    for Engine { name, .. } in engines.iter().filter(|engine| engine.run.is_some_and(<[String]>::is_empty)) {
        out.error(span("launch"), format!("`launch.{name}` has no command"), "run: [program, argument]");
    }
}

fn has_port(control: &str) -> bool {
    control.parse::<std::net::Ipv6Addr>().is_err()
        && control.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// Facts about an engine that a launch names, for the rules.
struct Engine<'a> {
    name: &'static str,
    /// The ends that it brings; `None`: one, which has the host's own name.
    brings: Option<Brings>,
    /// Whether its ends share one stream.
    shares_stream: bool,
    /// Its command, where the plan writes one.
    run: Option<&'a [String]>,
}

/// The ends of a launch that may bring several.
struct Brings {
    /// Their number, as far as the plan says it.
    said: Option<u32>,
    /// The number otherwise.
    otherwise: fn() -> Option<u32>,
    /// The mistake without a number, and what to do.
    unsaid: (&'static str, &'static str),
}

impl Launch {
    /// The engines that it names: one, without mistakes.
    fn engines(&self) -> Vec<Engine<'_>> {
        let engine = |name| Engine { name, brings: None, shares_stream: false, run: None };
        let ssh = self.ssh.as_ref().map(|_| engine("ssh"));
        let command = self.command.as_ref().map(|it| Engine { run: Some(&it.run), ..engine("command") });
        let slurm = self.slurm.as_ref().map(|it| {
            let unsaid = ("`launch.slurm` does not say how many nodes, and this is no allocation of Slurm", "nodes: 2");
            let brings = Brings { said: it.nodes, otherwise: nodes_of_allocation, unsaid };
            Engine { brings: Some(brings), shares_stream: true, ..engine("slurm") }
        });
        let mpi = self.mpi.as_ref().map(|it| {
            let help = "run: [mpirun.openmpi, -np, \"2\"], or ranks: 2";
            let unsaid = ("`launch.mpi` does not say how many ranks", help);
            let brings = Brings { said: it.ranks.or_else(|| ranks(it)), otherwise: || None, unsaid };
            Engine { brings: Some(brings), shares_stream: true, run: Some(&it.run), ..engine("mpi") }
        });
        let kubernetes = self.kubernetes.as_ref().map(|it| {
            let brings = Brings { said: Some(it.pods.unwrap_or(1)), otherwise: || None, unsaid: ("", "") };
            Engine { brings: Some(brings), ..engine("kubernetes") }
        });
        [ssh, command, slurm, mpi, kubernetes].into_iter().flatten().collect()
    }

    /// Its first engine: `ssh`.
    pub fn engine(&self) -> Option<&'static str> {
        Some(self.engines().first()?.name)
    }

    /// The ends that it brings, if it may bring several.
    fn brings(&self) -> Option<Brings> {
        self.engines().into_iter().find_map(|engine| engine.brings)
    }
}

impl Brings {
    fn count(&self) -> Result<u32, (&'static str, &'static str)> {
        self.said.or_else(self.otherwise).ok_or(self.unsaid)
    }
}

/// The number of nodes of the allocation of Slurm that the run is in.
fn nodes_of_allocation() -> Option<u32> {
    env::var_os("SLURM_JOB_ID")?;
    env::var("SLURM_JOB_NUM_NODES").or_else(|_| env::var("SLURM_NNODES")).ok()?.parse().ok()
}

/// The number behind `-np` or its other names.
fn ranks(mpi: &Mpi) -> Option<u32> {
    let at = mpi.run.iter().position(|word| ["-np", "-n", "--np", "-c", "--n"].contains(&word.as_str()))?;
    mpi.run.get(at + 1)?.parse().ok().filter(|ranks| *ranks > 0)
}

#[cfg(test)]
mod tests {
    use super::super::{
        diagnostics::Format,
        load::{LoadOptions, load_str},
    };

    fn load(hosts: &str, to: &str) -> Result<super::super::Plan, String> {
        let text = format!("version: 1\nname: t\nhosts:\n  {hosts}\ntests:\n  a: {{workload: tcp_rr, to: \"{to}\"}}\n");
        load_str("t.yaml", &text, &LoadOptions::default()).map_err(|out| out.render(Format::Human))
    }

    #[test]
    fn a_launch_of_several_ends_is_a_group() {
        let plan = load("node: {launch: {slurm: {nodes: 3}}}", "node[2]").unwrap();
        let names: Vec<(&str, u32)> =
            plan.hosts.iter().map(|(name, host)| (name.as_str(), host.group.as_ref().unwrap().index)).collect();
        assert_eq!(names, [("node1", 0), ("node2", 1), ("node3", 2)]);
        let plan = load("rank: {launch: {mpi: {run: [mpirun.openmpi, -np, 4]}}}", "rank4").unwrap();
        assert_eq!(plan.hosts.len(), 4);
        let plan = load("b: {launch: ssh}", "b").unwrap();
        assert!(plan.hosts["b"].group.is_none());
    }

    #[test]
    fn a_launch_brings_a_host_for_each_address() {
        let group = |plan: &super::super::Plan, name: &str| {
            plan.hosts[name].group.as_ref().map(|group| (group.name.clone(), group.index, group.of))
        };
        let plan = load("node: {address: \"10.1.0.[1-64]\", launch: slurm}", "node[64]").unwrap();
        assert_eq!((plan.hosts.len(), plan.hosts["node64"].address.as_deref()), (64, Some("10.1.0.64")));
        assert_eq!(group(&plan, "node64"), Some(("node".to_owned(), 63, 64)));
        let plan = load("node: {address: \"10.1.0.[1-2]\", launch: ssh}", "node[2]").unwrap();
        assert_eq!((plan.hosts.len(), group(&plan, "node2")), (2, None));
        let error = load("node: {address: \"10.1.0.[1-3]\", launch: {slurm: {nodes: 2}}}", "node1").unwrap_err();
        assert!(error.contains("`address` is 3 addresses, and `launch` brings 2 ends"), "{error}");
    }

    #[test]
    fn rules_of_launch_are_sentences() {
        for (hosts, sentence) in [
            ("b: {launch: {}}", "names no engine"),
            ("b: {launch: {ssh: {}, slurm: {nodes: 1}}}", "names ssh and slurm"),
            ("b: {launch: telnet}", "unknown value `telnet`"),
            ("b: {launch: {ssh: {hots: x}}}", "did you mean `host`"),
            ("b: {launch: ssh, netns: x}", "`launch` and `netns` exclude each other"),
            ("b: {launch: ssh, key_file: x}", "`launch` and `key_file` exclude each other"),
            ("b: {address: 10.0.0.1, interface: eth0}", "this one has no `launch`"),
            ("b: {address: 10.0.0.1, launch: ssh, interface: eth0}", "`address` and `interface` exclude each other"),
            ("b: {launch: ssh, network: 10.0.0.0/99}", "is no network"),
            ("b: {launch: ssh, control: \"x:99\"}", "has a port"),
            ("b: {address: 10.0.0.1, control: launcher}", "needs a `launch`"),
            ("b: {launch: {slurm: {nodes: 2}}, control: launcher}", "not available with slurm"),
            ("b: {launch: {slurm: {nodes: 2}}, address: 10.0.0.1}", "several ends"),
            ("b: {launch: {slurm: {}}}", "how many nodes"),
            ("b: {launch: {mpi: {run: [mpirun]}}}", "how many ranks"),
            ("b: {launch: {command: []}}", "has no command"),
            ("{b1: {address: 10.0.0.1}, b: {launch: {slurm: {nodes: 2}}}}", "host `b1` is in the plan already"),
        ] {
            let error = load(hosts, "b").unwrap_err();
            assert!(error.contains(sentence), "{hosts}: {error}");
        }
    }
}
