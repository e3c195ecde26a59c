//! Cases as the schedule runs them: with the cells that their rows share, their line on an axis, and their order.

use std::{collections::BTreeMap, fmt::Debug, ops::Deref, sync::Arc, time::Duration};

use analyze::judge::environment::Environment;
use chacha20::ChaCha8Rng;
use rand::{SeedableRng, seq::SliceRandom};
use schemas::{
    columns::Row,
    words::{Record, Way},
};

use super::run::Finished;
use crate::{
    error::Error,
    plan::{
        case::{Case, Member, Plan},
        model::Order,
    },
};

/// A rule that decides in place of a case's policy whether it has enough iterations.
pub trait Enough: Debug + Send + Sync {
    /// Refuses to measure on these hosts, or returns a note about them.
    fn check(&self, _: &Environment) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Asked after each iteration.
    fn enough(&self, step: &Step, so_far: &Finished) -> bool;
}

/// A case and what the schedule adds to it.
#[derive(Clone, Debug)]
pub struct Step {
    /// If it searches, its iterations are probes, and its own rows are those of the answer.
    pub case: Case,
    /// Per member, the cells that all its rows share: identity, place, and what the plan asks for.
    pub identities: Vec<Row>,
    /// With `stop_when`: the first step of its line, the cases that differ from it on that axis alone. They run one after
    /// the other, since each decides whether the next one runs.
    pub line: Option<usize>,
    /// `None`: its policy decides.
    pub until: Option<Arc<dyn Enough>>,
}

impl Deref for Step {
    type Target = Case;

    fn deref(&self) -> &Case {
        &self.case
    }
}

impl Step {
    pub fn members_with_identity(&self) -> impl Iterator<Item = (&Member, &Row)> {
        self.members.iter().zip(&self.identities)
    }

    /// The shared cells of a member. The total of a group has the number after the last member and the cells of the first.
    pub fn identity(&self, member: usize) -> Row {
        self.identities.get(member).or(self.identities.first()).cloned().unwrap_or_default()
    }

    /// The record of its measured rows. The rows of a search are its probes; those of its answer are written when it ends.
    pub fn measured_record(&self) -> Record {
        if self.find.is_some() { Record::Probe } else { Record::Iteration }
    }

    /// The way of a member's headline: both together if it has two, as a group's total has.
    pub fn headline_way(&self, member: usize) -> Way {
        self.members.get(member).map_or(Way::Both, |member| member.job.headline_way())
    }

    /// Its name while it runs: a case that is a pair runs with the others of its round.
    pub fn shown(&self) -> String {
        match &self.round {
            Some(round) => format!("{} round {} of {}", round.survey, round.number, round.of),
            None => self.name.clone(),
        }
    }

    /// The estimated time of one iteration.
    pub fn cost(&self) -> Duration {
        self.estimate_iteration().most
    }
}

/// The steps of a plan, one per case. `axis_paths` are the axis columns of the whole table, which may hold several plans.
pub fn steps(plan: &Plan, run_id: &str, axis_paths: &[String]) -> Vec<Step> {
    let line = |case: &Case| {
        let stop = case.stop_when.as_ref()?;
        let others = |c: &Case| c.axes.iter().filter(|(path, _)| *path != stop.axis).cloned().collect::<Vec<_>>();
        let own = others(case);
        plan.cases.iter().position(|c| c.test == case.test && others(c) == own)
    };
    let step = |case: &Case| Step {
        case: case.clone(),
        identities: identities(plan, case, run_id, axis_paths),
        line: line(case),
        until: None,
    };
    plan.cases.iter().map(step).collect()
}

fn identities(plan: &Plan, case: &Case, run_id: &str, axis_paths: &[String]) -> Vec<Row> {
    let shared = Row {
        run_id: Some(run_id.to_owned()),
        plan: Some(plan.name.clone()),
        test: Some(case.test.to_string()),
        case_id: Some(case.id.clone()),
        case: Some(case.name.clone()),
        round: case.round.as_ref().map(|round| round.number.into()),
        tag: (!case.tags.is_empty()).then(|| case.tags.join(" ")),
        axes: axis_paths
            .iter()
            .map(|path| case.axes.iter().find(|(p, _)| **p == **path).map(|(_, v)| v.clone()).unwrap_or_default())
            .collect(),
        ..Row::default()
    };
    let of_member = |m: &Member| {
        let mut row = shared.clone();
        case.fill(&mut row, m);
        row
    };
    case.members.iter().map(of_member).collect()
}

