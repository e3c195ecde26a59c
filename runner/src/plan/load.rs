//! From text to [`Plan`]: reading, `--set` and `--host`, the top level, and the tests one by one.
//!
//! Several plans of one run are told apart here.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io::Read,
    path::Path,
    time::Duration,
};

use schemas::text::short_names;

use super::{
    case::{self, Case, Endpoint, Member, Plan, case_id},
    check,
    decode::decode,
    diagnostics::{Diagnostic, Diagnostics, Severity, Sources, Span, nearest},
    expand::Expander,
    inventory::{add_hosts, inventory, is_like_host},
    keys::key,
    launch,
    model::{Host, PlanFile, Precondition},
    pictures, ranges,
    resolve::{self, Layers},
    shipped::{PLANS, shipped},
    tree::{self, Entry, Node},
    vars::{Vars, matches, set},
};

/// The supported version of the plan language.
pub const VERSION: u32 = 1;

/// Most cases of a plan that does not say (`run.max_cases`).
const MAX_CASES: u32 = 256;

/// Options of the command line that change a plan.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// `--set PATH=VALUE`, in order. A path that starts with a key of a test is set in every test.
    pub sets: Vec<String>,
    /// `--only GLOB`: keeps cases with a matching test name, case name or tag. Empty: all.
    pub only: Vec<String>,
    /// `--host NAME=ADDRESS`, in order.
    pub hosts: Vec<String>,
}

impl LoadOptions {
    /// These, after those of a run, as its record has them: `--set a=b`. Its selection counts where there is no other.
    pub fn after(mut self, overrides: &[String]) -> Self {
        let of_run = |flag| overrides.iter().filter_map(move |word| word.strip_prefix(flag)).map(str::to_owned);
        self.sets.splice(0..0, of_run("--set "));
        self.hosts.splice(0..0, of_run("--host "));
        if self.only.is_empty() {
            self.only.extend(of_run("--only "));
        }
        self
    }
}

/// Reads, checks and expands the plan at `path`, or the one of that name inside the program; `-` is standard input.
pub fn load(path: &str, options: &LoadOptions) -> Result<Plan, Diagnostics> {
    let (name, text) = read(path)?;
    load_str(&name, &text, options)
}

/// The name and text of the plan at `path`, or of the one of that name inside the program; `-` is standard input.
pub fn read(path: &str) -> Result<(String, String), Diagnostics> {
    let refuse = |message: String, help: &str| {
        let mut out = Diagnostics::default();
        out.push(Diagnostic::bare(message).help(help));
        Err(out)
    };
    let mut text = Vec::new();
    // One byte over the limit shows that a plan is too large without reading it all.
    let limit = tree::MAX_BYTES as u64 + 1;
    let read = if path == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text))
    };
    if let Err(error) = read {
        if let Some(plan) = shipped(path).filter(|_| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok((path.to_owned(), plan.text.to_owned()));
        }
        let sibling =
            ["yaml", "yml"].into_iter().map(|end| Path::new(path).with_extension(end)).find(|file| file.exists());
        let help = if let Some(sibling) = sibling {
            format!("did you mean `{}`?", sibling.display())
        } else if is_like_host(path) {
            format!("to measure to that host: plumb measure {path}")
        } else {
            let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
            // `plans/quick.yaml` of another folder is inside the program as `quick`.
            let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or(path);
            let near = nearest(stem, names).map(|name| format!("did you mean `{name}`? "));
            near.unwrap_or_default() + "`plumb plans` lists the plans inside the program"
        };
        return refuse(format!("cannot read the plan {path}: {}", plain(&error)), &help);
    }
    if text.len() > tree::MAX_BYTES {
        return refuse(
            format!("the plan {path} is larger than {} MiB", tree::MAX_BYTES >> 20),
            "a plan is written by people: is this the right file?",
        );
    }
    let name = if path == "-" { "<stdin>" } else { path };
    match String::from_utf8(text) {
        Ok(text) if text.lines().next().is_some_and(|first| first.contains(",case_id,")) => refuse(
            format!("{name} is a table of results, and no plan"),
            &format!("`plumb table {name}` shows it, and `plumb why {name}` proves what limited it"),
        ),
        Ok(text) if text.trim_start().starts_with('{') && !text.contains("tests") => refuse(
            format!("{name} is JSON without `tests`, and no plan"),
            &format!("an output of another program becomes a table: plumb import --from iperf3 {name} -o results.csv"),
        ),
        Ok(text) => Ok((name.to_owned(), text)),
        Err(error) => refuse(
            format!("the plan {name} is not UTF-8 text (byte {})", error.utf8_error().valid_up_to()),
            "is this the right file?",
        ),
    }
}

