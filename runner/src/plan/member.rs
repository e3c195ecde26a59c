//! The members of a test: workload, ends, and the translated test or command of each.

use super::{
    axis::settings,
    case::{Endpoint, Member, is_here},
    check,
    decode::decode,
    diagnostics::{Diagnostic, Diagnostics, Span, suggest},
    expand::Expander,
    inventory,
    job::Job,
    keys::{self, key},
    model::{TestBody, Warmup},
    output::OutputParser,
    ranges,
    ranks::{self, RanksJob},
    resolve::{self, Origin},
    spec,
    tree::{Entry, Node},
    workload::Kind,
};
use netcore::{
    daemon::LONGEST_LEAD,
    ranks::check as check_ranks,
    spec::{
        Io, Side, TestSpec, Transport, memory,
        ranks::{MOST_RANKS, RanksSpec},
    },
};
use schemas::text::counted;
use std::time::Duration;

/// Longest `after`: daemons accept a start that lies [`LONGEST_LEAD`] ahead, and arming all members takes time.
const LONGEST_AFTER: Duration = LONGEST_LEAD.saturating_sub(Duration::from_mins(1));

impl Expander<'_> {
    pub(super) fn members(
        &self,
        entry: &Entry,
        tree: &Node,
        typed: &TestBody,
        stands_for_a_group: bool,
        out: &mut Diagnostics,
    ) -> Option<Vec<Member>> {
        let Some(concurrent) = tree.get(key::concurrent) else {
            return self.member("", tree, typed, entry.key_span, out).map(|m| vec![m]);
        };
        let Some(entries) = concurrent.get("members").and_then(Node::entries).filter(|e| !e.is_empty()) else {
            out.error(
                tree.key_span(key::concurrent).unwrap_or(entry.key_span),
                "a group without members",
                "concurrent: {members: {up: {…}, down: {…}}}",
            );
            return None;
        };
        let inherited = resolve::inherited_by_members(tree);
        let mut members = Vec::new();
        for member in entries {
            let mut layers = self.layers.of_member(&entry.key, &member.key, &member.value, out);
            if stands_for_a_group {
                // The test had them when its group was spelled out: some are about the streams only.
                layers.retain(|layer| layer.origin != Origin::Set);
            }
            let size = layers.iter().map(|layer| layer.body.size()).sum::<usize>().saturating_add(inherited.size());
            if !self.admit(size, member.key_span, out) {
                return None;
            }
            let mut body = layers.iter().fold(inherited.clone(), |under, layer| resolve::merge(under, &layer.body));
            resolve::prune(&mut body);
            for key in keys::of_whole_test().filter(|key| *key != key::extends) {
                if let Some(wrong) = body.entry(key) {
                    out.error(
                        wrong.key_span,
                        format!("`{key}` belongs to the whole group"),
                        "write it beside `concurrent`",
                    );
                }
            }
            body.remove(key::extends);
            let Some(typed) = decode::<TestBody>(&resolve::with_far_end(&body), out) else { continue };
            if let Some((message, help)) = typed.workload.as_ref().and_then(|workload| no_member(workload.kind)) {
                out.error(body.key_span(key::workload).unwrap_or(member.key_span), message, help);
            }
            members.extend(self.member(&member.key, &body, &typed, member.key_span, out));
        }
        for (member, entry) in members.iter().zip(entries) {
            if let Some((message, help)) = member.idle.as_ref().and_then(|idle| not_idle(member, idle, &members)) {
                let node = entry.value.get(key::idle);
                out.error(node.map_or(entry.key_span, |node| node.span), message, help);
            }
        }
        (members.len() == entries.len()).then_some(members)
    }

    fn member(&self, name: &str, tree: &Node, typed: &TestBody, at: Span, out: &mut Diagnostics) -> Option<Member> {
        let Some(workload) = &typed.workload else {
            // A mistake in the workload is already reported.
            if tree.get(key::workload).is_none() {
                out.error(at, "no `workload` says what this test runs", "add for example `workload: tcp_stream`");
            }
            // Its hosts may be wrong, too.
            self.endpoint(tree, key::from, Endpoint::Local, out);
            self.endpoint(tree, key::to, Endpoint::Embedded, out);
            return None;
        };
        if let (Some(note), Some(node)) = (workload.note, tree.get(key::workload)) {
            out.push(Diagnostic::warning(node.span, note).help(format!("this is {}", workload.name)));
        }
        if let Kind::Ranks { transport, kernel } = workload.kind {
            let mut errors = Vec::new();
            let spec = ranks::translate(typed, transport, kernel, &mut errors);
            for error in errors {
                let span = place_of(tree, &error.key).unwrap_or(at);
                out.error(span, error.message, error.help);
            }
            let job = self.ranks(tree, typed, spec, at, out)?;
            if transport == Transport::Mpi
                && let Some(end) = job.ends.first()
            {
                self.check_rank(tree, at, (key::ranks, end), out);
            }
            let (from, to) = (job.ends[0].clone(), job.ends[job.ends.len() - 1].clone());
            let (name, workload) = (name.to_owned(), workload.name.clone());
            let job = Job::Ranks(Box::new(job));
            return Some(Member {
                name,
                workload,
                from,
                to,
                after: Duration::ZERO,
                idle: None,
                is_searched: false,
                job,
                settings: settings(tree),
                wire: None,
                refused: None,
            });
        }
        let from = self.endpoint(tree, key::from, Endpoint::Local, out);
        let to = self.endpoint(tree, key::to, Endpoint::Embedded, out);
        let host = |end: &Endpoint| match end {
            Endpoint::Host(name) => self.hosts.get(name),
            _ => None,
        };
        check::check_ends(tree, at, (&from, host(&from)), host(&to), out);
        let mut errors = Vec::new();
        let mut refused = None;
        let job = match workload.kind {
            // Reported by those who call this.
            Kind::Ranks { .. } | Kind::Responsiveness => return None,
            Kind::Command => command(tree, typed, at, &from, is_here(host(&from)), out)?,
            Kind::Traffic { .. } => {
                if let Some(wrong) = tree.entry(key::command) {
                    out.error(
                        wrong.key_span,
                        format!("`command` means nothing to {}", workload.name),
                        "write `workload: command`, or remove it",
                    );
                }
                let spec = spec::translate(typed, workload, host(&from), host(&to), &mut errors)?;
                if spec.transport == Transport::Mpi {
                    self.check_rank(tree, at, (key::from, &from), out);
                    self.check_rank(tree, at, (key::to, &to), out);
                }
                // With mistakes in the plan, the engines would only repeat them.
                let one_machine = from == to || (is_here(host(&from)) && is_here(host(&to)));
                if let Some(warning) = unspun(tree, &spec).filter(|_| one_machine) {
                    out.push(warning);
                }
                refused = if errors.is_empty() { spec::beyond_the_engines(&spec, workload) } else { None };
                Job::Traffic(Box::new(spec))
            }
        };
        let diagnose = |error: keys::SpecError| {
            let span = place_of(tree, &error.key).unwrap_or(at);
            Diagnostic::error(span, error.message).help(error.help)
        };
        of_group(typed, name, &job, &mut errors);
        if typed.wire.is_some_and(|speed| speed.0 == 0) {
            errors.push(keys::error(key::wire, "the speed of the wire is 0", "for example 100Mbit/s, or leave it out"));
        }
        errors.into_iter().map(diagnose).for_each(|diagnostic| out.push(diagnostic));
        Some(Member {
            name: name.to_owned(),
            workload: workload.name.clone(),
            after: typed.after.map_or(Duration::ZERO, |time| time.0),
            idle: typed.idle.clone(),
            is_searched: typed.find.is_some(),
            from,
            to,
            job,
            settings: settings(tree),
            wire: typed.wire.map(|speed| speed.0),
            refused: refused.map(diagnose),
        })
    }

    /// The hosts of the ranks, in their order.
    pub(super) fn ranks(
        &self,
        tree: &Node,
        body: &TestBody,
        spec: RanksSpec,
        at: Span,
        out: &mut Diagnostics,
    ) -> Option<RanksJob> {
        let node = tree.get(key::ranks);
        let span = node.map_or(at, |node| node.span);
        let Some(node) = node else {
            let help = "ranks: 4 for so many on this machine, or hosts: ranks: \"node[1-4]\"";
            out.error(tree.key_span(key::workload).unwrap_or(at), "no `ranks` says between whom", help);
            return None;
        };
        let count = node.text().filter(|text| text.chars().all(|c| c.is_ascii_digit()));
        let ends = if let Some(count) = count {
            let count: u32 = count.parse().unwrap_or(u32::MAX);
            vec![Endpoint::Embedded; count.min(MOST_RANKS + 1) as usize]
        } else {
            let names = inventory::each_once(node, key::ranks, self.hosts, out)?;
            let daemons = names.iter().filter_map(|name| Some((name.as_str(), self.hosts.get(name)?)));
            check::check_daemon(node, "a rank", daemons, out);
            names.into_iter().map(Endpoint::Host).collect()
        };
        let each = body.ranks_per_host.unwrap_or(1);
        if each == 0 {
            out.error(tree.key_span(key::ranks_per_host).unwrap_or(span), "`ranks_per_host` is 0", "1 or more");
            return None;
        }
        let total = ends.len().saturating_mul(each as usize);
        if total < 2 || total > MOST_RANKS as usize {
            let help = format!("2 to {MOST_RANKS} ranks");
            out.error(span, format!("{} here", counted(total, "rank")), help);
            return None;
        }
        let ends: Vec<_> = ends.into_iter().flat_map(|end| std::iter::repeat_n(end, each as usize)).collect();
        // As each end will, at the key that decides.
        if let Err(error) = check_ranks(&spec, u32::try_from(ends.len()).unwrap_or(u32::MAX), memory::MOST_BYTES) {
            let key = [key::message_size, key::class, key::operation].into_iter().find_map(|key| tree.get(key));
            out.error(key.map_or(span, |node| node.span), error.to_string(), "");
        }
        Some(RanksJob { spec, ends })
    }

    /// Reports an end of a test over MPI that can be no rank. A daemon that runs already may be one.
    fn check_rank(&self, tree: &Node, at: Span, (key, end): (&str, &Endpoint), out: &mut Diagnostics) {
        let can_be = match end {
            Endpoint::Host(name) => {
                let launch = self.hosts.get(name).and_then(|host| host.launch.as_ref());
                launch.is_none_or(|launch| launch.mpi.is_some())
            }
            Endpoint::Local | Endpoint::Embedded => false,
        };
        if !can_be {
            let span = tree.get(key).or_else(|| tree.get(key::workload)).map_or(at, |node| node.span);
            let help = "hosts: {rank: {launch: {mpi: {run: [mpirun, -np, \"2\"]}}}}, and name rank1 and rank2";
            out.error(span, format!("a test over MPI is between ranks, and `{}` in `{key}` is none", end.name()), help);
        }
    }

    fn endpoint(&self, tree: &Node, key: &str, left_out: Endpoint, out: &mut Diagnostics) -> Endpoint {
        let Some(node) = tree.get(key) else { return left_out };
        let Some(text) = node.text() else { return left_out };
        let names = match ranges::names(text) {
            Ok(names) => names,
            Err(sentence) => {
                out.error_of(node.span, &sentence);
                return left_out;
            }
        };
        let [name] = names.as_slice() else {
            out.error(
                node.span,
                format!("`{text}` is {} hosts, and a test has one at each end", names.len()),
                format!("sweep it: matrix: {{{key}: \"{text}\"}}"),
            );
            return left_out;
        };
        if name == "local" {
            return left_out;
        }
        match self.hosts.get(name) {
            Some(host) if host.address.as_deref() == Some("local") && host.netns.is_none() => left_out,
            Some(_) => Endpoint::Host(name.clone()),
            None => {
                let help = if self.hosts.is_empty() {
                    // `--to` gives the far end this name.
                    let to = if name == "server" { ", or --to ADDRESS" } else { "" };
                    format!("add `hosts: {{{name}: {{address: …}}}}`, or --host {name}=ADDRESS{to}")
                } else {
                    inventory::suggest(name, self.hosts, &["local"])
                };
                out.error(node.span, format!("unknown host `{name}`"), help);
                left_out
            }
        }
    }
}