/// The cases of the next pass, in order. `done` has the finished iterations of each case; `None`: it needs no more. A pass
/// is the first unfinished iteration, so an interrupted run goes on in the middle of one. Cases with the same `round` are
/// measured together.
///
/// The shuffle depends only on the seed and the pass, so a resumed run continues the same order.
pub fn pass<R: Ord>(
    order: Order,
    seed: u64,
    done: &[Option<u32>],
    round: impl Fn(usize) -> Option<R>,
) -> Vec<Vec<usize>> {
    let open = || done.iter().enumerate().filter_map(|(i, d)| d.map(|d| (i, d)));
    match order {
        Order::Sequential => {
            let Some((first, _)) = open().next() else { return Vec::new() };
            let of = round(first);
            let with_it = |i: &usize| *i == first || of.is_some() && round(*i) == of;
            vec![open().map(|(i, _)| i).filter(with_it).collect()]
        }
        Order::Interleave | Order::Random => {
            let Some(pass) = open().map(|(_, d)| d).min() else { return Vec::new() };
            let mut cases: Vec<usize> = open().filter(|(_, d)| *d == pass).map(|(i, _)| i).collect();
            if order == Order::Random {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream(pass.into());
                cases.shuffle(&mut rng);
            }
            together(cases, round)
        }
    }
}