/// The error without `(os error 2)`.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Reads and checks a plan from its text.
pub fn load_str(name: &str, text: &str, options: &LoadOptions) -> Result<Plan, Diagnostics> {
    let mut out = Diagnostics::new(Sources::default());
    let Some(layers) = prepare(name, text, options, &mut out) else { return Err(out) };
    let file: Option<PlanFile> = decode(&layers.root, &mut out);
    let plan = build(name, &layers, file, options, &mut out);
    match plan {
        Some(mut plan) if !out.has_errors() => {
            plan.sources = out.sources.clone();
            plan.warnings = out;
            Ok(plan)
        }
        _ => Err(out),
    }
}

pub(super) fn prepare(name: &str, text: &str, options: &LoadOptions, out: &mut Diagnostics) -> Option<Layers> {
    let source = out.sources.add(name, text);
    let built_in_source = out.sources.add("built-in", resolve::BUILT_IN);
    let built_in = tree::parse(built_in_source, out)?;
    let parsed = tree::parse(source, out);
    let mut root = match parsed {
        Some(root) if root.entries().is_some() => root,
        Some(root) if !root.is_null() => {
            out.error(root.span, "a plan is a map", "version: 1, name: …, tests: …");
            return None;
        }
        _ => {
            if !out.has_errors() {
                out.push(Diagnostic::bare(format!("the plan {name} is empty")).help("version: 1, name: …, tests: …"));
            }
            return None;
        }
    };
    version(&root, out)?;
    let mut vars = Vars::declared(&root, &|name| std::env::var(name).ok());
    let mut sets = Vec::new();
    for text in &options.sets {
        set(text, &mut root, &mut vars, &mut sets, out);
    }
    vars.substitute(&mut root, &["vars", "description"], out);
    for set in &mut sets {
        vars.substitute(&mut set.value, &[], out);
    }
    Some(Layers { root, built_in, sets })
}

/// Rejects other versions before anything else is read: their keys may mean other things.
fn version(root: &Node, out: &mut Diagnostics) -> Option<()> {
    let Some(node) = root.get("version") else { return Some(()) };
    match node.text().and_then(|text| text.parse::<u32>().ok()) {
        Some(VERSION) => Some(()),
        Some(other) => {
            out.error(
                node.span,
                format!("unsupported version {other} of the plan language"),
                format!("the newest supported one is {VERSION}; a newer plumb may know more"),
            );
            None
        }
        None => {
            out.error(node.span, "the version is not a whole number", format!("version: {VERSION}"));
            None
        }
    }
}

