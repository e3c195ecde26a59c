//! All launchers of a run: started in parallel, asked for their greetings, and ended together.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use netcore::{
    client::{Relayed, Session, Target},
    control::{
        key::Key,
        stop::{StopFlag, Urgency},
    },
    daemon::Network,
    measure::addresses::addresses,
};
use schemas::run_record::LaunchRecord;

use super::{
    Watchdog,
    contract::{self, CONTRACT, Greeting, Message},
    process::{self, LauncherEvent, Process},
    recipe::{self, Asked, DaemonOptions, Recipe},
    remote::{Copy, other_machine},
};
use crate::{
    error::Error,
    plan::{
        model::{BY_ADDRESS, BY_LAUNCHER, Host},
        ranges,
    },
    progress::Progress,
};

/// Most launchers that start at the same time.
const AT_ONCE: usize = 32;

/// Tries of a launcher that another moment may let through.
const TRIES: u32 = 6;

/// Interval of the looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// Time for a launcher to say why it ended. One that is cancelled ends after its daemons, on a busy machine by more than a few tenths of
/// a second.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Daemons listen at ports that the kernel chooses. A run greets no service of another program.
const LOWEST_PORT: u16 = 1024;

/// Lines of a launcher in an error.
const QUOTED: usize = 4;

/// Begins the sentence with which a daemon ends that cannot serve.
const OWN_ERROR: &str = "error: ";

/// A daemon that was started.
#[derive(Clone, Debug)]
pub struct End {
    pub target: Target,
    /// Address for the traffic.
    pub data: IpAddr,
    pub record: LaunchRecord,
    /// Index of its launcher.
    launcher: usize,
}

/// The running launchers. Dropping it ends all daemons, in order.
#[derive(Debug, Default)]
pub struct Launchers {
    running: Vec<Running>,
    ends: BTreeMap<String, End>,
    /// Sessions that keep daemons alive which have no standard input.
    held: Vec<Session>,
}

#[derive(Debug)]
struct Running {
    recipe: Recipe,
    process: Process,
    /// Its half of the keys of its daemons.
    key: Key,
    /// Ends after the process.
    watchdog: Option<Watchdog>,
    greetings: Vec<Greeting>,
    /// From the start to the last greeting.
    took: Duration,
}

impl Running {
    /// The key of the daemon that said this.
    fn key_of(&self, greeting: &Greeting) -> Result<Key, String> {
        if greeting.port < LOWEST_PORT {
            return Err(format!("its daemon says that it listens at port {}, which no kernel chooses", greeting.port));
        }
        let half =
            greeting.key.as_deref().and_then(Key::from_hex).ok_or("its daemon greets without its half of the key")?;
        Ok(if self.recipe.input { half.joined(&self.key) } else { half })
    }
}

impl Launchers {
    /// Starts the daemons of these hosts. Returns those that came, and a sentence about each launcher that failed.
    pub fn start(
        hosts: &BTreeMap<String, Asked<'_>>,
        allowed: DaemonOptions,
        stop: &StopFlag,
        progress: &Progress,
    ) -> Result<(Self, Vec<String>), Error> {
        let recipes = recipes(hosts, allowed)?;
        if recipes.is_empty() {
            return Ok((Self::default(), Vec::new()));
        }
        let count = recipes.iter().map(|recipe| recipe.ends.len()).sum();
        progress.starting(0, count);
        let (next, (sender, started)) = (AtomicUsize::new(0), mpsc::channel());
        let (mut launchers, mut wrong) = (Self::default(), Vec::new());
        thread::scope(|scope| {
            for _ in 0..recipes.len().min(AT_ONCE) {
                let (next, recipes, sender) = (&next, &recipes, sender.clone());
                scope.spawn(move || {
                    while let Some(recipe) = recipes.get(next.fetch_add(1, Ordering::SeqCst)) {
                        // The receiver lives until all senders are gone.
                        let _ = sender.send(one(recipe, stop));
                    }
                });
            }
            drop(sender);
            for result in started {
                match result {
                    Ok(running) => launchers.running.push(running),
                    Err(sentence) => wrong.push(sentence),
                }
                progress.starting(launchers.running.iter().map(|it| it.greetings.len()).sum(), count);
            }
        });
        wrong.extend(launchers.place(hosts));
        wrong.sort();
        // Ends that share their preparation share its failure.
        wrong.dedup();
        launchers.introduce(hosts);
        Ok((launchers, wrong))
    }

