//! A netperf's session with this daemon: tests one after another on one control connection, until the client closes it.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use socket2::SockRef;

use super::{
    answer,
    asked::{Asked, Policy, Refused, asked},
    data::{Ended, Ends, Waiting, Watched, refused},
    wire::{Control, Message, OLD_MESSAGE_BYTES, error, kind},
};
use crate::{
    control::{
        message::{ErrorCode, ReplyError},
        stop::{Urgency, wait},
    },
    end::End,
    peers::{self, Host, KEEPALIVE, Share},
    report::{Ending, SideReport},
    spec::Side,
    transport::Link,
};

/// For the first message of a client, and for the rest of one that has begun.
pub const MESSAGE: Duration = Duration::from_secs(30);

/// For the next request of a client.
pub const IDLE: Duration = Duration::from_mins(10);

/// For the data connection of a test.
pub const CONNECT: Duration = Duration::from_secs(30);

/// After this silence a message of 256 bytes is that of an old netperf.
const OLD: Duration = Duration::from_secs(1);

/// The end of a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum Over {
    #[error("the client closed the connection")]
    Closed,
    #[error("the client closed the connection during a test")]
    Gone,
    #[error("{0}")]
    Refused(String),
    #[error("no complete message within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the client's messages have 256 bytes: its netperf is older than 2.6")]
    Old,
    #[error("a message during a test")]
    Unexpected,
    #[error("the daemon is being stopped")]
    Stopping,
    #[error("the control connection failed: {0}")]
    Io(#[from] io::Error),
}

/// Serves a client until the connection ends; returns the reason.
pub fn serve(host: &dyn Host, stream: TcpStream, peer: SocketAddr) -> String {
    let begun = || {
        SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
        let mut local = stream.local_addr()?;
        local.set_ip(local.ip().to_canonical());
        Ok(Ends { local, peer: peer.ip().to_canonical() })
    };
    let over = match begun().and_then(|ends| Ok((ends, Control::new(stream)?))) {
        Ok((ends, control)) => Session { host, control, ends, share: None, drained: None }.converse(),
        Err(error) => Over::Io(error),
    };
    over.to_string()
}

struct Session<'h> {
    host: &'h dyn Host,
    control: Control,
    ends: Ends,
    /// Present from the first message on.
    share: Option<Box<dyn Share + 'h>>,
    /// The datagram socket of the last test: its client's last datagrams must not meet a closed port.
    drained: Option<std::sync::Arc<std::os::fd::OwnedFd>>,
}

