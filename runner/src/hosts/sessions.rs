//! Addresses of a plan's hosts, and sessions with their daemons: idle ones are used again, and missing ones are opened at the same
//! time.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use netcore::{
    client::{ClientError, Session, Target},
    control::{
        channel::ChannelError,
        key::Key,
        stop::{StopFlag, Urgency},
    },
    lock::Lock,
    peers::Program,
};

use super::Hosts;
use crate::{
    error::Error,
    launch::contract::{bracketed, resolve},
    plan::{
        case::{Endpoint, Member, Plan},
        model::Host,
    },
    schedule::{MeasureError, step::Step},
};

/// Pause between two attempts to reach a daemon that has answered before.
const AGAIN: Duration = Duration::from_millis(100);

/// Time for which a host that did not answer is not asked again.
const OUTAGE: Duration = Duration::from_secs(10);

/// The longest wait for a host that did not answer before.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// Most sessions that are opened at the same time.
const AT_ONCE: usize = 64;

/// A host that cost time and did not answer.
pub(super) struct Outage {
    until: Instant,
    /// The event.
    message: String,
}

/// One session to open.
struct Opening {
    /// A session that was in use before. The daemon may have closed it, or been restarted.
    idle: Option<Session>,
    target: Target,
    /// Whether a daemon that does not answer is waited for.
    waits: bool,
}

impl Opening {
    fn open(self, stop: &StopFlag) -> Result<Session, ClientError> {
        if let Some(mut session) = self.idle
            && session.is_alive()
        {
            return Ok(session);
        }
        let until = Instant::now() + self.target.timeouts.connect;
        loop {
            match Session::connect(&self.target) {
                // It answered before, so it is probably being restarted. Waited for once per outage. A daemon that is being
                // killed still accepts for a moment and hangs up, as one with another key does.
                Err(
                    ClientError::Connect { .. }
                    | ClientError::KeyDiffers { .. }
                    | ClientError::Channel { source: ChannelError::Closed, .. },
                ) if self.waits && Instant::now() < until && stop.urgency() == Urgency::None => {
                    thread::sleep(AGAIN);
                }
                session => return session,
            }
        }
    }
}

impl Hosts {
    /// A session with the daemon of that end: an idle one, or a new one.
    pub(super) fn session(&mut self, end: &Endpoint, grace: Duration) -> Result<Session, ClientError> {
        let opening = self.opening(end, grace);
        let opened = opening.open(&self.stop);
        self.note(end, opened.is_ok());
        opened
    }

    /// The same for several at the same time, in their order. A host that has not answered lately is not asked again.
    pub(super) fn sessions(&mut self, ends: &[(&Endpoint, Duration)]) -> Vec<Result<Session, MeasureError>> {
        let asked: Vec<Lock<Option<Opening>>> =
            ends.iter().map(|(end, grace)| Lock::new((!self.is_out(end)).then(|| self.opening(end, *grace)))).collect();
        let (stop, next) = (&self.stop, AtomicUsize::new(0));
        let work = || {
            let mut opened = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(slot) = asked.get(at) else { return opened };
                let Some(opening) = slot.lock().take() else { continue };
                let began = Instant::now();
                opened.push((at, opening.open(stop), began.elapsed()));
            }
        };
        let mut opened: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (1..ends.len().min(AT_ONCE)).map(|_| scope.spawn(work)).collect();
            let own = work();
            let others = workers.into_iter().map(thread::ScopedJoinHandle::join);
            let others = others.flat_map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            others.chain(own).collect()
        });
        opened.sort_by_key(|(at, ..)| *at);
        let mut results: Vec<Option<Result<Session, MeasureError>>> = ends.iter().map(|_| None).collect();
        for (at, session, took) in opened {
            let end = ends[at].0;
            self.note(end, session.is_ok());
            results[at] = Some(session.map_err(|error| {
                let message = self.explained([end.name()], error.to_string());
                if took > AGAIN && matches!(error, ClientError::Connect { .. } | ClientError::Resolve { .. }) {
                    self.outages
                        .insert(end.clone(), Outage { until: Instant::now() + OUTAGE, message: message.clone() });
                }
                MeasureError { message, ..MeasureError::from(error) }
            }));
        }
        let out = |end| self.outages.get(end).map_or_else(String::new, |outage: &Outage| outage.message.clone());
        results
            .into_iter()
            .zip(ends)
            .map(|(result, (end, _))| result.unwrap_or_else(|| Err(MeasureError::failed(out(*end)))))
            .collect()
    }

    pub(super) fn give_back(&mut self, end: &Endpoint, grace: Duration, session: Session) {
        self.idle.entry((end.clone(), grace)).or_default().push(session);
    }

    fn is_out(&self, end: &Endpoint) -> bool {
        self.outages.get(end).is_some_and(|outage| Instant::now() < outage.until)
    }

    fn note(&mut self, end: &Endpoint, answered: bool) {
        if answered {
            self.met.insert(end.clone());
            self.outages.remove(end);
        } else {
            self.met.remove(end);
        }
    }

    fn opening(&mut self, end: &Endpoint, grace: Duration) -> Opening {
        let mut target =
            self.places.get(end).and_then(|p| p.target.clone()).unwrap_or_else(|| Target::new(end.name(), end.name()));
        target.timeouts.grace = grace;
        if self.launchers.has_ended(end.name()) {
            // Its daemon has ended, too, or is about to. Waiting longer would keep the other hosts.
            target.timeouts.connect = target.timeouts.connect.min(AGAIN);
        }
        if self.outages.contains_key(end) {
            target.timeouts.connect = target.timeouts.connect.min(ASKED_AGAIN);
        }
        // A daemon of this run is not started again.
        let waits = self.met.contains(end) && self.launchers.end(end.name()).is_none();
        Opening { idle: self.idle.get_mut(&(end.clone(), grace)).and_then(Vec::pop), target, waits }
    }

    /// A sentence about each host whose daemon grants fewer sessions than a step needs at the same time.
    pub(super) fn crowded(&self, plan: &Plan, steps: &[Step]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (end, limits) in &self.granted {
            let needed =
                |step: &&Step| step.members.iter().flat_map(Member::ends).filter(|used| *used == (end, true)).count();
            let most = steps.iter().filter(|step| step.skip.is_none()).max_by_key(needed);
            let Some((step, needed)) = most.map(|step| (step, needed(&step))) else { continue };
            let granted = limits.sessions.min(limits.sessions_per_client);
            if needed > granted as usize {
                let started = plan.host(end).is_some_and(|host| host.launch.is_some());
                let remedy = if started { "measure fewer pairs at once" } else { "start its daemon with" };
                let options = format!(" --max-sessions {needed} --max-sessions-per-client {needed}");
                wrong.push(format!(
                    "host `{}` grants {granted} sessions to one client, and {} needs {needed} at the same time: {remedy}{}",
                    end.name(),
                    step.name,
                    if started { "" } else { &options }
                ));
            }
        }
        wrong
    }
}