fn build(
    path: &str,
    layers: &Layers,
    file: Option<PlanFile>,
    options: &LoadOptions,
    out: &mut Diagnostics,
) -> Option<Plan> {
    let root = &layers.root;
    let written: BTreeMap<String, Host> = match &file {
        Some(file) => file.hosts.clone().unwrap_or_default(),
        None => root.get("hosts").and_then(|n| decode(n, out)).unwrap_or_default(),
    };
    let mut hosts = launch::groups(root, inventory(root, written, out), out);
    let of_plan: HashSet<String> = hosts.keys().cloned().collect();
    add_hosts(&options.hosts, &mut hosts, out);
    check::top(root, &hosts, file.as_ref(), out);
    let run = file.as_ref().and_then(|f| f.run.clone()).unwrap_or_default();
    let (pause, timeout) = (run.pause.map_or(Duration::ZERO, |t| t.0), run.timeout.map(|t| t.0));
    let tests_of = Expander { layers, hosts: &hosts, pause, timeout, values: Cell::new(0) };
    let tests = root.get("tests").and_then(Node::entries).unwrap_or_default();
    if tests.is_empty() && root.get("tests").is_some_and(|n| n.is_null() || n.entries().is_some()) {
        out.error(
            root.key_span("tests").unwrap_or_default(),
            "a plan without tests",
            "tests: {bulk: {workload: tcp_stream}}",
        );
    }
    let (mut cases, mut surveys, mut axis_paths, mut resolved) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (max_cases, mut swept) = (run.max_cases.unwrap_or(MAX_CASES) as usize, 0);
    for entry in tests {
        if out.is_full() {
            return None;
        }
        // One over the limit is enough.
        let expanded = tests_of.test(entry, max_cases + 1, out);
        for path in expanded.paths {
            if !axis_paths.iter().any(|p: &String| **p == *path) && !case::is_told(&path, &expanded.cases) {
                axis_paths.push(path.to_string());
            }
        }
        cases.extend(expanded.cases);
        surveys.extend(expanded.surveys);
        swept += expanded.swept;
        if let Some(body) = expanded.resolved {
            resolved.push((entry.key.clone(), body));
        }
        // The pairs of hosts have a bound of their own.
        if swept > max_cases {
            out.error(
                entry.key_span,
                format!("the plan has more than {max_cases} cases here"),
                "sweep fewer values, or raise run.max_cases",
            );
            return None;
        }
    }
    distinct_ids(&mut cases);
    let complete = !out.has_errors();
    pictures::check(root, &axis_paths, complete, out);
    if !out.has_errors() {
        unused_hosts(&hosts, &of_plan, &cases, out);
        check::compared(root, file.as_ref(), &cases, out);
    }
    let before = cases.len();
    if !options.only.is_empty() {
        keep_only(&options.only, tests, &mut cases, out);
    }
    // Only cases that `--only` keeps have to be supported here.
    for refused in cases.iter().flat_map(|c| &c.members).filter_map(|m| m.refused.as_ref()) {
        out.push(refused.clone());
    }
    let file = file?;
    Some(Plan {
        path: path.to_owned(),
        resolved: resolved_text(root, &hosts, &resolved),
        name: file.name.0,
        description: file.description,
        labels: file.labels.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect(),
        require: preconditions(root.get("require"), file.require.unwrap_or_default()),
        run,
        partial: cases.len() < before,
        cases,
        surveys,
        axis_paths,
        baseline: file.baseline.map(|baseline| {
            let compare = root.at("baseline.compare").and_then(Node::items).unwrap_or_default();
            (baseline, compare.iter().map(|n| n.span).collect())
        }),
        gate: file.gate.unwrap_or_default(),
        output: file.output.unwrap_or_default(),
        hosts,
        sources: Sources::default(),
        warnings: Diagnostics::default(),
    })
}

/// Most names that a complaint lists.
const LISTED: usize = 200;

/// Keeps the cases with a matching name, test name or tag.
fn keep_only(globs: &[String], tests: &[Entry], cases: &mut Vec<Case>, out: &mut Diagnostics) {
    let had_some = !cases.is_empty();
    let matched = |text: &str| globs.iter().any(|glob| matches(glob, text));
    let tests = tests.iter().map(|test| test.key.to_string());
    // The name that tables show, and the whole one.
    let shown = |case: &Case| [case.tags.clone(), vec![short_names(&case.name)]].concat();
    let names: Vec<String> = tests.chain(cases.iter().flat_map(shown)).collect();
    let whole: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    cases.retain(|case| matched(&case.test) || matched(&case.name) || shown(case).iter().any(|name| matched(name)));
    if out.has_errors() || !had_some {
        return;
    }
    // One of several that matches nothing may be meant for another plan of the run.
    let severity = if cases.is_empty() { Severity::Error } else { Severity::Warning };
    for glob in globs.iter().filter(|glob| !names.iter().chain(&whole).any(|name| matches(glob, name))) {
        let mut known: Vec<&str> = Vec::new();
        for name in &names {
            if !known.contains(&name.as_str()) && known.len() < LISTED {
                known.push(name);
            }
        }
        let help = nearest(glob, known.iter().copied())
            .map_or_else(|| format!("known here: {}", known.join(", ")), |near| format!("did you mean `{near}`?"));
        let complaint = Diagnostic::bare(format!("--only {glob} matches no test, case or tag")).help(help);
        out.push(Diagnostic { severity, ..complaint });
    }
}