/// Why such a test is no member of a group, and what to do.
fn no_member(kind: Kind) -> Option<(&'static str, &'static str)> {
    match kind {
        Kind::Traffic { .. } => None,
        Kind::Ranks { .. } => Some(("a test of ranks cannot be a member of a group", "make it a test of its own")),
        Kind::Responsiveness => {
            Some(("responsiveness is a group itself, and cannot be a member of one", "make it a test of its own"))
        }
        Kind::Command => Some((
            "a command cannot be a member of a group",
            "the common window cannot be cut out of its result; start it in a hook, or make it a test",
        )),
    }
}

/// The mistake in `idle` of a member of a group, and what to do.
fn not_idle(member: &Member, idle: &str, members: &[Member]) -> Option<(String, String)> {
    let known: Vec<&str> = members.iter().map(|one| one.name.as_str()).collect();
    let Some(idle) = members.iter().find(|one| one.name == idle) else {
        return Some((format!("unknown member `{idle}`"), suggest(idle, &known)));
    };
    if idle.name == member.name {
        return Some((
            "a member cannot be a baseline of itself".to_owned(),
            "name the probe on the idle path".to_owned(),
        ));
    }
    let silent = [member, idle].into_iter().find(|one| !one.job.has_round_trips())?;
    let help = "`idle` is for a request and response, and names another one";
    Some((format!("`{}` is {}, which measures no round trips", silent.name, silent.workload), help.to_owned()))
}

