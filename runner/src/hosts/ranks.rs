//! One iteration of a test of several ranks: takes a session for each, prepares and starts them all, and waits for them.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::mpsc,
    thread,
    time::Duration,
};

use netcore::{
    client::{self, ClientError, RankSeat, Timeouts},
    measure::clock::monotonic_ns,
    spec::{Family, ranks::RanksSpec},
};

use super::Hosts;
use crate::{
    plan::case::{Endpoint, RanksJob},
    progress::{Live, Progress},
    schedule::{bench::Measured, step::Step},
};

impl Hosts {
    pub(super) fn measure_ranks(
        &mut self,
        step: &Step,
        job: &RanksJob,
        progress: &mut Progress,
    ) -> Result<Measured, ClientError> {
        let mut sessions = Vec::with_capacity(job.ends.len());
        for end in &job.ends {
            sessions.push(self.session(end, step.grace)?);
        }
        // After an error the sessions are dropped: their state is unknown.
        client::take_turns(&mut sessions, &self.stop, &mut |host, place| progress.waiting(&host.name, place))?;
        let seats = sessions.iter_mut().zip(&job.ends);
        let seats = seats.map(|(session, end)| RankSeat { address: self.address_of_rank(end, &job.spec), session });
        let timeouts = Timeouts { grace: step.grace, ..Timeouts::default() };
        let running = client::prepare_ranks(seats.collect(), &job.spec, timeouts)?.start(None)?;
        let t0_ns = running.t0_ns();
        let outcome = thread::scope(|scope| {
            // Its end is that of the sender.
            let (done, waiting) = mpsc::channel::<()>();
            let flag = &self.stop;
            let waiter = scope.spawn(move || {
                let outcome = running.wait_ranks(&mut (), flag);
                drop(done);
                outcome
            });
            let tick = progress.tick();
            while waiting.recv_timeout(tick) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress.live(&[live(&job.spec, t0_ns)]);
            }
            waiter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        for (end, session) in job.ends.iter().zip(sessions) {
            self.give_back(end, step.grace, session);
        }
        Ok(Measured { ranks: Some(outcome), ..Measured::default() })
    }

    /// The address at which others reach a rank, where it is not the one of its daemon.
    fn address_of_rank(&self, end: &Endpoint, spec: &RanksSpec) -> Option<IpAddr> {
        match end {
            // Its control connection is on IPv4's loopback; data may use either family.
            Endpoint::Embedded if spec.family == Family::V6 => Some(Ipv6Addr::LOCALHOST.into()),
            _ => self.places.get(end).and_then(|place| place.data),
        }
    }
}

/// Progress by the clock: ranks tell of nothing while they run.
fn live(spec: &RanksSpec, t0_ns: u64) -> Live {
    let elapsed_ns = monotonic_ns().saturating_sub(t0_ns);
    let whole = spec.length_ns();
    let warm = elapsed_ns >= spec.warmup_ns;
    let (phase, elapsed_ns, planned_ns) = if warm {
        let measured = whole.map(|whole| whole - spec.warmup_ns);
        let into = elapsed_ns - spec.warmup_ns;
        ("measure", into.min(measured.unwrap_or(u64::MAX)), measured)
    } else {
        ("warmup", elapsed_ns, Some(spec.warmup_ns))
    };
    Live {
        member: String::new(),
        phase,
        elapsed: Duration::from_nanos(elapsed_ns),
        planned: planned_ns.map(Duration::from_nanos),
        rate: None,
        left: whole.map(|whole| Duration::from_nanos(whole.saturating_sub(monotonic_ns().saturating_sub(t0_ns)))),
    }
}