    /// The end of that name.
    pub fn end(&self, name: &str) -> Option<&End> {
        self.ends.get(name)
    }

    /// Whether the launcher of an end has ended.
    pub fn has_ended(&mut self, name: &str) -> bool {
        let launcher = self.ends.get(name).map(|end| end.launcher);
        launcher.and_then(|launcher| self.running.get_mut(launcher)).is_some_and(|it| it.process.status().is_some())
    }

    /// Why ends are gone, if a launcher of theirs has ended.
    pub fn gone<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let asked: Vec<(&str, usize)> =
            names.into_iter().filter_map(|name| Some((name, self.ends.get(name)?.launcher))).collect();
        let until = Instant::now() + LAST_WORDS;
        loop {
            for (name, launcher) in &asked {
                let Some(Running { recipe, process, .. }) = self.running.get_mut(*launcher) else { continue };
                if let Some(status) = process.status() {
                    let what = format!("{} ended ({status}), and with it the daemon of host `{name}`", recipe.argv[0]);
                    return Some(with_words(what, recipe, process));
                }
            }
            if asked.is_empty() || Instant::now() > until {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Decides the addresses of every end. Returns sentences about those that cannot be decided.
    fn place(&mut self, hosts: &BTreeMap<String, Asked<'_>>) -> Vec<String> {
        let mut wrong = Vec::new();
        let by_name: BTreeMap<String, &Host> = hosts.iter().map(|(name, asked)| (name.clone(), asked.host)).collect();
        for (launcher, running) in self.running.iter_mut().enumerate() {
            if let Err(sentence) = contract::by_address(&running.recipe.ends, &by_name, &mut running.greetings) {
                wrong.push(sentence);
                continue;
            }
            for (name, greeting) in running.recipe.ends.iter().zip(&running.greetings) {
                let Some(Asked { host, .. }) = hosts.get(name) else { continue };
                let relayed = running.process.relay();
                let own_control = host.control.as_deref().filter(|words| ![BY_ADDRESS, BY_LAUNCHER].contains(words));
                let in_sentence = |why: String| format!("host `{name}`: {why}");
                let placed = host.address.as_deref().map_or_else(
                    || -> Result<IpAddr, String> {
                        let reported = contract::choose(host, greeting).map_err(in_sentence)?;
                        // Its key proves the address to which its control connection goes. A pod's comes from the cluster.
                        let proven = relayed.is_none() && own_control.is_none();
                        let of_pod = running.recipe.pod.is_some() && greeting.reached_at == Some(reported);
                        if proven || of_pod {
                            return Ok(reported);
                        }
                        let configured = running.recipe.configured_host();
                        let known = [own_control, running.recipe.reaches.as_deref(), configured.as_deref()];
                        contract::known(host, reported, known.into_iter().flatten()).map_err(in_sentence)
                    },
                    |address| contract::resolve(name, address).map_err(|error| error.to_string()),
                );
                let (data, key) =
                    match placed.and_then(|data| Ok((data, running.key_of(greeting).map_err(in_sentence)?))) {
                        Ok(placed) => placed,
                        Err(why) => {
                            wrong.push(why);
                            continue;
                        }
                    };
                let control = match (relayed, own_control) {
                    (Some(_), _) => BY_LAUNCHER.to_owned(),
                    (None, Some(name)) => format!("{}:{}", contract::bracketed(name), greeting.port),
                    (None, None) => std::net::SocketAddr::new(data, greeting.port).to_string(),
                };
                let relay = relayed.map(|relay| {
                    let relay = Arc::clone(relay);
                    Relayed::new(data, move || relay.dial())
                });
                let interface = greeting.addresses.iter().find(|it| it.address == data);
                let record = LaunchRecord {
                    engine: running.recipe.engine.to_owned(),
                    control: if relayed.is_some() { BY_LAUNCHER } else { "address" }.to_owned(),
                    copied: running.recipe.copy.is_some(),
                    data_address: data,
                    data_interface: interface.map(|it| it.interface.clone()),
                    addresses: greeting.addresses.iter().map(|it| format!("{} {}", it.interface, it.address)).collect(),
                    node: greeting.node.clone(),
                    pid: greeting.pid,
                    start_s: running.took.as_secs_f64(),
                };
                let cutter = Some(running.process.cutter().clone());
                let target = Target { key: Some(key), relay, cutter, ..Target::new(name, control) };
                if !running.recipe.input {
                    match Session::connect(&target) {
                        Ok(session) => self.held.push(session),
                        Err(error) => wrong.push(error.to_string()),
                    }
                }
                self.ends.insert(name.clone(), End { target, data, record, launcher });
            }
        }
        wrong
    }

    /// Tells every daemon the addresses of the others, so that its near ends may connect to them. An end's own word is not enough
    /// to send it the others' load: its address is proven, or the plan names it or its network.
    fn introduce(&self, hosts: &BTreeMap<String, Asked<'_>>) {
        let networks: Vec<Network> =
            hosts.values().filter_map(|asked| asked.host.network.as_deref()?.parse().ok()).collect();
        let reported = self.running.iter().flat_map(|running| &running.greetings).flat_map(|it| &it.addresses);
        let reported = reported.filter(|it| networks.iter().any(|network| network.contains(it.address)));
        let named = hosts.values().flat_map(|asked| asked.host.bind.iter().flat_map(|list| &list.0));
        let bound = named.filter_map(|text| Some(crate::plan::bind_parts(text).ok()?.0));
        let own = addresses().unwrap_or_default();
        let mut all: Vec<IpAddr> = reported.chain(&own).map(|it| it.address).collect();
        all.extend(self.ends.values().map(|end| end.data).chain(bound));
        all.sort();
        all.dedup();
        self.allow_connect(all);
    }

    /// Lets daemons connect to these addresses.
    pub fn allow_connect(&self, addresses: Vec<IpAddr>) {
        let networks: Vec<Network> = addresses.into_iter().map(Into::into).collect();
        for running in &self.running {
            running.process.tell(Message::AllowConnect(networks.clone()));
        }
    }
}

impl Drop for Launchers {
    fn drop(&mut self) {
        let (mut processes, after): (Vec<Process>, Vec<_>) =
            self.running.drain(..).map(|it| (it.process, (it.watchdog, it.recipe))).unzip();
        process::end(&mut processes);
        drop(processes);
        // Watchdogs, and the pods that recipes hold.
        drop(after);
    }
}

/// The launchers of these hosts: one for each, for each group, or for each end of a group.
fn recipes(hosts: &BTreeMap<String, Asked<'_>>, allowed: DaemonOptions) -> Result<Vec<Recipe>, Error> {
    let mut groups: BTreeMap<&str, (Asked<'_>, BTreeMap<u32, String>)> = BTreeMap::new();
    for (name, asked) in hosts {
        let host = asked.host;
        let (group, index) = host.group.as_ref().map_or((name.as_str(), 0), |group| (group.name.as_str(), group.index));
        let known = groups.entry(group).or_insert_with(|| (asked.clone(), BTreeMap::new()));
        known.0.over_mpi |= asked.over_mpi;
        known.0.files.extend(&asked.files);
        known.1.insert(index, name.clone());
    }
    let recipe = |(name, (asked, ends)): (&str, (Asked<'_>, BTreeMap<u32, String>))| {
        let launch = asked.host.launch.as_ref()?;
        let made = Recipe::of(name, ends.into_values().collect(), asked, launch, allowed);
        Some(made.map_err(|why| Error::Measurement(format!("host `{name}`: {why}"))))
    };
    let made: Vec<Vec<Recipe>> = groups.into_iter().filter_map(recipe).collect::<Result<_, _>>()?;
    Ok(made.into_iter().flatten().collect())
}

/// Starts one launcher and waits for its daemons, with further tries where these may help.
fn one(recipe: &Recipe, stop: &StopFlag) -> Result<Running, String> {
    let watchdog = recipe.cleanup.as_deref().map(Watchdog::start).transpose();
    let watchdog = watchdog.map_err(|error| format!("{}: its guardian did not start: {error}", who(&recipe.ends)))?;
    let mut tries = 1;
    loop {
        match attempt(recipe, stop) {
            Err((_, true)) if tries < TRIES && stop.urgency() == Urgency::None => {
                // The sshd counts those that have not logged in yet: they need a moment.
                thread::sleep(Duration::from_millis(150 << tries));
                tries += 1;
            }
            Err((sentence, _)) => return Err(sentence),
            Ok(running) => return Ok(Running { watchdog, ..running }),
        }
    }
}

/// One try. An error says whether another one may help.
fn attempt(recipe: &Recipe, stop: &StopFlag) -> Result<Running, (String, bool)> {
    let who = who(&recipe.ends);
    let began = Instant::now();
    if let Some(pod) = &recipe.pod {
        pod.ready(stop).map_err(|failure| {
            let what = format!("{}: {}", self::who(pod.ends()), failure.what);
            (quoting(what, recipe, None, &failure.lines), false)
        })?;
    }
    let asked = Instant::now();
    let key = Key::generate().map_err(|error| (format!("{who}: {error}"), false))?;
    let mut process = Process::start(recipe, &key).map_err(|error| {
        (format!("{who}: `{}` did not start: {error}; it must be installed here", recipe.argv[0]), false)
    })?;
    let mut greetings: Vec<Greeting> = Vec::new();
    while greetings.len() < recipe.ends.len() {
        if stop.urgency() != Urgency::None {
            return Err((format!("{who}: not started: a signal ended the run"), false));
        }
        match process.news(LOOK) {
            Some(LauncherEvent::Greeting(greeting)) if greeting.contract == CONTRACT => greetings.push(greeting),
            Some(LauncherEvent::Greeting(greeting)) => {
                let sentence = format!(
                    "{who}: the program there has version {}, which speaks another version of the launch contract: install \
                     this one, or send it along with `copy: true`",
                    greeting.version
                );
                return Err((sentence, false));
            }
            Some(LauncherEvent::Unreadable(why)) => {
                return Err((format!("{who}: the program there greets in an unknown way: {why}"), false));
            }
            Some(LauncherEvent::Surplus) => {
                let what = format!("{who}: {} brought too many daemons", recipe.argv[0]);
                return Err((with_words(what, recipe, &mut process), false));
            }
            Some(LauncherEvent::Closed) => {
                let status = process.wait(Instant::now() + Duration::from_secs(2));
                // Its standard error may arrive a moment later.
                thread::sleep(Duration::from_millis(50));
                let how = status.map_or_else(|| "closed its output".to_owned(), |status| format!("ended ({status})"));
                let what = format!("{who}: {} {how} after {:.1} s", recipe.argv[0], asked.elapsed().as_secs_f64());
                let what = format!("{what}{}", missing(recipe, &greetings));
                if let Some(other) = for_other_machine(recipe, &process) {
                    drop(process);
                    return attempt(&other?, stop);
                }
                let again = greetings.is_empty() && recipe::is_momentary(&process.last_lines());
                return Err((with_words(what, recipe, &mut process), again));
            }
            // Some launchers go on while there is input for a command that has ended.
            None if recipe.copy.is_some() && recipe::is_not_received(&process.last_lines()) => {
                if let Some(other) = for_other_machine(recipe, &process) {
                    drop(process);
                    return attempt(&other?, stop);
                }
                let what = format!("{who}: the program could not be copied");
                return Err((with_words(what, recipe, &mut process), false));
            }
            None if process.last_lines().iter().any(|line| recipe.hopeless.is_some_and(|word| line.contains(word))) => {
                let what = format!("{who}: {} will bring no daemon", recipe.argv[0]);
                return Err((with_words(what, recipe, &mut process), false));
            }
            None if asked.elapsed() > recipe.wait => {
                let what = format!("{who}: {} brought no daemon within {} s", recipe.argv[0], recipe.wait.as_secs());
                let what = format!("{what}{}", missing(recipe, &greetings));
                return Err((with_words(what, recipe, &mut process), false));
            }
            None => {}
        }
    }
    // Greetings of one launcher come in any order.
    greetings.sort_by_key(|greeting| greeting.rank);
    if let Some(pod) = &recipe.pod {
        for greeting in &mut greetings {
            pod.complete(greeting);
        }
    }
    Ok(Running { recipe: recipe.clone(), process, key, watchdog: None, greetings, took: began.elapsed() })
}

/// The same launcher with the program for the far end's machine, where that refused this machine's program.
fn for_other_machine(recipe: &Recipe, process: &Process) -> Option<Result<Recipe, (String, bool)>> {
    recipe.copy.as_ref().filter(|copy| copy.is_own())?;
    let lines = process.last_lines();
    let copy = Copy::for_machine(other_machine(&lines)?);
    let made = copy.map(|copy| recipe.sending(copy));
    Some(made.map_err(|why| (format!("{}: {why}", who(&recipe.ends)), false)))
}

/// `host `b``, or `hosts node[1-16]`.
fn who(ends: &[String]) -> String {
    match ends {
        [one] => format!("host `{one}`"),
        several => format!("hosts {}", ranges::fold(several.iter().map(String::as_str))),
    }
}

/// Names the ends that did not come, where some did.
fn missing(recipe: &Recipe, greetings: &[Greeting]) -> String {
    if recipe.ends.len() == 1 {
        return String::new();
    }
    let came = |rank: usize| greetings.iter().any(|greeting| greeting.rank == u32::try_from(rank).ok());
    let absent = recipe.ends.iter().enumerate().filter(|(rank, _)| !came(*rank)).map(|(_, name)| name.as_str());
    format!("; {} of {} came, missing: {}", greetings.len(), recipe.ends.len(), ranges::fold(absent))
}

/// The sentence with the launcher's last lines and what to do.
fn with_words(what: String, recipe: &Recipe, process: &mut Process) -> String {
    let lines = process.last_lines();
    quoting(what, recipe, process.status(), &lines)
}

fn quoting(what: String, recipe: &Recipe, status: Option<ExitStatus>, lines: &[String]) -> String {
    let said = [lines, std::slice::from_ref(&what)].concat();
    // A daemon's own sentence says more than what its launcher adds.
    let errors: Vec<&String> = lines.iter().filter(|line| line.contains(OWN_ERROR)).collect();
    let is_rule = |line: &&String| line.chars().all(|c| c == '-');
    let chosen = if errors.is_empty() { lines.iter().filter(|line| !is_rule(line)).collect() } else { errors };
    let last = &chosen[chosen.len().saturating_sub(QUOTED)..];
    // The cause of the error may stand far above the last line.
    let telling = recipe::telling(lines).filter(|line| !last.contains(line));
    let quoted = telling.into_iter().chain(last.iter().copied()).map(|line| format!("\n         | {line}"));
    let advice = recipe::of(recipe, status, &said).map(|advice| format!("\n         {advice}"));
    [what].into_iter().chain(quoted).chain(advice).collect()
}
