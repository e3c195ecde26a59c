//! Pods of a cluster, each an end: `kubectl` creates them, and `kubectl exec -i` starts the daemon in each.
//!
//! The pods of one `launch` share their preparation. What they run by themselves opens no port and waits; the key of the run
//! goes over the life line, so that nothing in the cluster's objects is secret. Three things remove the pods: a
//! [`Watchdog`] when this process ends, their owner when somebody deletes it, and their deadline when all else is gone.
//!
//! - `kubectl`: the user's own `kubectl`, what it says a pod waits for, and removal of pods whose launcher and watchdog died
//! - `manifest`: the objects that are created

mod kubectl;
mod manifest;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use netcore::{
    control::stop::{StopFlag, Urgency},
    lock::Lock,
};

use self::kubectl::State;
use super::{Watchdog, contract::Greeting, remote::Remote};
use crate::plan::model::Kubernetes;
use kubectl::Kubectl;
use manifest::Manifest;

/// Default wait for the pods: an image may have to be pulled.
const WAIT: Duration = Duration::from_mins(2);

/// Default longest life of the pods.
const DEADLINE: Duration = Duration::from_hours(4);

/// Interval of the looks at the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// Lines of a pod's log and of its events in an error.
const QUOTED: usize = 4;

/// Why the pods cannot be used.
#[derive(Clone, Debug)]
pub struct Failure {
    pub what: String,
    /// Last lines of `kubectl`, events and logs.
    pub lines: Vec<String>,
}

/// Node and address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    node: Option<String>,
    address: Option<IpAddr>,
}

/// All pods of one `launch`.
#[derive(Debug)]
struct Pods {
    kubectl: Kubectl,
    manifest: Manifest,
    /// Names of the ends, by pod.
    ends: Vec<String>,
    wait: Duration,
    /// `None`: not begun.
    prepared: Lock<Option<Result<Prepared, Failure>>>,
}

#[derive(Debug)]
struct Prepared {
    places: Vec<Place>,
    /// Removes the pods once nobody uses them.
    _watchdog: Watchdog,
}

/// One pod. The pods are removed when the last of them is dropped.
#[derive(Clone, Debug)]
pub struct Pod {
    pods: Arc<Pods>,
    index: usize,
}

/// A pod for each of these ends. `remote` is the daemon's command in the pod.
pub fn pods(ends: Vec<String>, options: &Kubernetes, remote: &Remote) -> Result<Vec<Pod>, String> {
    let kubectl = Kubectl::new(options);
    let deadline = options.deadline.map_or(DEADLINE, |deadline| deadline.0).as_secs().max(1);
    let manifest = Manifest::new(options, remote, &ends, deadline)?;
    let wait = options.wait.map_or(WAIT, |wait| wait.0);
    let pods = Arc::new(Pods { kubectl, manifest, ends, wait, prepared: Lock::new(None) });
    Ok((0..pods.ends.len()).map(|index| Pod { pods: Arc::clone(&pods), index }).collect())
}

impl Pod {
    /// The end that it is.
    pub fn end(&self) -> &str {
        &self.pods.ends[self.index]
    }

    /// A command that runs another one in it.
    pub fn exec(&self) -> Vec<String> {
        let name = self.pods.manifest.pod(self.index);
        self.pods.kubectl.command(["exec", "-i", &name, "-c", manifest::CONTAINER, "--"])
    }

    /// A command that shows the state of all.
    pub fn check(&self) -> String {
        self.pods.kubectl.command(["get", "pods"]).join(" ")
    }

    /// Names of all ends that share its preparation.
    pub fn ends(&self) -> &[String] {
        &self.pods.ends
    }

    /// Waits until it can be used. The first that asks creates all pods; all get the same answer.
    pub fn ready(&self, stop: &StopFlag) -> Result<(), Failure> {
        let mut prepared = self.pods.prepared.lock();
        let result = prepared.get_or_insert_with(|| self.pods.prepare(stop));
        result.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Adds what the cluster knows and the daemon does not.
    pub fn complete(&self, greeting: &mut Greeting) {
        let prepared = self.pods.prepared.lock();
        if let Some(Ok(Prepared { places, .. })) = &*prepared
            && let Some(place) = places.get(self.index)
        {
            greeting.node.clone_from(&place.node);
            greeting.reached_at = place.address;
        }
    }
}

impl Pods {
    fn prepare(&self, stop: &StopFlag) -> Result<Prepared, Failure> {
        // First of all: whatever happens next is undone.
        let watchdog = Watchdog::start(&self.kubectl.command(self.manifest.deletion())).map_err(|error| Failure {
            what: format!("the guardian of its pods did not start: {error}"),
            lines: Vec::new(),
        })?;
        thread::scope(|scope| {
            // At the same time, and over before anything is measured.
            scope.spawn(|| kubectl::sweep(&self.kubectl, stop));
            let create = ["create", "--validate=false", "-f", "-", "-o"];
            let uid = self.kubectl.run(
                create.into_iter().chain(["jsonpath={.metadata.uid}"]),
                Some(&self.manifest.owner()),
                stop,
            )?;
            self.kubectl.run(create.into_iter().chain(["name"]), Some(&self.manifest.pods(uid.trim())), stop)?;
            Ok(Prepared { places: self.await_pods(stop)?, _watchdog: watchdog })
        })
    }