/// The cases of each round, at the place of the first of them.
fn together<R: Ord>(cases: Vec<usize>, round: impl Fn(usize) -> Option<R>) -> Vec<Vec<usize>> {
    let mut places: BTreeMap<R, usize> = BTreeMap::new();
    let mut all: Vec<Vec<usize>> = Vec::new();
    for i in cases {
        match round(i).map(|round| *places.entry(round).or_insert(all.len())) {
            Some(place) if place < all.len() => all[place].push(i),
            _ => all.push(vec![i]),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use schemas::vocabulary;

    use super::*;
    use crate::{
        plan::{
            keys::KEYS,
            load::{LoadOptions, load_str},
            workload,
        },
        schedule::rows::ways,
    };

    /// Two values of each key that a matrix may sweep, or of a key below it.
    fn swept(key: &str) -> (String, [&'static str; 2]) {
        let below = |rest: &str| format!("{key}.{rest}");
        let own = key.to_owned();
        match key {
            "workload" => (own, ["tcp_stream", "tcp_maerts"]),
            "from" => (own, ["local", "h"]),
            "to" => (own, ["h", "i"]),
            "ranks" => (own, ["[h, i]", "[i, h, h]"]),
            "operation" => (own, ["barrier", "allreduce"]),
            "class" => (own, ["S", "W"]),
            "control" => (own, ["session", "none"]),
            "direction" => (own, ["forward", "bidirectional"]),
            "rate" => (own, ["1000/s", "2000/s"]),
            "pacing" => (below("burst"), ["1", "2"]),
            "arrival" => (own, ["periodic", "poisson"]),
            "io" => (own, ["blocking", "epoll"]),
            "receive" => (own, ["copy", "discard"]),
            "socket" | "remote_socket" => (below("send_buffer"), ["64KiB", "128KiB"]),
            "buffers" | "remote_buffers" => (below("count"), ["1", "2"]),
            "payload" => (own, ["zero", "random"]),
            "connected" | "coalesce" | "integrity" | "skip" => (own, ["false", "true"]),
            "cpu" | "remote_cpu" => (own, ["0", "1"]),
            "ports" | "remote_ports" => (own, ["5000", "6000"]),
            "close" => (own, ["fin", "rst"]),
            "idle" => (own, ["b", "c"]),
            "compute" | "reply_timeout" | "after" | "warmup" | "cooldown" | "duration" | "interval" | "pause"
            | "timeout" => (own, ["300ms", "400ms"]),
            "find" => (below("from"), ["1", "2"]),
            "collect" => (own, ["[latency]", "[cpu]"]),
            "command" => (below("run"), ["[a]", "[b]"]),
            _ => (own, ["1", "2"]),
        }
    }

    #[test]
    fn whatever_is_swept_is_in_every_row() {
        let of = |between: &str| {
            let test = |name| format!("workload: {name}{between}, duration: 1s");
            workload::names().into_iter().map(test).collect::<Vec<String>>()
        };
        // Between two ends and among ranks; what is neither is no plan.
        let mut tests = [of(""), of(", ranks: [h, i]")].concat();
        for own in
            ["a: {}, b: {workload: tcp_rr}, c: {workload: udp_stream, direction: reverse}", "a: {}, b: {}, c: {}"]
        {
            tests.push(format!("workload: tcp_stream, duration: 1s, concurrent: {{members: {{{own}}}}}"));
            tests.push(format!("workload: tcp_rr, duration: 1s, concurrent: {{members: {{{own}}}}}"));
        }
        tests.push("workload: tcp_stream, duration: 1s, to: i".into());
        tests.push("duration: 1s, concurrent: {members: {a: {workload: tcp_stream}, b: {workload: udp_ping}}}".into());
        let mut seen: HashSet<&str> = HashSet::new();
        for key in KEYS.iter().filter(|key| key.sweeps) {
            let (path, values) = swept(key.name);
            // A key without a column has an axis column in any test.
            let few = if vocabulary::column_of_key(&path).is_some() { tests.len() } else { 12 };
            for test in tests.iter().take(few) {
                let others = test.split(", ").filter(|text| !text.starts_with(&format!("{}:", key.name)));
                let others = if test.contains('{') { test.clone() } else { others.collect::<Vec<_>>().join(", ") };
                let body = format!("{others}, matrix: {{{path}: [{}]}}", values.join(", "));
                let text = format!(
                    "version: 1\nname: t\nhosts: {{h: {{address: 10.0.0.1}}, i: {{address: 10.0.0.2}}}}\ntests:\n  t: {{{body}}}\n"
                );
                let Ok(plan) = load_str("t.yaml", &text, &LoadOptions::default()) else { continue };
                seen.insert(key.name);
                said_by_all(&plan, &path, &body);
            }
        }
        let unseen: Vec<&str> =
            vocabulary::KEY_COLUMNS.iter().map(|(key, _)| *key).filter(|key| !seen.contains(key)).collect();
        assert_eq!(unseen, [""; 0]);
    }

    /// Checks the rows of all members: they have the value in a column of the axis, or in the key's own.
    fn said_by_all(plan: &Plan, path: &str, body: &str) {
        let steps = steps(plan, "r", &plan.axis_paths);
        let axis = plan.axis_paths.iter().position(|known| known == path);
        let mut values = HashSet::new();
        for step in &steps {
            let (_, value) = &step.axes[0];
            for (member, row) in step.members_with_identity() {
                let both = member.spec().is_some_and(|spec| ways(spec.direction).len() > 1) || step.group.is_some();
                let cell = match (axis, vocabulary::column_of_key(path)) {
                    (Some(axis), _) => row.axes[axis].clone(),
                    (None, Some("direction")) if both => String::new(),
                    (None, column) => row.text(column.unwrap_or_default()),
                };
                assert!(axis.is_none() || cell == *value, "{body}: {cell}");
                assert!(values.insert((row.member.clone(), cell)), "{body}: rows of two values are alike in {path}");
            }
        }
    }

    fn round(order: Order, seed: u64, done: &[Option<u32>]) -> Vec<usize> {
        pass(order, seed, done, |_| None::<u32>).concat()
    }

    #[test]
    fn interleaving_takes_the_same_iteration_of_every_case() {
        assert_eq!(round(Order::Interleave, 0, &[Some(1), Some(0), None, Some(0)]), [1, 3]);
        assert_eq!(round(Order::Interleave, 0, &[Some(1), Some(1), None]), [0, 1]);
        assert!(round(Order::Interleave, 0, &[None, None]).is_empty());
    }

    #[test]
    fn sequential_finishes_a_case_first() {
        assert_eq!(round(Order::Sequential, 0, &[None, Some(4), Some(0)]), [1]);
    }

    #[test]
    fn a_seed_always_gives_the_same_order_and_rounds_differ() {
        let all = |d| vec![Some(d); 20];
        let first = round(Order::Random, 7, &all(0));
        assert_eq!(first, round(Order::Random, 7, &all(0)));
        assert_ne!(first, round(Order::Random, 7, &all(1)));
        assert_ne!(first, round(Order::Random, 8, &all(0)));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_cases_of_a_round_are_measured_together() {
        // Cases 1 and 3 are a round, and so are 2 and 4.
        let of = |i: usize| (i > 0).then_some(i % 2);
        let all = [Some(0); 5];
        assert_eq!(pass(Order::Interleave, 0, &all, of), [vec![0], vec![1, 3], vec![2, 4]]);
        assert_eq!(pass(Order::Sequential, 0, &all, of), [[0]]);
        assert_eq!(pass(Order::Sequential, 0, &[None, Some(2), Some(0), Some(1), Some(0)], of), [[1, 3]]);
        assert_eq!(pass(Order::Interleave, 0, &[None, Some(1), Some(0), Some(0), Some(0)], of), [vec![2, 4], vec![3]]);
        let mut shuffled = pass(Order::Random, 3, &all, of).concat();
        shuffled.sort_unstable();
        assert_eq!(shuffled, [0, 1, 2, 3, 4]);
    }
}