/// Mistakes in the keys that place a member in its group.
fn of_group(typed: &TestBody, member: &str, job: &Job, errors: &mut Vec<keys::SpecError>) {
    if !member.is_empty() && matches!(typed.warmup, Some(Warmup::Auto(_))) {
        let message = "a warm-up of a group cannot end by itself: its members measure from one instant on";
        errors.push(keys::error(key::warmup, message, "give it a length, the same for all"));
    }
    if typed.idle.is_some() && member.is_empty() {
        let message = "`idle` is for members of a group: it names the one that measures the idle path";
        errors.push(keys::error(key::idle, message, "leave it out, or use `concurrent`"));
    }
    errors.extend(typed.after.and_then(|after| misplaced(after.0, member, job)));
}

/// The mistake in `after`: a member of a group may start later than the others, by as much as a daemon can be told ahead.
fn misplaced(after: Duration, member: &str, job: &Job) -> Option<keys::SpecError> {
    let (message, help) = if member.is_empty() {
        (
            "`after` is for members of a group: a test alone has no other start".to_owned(),
            "use `pause`, or `concurrent`",
        )
    } else if job.spec().is_some_and(|spec| spec.dialect.is_foreign()) {
        (
            "the program at the far end begins when it is connected, and cannot start later".to_owned(),
            "leave `after` out",
        )
    } else if after > LONGEST_AFTER {
        let (wanted, most) = (after.as_secs_f64(), LONGEST_AFTER.as_secs());
        (format!("`after` is {wanted:.0} s, and a test can be armed {most} s ahead"), "make two tests of it")
    } else {
        return None;
    };
    Some(keys::error(key::after, message, help))
}

