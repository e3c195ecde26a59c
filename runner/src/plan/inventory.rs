//! The hosts of a plan: `hosts:` with its ranges spelt out, and `--host`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
};

use netcore::control::dial::split_port;

use super::{
    diagnostics::{Diagnostic, Diagnostics, Span, nearest},
    model::{BY_LAUNCHER, Host, Launch, Ssh},
    ranges,
    tree::{Entry, Node},
};

/// The place of an end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// This process.
    Local,
    /// The daemon inside this process.
    Embedded,
    /// A host of the inventory.
    Host(String),
}

impl Endpoint {
    /// As in results.
    pub fn name(&self) -> &str {
        match self {
            Self::Local => "local",
            Self::Embedded => "embedded",
            Self::Host(name) => name,
        }
    }
}

/// The hosts by name. `written` has them by the keys of the plan, which may be ranges.
pub(super) fn inventory(
    root: &Node,
    mut written: BTreeMap<String, Host>,
    out: &mut Diagnostics,
) -> BTreeMap<String, Host> {
    let mut hosts = BTreeMap::new();
    let mut places: HashMap<String, Span> = HashMap::new();
    for entry in root.get("hosts").and_then(Node::entries).unwrap_or_default() {
        // Absent: a key that starts with `x-`, or a value that is no host.
        let Some(host) = written.remove(&*entry.key) else { continue };
        let names = match names_of(entry) {
            Ok(names) => names,
            Err((span, sentence)) => {
                out.error_of(span, &sentence);
                continue;
            }
        };
        let mut each = vec![host; names.len()];
        let mut counted = true;
        for (key, place) in ADDRESSES {
            let Some(text) = place(&mut each[0]).clone().filter(|text| ranges::is_range_of_addresses(text)) else {
                continue;
            };
            let span = entry.value.get(key).map_or(entry.key_span, |node| node.span);
            match addresses(key, &text, &entry.key, names.len()) {
                Ok(all) => each.iter_mut().zip(all).for_each(|(host, address)| *place(host) = Some(address)),
                Err(sentence) => {
                    out.error_of(span, &sentence);
                    counted = false;
                }
            }
        }
        if !counted {
            continue;
        }
        if hosts.len() + names.len() > ranges::MAX_HOSTS {
            out.error(entry.key_span, format!("the plan has more than {} hosts here", ranges::MAX_HOSTS), "name fewer");
            break;
        }
        for (name, host) in names.into_iter().zip(each) {
            if let Some(earlier) = places.insert(name.clone(), entry.key_span) {
                out.push(
                    Diagnostic::error(entry.key_span, format!("host `{name}` is written twice"))
                        .help("leave it out of one of the ranges")
                        .see(earlier, "here as well"),
                );
                break;
            }
            let host = of_name(&host, &name);
            hosts.insert(name, host);
        }
    }
    hosts
}

