//! Another program as the far end of a test.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

use super::{ClientError, HostLabel, Target, Timeouts};
use crate::{
    control::{
        dial::{dial, resolve_or},
        netns,
        stop::{StopFlag, Urgency},
    },
    end::End,
    peers::{Conversation, CpuClock, DataPath, PeerError, Program},
    report::SideReport,
    spec::TestSpec,
    transport::Deadline,
};

/// The longest time for which a server may be away between two tests, and the pause between two attempts.
const BETWEEN_TESTS: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(20);

/// A control connection to another program.
pub struct Peer {
    pub(super) host: HostLabel,
    program: Program,
    conversation: Box<dyn Conversation>,
    knows_load_over: bool,
}

impl Peer {
    /// Connects; by default to the program's own port. The far end takes part in one test, in [`super::prepare`].
    pub fn connect(program: Program, target: &Target) -> Result<Self, ClientError> {
        let host = HostLabel { name: target.name.clone(), control: target.control.clone(), launched: false };
        let addresses = resolve_or(&target.control, program.port())
            .map_err(|source| ClientError::Resolve { host: host.clone(), source })?;
        let dial = || {
            let begun = Instant::now();
            loop {
                match dial(&addresses, target.bind, begun + target.timeouts.connect) {
                    Err(error)
                        if program.closes_between_tests()
                            && error.kind() == io::ErrorKind::ConnectionRefused
                            && begun.elapsed() < BETWEEN_TESTS =>
                    {
                        thread::sleep(AGAIN);
                    }
                    dialed => return dialed,
                }
            }
        };
        let stream = netns::within(target.netns.as_deref(), dial)?;
        let stream = stream.map_err(PeerError::Unreached);
        let conversation = stream.and_then(|stream| crate::peers::over(program, stream));
        let conversation = conversation.map_err(|source| ClientError::Peer { host: host.clone(), program, source })?;
        Ok(Self { host, program, conversation, knows_load_over: false })
    }

    fn error(&self) -> impl FnOnce(PeerError) -> ClientError {
        let (host, program) = (self.host.clone(), self.program);
        move |source| match source {
            PeerError::Cancelled => ClientError::Interrupted,
            source => ClientError::Peer { host, program, source },
        }
    }

    pub(super) fn agree(&mut self, spec: &TestSpec, path: DataPath, timeouts: Timeouts) -> Result<End, ClientError> {
        let deadline = Deadline::after(timeouts.ready, &|| false);
        self.conversation.agree(spec, path, &deadline).map_err(self.error())
    }

    pub(super) fn begin(&mut self, timeouts: Timeouts) -> Result<(), ClientError> {
        self.conversation.begin(&Deadline::after(timeouts.reply, &|| false)).map_err(self.error())
    }

    /// Looks at what has arrived.
    pub(super) fn pump(&mut self) -> Result<(), ClientError> {
        self.conversation.pump().map_err(self.error())
    }

    /// Tells it once that the near end's load is over. `Some(false)`: the near end must close its connections itself.
    pub(super) fn load_over(&mut self) -> Result<Option<bool>, ClientError> {
        if std::mem::replace(&mut self.knows_load_over, true) {
            return Ok(None);
        }
        self.conversation.load_over().map(Some).map_err(self.error())
    }

    /// Names the passphrase that the far end may ask for.
    pub fn introduce(&mut self, passphrase: &str) -> Result<(), ClientError> {
        self.conversation.introduce(passphrase).map_err(self.error())
    }

    /// Asks for the far end's CPU clock.
    pub fn cpu_clock(&mut self, timeouts: Timeouts) -> Result<CpuClock, ClientError> {
        self.conversation.cpu_clock(&Deadline::after(timeouts.reply, &|| false)).map_err(self.error())
    }

    /// Exchanges results. A stop flag raised twice gives that up.
    pub(super) fn conclude(
        &mut self,
        near: &SideReport,
        timeouts: Timeouts,
        stop: &StopFlag,
    ) -> Result<SideReport, ClientError> {
        let cancelled = || stop.urgency() == Urgency::Now;
        let deadline = Deadline::after(timeouts.grace, &cancelled);
        self.conversation.conclude(near, &deadline).map_err(self.error())
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.conversation.as_fd()
    }
}