    /// Waits until all pods run.
    fn await_pods(&self, stop: &StopFlag) -> Result<Vec<Place>, Failure> {
        let until = Instant::now() + self.wait;
        let names: Vec<String> = (0..self.ends.len()).map(|index| self.manifest.pod(index)).collect();
        let mut states: BTreeMap<String, State> =
            names.iter().map(|name| (name.clone(), State::Waiting("nothing is known of it".into()))).collect();
        let selector = self.manifest.selector();
        loop {
            // The API server ends a watch after a while.
            let mut watch = self.kubectl.watch(["get", "pods", "-l", &selector, "--watch", "-o", "json"])?;
            loop {
                if stop.urgency() != Urgency::None {
                    return Err(Failure { what: "a signal ended the run".into(), lines: Vec::new() });
                }
                match watch.next(LOOK) {
                    Ok(Some(pod)) => {
                        let (name, state) = kubectl::of(&pod);
                        states.entry(name).and_modify(|old| *old = state);
                    }
                    Ok(None) if Instant::now() < until => {}
                    Ok(None) => return Err(self.late(&names, &states, stop)),
                    Err(kubectl::Ended::Orderly) => break,
                    Err(kubectl::Ended::Failed(failure)) => return Err(failure),
                }
                if let Some((name, why)) = names.iter().find_map(|name| match &states[name] {
                    State::Failed(why) => Some((name, why)),
                    _ => None,
                }) {
                    let what = format!("{} failed: {why}", self.called(name));
                    return Err(Failure { what, lines: self.evidence(name, stop) });
                }
                let places: Vec<Place> = names.iter().filter_map(|name| states[name].place()).collect();
                if places.len() == names.len() {
                    return Ok(places);
                }
            }
        }
    }

    /// The failure of pods that are not ready in time.
    fn late(&self, names: &[String], states: &BTreeMap<String, State>, stop: &StopFlag) -> Failure {
        let waiting: Vec<(&String, &str)> = names
            .iter()
            .filter_map(|name| match &states[name] {
                State::Waiting(why) => Some((name, why.as_str())),
                _ => None,
            })
            .collect();
        let list: Vec<String> = waiting.iter().map(|(name, why)| format!("{}: {why}", self.called(name))).collect();
        let what = format!(
            "{} of {} pods did not run within {} s (`wait`): {}",
            waiting.len(),
            names.len(),
            self.wait.as_secs(),
            list.join("; ")
        );
        let lines = waiting.first().map(|(name, _)| self.evidence(name, stop)).unwrap_or_default();
        Failure { what, lines }
    }

    /// Events of the cluster about a pod, and the pod's output.
    fn evidence(&self, name: &str, stop: &StopFlag) -> Vec<String> {
        let of = format!("--field-selector=involvedObject.name={name},type=Warning");
        let format = r#"jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}"#;
        let tail = format!("--tail={QUOTED}");
        let said = [
            self.kubectl.run(["get", "events", &of, "-o", format], None, stop),
            self.kubectl.run(["logs", name, "-c", manifest::CONTAINER, &tail], None, stop),
        ];
        let last = |text: String| {
            let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(kubectl::line).collect();
            lines[lines.len().saturating_sub(QUOTED)..].to_vec()
        };
        // Neither has to be there or allowed.
        said.into_iter().flatten().flat_map(last).collect()
    }

    /// `pod plumb-… on NODE` as people know it.
    fn called(&self, name: &str) -> String {
        let end = (0..self.ends.len()).find(|index| self.manifest.pod(*index) == name).map(|index| &self.ends[index]);
        end.map_or_else(|| format!("pod {name}"), |end| format!("pod {name} of `{end}`"))
    }
}