/// The preconditions with their places, one for each host of a range.
fn preconditions(list: Option<&Node>, items: Vec<Precondition>) -> Vec<(Precondition, Span)> {
    let spans = list.and_then(Node::items).unwrap_or_default().iter().map(|n| n.span);
    let of_hosts = |(item, span): (Precondition, Span)| {
        let names =
            item.host.as_deref().filter(|host| ranges::is_range(host)).and_then(|host| ranges::expand(host).ok());
        match names {
            Some(names) => {
                names.into_iter().map(|name| (Precondition { host: Some(name), ..item.clone() }, span)).collect()
            }
            None => vec![(item, span)],
        }
    };
    items.into_iter().zip(spans.chain(std::iter::repeat(Span::default()))).flat_map(of_hosts).collect()
}

/// Rejects a `--host` that no test uses: the run would silently stay on this machine.
fn unused_hosts(hosts: &BTreeMap<String, Host>, of_plan: &HashSet<String>, cases: &[Case], out: &mut Diagnostics) {
    let members = cases.iter().flat_map(|c| &c.members);
    let used: HashSet<&str> = members.flat_map(Member::places).map(Endpoint::name).collect();
    let unused = hosts.keys().filter(|name| !of_plan.contains(*name) && !used.contains(name.as_str()));
    let names = ranges::fold(unused.map(String::as_str));
    if names.is_empty() {
        return;
    }
    let own = ranges::fold(of_plan.iter().filter(|name| used.contains(name.as_str())).map(String::as_str));
    let is_any_used = hosts.keys().any(|name| !of_plan.contains(name) && used.contains(name.as_str()));
    let help = if !own.is_empty() && !is_any_used {
        let command = if own.contains(',') {
            String::new()
        } else {
            format!(": --host '{own}=ADDRESS', which may be a range, as {names} is")
        };
        format!("the plan's tests go to {own}{command}")
    } else if ranges::is_range(&names) {
        format!("write `matrix: {{to: \"{names}\"}}` in the tests")
    } else {
        format!("--set to={names} sends every test there; or write `to: {names}` under `defaults` in the plan")
    };
    out.push(Diagnostic::bare(format!("--host {names}=…: no test of the plan goes to a host `{names}`")).help(help));
}

/// Adds the names to the ids of cases that measure the same thing.
fn distinct_ids(cases: &mut [Case]) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for case in cases.iter() {
        *seen.entry(case.id.clone()).or_default() += 1;
    }
    for case in cases.iter_mut().filter(|c| seen[&c.id] > 1) {
        case.id = case_id(&case.members, &case.name);
    }
}

/// The resolved plan as YAML: the top level as written, every test with all its layers.
fn resolved_text(root: &Node, hosts: &BTreeMap<String, Host>, tests: &[(std::sync::Arc<str>, Node)]) -> String {
    let mut top = serde_json::Map::new();
    for entry in root.entries().unwrap_or_default() {
        match &*entry.key {
            "defaults" | "profiles" | "tests" | "vars" | "hosts" => {}
            key if key.starts_with("x-") => {}
            key => {
                top.insert(key.to_owned(), entry.value.to_json());
            }
        }
    }
    if !hosts.is_empty() {
        let mut value = serde_json::to_value(hosts).unwrap_or_default();
        without_null(&mut value);
        top.insert("hosts".to_owned(), value);
    }
    let bodies = tests.iter().map(|(name, body)| {
        let mut body = body.clone();
        body.remove(key::extends);
        (name.to_string(), body.to_json())
    });
    top.insert("tests".to_owned(), serde_json::Value::Object(bodies.collect()));
    serde_yaml::to_string(&serde_json::Value::Object(top)).unwrap_or_default()
}

fn without_null(value: &mut serde_json::Value) {
    if let serde_json::Value::Object(map) = value {
        map.retain(|_, v| !v.is_null());
        map.values_mut().for_each(without_null);
    }
}

