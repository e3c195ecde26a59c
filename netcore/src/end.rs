//! One end of one iteration: its sockets, buffers and threads.
//!
//! The life of an end: [`End::prepare`] (both), [`End::endpoints`] of the far end travel to the near end,
//! [`End::connect`] (both at the same time), [`End::start`] with an instant on this host's monotonic clock, and from then
//! on a [`Running`] that ends by its own schedule, earlier by [`Running::stop_at`], or at once by [`Running::abort`].
//!
//! The control connection carries between the ends: the far end's [`Endpoints`], the token, the instant of the start, and a
//! message when one of them has finished. The other end then calls [`Running::stop_at`] with the present, since a receiver
//! of datagrams cannot otherwise learn of a sender's end.

mod running;

use std::{
    net::IpAddr,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{
    error::EndError,
    io::{fill::FillFiles, pages, zerocopy},
    lock::Lock,
    measure::{
        counter_log::CounterLog,
        kernel, nic,
        sample::{EvidenceReader, Readers, SampledFlow},
        sampler::{OnInterval, Sampler},
        tasks::Tasks,
        watch::Watch,
    },
    pattern::{self, Worker},
    report::{Granted, NicFacts, SideReport, Span},
    spec::{
        Dialect, Direction, Io, Role, Side, TestSpec, Transport,
        support::{self, unused},
    },
    transport::{
        self, Deadline, Link,
        address::local_ip,
        control_port::DataPorts,
        datagram::effective,
        flow_options::{self, kernel_pace},
        hops::HopProbes,
        options, quic,
        rendezvous::{Connected, Rendezvous},
        stamp::Secret,
        tls,
    },
};
use running::Reported;

pub use crate::transport::{connection::Token, meeting::Endpoints};
pub use running::Running;

/// One end of one iteration, before its start.
pub struct End {
    spec: Arc<TestSpec>,
    side: Side,
    token: Token,
    rendezvous: Rendezvous,
    /// Of a far end with TLS.
    identity: Option<tls::Identity>,
    /// Also read by the workers' threads, for the data that `integrity` expects.
    files: Arc<FillFiles>,
    /// The buffers of each thread, made before the connections so that nothing is allocated after.
    assignments: Vec<pattern::Assignment>,
    connected: Connected,
    nic: Option<NicFacts>,
    counter_log: Option<CounterLog>,
    evidence: Option<EvidenceReader>,
    /// For packets to a reflector that proves them.
    secret: Option<Secret>,
}

impl End {
    /// Listens (far end) and allocates and touches the buffers. `data_ip`: the local address of the data sockets.
    /// Its fill files are opened with the rights of this process: `prepare_with` takes those that were admitted.
    pub fn prepare(spec: &TestSpec, side: Side, data_ip: Option<IpAddr>, token: Token) -> Result<Self, EndError> {
        Self::prepare_with(spec, side, (data_ip, &DataPorts::Any), token, FillFiles::of_own(spec, side)?)
    }

    /// The same with files that are open already, and with the ports for the data of a far end.
    pub(crate) fn prepare_with(
        spec: &TestSpec,
        side: Side,
        (data_ip, ports): (Option<IpAddr>, &DataPorts),
        token: Token,
        files: FillFiles,
    ) -> Result<Self, EndError> {
        if spec.dialect.is_foreign() {
            let reason = "another program's protocol opens the connections of this test, not a session";
            return Err(EndError::Impossible(reason.to_owned()));
        }
        let mut end = Self::apart(spec, side, files)?;
        end.rendezvous = Rendezvous::prepare(&end.spec, side, data_ip, ports, &token)?;
        end.token = token;
        if side == Side::Far {
            end.identity = tls::Identity::of(&end.spec, end.files.certificate()?)?;
        }
        Ok(end)
    }

    /// An end with its buffers, before it has a way to the other one.
    fn apart(spec: &TestSpec, side: Side, files: FillFiles) -> Result<Self, EndError> {
        support::check(spec)?;
        raise_limit();
        let assignments = pattern::assignments(spec, side, &files)?;
        Ok(Self {
            spec: Arc::new(spec.clone()),
            side,
            token: Token::default(),
            rendezvous: Rendezvous::Near { data_ip: None },
            identity: None,
            files: Arc::new(files),
            assignments,
            connected: Connected::default(),
            nic: None,
            counter_log: None,
            evidence: None,
            secret: None,
        })
    }

    /// The secret of the test's reflector.
    pub(crate) fn prove_with(&mut self, secret: Secret) {
        self.secret = Some(secret);
    }

    /// An end over connections that another program's protocol has opened, one link per flow in the flows' order: ready to
    /// start.
    pub(crate) fn over(spec: &TestSpec, side: Side, links: Vec<Link>) -> Result<Self, EndError> {
        // A client of another program names no files here.
        let files = if side == Side::Near { FillFiles::of_own(spec, side)? } else { FillFiles::default() };
        let mut end = Self::apart(spec, side, files)?;
        end.connected = Connected::of(links);
        end.look_around();
        Ok(end)
    }

    /// Endpoints that the near end must connect to. Empty at the near end.
    pub fn endpoints(&self) -> Endpoints {
        let certificate = self.identity.as_ref().map(|identity| identity.fingerprint);
        Endpoints { certificate, ..self.rendezvous.endpoints() }
    }

    /// Near end: opens every flow to `peer` (address and [`Endpoints`] of the far end). Far end (`peer` is `None`): accepts
    /// until every flow has proven the token, and drops strangers. Both are bounded by `deadline`.
    pub fn connect(&mut self, peer: Option<(IpAddr, &Endpoints)>, deadline: Duration) -> Result<(), EndError> {
        self.connect_unless(peer, deadline, &|| false)
    }

    /// The same, but fails with [`EndError::Cancelled`] soon after `cancelled` returns true.
    pub fn connect_unless(
        &mut self,
        peer: Option<(IpAddr, &Endpoints)>,
        deadline: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), EndError> {
        if self.secret.is_some() != (self.spec.dialect == Dialect::Stamp { authenticated: true }) {
            return Err(EndError::Impossible("packets with a proof need a key here, and others have none".to_owned()));
        }
        let deadline = Deadline::after(deadline, cancelled);
        self.connected = self.rendezvous.connect(&self.spec, &self.token, peer, &deadline)?;
        if self.spec.cipher().is_some() {
            let pinned = peer.and_then(|(_, endpoints)| endpoints.certificate);
            let part = self.identity.as_ref().map(tls::Part::Far).or(pinned.map(tls::Part::Near));
            let part = part.ok_or_else(|| EndError::Impossible("the far end announced no certificate".to_owned()))?;
            let secure = if self.spec.transport.is_quic() { quic::secure } else { tls::secure };
            secure(&self.connected.links, &self.spec, part, &deadline)?;
        }
        self.look_around();
        Ok(())
    }

    /// Reads what is known only once the peer is: the interface and its counters.
    fn look_around(&mut self) {
        // A socket that is bound to an interface uses no other, whatever the route says.
        self.nic = match &self.spec.end(self.side).socket.device {
            Some(device) if self.spec.transport.has_interface() => NicFacts::named(device),
            _ => self.connected.peer.and_then(NicFacts::towards),
        };
        self.counter_log = CounterLog::new(&self.spec.collect, self.nic.as_ref().map(|nic| nic.name.clone()));
        if let Some(counter_log) = &mut self.counter_log {
            counter_log.rest(Span::Before);
        }
        self.evidence = self.spec.collect.limits.then(|| {
            let sockets = self.connected.links.iter().filter_map(|link| link.socket().cloned()).collect();
            let interface = self.nic.as_ref().map(|nic| nic.name.as_str());
            EvidenceReader::open(self.spec.transport, interface, sockets)
        });
    }

    /// IP addresses of the flows' peers, after [`End::connect`]. A far end learns them from the sender of the token, so a
    /// daemon checks them before the load.
    pub fn peers(&self) -> Vec<IpAddr> {
        self.connected.links.iter().filter_map(|link| link.peer_ip()).collect()
    }

    /// Starts the threads. The load (first the warm-up) begins at `t0_ns` on this host's `CLOCK_MONOTONIC`
    /// ([`crate::measure::clock::monotonic_ns`]). `on_interval` is called from the sampler's thread after each interval.
    pub fn start(self, t0_ns: u64, on_interval: Option<OnInterval>) -> Result<Running, EndError> {
        let Self { spec, side, rendezvous, identity, files, assignments, connected, .. } = self;
        let (nic, counter_log, evidence, secret) = (self.nic, self.counter_log, self.evidence, self.secret);
        let flows = spec.flows() as usize;
        let answered_by_the_kernel = spec.transport == Transport::Icmp && side == Side::Far;
        if connected.links.len() != flows && !answered_by_the_kernel {
            return Err(EndError::Impossible(format!(
                "{} of {flows} data connections are there: connect an end before starting it",
                connected.links.len()
            )));
        }
        let watch = Arc::new(Watch::new(assignments.len()));
        pattern::awaiting_end_of_data(&spec, &assignments).for_each(|index| watch.awaits_end_of_data(index));
        let follows = |role| matches!(role, Role::Receiver | Role::Responder);
        (0..).zip(&assignments).filter(|(_, each)| follows(each.role)).for_each(|(index, _)| watch.follows(index));
        for assignment in &assignments {
            let link = &connected.links[assignment.flow as usize];
            flow_options::set_segments(link, &spec, side, assignment.role)?;
            flow_options::set_ecn(link, &spec, side, assignment.role, connected.v6)?;
            flow_options::set_kernel_times(link, &spec)?;
            if assignment.role != Role::Sender {
                continue;
            }
            kernel_pace(link, &spec)?;
            if spec.resolved_io() == Io::Zerocopy {
                zerocopy::allow(link).map_err(EndError::system(NO_ZEROCOPY))?;
            }
        }
        rendezvous.begin(&spec)?;
        let granted = granted(&spec, side, (&rendezvous, identity.as_ref()), &connected, &assignments);
        let (flows, workers) = assign(&spec, side, assignments, (&files, secret.as_ref()), &connected.links, &watch);
        let cells = flows.iter().map(|flow| flow.cell.clone()).collect();
        let tasks = evidence.as_ref().map(EvidenceReader::tasks);
        let mut sampler = Sampler {
            flows,
            watch: watch.clone(),
            phases: spec.phases,
            collect: spec.collect,
            pace: spec.pace,
            t0_ns,
            begin_ns: t0_ns,
            measure_ns: t0_ns.saturating_add(spec.phases.warmup_ns),
            on_interval,
            free_threads: {
                let (links, watch) = (connected.links.clone(), watch.clone());
                let is_read_on =
                    side == Side::Far && spec.dialect.stops_by_timer() && spec.direction == Direction::Reverse;
                Box::new(move || {
                    let lets_read = is_read_on && watch.is_released();
                    for link in &links {
                        if lets_read { link.free_after_sending() } else { link.free() }
                    }
                })
            },
            counter_log,
            readers: Readers { cpu: None, evidence },
            stop_is_complete: support::learns_its_end(&spec, side),
            to_the_end: spec.dialect.is_foreign(),
        };
        let first = sampler.arm();
        let by_thread = pattern::onto_threads(&spec, workers);
        let threads = u32::try_from(by_thread.len()).unwrap_or(u32::MAX);
        let (report_to, report) = mpsc::channel();
        let time_wait = if spec.opens_sockets() { kernel::time_wait() } else { None };
        let hops = connected.peer.filter(|_| spec.hops && side == Side::Near).map(|peer| {
            let local = connected.links.first().and_then(|link| local_ip(&link.send).ok());
            let local = local.map(|address| address.ip().to_canonical());
            HopProbes::start(peer, local, &spec.end(side).socket, t0_ns, &spec.phases)
        });
        let conclusion = Conclusion {
            watch: watch.clone(),
            spec,
            side,
            threads,
            links: connected.links,
            v6: connected.v6,
            granted,
            rendezvous,
            nic,
            peer: connected.peer,
            time_wait,
            hops: hops.transpose()?,
        };
        let run = {
            let reported = Reported(watch.clone());
            move || {
                // It fails if the running end was dropped, and with it the interest in the report.
                let _ = report_to.send(conclusion.report(sampler.run(first)));
                drop(reported);
            }
        };
        let sampler = spawn("sampler".to_owned(), run).inspect_err(|_| watch.abort())?;
        for (number, workers) in by_thread.into_iter().enumerate() {
            let tasks = tasks.clone();
            let run = move || {
                let _entered = tasks.as_ref().map(Tasks::enter);
                pattern::thread(number, workers, t0_ns);
            };
            spawn(format!("data {number}"), run).inspect_err(|_| watch.abort())?;
        }
        Ok(Running { side, watch, cells, report: Lock::new(report), _sampler: sampler })
    }
}

/// Error where SO_ZEROCOPY cannot be set.
const NO_ZEROCOPY: &str =
    "the kernel does not let this socket send with `io: zerocopy` (SO_ZEROCOPY): use another `io`";

/// The requested socket options and pipes as the kernel has granted them.
fn granted(
    spec: &TestSpec,
    side: Side,
    (rendezvous, identity): (&Rendezvous, Option<&tls::Identity>),
    connected: &Connected,
    assignments: &[pattern::Assignment],
) -> Vec<Granted> {
    let asked = effective(&spec.end(side).socket, spec);
    let of = |link: &Arc<Link>| {
        let mut list = options::granted(&link.send, link.flow, &asked, spec.transport, connected.v6);
        if spec.transport.is_tcp() {
            let opened = rendezvous.listener(link.flow).unwrap_or(&link.send);
            options::steered(&mut list, opened);
            list.extend(options::opening_granted(opened, link.flow, &asked, side));
        }
        let of_flow = assignments.iter().filter(|assignment| assignment.flow == link.flow);
        list.extend(of_flow.filter_map(|assignment| assignment.conduit.as_ref()).map(|pipe| pipe.granted(link.flow)));
        list.extend(flow_options::segments_granted(link, spec, side));
        list.extend(link.secured.get().into_iter().flat_map(|secured| secured.granted(link.flow, spec, side)));
        list.extend(link.quic.get().into_iter().flat_map(|quic| quic.granted(link.flow)));
        list.extend(flow_options::ecn_granted(link, spec, side, connected.v6));
        list
    };
    let certificate = identity.and_then(|identity| identity.granted(spec));
    certificate.into_iter().chain(connected.links.iter().flat_map(of)).collect()
}

/// Assigns workers to the flows' links: the flows as the sampler sees them, and the workers. The assignments of a flow are
/// adjacent.
fn assign(
    spec: &Arc<TestSpec>,
    side: Side,
    assignments: Vec<pattern::Assignment>,
    (files, secret): (&Arc<FillFiles>, Option<&Secret>),
    links: &[Arc<Link>],
    watch: &Arc<Watch>,
) -> (Vec<SampledFlow>, Vec<Worker>) {
    let mut flows: Vec<SampledFlow> = Vec::new();
    let mut workers = Vec::with_capacity(assignments.len());
    for (index, assignment) in assignments.into_iter().enumerate() {
        let link = links[assignment.flow as usize].clone();
        let cell = if let Some(flow) = flows.last_mut().filter(|flow| flow.flow == assignment.flow) {
            flow.latency_slots.extend(assignment.latency_slots());
            flow.gaps = flow.gaps.take().or_else(|| assignment.gaps.clone());
            flow.cell.clone()
        } else {
            let flow = assignment.sampled(spec, &link);
            let cell = flow.cell.clone();
            flows.push(flow);
            cell
        };
        workers.push(Worker {
            index,
            spec: spec.clone(),
            side,
            role: assignment.role,
            duplex: assignment.duplex,
            cell,
            link,
            send_buffers: assignment.send_buffers,
            receive_buffers: assignment.receive_buffers,
            files: files.clone(),
            conduit: assignment.conduit,
            latency_slot: assignment.latency_slot.map(|(_, slot)| slot),
            gaps: assignment.gaps,
            handshakes: assignment.handshakes,
            one_way: assignment.one_way.map(|(_, slot)| slot),
            secret: secret.cloned(),
            watch: watch.clone(),
        });
    }
    (flows, workers)
}

/// Everything that the report needs besides the samples.
struct Conclusion {
    watch: Arc<Watch>,
    spec: Arc<TestSpec>,
    side: Side,
    threads: u32,
    links: Vec<Arc<Link>>,
    v6: bool,
    granted: Vec<Granted>,
    /// Kept until here: the far end's listening sockets and files go with the end.
    rendezvous: Rendezvous,
    nic: Option<NicFacts>,
    /// A connection has none any more once it is closed.
    peer: Option<IpAddr>,
    /// Connections in TIME_WAIT before the load, for the connect patterns.
    time_wait: Option<u64>,
    hops: Option<HopProbes>,
}

impl Conclusion {
    /// Completes what was sampled.
    fn report(self, sampled: SideReport) -> SideReport {
        let (spec, side) = (&*self.spec, self.side);
        let mut options = self.granted;
        for link in &self.links {
            let end = options.partition_point(|granted| granted.flow <= link.flow);
            let start = options.partition_point(|granted| granted.flow < link.flow);
            options::read_again(&mut options[start..end], &link.send, spec.transport, self.v6);
        }
        let time_wait = self.time_wait.map(|before| kernel::time_wait_after(before, spec));
        let mut notes = sampled.notes;
        notes.extend(
            spec.end(side)
                .socket
                .without_meaning(spec.transport)
                .into_iter()
                .map(|name| format!("{name} has no meaning for {} and was not set", spec.transport.name())),
        );
        notes.extend(pages::conduit_note(&options));
        notes.extend(
            self.peer.zip(self.nic.as_ref()).and_then(|(peer, nic)| nic::fragments_note(spec, side, peer, nic)),
        );
        notes.extend(submissions_note(side, self.watch.all_submitted()));
        if side == Side::Near {
            let unused = unused(spec);
            notes.extend(unused.iter().map(|key| format!("{key} has no meaning for this workload and was not used")));
            // Only the near end needs a port for every connection.
            notes.extend(time_wait.as_ref().and_then(|counts| kernel::time_wait_note(counts, spec)));
        }
        drop((self.links, self.rendezvous));
        SideReport {
            side,
            io: spec.resolved_io().name().to_owned(),
            threads: self.threads,
            library: tls::library(spec, side).map(str::to_owned).or_else(|| transport::mpi::library(spec.transport)),
            options,
            nic: self.nic,
            ipv6: self.peer.filter(|_| spec.transport.uses_ip()).map(|peer| peer.is_ipv6()),
            under_load_ns: match sampled.monotonic_start_ns {
                0 => 0,
                start_ns => start_ns.max(self.watch.began_ns()),
            },
            time_wait,
            path: self.hops.map(HopProbes::finish),
            spinning: (spec.resolved_io() == Io::Spin).then(|| self.watch.spinning()),
            notes,
            ..sampled
        }
    }
}

/// Note on how many operations a system call on the submission rings has completed, to one digit: iterations that differ
/// by less say the same.
fn submissions_note(side: Side, (completions, calls): (u64, u64)) -> Option<String> {
    if calls == 0 {
        return None;
    }
    let end = if side == Side::Near { "near" } else { "far" };
    let per_call = completions as f64 / calls as f64;
    let unit = 10_f64.powf(per_call.log10().floor());
    let amount = match (per_call / unit).round() * unit {
        _ if per_call < 1.0 => "less than one operation".to_owned(),
        digit if digit < 2.0 => "about one operation".to_owned(),
        digit => format!("about {digit:.0} operations"),
    };
    Some(format!("io_uring of the {end} end: {amount} per call"))
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, EndError> {
    let what = "cannot start a data thread (is the limit on threads reached? see ulimit -u)";
    std::thread::Builder::new().name(name).spawn(body).map_err(EndError::system(what))
}

/// Raises the soft limit of this process to the hard one. Without it a test of a few hundred flows, or the tests of several
/// clients together, would reach the usual soft limit of 1024.
pub fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // A refusal leaves the limit as it is.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_per_call_are_told_to_one_digit() {
        let of = |completions, calls| submissions_note(Side::Far, (completions, calls)).unwrap_or_default();
        assert_eq!(of(0, 0), "", "no ring");
        for (completions, amount) in [
            (0, "less than one operation"),
            (999, "less than one operation"),
            (1000, "about one operation"),
            (9400, "about 9 operations"),
            (20_200, "about 20 operations"),
            (24_900, "about 20 operations"),
            (29_000, "about 30 operations"),
            (99_000, "about 100 operations"),
        ] {
            assert_eq!(of(completions, 1000), format!("io_uring of the far end: {amount} per call"));
        }
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard / 2, hard).unwrap();
        raise_limit();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
