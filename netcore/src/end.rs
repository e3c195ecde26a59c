//! One end of one iteration: its sockets, buffers and threads.
//!
//! The life of an end: [`End::prepare`] (both), [`End::endpoints`] of the far end travel to the near end,
//! [`End::connect`] (both at the same time), [`End::start`] with an instant on this host's monotonic clock, and from then
//! on a [`Running`] that ends by its own schedule, earlier by [`Running::stop_at`], or at once by [`Running::abort`].
//!
//! What the two ends need from the conversation between them: the far end's [`Endpoints`], the same token, an instant
//! each, and a word when one of them has finished: whoever hears that the peer has finished calls
//! [`Running::stop_at`] with the present, since a receiver of datagrams can learn of a sender's end in no other way.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    report::{Side, SideReport, Window},
    spec::{TestSpec, support::Unsupported},
};

/// The secret by which data connections prove that they belong to the session.
pub type Token = [u8; 16];

/// Where the near end must connect to: what the far end's kernel chose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoints {
    /// Address of the data sockets where it is another than the one the peer is known by.
    pub address: Option<IpAddr>,
    /// Ports: one that serves every flow, or one per flow.
    pub ports: Vec<u16>,
    /// Paths of Unix sockets or FIFOs: one that serves every flow, or one per flow.
    pub paths: Vec<PathBuf>,
    /// Context identifier of a vsock end.
    pub cid: Option<u32>,
    /// Hardware address of a link end.
    pub mac: Option<[u8; 6]>,
}

/// Why an end could not be made ready or connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// The engines have no such test.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// The system refused something; the sentence says what was tried and what to do.
    #[error("{what}: {source}")]
    System {
        /// What was tried, and where.
        what: String,
        /// What came back.
        source: std::io::Error,
    },
    /// Something about the test does not fit this machine.
    #[error("{0}")]
    Impossible(String),
    /// The flows did not come together in time.
    #[error("{connected} of {flows} data connections came together within {seconds} s: {hint}")]
    Timeout {
        /// Flows that did.
        connected: u32,
        /// Flows of the test.
        flows: u32,
        /// The time allowed, seconds.
        seconds: f64,
        /// What to look at.
        hint: String,
    },
}

/// One end of one iteration, made ready.
pub struct End {}

impl End {
    /// Listens (far end) and allocates and touches the buffers. `data_ip`: the local address of the data sockets.
    pub fn prepare(_spec: &TestSpec, _side: Side, _data_ip: Option<IpAddr>, _token: Token) -> Result<Self, EndError> {
        Ok(Self {})
    }

    /// What the near end must connect to. Empty at the near end.
    #[must_use]
    pub fn endpoints(&self) -> Endpoints {
        Endpoints::default()
    }

    /// Near end: opens every flow to `peer` (address and [`Endpoints`] of the far end). Far end (`peer` is `None`):
    /// accepts until every flow has proven the token; strangers are dropped. Both bounded by `deadline`.
    pub fn connect(&mut self, _peer: Option<(IpAddr, &Endpoints)>, _deadline: Duration) -> Result<(), EndError> {
        Ok(())
    }

    /// Starts the threads. The load (first the warm-up) begins at `t0_ns` on this host's `CLOCK_MONOTONIC`
    /// ([`crate::measure::clock::monotonic_ns`]). `on_interval` is called from the sampler's thread after each interval.
    pub fn start(
        self,
        _t0_ns: u64,
        _on_interval: Option<Box<dyn FnMut(&Window) + Send>>,
    ) -> Result<Running, EndError> {
        Ok(Running {})
    }
}

/// An end under load.
pub struct Running {}

impl Running {
    /// Ends the measure phase at this instant of the monotonic clock, early but whole; there is no cool-down then. Without
    /// effect on an end that has finished by then.
    pub fn stop_at(&self, _monotonic_ns: u64) {}

    /// Ends everything at once: blocked threads are freed, what was measured does not count.
    pub fn abort(&self) {}

    /// Whether the load is over, every flow drained, and the report ready.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        true
    }

    /// Waits for that at most so long; says whether it is so.
    #[must_use]
    pub fn wait(&self, _at_most: Duration) -> bool {
        true
    }

    /// Waits for the end (the schedule's own, or the one that was asked for; draining is bounded) and gives the report.
    #[must_use]
    pub fn finish(self) -> SideReport {
        unimplemented!("an end that was never started has no report")
    }
}
