//! A session that waits for its turn at an exclusive daemon.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{
    log::Over,
    session::{Session, State, stopping, unexpected},
};
use crate::control::{
    channel::ChannelError,
    message::{ErrorCode, Reply, ReplyError, Request},
    stop::{Urgency, wait},
};

impl Session<'_> {
    /// Tells the client its place until it has the turn, gives up or has waited too long. A client that goes away leaves the
    /// line at once.
    pub(super) fn take_turn(&mut self) -> Result<(), Over> {
        let config = &self.shared.config;
        let longest = Duration::from_nanos(config.limits.queue_ns.unwrap_or(0));
        let deadline = Instant::now() + longest;
        let ticket = match self.shared.turns.ask(self.client, config.hold()) {
            Ok(ticket) => ticket,
            Err(error) => {
                let message = format!("the client cannot wait for its turn: {error}");
                return self.refuse(ReplyError::new(ErrorCode::Failed, message));
            }
        };
        // Without it a host that is gone would keep its place, or the turn.
        self.channel.set_keepalive(true)?;
        let mut told = None;
        loop {
            ticket.clear_news();
            // First: the session that had the turn may have ended for the same reason.
            if self.stop.urgency() > Urgency::None {
                return Err(stopping());
            }
            let Some(place) = ticket.place() else {
                self.state = State::Granted(ticket);
                return Ok(self.reply(&Reply::Granted)?);
            };
            if told != Some(place) {
                told = Some(place);
                self.reply(&Reply::Waiting { place })?;
            }
            if Instant::now() >= deadline {
                drop(ticket);
                return self.refuse(too_late(longest, place));
            }
            match self.channel.try_recv()? {
                None => {}
                Some(Request::Abort) => {
                    drop(ticket);
                    return Ok(self.reply(&Reply::Idle)?);
                }
                Some(request) => return Err(unexpected(&request, " while the client waits for its turn")),
            }
            wait([Some(self.channel.as_fd()), Some(ticket.as_fd()), self.stop.beyond(Urgency::None)], Some(deadline))
                .map_err(|source| ChannelError::Io { what: "waiting for a turn failed", source })?;
        }
    }
}

fn too_late(longest: Duration, place: u32) -> ReplyError {
    let clients = match place {
        1 => "another client has".to_owned(),
        _ => format!("{place} other clients have"),
    };
    let message = format!(
        "no turn within {} s, the longest wait here (--queue-timeout): this daemon runs the tests of one client at a time \
         (--exclusive), and {clients} to finish first; try again later",
        longest.as_secs_f64()
    );
    ReplyError::new(ErrorCode::Busy, message)
}