/// Warns of `io: spin` on one machine where each thread would share the CPU of its peer.
fn unspun(tree: &Node, spec: &TestSpec) -> Option<Diagnostic> {
    if spec.io != Io::Spin {
        return None;
    }
    let shared: Option<Vec<u32>> =
        (0..spec.flows() as usize).map(|thread| spec.common_cpu(Side::Near, thread)).collect();
    let cpu = *shared?.first()?;
    let message = format!("`io: spin` would not spin: `cpu` and `remote_cpu` pin both ends to CPU {cpu}");
    let help = "every wait blocks at once; give each end a CPU of its own, or leave `io` out";
    Some(Diagnostic::warning(place_of(tree, key::io)?, message).help(help))
}

/// A program of the plan. It runs on this machine; `here` says whether `from` is on it.
fn command(tree: &Node, typed: &TestBody, at: Span, from: &Endpoint, here: bool, out: &mut Diagnostics) -> Option<Job> {
    let Some(command) = typed.command.clone() else {
        out.error(
            tree.key_span(key::workload).unwrap_or(at),
            "no `command` says what to run",
            "command: {run: [program, argument], import: iperf3}",
        );
        return None;
    };
    if let Err(wrong) = OutputParser::of(&command) {
        out.error(place_of(tree, &format!("command.{}", wrong.key)).unwrap_or(at), wrong.message, wrong.help);
    }
    if !here {
        let span = tree.get(key::from).map_or(at, |n| n.span);
        out.error(
            span,
            format!("a command runs on this machine, and `{}` is elsewhere", from.name()),
            "start it there by ssh: run: [ssh, HOST, program, …]; a host with `netns` is here",
        );
    }
    Some(Job::Command(command))
}

/// The place of a mistake in a key: its value, the nearest key above it, or the workload.
fn place_of(tree: &Node, key: &str) -> Option<Span> {
    let mut path = key;
    loop {
        if let Some(node) = tree.at(path) {
            // Built-in defaults have no line in the plan.
            return (node.span.source != super::diagnostics::BUILT_IN_SOURCE).then_some(node.span);
        }
        match path.rsplit_once('.') {
            Some((parent, _)) => path = parent,
            None => break,
        }
    }
    tree.get(key::workload).map(|n| n.span)
}
