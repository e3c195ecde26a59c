//! Waiting for turns at daemons that run the tests of one client at a time.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{ClientError, HostLabel, Session};
use crate::control::{
    event::wait_any,
    message::{Reply, Request},
    stop::{StopFlag, Urgency},
};

/// Waits for a turn at each of the daemons that gives turns ([`crate::control::message::Limits::queue_ns`]), for one test
/// of each session, to be prepared next. A group of tests needs all of its sessions here at once.
///
/// All clients ask daemons in the same order, that of their numbers: two clients never wait for each other. A session that
/// has an unused turn keeps it, unless one before it in that order has none.
///
/// `waiting` hears the place, from 1, whenever it changes. A raised `stop` gives up: [`ClientError::Interrupted`]. A turn
/// that a daemon takes back while the client waits at another one is an error too. After an error no session has a turn.
pub fn take_turns<'s>(
    sessions: impl IntoIterator<Item = &'s mut Session>,
    stop: &StopFlag,
    waiting: &mut dyn FnMut(&HostLabel, u32),
) -> Result<(), ClientError> {
    let mut sessions: Vec<&mut Session> =
        sessions.into_iter().filter(|session| session.peer().limits.queue_ns.is_some()).collect();
    sessions.sort_by_key(|session| session.peer().number);
    let first = sessions.iter().position(|session| !session.has_turn).unwrap_or(sessions.len());
    for later in sessions[first..].iter_mut().filter(|session| session.has_turn) {
        later.abort()?;
    }
    for asking in first..sessions.len() {
        let (granted, rest) = sessions.split_at_mut(asking);
        if let Err(error) = rest[0].take_turn(granted, stop, waiting) {
            for session in &mut sessions[..=asking] {
                // Fails only if the connection is broken, and then the daemon takes the turn back anyway.
                let _ = session.abort();
            }
            return Err(error);
        }
    }
    Ok(())
}

impl Session {
    /// Waits for a turn. `granted`: the client's sessions that have one already.
    fn take_turn(
        &mut self,
        granted: &mut [&mut Session],
        stop: &StopFlag,
        waiting: &mut dyn FnMut(&HostLabel, u32),
    ) -> Result<(), ClientError> {
        self.begin()?;
        // Keep-alive detects a dead daemon during a silent wait.
        self.channel.set_keepalive(true).map_err(|source| self.channel_error(source))?;
        self.send(&Request::Turn)?;
        let longest = Duration::from_nanos(self.peer().limits.queue_ns.unwrap_or(0)).min(self.timeouts.turn);
        let asked = Instant::now();
        let mut deadline = asked + self.timeouts.reply;
        loop {
            if stop.urgency() > Urgency::None {
                return Err(ClientError::Interrupted);
            }
            if Instant::now() >= deadline {
                let seconds = asked.elapsed().as_secs_f64();
                return Err(
                    self.invalid(format!("it was asked for a turn {seconds:.0} s ago, and nothing more is heard"))
                );
            }
            for session in granted.iter_mut() {
                // Unasked, a daemon tells only of the end of the session.
                if let Some(reply) = session.try_recv()? {
                    return Err(session.unexpected("turn", reply));
                }
            }
            match self.try_recv()? {
                Some(Reply::Granted) => {
                    self.has_turn = true;
                    return Ok(());
                }
                Some(Reply::Waiting { place }) => {
                    deadline = asked + longest + self.timeouts.reply;
                    waiting(&self.host, place);
                }
                Some(other) => return Err(self.unexpected("turn", other)),
                None => {
                    let mut fds = vec![Some(self.channel.as_fd()), stop.beyond(Urgency::None)];
                    fds.extend(granted.iter().map(|session| Some(session.channel.as_fd())));
                    wait_any(&fds, Some(deadline))
                        .map_err(|source| ClientError::System { what: "waiting for a turn failed", source })?;
                }
            }
        }
    }
}
