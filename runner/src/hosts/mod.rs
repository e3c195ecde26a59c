//! Sources of far ends: daemons inside this process, and those on other hosts.
//!
//! - [`mod@bench`]: one iteration, on sessions that stay open between iterations
//! - [`mod@gather`]: the ends of a plan, started and reached
//! - `sessions`: addresses of the plan's hosts, and sessions with their daemons, opened at the same time and kept
//! - [`view`]: interfaces, free CPUs and transports, where a plan needs them, and its `require`, checked before anything runs
//! - [`watch`]: progress and interim results of a running measurement

pub mod bench;
pub mod gather;
pub mod sessions;
pub mod view;
pub mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::Path,
    time::Duration,
};

use netcore::{
    client::{Session, Target},
    control::{key::Key, message::Limits, stop::StopFlag},
    daemon::{Daemon, Embedded},
    peers::Program,
    spec::{Side, Transport},
};

use self::sessions::Location;
use crate::{
    error::Error,
    launch::{
        contract,
        launchers::Launchers,
        recipe::{Asked, DaemonOptions},
    },
    plan::{
        case::{Endpoint, Member, Plan},
        model::Host,
    },
    progress::Progress,
    schedule::step::Step,
    sinks::run_json::HostRecord,
};
use sessions::Outage;

/// The hosts of a run: reachable, greeted, and ready for sessions.
pub struct Hosts {
    /// Daemons that this run started. It goes first: sessions of daemons that end need no farewell.
    launchers: Launchers,
    places: BTreeMap<Endpoint, Location>,
    /// Addresses of other programs, which are no daemons.
    services: BTreeMap<Endpoint, IpAddr>,
    /// Keys of reflectors.
    keys: BTreeMap<Endpoint, Key>,
    /// The ones among them that take part in tests by a protocol of their own.
    peers: BTreeMap<Endpoint, (Program, Target)>,
    /// Open sessions that no test uses at the moment, by end and the grace they were opened with.
    idle: BTreeMap<(Endpoint, Duration), Vec<Session>>,
    /// Ends whose daemons answered the last time.
    met: BTreeSet<Endpoint>,
    /// Ends whose daemons did not answer, and are not asked for a while.
    outages: BTreeMap<Endpoint, Outage>,
    /// The limits of each daemon.
    granted: BTreeMap<Endpoint, Limits>,
    /// Facts for `run.json`, by name.
    records: BTreeMap<String, HostRecord>,
    stop: StopFlag,
    interim: bool,
    /// Daemons inside this process: one on loopback, and one in each network namespace of the plan. They live as long as
    /// the run.
    embedded: Vec<Embedded>,
}

impl Hosts {
    /// Starts the embedded daemon if a step needs it, and connects to the daemon of every host that takes part: all that cannot
    /// be reached are reported before anything is measured.
    pub fn open(
        plan: &Plan,
        steps: &[Step],
        default_key: Option<&Key>,
        interim: bool,
        allowed: DaemonOptions,
        stop: &StopFlag,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let (hosts, missing) = Self::gather(plan, steps, default_key, interim, allowed, stop, progress)?;
        if missing.is_empty() { Ok(hosts) } else { Err(Error::Measurement(missing.join("\n       "))) }
    }

    /// Rejects steps with a transport that a kernel lacks, or with more sessions than a daemon grants.
    fn able(&mut self, plan: &Plan, steps: &[Step]) -> Result<(), Error> {
        let mut lacking = self.lacking(steps).map_err(Error::measurement)?;
        lacking.extend(self.crowded(plan, steps));
        if lacking.is_empty() { Ok(()) } else { Err(Error::Measurement(lacking.join("\n       "))) }
    }

    /// Checks all that a run checks before it measures: an error, or sentences to warn with.
    pub fn ready(&mut self, plan: &Plan, steps: &[Step]) -> Result<Vec<String>, Error> {
        self.able(plan, steps)?;
        self.required(plan, steps)
    }

    fn new(launchers: Launchers, interim: bool, stop: &StopFlag) -> Self {
        Self {
            launchers,
            places: BTreeMap::new(),
            services: BTreeMap::new(),
            keys: BTreeMap::new(),
            peers: BTreeMap::new(),
            idle: BTreeMap::new(),
            met: BTreeSet::new(),
            outages: BTreeMap::new(),
            granted: BTreeMap::new(),
            records: BTreeMap::new(),
            stop: stop.clone(),
            interim,
            embedded: Vec::new(),
        }
    }

    /// The daemons that this run started.
    pub fn launchers(&self) -> &Launchers {
        &self.launchers
    }

    /// Lets daemons that this run started connect to those that ran already.
    fn introduce(&self) {
        let others = self.places.iter().filter(|(end, _)| self.launchers.end(end.name()).is_none());
        let addresses = others.filter_map(|(end, place)| place.address(end.name()));
        self.launchers.allow_connect(addresses.chain(self.services.values().copied()).collect());
    }