impl Session<'_> {
    fn converse(mut self) -> Over {
        loop {
            match self.next_message().and_then(|message| self.answer(&message)) {
                Ok(()) => {}
                Err(over) => return over,
            }
        }
    }

    fn next_message(&mut self) -> Result<Message, Over> {
        let patience = if self.share.is_none() { MESSAGE } else { IDLE };
        let mut deadline = (Instant::now() + patience, patience);
        let mut begun: Option<(usize, Instant)> = None;
        loop {
            if self.host.stop().urgency() > Urgency::None {
                return Err(Over::Stopping);
            }
            match self.control.try_receive() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Over::Closed),
                Err(error) => return Err(error.into()),
            }
            let (got, now) = (self.control.partial().len(), Instant::now());
            if got > 0 && begun.is_none_or(|(before, _)| before != got) {
                if begun.is_none() {
                    deadline = (now + MESSAGE, MESSAGE);
                }
                begun = Some((got, now));
            }
            let old = begun.filter(|_| got == OLD_MESSAGE_BYTES).map(|(_, since)| since + OLD);
            if old.is_some_and(|old| now >= old) && is_known(self.control.partial()) {
                return Err(Over::Old);
            }
            if now >= deadline.0 {
                return Err(Over::Late(deadline.1));
            }
            let wake = old.filter(|old| *old > now).map_or(deadline.0, |old| old.min(deadline.0));
            wait([Some(self.control.as_fd()), self.host.stop().beyond(Urgency::None)], Some(wake))?;
        }
    }

    fn send(&mut self, message: &Message) -> Result<(), Over> {
        self.control.send(message).map_err(|error| match error.kind() {
            // TCP_MSS does not wait for its results.
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Over::Closed,
            _ => Over::Io(error),
        })
    }

    /// Refuses a request; netserver ends the session, too.
    fn refuse(&mut self, message: &Message, refused: Refused) -> Result<(), Over> {
        self.send(&answer::refusal(message.kind(), refused.errno))?;
        Err(Over::Refused(refused.reason))
    }

    fn answer(&mut self, message: &Message) -> Result<(), Over> {
        if self.share.is_none() {
            match self.host.open("") {
                Ok(share) => self.share = Some(share),
                Err(error) => return self.refuse(message, of_reply(&error)),
            }
        }
        match message.kind() {
            kind::DEBUG_ON | kind::DEBUG_OFF => self.send(&Message::new(kind::DEBUG_OK, 0)),
            kind::CPU_CALIBRATE => self.send(&answer::calibration(answer::cpus())),
            // It has no answer. This daemon has no passphrase, so that any is right.
            kind::PASSPHRASE => Ok(()),
            kind::SYSINFO => self.send(&answer::sysinfo()),
            _ => {
                let names = peers::congestion_controls();
                let policy = Policy { longest_ns: self.host.limits().duration_ns, congestion_controls: &names };
                match asked(message, &policy) {
                    Some(Ok(asked)) => self.test(message, &asked),
                    Some(Err(refused)) => self.refuse(message, refused),
                    None => self.send(&Message::new(message.kind(), error::UNKNOWN_REQUEST)),
                }
            }
        }
    }

    fn test(&mut self, message: &Message, asked: &Asked) -> Result<(), Over> {
        let host = self.host;
        // The memory and the turn are in use until the results are sent.
        let _share = match host.admit(&asked.spec) {
            Ok(share) => share,
            Err(error) => return self.refuse(message, of_reply(&error)),
        };
        self.drained = None;
        let (waiting, opened) = match Waiting::open(asked, self.ends, |address| host.serves(address)) {
            Ok(opened) => opened,
            Err(refused) => {
                host.failed(&asked.spec, &refused.reason);
                return self.refuse(message, refused);
            }
        };
        self.send(&answer::response(asked, &opened))?;
        let end = self.meet(asked, &waiting).and_then(|link| {
            let Some(link) = link else { return Ok(None) };
            let data = link.receive.clone();
            self.drained = asked.spec.transport.is_datagram().then(|| data.clone());
            let end = End::over(&asked.spec, Side::Far, vec![link]);
            end.map(|end| Some((end, data))).map_err(|error| Over::Refused(error.to_string()))
        });
        drop(waiting);
        let (end, data) = match end {
            Ok(Some(end)) => end,
            Ok(None) => {
                let report = SideReport::empty(Side::Far, Ending::Complete);
                host.ran(&asked.spec, &report);
                return self.send(&answer::results(asked, &opened, &report));
            }
            Err(over) => {
                host.failed(&asked.spec, &over.to_string());
                return Err(over);
            }
        };
        let mut watched = match Watched::start(end, asked, data) {
            Ok(watched) => watched,
            Err(error) => {
                host.failed(&asked.spec, &error.to_string());
                return self.refuse(message, refused(&error));
            }
        };
        let ended = watched.watch(&self.control, host.stop())?;
        let report = watched.finish(ended);
        host.ran(&asked.spec, &report);
        match ended {
            Ended::Whole => self.send(&answer::results(asked, &opened, &report)),
            Ended::Gone => Err(Over::Gone),
            Ended::Unexpected => Err(Over::Unexpected),
            Ended::Stopping => Err(Over::Stopping),
        }
    }

    /// Waits for the data connection. `None`: none of a test's datagrams came in its time.
    fn meet(&self, asked: &Asked, waiting: &Waiting) -> Result<Option<Link>, Over> {
        let datagrams = asked.spec.transport.is_datagram();
        let load = asked.spec.phases.length_ns().map(Duration::from_nanos);
        let deadline = Instant::now() + load.filter(|_| datagrams).unwrap_or(CONNECT);
        loop {
            match waiting.try_meet(&asked.spec) {
                Ok(Some(link)) => return Ok(Some(link)),
                Ok(None) => {}
                Err(error) => return Err(Over::Refused(error.to_string())),
            }
            // Looked at after each turn: strangers who never pause must not keep the session here.
            let over = Instant::now() >= deadline;
            let stop = self.host.stop().beyond(Urgency::Orderly);
            let ready = wait([Some(waiting.as_fd()), Some(self.control.as_fd()), stop], Some(deadline))?;
            match ready {
                [_, _, true] => return Err(Over::Stopping),
                // A client says nothing before the results: it has left.
                [false, true, _] => return Err(Over::Gone),
                _ if over && datagrams => return Ok(None),
                _ if over => return Err(Over::Refused("no data connection came".to_owned())),
                _ => {}
            }
        }
    }
}

/// Whether these bytes begin a request that an old netperf may send.
fn is_known(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|word| (1..1000).contains(&u32::from_be_bytes(*word)))
}

fn of_reply(error: &ReplyError) -> Refused {
    let errno = match error.code {
        ErrorCode::Busy | ErrorCode::Stopping => libc::EBUSY,
        ErrorCode::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EPERM,
    };
    Refused { errno: errno.unsigned_abs(), reason: error.to_string() }
}