/// Renames what plans have in common. A plan gets the name of its file, or a number. A case gets the name of its plan before
/// its own. A case that measures the same as one of an earlier plan gets an id of its own: the plans are different questions,
/// and their iterations must not be taken for those of one case.
pub fn tell_apart(plans: &mut [Plan]) {
    let names = unique(plans);
    for (plan, name) in plans.iter_mut().zip(names) {
        plan.name = name;
    }
    let mut plans_with: HashMap<String, BTreeSet<usize>> = HashMap::new();
    for (p, plan) in plans.iter().enumerate() {
        for case in &plan.cases {
            plans_with.entry(case.name.clone()).or_default().insert(p);
        }
    }
    let mut earlier = HashSet::new();
    for plan in plans {
        for case in &mut plan.cases {
            if plans_with.get(&case.name).is_some_and(|plans| plans.len() > 1) {
                case.name = format!("{}/{}", plan.name, case.name);
            }
            if earlier.contains(&case.id) {
                case.id = case_id(&case.members, &format!("{} {}", plan.name, case.name));
            }
        }
        earlier.extend(plan.cases.iter().map(|case| case.id.clone()));
    }
}

/// A name for each plan that no other has.
fn unique(plans: &[Plan]) -> Vec<String> {
    let once = |names: &[String], i: usize| names.iter().filter(|name| **name == names[i]).count() == 1;
    let own: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    let stem = |plan: &Plan| Path::new(&plan.path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let pick = |i: usize| if once(&own, i) { own[i].clone() } else { stem(&plans[i]).unwrap_or_default() };
    let named: Vec<String> = (0..plans.len()).map(pick).collect();
    let number = |i: usize| if once(&named, i) { named[i].clone() } else { format!("{}-{}", named[i], i + 1) };
    (0..plans.len()).map(number).collect()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::plan::diagnostics::Format;

    fn load(text: &str, options: &LoadOptions) -> Result<Plan, String> {
        load_str("t.yaml", text, options).map_err(|out| out.render(Format::Human))
    }

    fn sets(sets: &[&str]) -> LoadOptions {
        LoadOptions { sets: sets.iter().map(|s| (*s).to_owned()).collect(), ..LoadOptions::default() }
    }

    fn good(text: &str) -> Plan {
        load(text, &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"))
    }

    const HEAD: &str = "version: 1\nname: t\n";

    #[test]
    fn a_plan_becomes_cases() {
        let plan = good(&format!(
            "{HEAD}defaults: {{duration: 1s, workload: tcp_stream}}\ntests:\n  b:\n    matrix: {{message_size: [1, 64KiB], streams: [1, 2]}}\n  a: {{workload: tcp_rr}}\n"
        ));
        let names: Vec<&str> = plan.cases.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "b[message_size=1,streams=1]",
                "b[message_size=1,streams=2]",
                "b[message_size=65536,streams=1]",
                "b[message_size=65536,streams=2]",
                "a"
            ]
        );
        let member = &plan.cases[3].members[0];
        assert_eq!(member.job.spec().unwrap().sizes.message_bytes, 65_536);
        assert_eq!((&member.from, &member.to), (&Endpoint::Local, &Endpoint::Embedded));
        assert_eq!(plan.estimate().least.as_millis(), 5 * 1100);
    }

    #[test]
    fn ids_depend_on_the_workload_alone() {
        let id = |tests: &str| good(&format!("{HEAD}tests: {{{tests}}}")).cases[0].id.clone();
        let first = id("a: {workload: tcp_stream}");
        assert!(first.starts_with('c') && first.len() == 13);
        assert_eq!(first, id("b: {workload: TCP_STREAM, streams: 1, message_size: 128KiB, tags: [x], iterations: 5}"));
        assert_eq!(id("a: {workload: tcp_maerts}"), id("a: {workload: tcp_stream, direction: reverse}"));
        assert_ne!(first, id("a: {workload: tcp_stream, streams: 2}"));
        let twins = good(&format!("{HEAD}tests: {{a: {{workload: tcp_rr}}, b: {{workload: tcp_rr}}}}"));
        assert_ne!(twins.cases[0].id, twins.cases[1].id);
    }

    #[test]
    fn the_command_line_has_the_last_word() {
        let text = format!(
            "{HEAD}vars: {{n: {{default: 1}}}}\ntests:\n  a: {{workload: tcp_stream, streams: \"${{vars.n}}\", matrix: {{message_size: [1, 2]}}}}\n  b: {{workload: tcp_rr}}\n"
        );
        let plan =
            load(&text, &sets(&["duration=2s", "tests.a.message_size=64", "vars.n=3", "run.order=random"])).unwrap();
        assert_eq!(plan.cases.len(), 2);
        let spec = plan.cases[0].members[0].job.spec().unwrap();
        assert_eq!((spec.sizes.message_bytes, spec.streams), (64, 3));
        assert_eq!(plan.estimate().least.as_millis(), 2 * 2100);
        let error = load(&text, &sets(&["duration=10Mbps"])).unwrap_err();
        assert!(error.contains("--set:1:10"), "{error}");
        assert!(load(&text, &sets(&["tests.c.streams=1"])).unwrap_err().contains("unknown test `c`"));
        assert!(load(&text, &sets(&["vars.m=1"])).unwrap_err().contains("not declared"));
        let only = LoadOptions { only: vec!["a*64*".into(), "b".into()], ..sets(&["tests.a.message_size=64"]) };
        assert_eq!(load(&text, &only).unwrap().cases.len(), 1);
        let swept = "version: 1\nname: s\ntests: {a: {workload: tcp_rr, matrix: {socket.no_delay: [true, false], streams: [1, 2]}}}";
        let shown = LoadOptions { only: vec!["a[*, 2 streams]".into()], ..LoadOptions::default() };
        assert_eq!(load(swept, &shown).unwrap().cases.len(), 2, "as tables name them");
        let mistyped = LoadOptions { only: vec!["a[no_dely true, 2 streams]".into()], ..LoadOptions::default() };
        assert!(load(swept, &mistyped).unwrap_err().contains("did you mean `a[no_delay true, 2 streams]`?"));
    }

    fn told(plans: &[(&str, &str)]) -> Vec<(String, Vec<(String, String)>)> {
        let load = |(path, text): &(&str, &str)| {
            let text = format!("version: 1\n{text}\n");
            load_str(path, &text, &LoadOptions::default()).unwrap_or_else(|_| panic!("{text}"))
        };
        let mut plans: Vec<Plan> = plans.iter().map(load).collect();
        tell_apart(&mut plans);
        let cases = |plan: &Plan| plan.cases.iter().map(|case| (case.name.clone(), case.id.clone())).collect();
        plans.iter().map(|plan| (plan.name.clone(), cases(plan))).collect()
    }

    #[test]
    fn cases_of_two_plans_have_two_names_and_ids() {
        let a = ("a.yaml", "name: a\ntests: {bulk: {workload: tcp_stream}, only: {workload: tcp_rr}}");
        let b = ("b.yaml", "name: b\ntests: {bulk: {workload: tcp_stream}, other: {workload: udp_rr}}");
        let [alone, both] = [told(&[a]), told(&[a, b])];
        let names: Vec<&str> = both.iter().flat_map(|(_, cases)| cases).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/bulk", "only", "b/bulk", "other"]);
        let ids = |plan: &(String, Vec<(String, String)>)| plan.1.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&alone[0]), ids(&both[0]), "the first plan stays comparable with a run of its own");
        assert_ne!(ids(&both[0])[0], ids(&both[1])[0]);
        assert_eq!(alone[0].1[0].0, "bulk");
    }

    #[test]
    fn plans_of_one_name_are_named_after_their_files() {
        let text = "name: t\ntests: {bulk: {workload: tcp_stream}}";
        let names = |paths: &[&str]| -> Vec<String> {
            told(&paths.iter().map(|path| (*path, text)).collect::<Vec<_>>())
                .into_iter()
                .map(|(name, _)| name)
                .collect()
        };
        assert_eq!(names(&["x/one.yaml", "two.yaml"]), ["one", "two"]);
        assert_eq!(names(&["a/t.yaml", "b/t.yaml"]), ["t-1", "t-2"]);
    }
}