/// A key of a host, and its value.
type AddressKey = (&'static str, fn(&mut Host) -> &mut Option<String>);

/// The places of a host that may be written as ranges.
const ADDRESSES: [AddressKey; 3] =
    [("address", |host| &mut host.address), ("control", |host| &mut host.control), ("netns", |host| &mut host.netns)];

/// One address for each of `count` hosts, from a range; otherwise what is wrong.
fn addresses(key: &str, text: &str, hosts: &str, count: usize) -> Result<Vec<String>, String> {
    let all = ranges::addresses(text)?;
    if all.len() == count {
        return Ok(all);
    }
    Err(format!("`{key}` stands for {}, and `{hosts}` is {count} hosts: write one for each", all.len()))
}

/// Whether the hosts of an entry take their numbers from a range of addresses: `node: {address: "10.1.0.[1-64]"}` is `node1` …
/// `node64`.
pub(super) fn is_numbered(entry: &Entry) -> bool {
    let address = entry.value.get("address").and_then(Node::text);
    !ranges::is_range(&entry.key) && address.is_some_and(ranges::is_range_of_addresses)
}

/// The names of an entry's hosts; otherwise the place of what is wrong, and a sentence.
pub(super) fn names_of(entry: &Entry) -> Result<Vec<String>, (Span, String)> {
    if !is_numbered(entry) {
        return ranges::names(&entry.key).map_err(|sentence| (entry.key_span, sentence));
    }
    // It has one, since its hosts are numbered.
    let span = entry.value.get("address").map_or(entry.key_span, |node| node.span);
    let text = entry.value.get("address").and_then(Node::text).unwrap_or_default();
    let count = ranges::addresses(text).map_err(|sentence| (span, sentence))?.len();
    Ok((1..=count).map(|number| format!("{}{number}", entry.key)).collect())
}

/// A host of a range: `{host}` in its values is its name.
fn of_name(host: &Host, name: &str) -> Host {
    let named = |text: &mut String| *text = with_name(text, name);
    let mut host = host.clone();
    let of_ssh = host.launch.as_mut().and_then(|launch| launch.ssh.as_mut()).and_then(|ssh| ssh.host.as_mut());
    [&mut host.address, &mut host.control, &mut host.netns].into_iter().flatten().chain(of_ssh).for_each(named);
    host.bind.iter_mut().flat_map(|list| &mut list.0).for_each(named);
    if let Some(path) = host.key_file.as_ref().and_then(|path| path.to_str()) {
        host.key_file = Some(PathBuf::from(with_name(path, name)));
    }
    host
}

fn with_name(text: &str, name: &str) -> String {
    text.replace("{host}", name)
}

/// Takes each `--host` into the inventory. A range names the whole group: numbered hosts of its name that no `--host` gives an
/// address are left out, so that a survey never mixes machines of the command line with those of the plan.
pub(super) fn add_hosts(texts: &[String], hosts: &mut BTreeMap<String, Host>, out: &mut Diagnostics) {
    let ranges_of = |text: &String| ranges::names(text.split_once('=')?.0).ok();
    let named: HashSet<String> = texts.iter().filter_map(ranges_of).flatten().collect();
    let is_range = |text: &&String| text.split_once('=').is_some_and(|(name, _)| ranges::is_range(name));
    let groups: HashSet<String> =
        texts.iter().filter(is_range).filter_map(ranges_of).flatten().map(|name| letters(&name)).collect();
    hosts.retain(|name, _| named.contains(name) || !ends_in_number(name) || !groups.contains(&letters(name)));
    for text in texts {
        add_host(text, hosts, out);
    }
}

/// A name without its numbers: that of its group.
fn letters(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn ends_in_number(name: &str) -> bool {
    name.ends_with(|c: char| c.is_ascii_digit())
}

/// `--host NAME=ADDRESS`, with a range as `NAME`, and `{host}` or a range in `ADDRESS`.
fn add_host(text: &str, hosts: &mut BTreeMap<String, Host>, out: &mut Diagnostics) {
    let Some((range, address)) = text.split_once('=').filter(|(n, a)| !n.is_empty() && !a.is_empty()) else {
        out.push(
            Diagnostic::bare(format!("--host {text}: no `NAME=ADDRESS`"))
                .help(format!("--host server=10.0.0.2, or --to {text} for all tests")),
        );
        return;
    };
    let wrong = |sentence: &str, out: &mut Diagnostics| {
        let (what, remedy) = super::diagnostics::halves(sentence);
        out.push(Diagnostic::bare(format!("--host {text}: {what}")).help(remedy));
    };
    match ranges::names(range) {
        Ok(names) => {
            let given = if ranges::is_range_of_addresses(address) {
                addresses("ADDRESS", address, range, names.len())
            } else {
                Ok(vec![address.to_owned(); names.len()])
            };
            match given {
                Ok(given) => {
                    for (name, address) in names.into_iter().zip(given) {
                        let address = with_name(&address, &name);
                        set_address(hosts.entry(name).or_default(), &address);
                    }
                }
                Err(sentence) => wrong(&sentence, out),
            }
        }
        Err(sentence) => wrong(&sentence, out),
    }
}

/// `ADDRESS`, `ADDRESS:PORT` of a daemon, or `ssh://[USER@]HOST[:PORT]`, where ssh starts one.
fn set_address(host: &mut Host, address: &str) {
    if let Some(destination) = address.strip_prefix("ssh://") {
        let destination = destination.trim_end_matches('/');
        let (user, place) =
            destination.rsplit_once('@').map_or((None, destination), |(user, place)| (Some(user), place));
        let (bare, port) = split_port(place);
        // The plan may say more of this launch: its configuration, or that the program travels.
        let ssh = host.launch.take().and_then(|launch| launch.ssh).unwrap_or_default();
        let ssh = Ssh { host: Some(bare.to_owned()), user: user.map(str::to_owned), port, ..ssh };
        let by_launcher = host.control.take().filter(|control| control == BY_LAUNCHER);
        *host = Host {
            address: None,
            control: by_launcher,
            netns: None,
            key_file: None,
            launch: Some(Launch { ssh: Some(ssh), ..Launch::default() }),
            ..host.clone()
        };
        return;
    }
    // The daemon runs there already.
    (host.launch, host.group, host.interface, host.network) = (None, None, None, None);
    let (bare, port) = split_port(address);
    host.address = Some(bare.to_owned());
    host.control = port.map(|_| address.to_owned());
}

/// Whether a word that is no file may be a host: an address, or a name with a dot that does not end as plans do.
pub fn is_like_host(word: &str) -> bool {
    let (host, port) = split_port(word);
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends_as_plan = [".yaml", ".yml", ".json"].iter().any(|end| host.ends_with(end));
    host.parse::<std::net::IpAddr>().is_ok()
        || word.starts_with("ssh://")
        || (port.is_some() || host.contains('.')) && !ends_as_plan && host.chars().all(is_name)
}

/// Reports the names of a word that are no hosts of the plan, nor among `others`. Returns the names that it stands for.
pub(super) fn known(
    node: &Node,
    hosts: &BTreeMap<String, Host>,
    others: &[&str],
    out: &mut Diagnostics,
) -> Vec<String> {
    let Some(text) = node.text() else { return Vec::new() };
    match ranges::names(text) {
        Ok(names) => {
            let is_unknown = |name: &&str| !others.contains(name) && !hosts.contains_key(*name);
            let unknown: Vec<&str> = names.iter().map(String::as_str).filter(is_unknown).collect();
            if let [first, ..] = unknown.as_slice() {
                let what = format!("unknown host `{}`", ranges::fold(unknown.iter().copied()));
                out.error(node.span, what, suggest(first, hosts, others));
            }
            names
        }
        Err(sentence) => {
            out.error_of(node.span, &sentence);
            Vec::new()
        }
    }
}

/// The hosts that a word stands for, each written once: a range or a list of them, one host, or the hosts that have this name
/// with a number behind it. `None`: the word is wrong, which has been reported.
pub(super) fn numbered(node: &Node, hosts: &BTreeMap<String, Host>, out: &mut Diagnostics) -> Option<Vec<String>> {
    let text = node.text()?;
    if !ranges::is_range(text) && !hosts.contains_key(text) {
        let has_number = |name: &&String| {
            name.strip_prefix(text).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        };
        let mut group: Vec<String> = hosts.keys().filter(has_number).cloned().collect();
        group.sort_by(|a, b| ranges::order(a).cmp(&ranges::order(b)));
        if !group.is_empty() {
            return Some(group);
        }
    }
    if let Some(name) = ranges::doubled(text) {
        out.error(node.span, format!("`{text}` has host `{name}` twice"), "leave it out once");
        return None;
    }
    let names = known(node, hosts, &[], out);
    (!names.is_empty() && names.iter().all(|name| hosts.contains_key(name))).then_some(names)
}

/// The hosts of a key that names several, in the order of their numbers and each once: a group, a range, or a list of them.
pub(super) fn each_once(
    node: &Node,
    key: &str,
    hosts: &BTreeMap<String, Host>,
    out: &mut Diagnostics,
) -> Option<Vec<String>> {
    let mut seen = HashSet::new();
    let mut daemons = HashMap::new();
    let mut named = Vec::new();
    for item in node.items().unwrap_or(std::slice::from_ref(node)) {
        for name in numbered(item, hosts, out)? {
            if !seen.insert(name.clone()) {
                out.error(item.span, format!("host `{name}` is in `{key}` twice"), "leave it out once");
                return None;
            }
            let daemon = hosts.get(&name).and_then(daemon);
            let address = daemon.as_ref().map(|(address, _)| address.clone()).unwrap_or_default();
            if let Some(other) = daemon.and_then(|daemon| daemons.insert(daemon, name.clone())) {
                let what = format!("hosts `{other}` and `{name}` of `{key}` are one daemon: they have one address");
                let help = if address.contains('{') {
                    format!(
                        "in `{address}` only {{host}} is replaced, by the host's name; or write a range: 10.0.0.[1-4]"
                    )
                } else {
                    "give each host its own address, or leave one out".to_owned()
                };
                out.error(item.span, what, help);
                return None;
            }
            named.push(name);
        }
    }
    Some(named)
}

/// The machine of a host, and what tells its daemon from others there; `None`: the run starts one for each host.
fn daemon(host: &Host) -> Option<(String, Option<String>)> {
    let address = host.address.clone().filter(|_| host.netns.is_none());
    match &host.launch {
        None => address.map(|address| (address, host.control.clone())),
        Some(Launch { ssh: Some(ssh), .. }) => {
            ssh.host.clone().or(address).map(|machine| (machine, ssh.port.map(|port| port.to_string())))
        }
        Some(_) => None,
    }
}

/// `did you mean …?`, or the hosts that there are.
pub(super) fn suggest(name: &str, hosts: &BTreeMap<String, Host>, others: &[&str]) -> String {
    /// Most hosts among which a name is looked for.
    const SEARCHED: usize = 1000;
    let known = || hosts.keys().take(SEARCHED).map(String::as_str).chain(others.iter().copied());
    // Of numbered hosts the nearest says less than how many there are.
    if let Some(near) = nearest(name, known()).filter(|near| letters(near) != letters(name)) {
        return format!("did you mean `{near}`?");
    }
    let more = if hosts.len() > SEARCHED { ", …" } else { "" };
    format!("known here: {}{more}", ranges::folds(known()).join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{
        case::{Endpoint, Plan},
        diagnostics::Format,
        load::{LoadOptions, load_str},
        model::Host,
    };

    fn load(text: &str, hosts: &[&str]) -> Result<Plan, String> {
        let options = LoadOptions { hosts: hosts.iter().map(|h| (*h).to_owned()).collect(), ..LoadOptions::default() };
        load_str("t.yaml", &format!("version: 1\nname: t\n{text}\n"), &options).map_err(|out| out.render(Format::Human))
    }

    fn good(text: &str) -> Plan {
        load(text, &[]).unwrap_or_else(|e| panic!("{e}"))
    }

    fn ends(plan: &Plan) -> Vec<String> {
        plan.cases.iter().map(|c| format!("{}>{}", c.members[0].from.name(), c.members[0].to.name())).collect()
    }

    const NODES: &str =
        "hosts:\n  node[01-04,20]: {address: \"{host}.lab\", control: \"{host}.oob:9\", bind: \"10.0.0.1\"}\n";

    #[test]
    fn each_host_of_a_range_has_its_own_name_in_its_values() {
        let plan = good(&format!("{NODES}tests: {{a: {{workload: tcp_rr, to: node02}}}}"));
        let names: Vec<&str> = plan.hosts.keys().map(String::as_str).collect();
        assert_eq!(names, ["node01", "node02", "node03", "node04", "node20"]);
        let host = &plan.hosts["node20"];
        assert_eq!((host.address.as_deref(), host.control.as_deref()), (Some("node20.lab"), Some("node20.oob:9")));
        assert_eq!(plan.cases[0].members[0].to, Endpoint::Host("node02".into()));
    }

    #[test]
    fn a_range_on_the_command_line_gives_addresses() {
        let text =
            "hosts: {n1: {address: 10.0.0.1, cpus: 3}}\ntests: {a: {workload: tcp_rr, matrix: {to: \"n[1-3]\"}}}";
        let plan = load(text, &["n[1-3]={host}.lab:77"]).unwrap();
        assert_eq!(plan.hosts["n3"].address.as_deref(), Some("n3.lab"));
        assert_eq!(plan.hosts["n3"].control.as_deref(), Some("n3.lab:77"));
        assert!(plan.hosts["n1"].cpus.is_some());
        let error = load(text, &["n[3-1]=x"]).unwrap_err();
        assert!(error.contains("--host n[3-1]=x: `n[3-1]` counts down") && error.contains("write 1-3"), "{error}");
        let error = load(text, &["n[1-7]=x", "m=y"]).unwrap_err();
        assert!(error.contains("--host m,n[4-7]=…: no test of the plan goes to"), "{error}");
    }

    #[test]
    fn a_range_on_the_command_line_is_the_whole_group() {
        let hosts = |plan: Plan| plan.hosts.keys().cloned().collect::<Vec<_>>();
        let text = "hosts: {\"n[1-4]\": {address: 127.0.0.1, launch: {command: {run: [env]}}}, m1: {address: m}}\n\
                    tests: {a: {workload: tcp_rr, pairs: {of: n}}, b: {workload: tcp_rr, to: m1}}";
        assert_eq!(hosts(load(text, &["n[1-2]={host}.lab"]).unwrap()), ["m1", "n1", "n2"]);
        let error = load(text, &["h[1-4]={host}.lab"]).unwrap_err();
        assert!(error.contains("the plan's tests go to m1,n[1-4]"), "{error}");
        let error = load(text, &["n[1-2]=h{n}"]).unwrap_err();
        assert!(error.contains("in `h{n}` only {host} is replaced, by the host's name"), "{error}");
        assert_eq!(hosts(load(text, &["n[01-02]={host}.lab"]).unwrap()), ["m1", "n01", "n02"]);
        assert_eq!(hosts(load(text, &["n[1-2]={host}.lab", "n4=x"]).unwrap()), ["m1", "n1", "n2", "n4"]);
        // One name is one host.
        assert_eq!(hosts(load(text, &["n2=b.lab"]).unwrap()), ["m1", "n1", "n2", "n3", "n4"]);
        for same in [&["n[1-2]=b.lab"][..], &["n[1-2]=ssh://b.lab"], &["n1=b.lab", "n3=b.lab"]] {
            let error = load(text, same).unwrap_err();
            assert!(error.contains("of `of` are one daemon: they have one address"), "{same:?}: {error}");
        }
        assert!(load(text, &["n[1-2]=b.lab:7", "n2=b.lab:8"]).is_ok(), "two daemons of one machine");
    }

    #[test]
    fn a_range_of_addresses_gives_each_host_its_own() {
        let addresses = |plan: &Plan| -> Vec<String> {
            let of = |(name, host): (&String, &Host)| format!("{name} {}", host.address.as_deref().unwrap_or_default());
            plan.hosts.iter().map(of).collect()
        };
        let plan =
            good("hosts: {node: {address: \"10.1.0.[1-2,7]\"}}\ntests: {a: {workload: tcp_rr, to: \"node[3]\"}}");
        assert_eq!(addresses(&plan), ["node1 10.1.0.1", "node2 10.1.0.2", "node3 10.1.0.7"]);
        let text = "hosts: {\"n[8-9]\": {address: \"fd00::[1-2]\", control: \"{host}.oob\"}}\ntests: {a: {workload: tcp_rr, to: n8}}";
        let plan = good(text);
        assert_eq!(addresses(&plan), ["n8 fd00::1", "n9 fd00::2"]);
        assert_eq!(plan.hosts["n9"].control.as_deref(), Some("n9.oob"));
        let plan = load(text, &["n[8-9]=10.0.0.[4-5]:77"]).unwrap();
        assert_eq!(plan.hosts["n9"].control.as_deref(), Some("10.0.0.5:77"));
        for (text, hosts, sentences) in [
            (
                "hosts: {\"n[1-3]\": {address: \"10.0.0.[1-2]\"}}",
                &[][..],
                &["`address` stands for 2, and `n[1-3]` is 3 hosts", "t.yaml:3:29"][..],
            ),
            ("hosts: {n: {address: \"10.0.0.[5-2]\"}}", &[], &["counts down in `5-2`", "t.yaml:3:22"]),
            ("hosts: {n: {address: \"10.0.0.[1-2]\"}, n2: {address: x}}", &[], &["host `n2` is written twice"]),
            (
                "hosts: {n: {address: a}}",
                &["m[1-3]=10.0.0.[1-2]"],
                &["--host m[1-3]=10.0.0.[1-2]: `ADDRESS` stands for 2, and `m[1-3]` is 3 hosts"],
            ),
        ] {
            let error = load(&format!("{text}\ntests: {{a: {{workload: tcp_rr}}}}"), hosts).unwrap_err();
            assert!(sentences.iter().all(|sentence| error.contains(sentence)), "{text}: {error}");
        }
    }

    #[test]
    fn an_ssh_address_is_a_launch() {
        let text = "hosts: {n1: {address: 10.0.0.1, launch: {ssh: {config: lab.ssh}}}}\n\
                    tests: {a: {workload: tcp_rr, to: n1}}";
        for (given, host, user, port) in [
            ("ssh://me@b.lab:2222", "b.lab", Some("me"), Some(2222)),
            ("ssh://b.lab", "b.lab", None, None),
            ("ssh://[fd00::2]:22/", "fd00::2", None, Some(22)),
            ("ssh://fd00::2", "fd00::2", None, None),
        ] {
            let plan = load(text, &[&format!("n1={given}")]).unwrap();
            let it = &plan.hosts["n1"];
            let ssh = it.launch.as_ref().and_then(|launch| launch.ssh.as_ref()).unwrap();
            assert_eq!((ssh.host.as_deref(), ssh.user.as_deref(), ssh.port), (Some(host), user, port), "{given}");
            assert!(ssh.config.is_some() && it.address.is_none(), "{given}");
        }
        let plan = load(text, &["n1=10.0.0.9"]).unwrap();
        assert!(plan.hosts["n1"].launch.is_none());
    }

    #[test]
    fn axes_spell_ranges_out() {
        let plan = |test: &str| good(&format!("{NODES}tests:\n  a: {{workload: tcp_rr, {test}}}"));
        assert_eq!(ends(&plan("matrix: {to: \"node[01-02]\"}")), ["local>node01", "local>node02"]);
        let two = plan("matrix: {from: [node01, local], to: [\"node[03-04]\", node20]}");
        let all = ["node01>node03", "node01>node04", "node01>node20"];
        assert_eq!(ends(&two)[..3], all);
        assert_eq!(two.cases[1].name, "a[from=node01,to=node04]");
        let zipped = plan("matrix: {zip: [{from: [\"node[01-02]\"], to: [\"node[03-04]\"]}]}");
        assert_eq!(ends(&zipped), ["node01>node03", "node02>node04"]);
        let some = plan("matrix: {to: \"node[01-04]\", exclude: [{to: \"node[02-03]\"}]}");
        assert_eq!(ends(&some), ["local>node01", "local>node04"]);
        let others = plan("matrix: {to: \"node[01-04]\", exclude: [{to: \"!=node[02-03]\"}]}");
        assert_eq!(ends(&others), ["local>node02", "local>node03"]);
        assert_eq!(ends(&plan("to: \"node[01]\"")), ["local>node01"]);
        let members = good(&format!(
            "{NODES}tests:\n  g:\n    workload: tcp_rr\n    matrix: {{concurrent.members.x.to: \"node[01-02]\"}}\n    \
             concurrent: {{members: {{x: {{}}, y: {{to: \"node[20]\"}}}}}}"
        ));
        assert_eq!(ends(&members), ["local>node01", "local>node02"]);
        assert_eq!(members.cases[0].members[1].to.name(), "node20");
    }

    #[test]
    fn conditions_name_hosts_by_range() {
        let plan = good(&format!(
            "{NODES}tests:\n  a:\n    workload: tcp_rr\n    matrix: {{to: \"node[01-04]\"}}\n    \
             assert: [{{that: latency.p50 < 1s, when: {{to: \"node[02-03]\"}}}}]"
        ));
        let asserted: Vec<usize> = plan.cases.iter().map(|case| case.asserts.len()).collect();
        assert_eq!(asserted, [0, 1, 1, 0]);
    }

    #[test]
    fn preconditions_and_hooks_take_ranges() {
        let plan = good(&format!(
            "{NODES}require: [{{host: \"node[01-02]\", check: mtu, equals: 9000}}]\ntests:\n  a: {{workload: tcp_rr, to: node01, \
             hooks: {{setup: {{run: [x], on: \"node[01-03]\"}}}}}}"
        ));
        let hosts: Vec<Option<&str>> = plan.require.iter().map(|(c, _)| c.host.as_deref()).collect();
        assert_eq!(hosts, [Some("node01"), Some("node02")]);
        let hook = plan.cases[0].hooks.setup.as_ref().unwrap();
        assert_eq!(hook.places().unwrap(), ["node01", "node02", "node03"]);
    }

    #[test]
    fn many_names_of_one_address_are_a_warning() {
        let warned = |host: &str| {
            let plan = good(&format!("hosts: {{\"n[1-2]\": {{{host}}}}}\ntests: {{a: {{workload: tcp_rr}}}}"));
            plan.warnings.render(Format::Human).contains("every host of `n[1-2]` is at 10.0.0.1")
        };
        assert!(warned("address: 10.0.0.1"));
        assert!(!warned("address: 10.0.0.1, control: \"{host}.oob\""));
        assert!(!warned("address: 10.0.0.1, netns: \"{host}\""));
    }

    #[test]
    fn mistakes_in_ranges_are_said_at_their_words() {
        for (text, sentences) in [
            (
                "hosts: {\"n[3-1]\": {address: a}}\ntests: {a: {workload: tcp_rr}}",
                &["`n[3-1]` counts down in `3-1`", "write 1-3", "t.yaml:3:9"][..],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}, n2: {address: b}}\ntests: {a: {workload: tcp_rr}}",
                &["host `n2` is written twice", "t.yaml:3:33", "here as well"],
            ),
            (
                "hosts: {\"n[1-3]\": {cpus: 1}}\ntests: {a: {workload: tcp_rr}}",
                &["host `n[1-3]` has no address", "--host 'n[1-3]=ADDRESS'"],
            ),
            (
                "hosts: {\"local,n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr}}",
                &["`local` is this process already"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr, to: \"n[1-2]\"}}",
                &["`n[1-2]` is 2 hosts", "sweep it: matrix: {to: \"n[1-2]\"}", "t.yaml:4:35"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr, from: \"n[1-\"}}",
                &["has an open bracket", "t.yaml:4:37"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr, matrix: {to: \"n[2-5]\"}}}",
                &["unknown host `n4`", "unknown host `n5`", "known here: local, n[1-3]"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr, matrix: {to: [\"n[2-\"]}}}",
                &["has an open bracket", "t.yaml:4:45"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\nrequire: [{host: \"n[2-5]\", check: mtu, equals: 1}]\ntests: {a: {workload: tcp_rr}}",
                &["unknown host `n[4-5]`", "t.yaml:4:18"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr, hooks: {setup: {run: [x], on: \"n[2-9/x]\"}}}}",
                &["has `2-9/x` in brackets", "t.yaml:4:61"],
            ),
            (
                "hosts: {\"n[1-3]\": {address: a}}\ntests: {a: {workload: tcp_rr, matrix: {to: n[1-3]}}}",
                &["takes quotes: \"node[1-4]\"", "t.yaml:4:45"],
            ),
            (
                "hosts: {\"n[1-60000]\": {address: a}, \"m[1-60000]\": {address: a}}\ntests: {a: {workload: tcp_rr}}",
                &["the plan has more than 65536 hosts here"],
            ),
        ] {
            let error = load(text, &[]).expect_err(text);
            for sentence in sentences {
                assert!(error.contains(sentence), "{text}: {sentence} not in:\n{error}");
            }
        }
    }
}