/// The place of an end of a test. The default is this process.
#[derive(Clone, Debug, Default)]
pub struct Location {
    /// Its daemon; `None`: this process.
    pub target: Option<Target>,
    /// Address for the traffic, where it differs from the daemon's.
    pub data: Option<IpAddr>,
}

impl Location {
    /// The address of its traffic, where it is known without a connection.
    pub fn address(&self, name: &str) -> Option<IpAddr> {
        let control = || self.target.as_ref().map(|target| target.control.as_str());
        self.data.or_else(|| resolve(name, control()?.rsplit_once(':').map_or(control()?, |(host, _)| host)).ok())
    }
}

/// The daemon of a host of the inventory.
pub fn of_host(name: &str, host: Option<&Host>, default_key: Option<&Key>) -> Result<Location, Error> {
    let fault = |message: String| Err(Error::Measurement(message));
    let Some(host) = host else {
        return fault(format!("host `{name}` is in no inventory: give --host {name}=ADDRESS"));
    };
    let Some(control) = host.control.clone().or_else(|| host.address.clone()) else {
        return fault(format!(
            "host `{name}` has no address: set hosts.{name}.address in the plan, or give --host {name}=ADDRESS"
        ));
    };
    let mut target = Target::new(name, bracketed(&control));
    target.key = key_of(name, Some(host))?.or_else(|| default_key.cloned());
    // The daemon is often on a management network: the traffic then has an address of its own.
    let data = match (&host.control, &host.address) {
        (Some(_), Some(address)) => Some(resolve(name, address)?),
        _ => None,
    };
    Ok(Location { target: Some(target), data })
}

/// The key that the plan gives a host.
pub fn key_of(name: &str, host: Option<&Host>) -> Result<Option<Key>, Error> {
    let path = host.and_then(|host| host.key_file.as_ref());
    path.map(|path| Key::load(path)).transpose().map_err(|e| Error::Measurement(format!("host `{name}`: {e}")))
}

/// A host where another program takes part in tests, over a control connection.
pub fn of_peer(name: &str, host: &Host) -> Option<(Program, Target)> {
    let control = host.control.as_ref().or(host.address.as_ref())?;
    Some((host.speaks.filter(|program| program.converses())?, Target::new(name, bracketed(control))))
}

/// The address of a service: a host without a daemon, or whose daemon takes no part.
pub fn of_service(name: &str, host: Option<&Host>) -> Result<IpAddr, Error> {
    let address = host.and_then(|host| host.address.as_deref()).ok_or_else(|| {
        Error::Measurement(format!(
            "host `{name}` has no address: set hosts.{name}.address, or give --host {name}=ADDRESS"
        ))
    })?;
    resolve(name, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_data_may_differ() {
        let host = Host { address: Some("10.0.0.2".into()), control: Some("192.0.2.1:999".into()), ..Host::default() };
        let place = of_host("b", Some(&host), None).unwrap();
        assert_eq!(place.target.unwrap().control, "192.0.2.1:999");
        assert_eq!(place.data, Some("10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn a_bare_address_serves_for_both() {
        let host = Host { address: Some("2001:db8::1".into()), ..Host::default() };
        let place = of_host("b", Some(&host), None).unwrap();
        assert_eq!(place.target.unwrap().control, "[2001:db8::1]");
        assert_eq!(place.data, None);
    }

    #[test]
    fn what_is_missing_is_named_with_its_remedy() {
        let error = of_host("b", Some(&Host::default()), None).unwrap_err().to_string();
        assert!(error.contains("--host b=ADDRESS"), "{error}");
    }
}