    /// Adds to an error why a daemon that this run started is gone.
    fn explained<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, message: String) -> String {
        match self.launchers.gone(names) {
            Some(why) => format!("{message}\n       {why}"),
            None => message,
        }
    }

    /// Starts a daemon inside this process, with a key of its own. In a network namespace, the control connection uses the
    /// namespace's loopback and the traffic the host's address.
    fn embed(&mut self, name: &str, netns: Option<&str>, address: Option<&str>) -> Result<Location, Error> {
        let embedded = Daemon::spawn_embedded(netns.map(str::to_owned)).map_err(|e| {
            Error::Measurement(match netns {
                Some(_) => format!("host `{name}`: no daemon in its network namespace: {e}"),
                None => format!("the embedded daemon did not start: {e}"),
            })
        })?;
        let data = address.filter(|a| *a != "local").map(|a| contract::resolve(name, a)).transpose()?;
        let place = Location { target: Some(embedded.target(name)), data };
        self.embedded.push(embedded);
        Ok(place)
    }

    /// Checks the plan's `require`: an error, or sentences to warn with.
    pub fn required(&mut self, plan: &Plan, steps: &[Step]) -> Result<Vec<String>, Error> {
        let conditions: Vec<_> = plan.require.iter().map(|(condition, _)| condition).collect();
        let asks = |check: &str| conditions.iter().any(|c| c.check == check);
        let (nics, cpus) = (asks("nic_speed") || asks("mtu"), asks("free_cpus"));
        let views = if nics || cpus { self.views(nics, cpus, steps) } else { Ok(BTreeMap::new()) };
        let views = views.map_err(Error::measurement)?;
        let (errors, warnings) = view::check(plan, &self.records, &views);
        let warnings = [warnings, view::warnings(&self.records)].concat();
        if errors.is_empty() { Ok(warnings) } else { Err(Error::Measurement(errors.join("\n       "))) }
    }

    /// Facts about every machine that takes part, by name.
    pub fn records(&self) -> &BTreeMap<String, HostRecord> {
        &self.records
    }

    /// `2 hosts ready · a: 6.12.0, clock 38 µs from ours (± 4 µs) · b: …`; `None`: all ends are in this process.
    pub fn checked(&self) -> Option<String> {
        gather::ready(&self.records)
    }
}

/// The hosts with `launch` whose ends take part, with all members of their groups.
fn launched<'a>(plan: &'a Plan, steps: &'a [Step]) -> BTreeMap<String, Asked<'a>> {
    let steps = || steps.iter().filter(|step| step.skip.is_none());
    let measured = steps().flat_map(|step| &step.members).flat_map(Member::ends);
    let measured = measured.filter_map(|(end, has_daemon)| has_daemon.then_some(end));
    let hooks = plan.cases.iter().filter(|case| case.skip.is_none()).flat_map(|case| case.hooks.all());
    let hooked: Vec<String> = hooks.filter_map(|(_, hook)| hook.places()).flatten().collect();
    let names: BTreeSet<&str> = measured.map(Endpoint::name).chain(hooked.iter().map(String::as_str)).collect();
    let group_of = |host: &Host| host.group.as_ref().map(|group| group.name.clone());
    let groups: BTreeSet<String> = plan
        .hosts
        .iter()
        .filter(|(name, _)| names.contains(name.as_str()))
        .filter_map(|(_, host)| group_of(host))
        .collect();
    let takes_part = |name: &str, host: &Host| match group_of(host) {
        Some(group) => groups.contains(&group),
        None => names.contains(name),
    };
    let hosts = plan.hosts.iter().filter(|(name, host)| host.launch.is_some() && takes_part(name, host));
    let ranks: BTreeSet<&str> = steps()
        .flat_map(|step| &step.members)
        .filter(|member| member.job.transport() == Some(Transport::Mpi))
        .flat_map(Member::ends)
        .map(|(end, _)| end.name())
        .collect();
    let mut files: BTreeMap<&str, BTreeSet<&Path>> = BTreeMap::new();
    for member in steps().flat_map(|step| &step.members) {
        for (end, side) in [(&member.from, Side::Near), (&member.to, Side::Far)] {
            let read = member.spec().into_iter().flat_map(|spec| spec.files(side));
            files.entry(end.name()).or_default().extend(read.map(|(_, file)| file));
        }
    }
    let asked = |(name, host): (&String, &'a Host)| {
        let over_mpi = ranks.contains(name.as_str());
        (name.clone(), Asked { host, over_mpi, files: files.get(name.as_str()).cloned().unwrap_or_default() })
    };
    hosts.map(asked).collect()
}
