//! A random client of a real daemon.

use std::{
    collections::VecDeque,
    fs,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::Duration,
};

use netcore::{
    client::{ClientError, DataAddresses, Session},
    control::{
        channel::PROTOCOLS,
        frame::{Decoder, GREETING_BOUND, REPLY_BOUND, encode},
        message::{Connect, ErrorCode, Execute, Greeting, Hello, Limits, Look, Part, Peer, Prepare, Reply, Request},
    },
    daemon::Config,
    end::{End, Endpoints},
    measure::{clock::monotonic_ns, host::HostFacts},
    spec::{
        Pattern, Side, Stop, TestSpec, Transport,
        ranks::{Operation, RanksSpec, Work},
    },
};
use proptest::prelude::*;

use crate::{
    ALONE, runner,
    served::{Served, eventually, never_stopped, stream},
};

/// A token that no other process has: it names folders.
fn token() -> [u8; 16] {
    let mut token = [6; 16];
    token[..4].copy_from_slice(&std::process::id().to_be_bytes());
    token
}

/// Far longer than a daemon takes on a busy machine; a read that takes longer is a daemon that hangs.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
enum Step {
    Probe,
    Look,
    /// Asks for a turn, which only an exclusive daemon gives.
    Turn,
    /// A hook, which this daemon does not run.
    Execute,
    /// One of the tests of [`spec`], at a side.
    Prepare(u8, Side),
    /// One of two ranks, of a test of [`ranks`].
    PrepareRank(u8),
    ConnectFar,
    /// A rank with the other one, at a port of this host that is closed, or at another host.
    ConnectRank {
        elsewhere: bool,
    },
    /// To a port of this host that is closed, or to another host.
    ConnectNear {
        elsewhere: bool,
    },
    /// Connects the data of the test that was prepared last, as a near end does.
    Join,
    /// Closes these connections.
    HangUp,
    /// At a time from now, milliseconds.
    Start(i16),
    Measure(i16),
    Stop(i16),
    Abort,
    /// A frame with invalid content.
    Nonsense,
    /// A frame in two pieces, with a pause in between.
    InPieces(u8),
    /// Milliseconds.
    Pause(u8),
    /// The beginning of a frame, and then nothing.
    Cut(u8),
}

/// A request for a turn ends the session where there are none.
fn step(exclusive: bool) -> impl Strategy<Value = Step> {
    let turns = if exclusive { 8 } else { 1 };
    let side = prop_oneof![4 => Just(Side::Far), 1 => Just(Side::Near)];
    prop_oneof![
        3 => Just(Step::Probe),
        1 => Just(Step::Look),
        turns => Just(Step::Turn),
        1 => Just(Step::Execute),
        8 => (any::<u8>(), side).prop_map(|(which, side)| Step::Prepare(which, side)),
        3 => any::<u8>().prop_map(Step::PrepareRank),
        6 => Just(Step::ConnectFar),
        3 => any::<bool>().prop_map(|elsewhere| Step::ConnectRank { elsewhere }),
        1 => any::<bool>().prop_map(|elsewhere| Step::ConnectNear { elsewhere }),
        6 => Just(Step::Join),
        2 => Just(Step::HangUp),
        5 => (-50i16..50).prop_map(Step::Start),
        2 => (-50i16..50).prop_map(Step::Measure),
        2 => (-50i16..50).prop_map(Step::Stop),
        4 => Just(Step::Abort),
        1 => Just(Step::Nonsense),
        2 => any::<u8>().prop_map(Step::InPieces),
        4 => (0u8..8).prop_map(Step::Pause),
        1 => any::<u8>().prop_map(Step::Cut),
    ]
}

fn spec(which: u8) -> TestSpec {
    let of = |pattern, transport| {
        let mut spec = TestSpec::new(pattern, transport);
        spec.phases.stop = Stop::AfterNs(10_000_000);
        spec
    };
    match which % 8 {
        0 | 1 => of(Pattern::Stream, Transport::Tcp),
        2 => of(Pattern::RequestResponse, Transport::Tcp),
        3 => of(Pattern::Stream, Transport::Udp),
        4 => of(Pattern::Stream, Transport::Pipe),
        5 => TestSpec { streams: 3, interim: true, ..of(Pattern::Stream, Transport::UnixStream) },
        // More than is granted, and more than can be.
        6 => TestSpec { streams: 1000, ..of(Pattern::Stream, Transport::Tcp) },
        _ => {
            let mut spec = of(Pattern::Stream, Transport::Tcp);
            spec.sizes.message_bytes = 1 << 40;
            spec
        }
    }
}

/// A part of a test of two ranks.
fn rank(which: u8) -> Part {
    let of = |operation, message_bytes| {
        let work = Work::Operation { operation, message_bytes, compute_ns: 0 };
        let stop = Stop::AfterNs(10_000_000);
        Box::new(RanksSpec { stop, ..RanksSpec::new(Transport::Tcp, work) })
    };
    match which % 6 {
        // The lower rank accepts, the higher one connects.
        0 | 1 => Part::Rank { spec: of(Operation::Barrier, 0), rank: 0, ranks: 2 },
        2 => Part::Rank { spec: of(Operation::Allreduce, 64), rank: 1, ranks: 2 },
        // Numbers that cannot be, and more than is granted.
        3 => Part::Rank { spec: of(Operation::Barrier, 0), rank: 7, ranks: 2 },
        4 => Part::Rank { spec: of(Operation::Barrier, 0), rank: 0, ranks: u32::MAX },
        _ => Part::Rank { spec: of(Operation::Alltoall, 1 << 40), rank: 0, ranks: 2 },
    }
}

/// A frame as the daemon should read it.
#[derive(Debug)]
enum Sent {
    Request(Request),
    Nonsense,
}

struct Client {
    stream: TcpStream,
    decoder: Decoder,
    sent: Vec<Sent>,
    replies: VecDeque<Reply>,
    /// The daemon has closed the connection.
    closed: bool,
    near: Option<End>,
}

impl Client {
    /// `None`: sessions that are about to end still have all places.
    fn greet(served: &Served) -> Option<Self> {
        let mut stream = TcpStream::connect(served.address).unwrap();
        let greeting = [b"plumb\0".as_slice(), &[*PROTOCOLS.end(), 0]].concat();
        stream.write_all(&greeting).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        let (decoder, replies) = (Decoder::new(GREETING_BOUND), VecDeque::new());
        let mut client = Self { stream, decoder, sent: Vec::new(), replies, closed: false, near: None };
        let hello =
            Hello { tool_version: "random".into(), process: 0, limits: None, host: HostFacts::default(), mpi: None };
        client.write(&encode(&serde_json::to_vec(&hello).unwrap(), GREETING_BOUND).unwrap());
        client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let greeting = client.frame().expect("a greeting");
        client.decoder.set_bound(REPLY_BOUND);
        match serde_json::from_slice(&greeting).unwrap() {
            Greeting::Hello(_) => Some(client),
            Greeting::Error(error) => {
                assert_eq!(error.code, ErrorCode::Busy, "{error}");
                None
            }
        }
    }

    /// Fails where the daemon has ended the session.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    fn send(&mut self, request: Request) {
        let body = serde_json::to_vec(&request).unwrap();
        self.write(&encode(&body, usize::MAX).unwrap());
        self.sent.push(Sent::Request(request));
    }

    /// The next frame; `None`: the daemon has closed the connection.
    fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(body) = self.decoder.take().expect("frames within the bound") {
                return Some(body);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Requests that the daemon did not read reset the connection.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the daemon hangs: {error}"),
            }
        }
    }

    /// Reads replies until one satisfies the condition, or the session has ended.
    fn read_until(&mut self, wanted: impl Fn(&Reply) -> bool) {
        while !self.closed && !self.replies.iter().any(&wanted) {
            match self.frame() {
                Some(body) => self.replies.push_back(serde_json::from_slice(&body).expect("a reply")),
                None => self.closed = true,
            }
        }
    }

    /// Connects as the near end of the test that was prepared last, if the daemon has prepared it.
    fn join(&mut self) {
        let prepares = self.sent.iter().rev().filter_map(|sent| match sent {
            Sent::Request(Request::Prepare(prepare)) => Some(prepare),
            _ => None,
        });
        // The answer to the only one: of several it would have to be found out which was granted.
        let prepares: Vec<_> = prepares.collect();
        let [prepare] = prepares[..] else { return };
        let part = prepare.part.clone();
        self.read_until(|reply| matches!(reply, Reply::Prepared(_) | Reply::Error(_)));
        let endpoints = self.replies.iter().find_map(|reply| match reply {
            Reply::Prepared(endpoints) => Some(endpoints.clone()),
            _ => None,
        });
        let (Some(endpoints), Part::End { spec, side: Side::Far }) = (endpoints, part) else { return };
        let Ok(mut near) = End::prepare(&spec, Side::Near, None, token()) else { return };
        // Datagrams are answered only after a `connect`, which may never come.
        let within = Duration::from_millis(if spec.transport.is_datagram() { 50 } else { 2000 });
        if near.connect(Some(([127, 0, 0, 1].into(), &endpoints)), within).is_ok() {
            self.near = Some(near);
        }
    }

    fn prepare(&mut self, part: Part) {
        self.send(Request::Prepare(Box::new(Prepare { part, token: token(), data_address: None })));
    }

    /// `false`: the client sends nothing more.
    fn take(&mut self, step: Step) -> bool {
        let at = |ms: i16| monotonic_ns().saturating_add_signed(i64::from(ms) * 1_000_000);
        let probe = || encode(&serde_json::to_vec(&Request::Probe).unwrap(), usize::MAX).unwrap();
        match step {
            Step::Probe => self.send(Request::Probe),
            Step::Turn => self.send(Request::Turn),
            Step::Look => self.send(Request::Look(Look::default())),
            Step::Execute => {
                let asked = Execute { argv: vec!["true".into()], environment: [].into(), limit_ns: 1 };
                self.send(Request::Execute(Box::new(asked)));
            }
            Step::Prepare(which, side) => {
                self.prepare(Part::End { spec: Box::new(spec(which)), side });
            }
            Step::PrepareRank(which) => self.prepare(rank(which)),
            Step::ConnectFar => self.send(Request::Connect(Connect { peers: Vec::new(), within_ns: 30_000_000 })),
            Step::ConnectRank { elsewhere } => {
                let peer = |address: [u8; 4]| {
                    let endpoints = Endpoints { ports: vec![1], ..Endpoints::default() };
                    Peer { address: address.into(), endpoints }
                };
                let other = if elsewhere { [192, 0, 2, 1] } else { [127, 0, 0, 1] };
                let peers = vec![peer(other), peer(other)];
                self.send(Request::Connect(Connect { peers, within_ns: 30_000_000 }));
            }
            Step::ConnectNear { elsewhere } => {
                let address = if elsewhere { [192, 0, 2, 1] } else { [127, 0, 0, 1] };
                let endpoints = Endpoints { ports: vec![1, 1, 1], ..Endpoints::default() };
                let peers = vec![Peer { address: address.into(), endpoints }];
                self.send(Request::Connect(Connect { peers, within_ns: 30_000_000 }));
            }
            Step::Join => self.join(),
            Step::HangUp => self.near = None,
            Step::Start(ms) => self.send(Request::Start { t0_ns: at(ms) }),
            Step::Measure(ms) => self.send(Request::Measure { at_ns: at(ms) }),
            Step::Stop(ms) => self.send(Request::Stop { at_ns: at(ms) }),
            Step::Abort => self.send(Request::Abort),
            Step::Nonsense => {
                self.write(&encode(b"{\"prepare\":7}", usize::MAX).unwrap());
                self.sent.push(Sent::Nonsense);
            }
            Step::InPieces(at) => {
                let frame = probe();
                let (one, other) = frame.split_at(usize::from(at) % frame.len());
                self.write(one);
                thread::sleep(Duration::from_millis(2));
                self.write(other);
                self.sent.push(Sent::Request(Request::Probe));
            }
            Step::Pause(ms) => thread::sleep(Duration::from_millis(ms.into())),
            Step::Cut(at) => {
                let frame = probe();
                self.write(&frame[..usize::from(at) % frame.len()]);
                return false;
            }
        }
        true
    }
}

/// Plays a client and checks what the daemon said.
fn play(served: &Served, steps: &[Step], exclusive: bool) {
    let mut greeted = None;
    eventually("a session is free", || {
        greeted = Client::greet(served);
        greeted.is_some()
    });
    let Some(mut client) = greeted else { return };
    let _ = steps.iter().all(|step| client.take(*step));
    // The daemon answers what it has, and then sees the end.
    let _ = client.stream.shutdown(Shutdown::Write);
    client.read_until(|_| false);
    check(&client.sent, client.replies, exclusive);
}

/// The state of a session, as docs/reference/protocol.md has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// For a turn.
    Waiting,
    Granted,
    Prepared,
    Connected,
    Running,
}

/// Follows the conversation: each reply must be one to the request whose turn it is.
fn check(sent: &[Sent], mut replies: VecDeque<Reply>, exclusive: bool) {
    let mut state = State::Idle;
    for sent in sent {
        if state == State::Running {
            // The test may have ended before the daemon read this.
            state = report(&mut replies);
        }
        if state == State::Waiting {
            state = turn(&mut replies);
        }
        // A reset may have lost the last words, and a client that has left gets no report.
        let Some(reply) = replies.front() else { return };
        let expected = match (sent, state) {
            (Sent::Request(Request::Stop { .. } | Request::Measure { .. }), state) if state != State::Waiting => {
                continue;
            }
            (Sent::Request(Request::Turn), State::Idle) if exclusive => {
                state = State::Waiting;
                continue;
            }
            (Sent::Request(Request::Probe), State::Idle | State::Granted | State::Prepared | State::Connected) => {
                matches!(reply, Reply::Probed { .. }).then_some(state)
            }
            (Sent::Request(Request::Abort), _) => matches!(reply, Reply::Idle).then_some(State::Idle),
            (Sent::Request(Request::Look(_)), State::Idle) => matches!(reply, Reply::Seen(_)).then_some(state),
            (Sent::Request(Request::Execute(_)), State::Idle) => is_refusal(reply).then_some(state),
            (Sent::Request(Request::Prepare(_)), State::Idle | State::Granted) => match reply {
                Reply::Prepared(_) if exclusive && state == State::Idle => None,
                Reply::Prepared(_) => Some(State::Prepared),
                reply => is_refusal(reply).then_some(State::Idle),
            },
            (Sent::Request(Request::Connect(_)), State::Prepared) => match reply {
                Reply::Ready => Some(State::Connected),
                reply => is_refusal(reply).then_some(State::Idle),
            },
            (Sent::Request(Request::Start { .. }), State::Connected) => {
                state = State::Running;
                continue;
            }
            _ => None,
        };
        let Some(next) = expected else {
            assert!(is_last_word(reply), "{reply:?} to {sent:?} in {state:?}");
            assert_eq!(replies.len(), 1, "after its last word: {replies:?}");
            return;
        };
        state = next;
        replies.pop_front();
    }
    match state {
        State::Running => drop(report(&mut replies)),
        State::Waiting => drop(turn(&mut replies)),
        _ => {}
    }
    assert!(replies.is_empty() || replies.len() == 1 && is_last_word(&replies[0]), "unasked: {replies:?}");
}

/// Takes all that belongs to the wait for a turn. Returns the state after it.
fn turn(replies: &mut VecDeque<Reply>) -> State {
    while let Some(Reply::Waiting { .. }) = replies.front() {
        replies.pop_front();
    }
    let state = match replies.front() {
        Some(Reply::Granted) => State::Granted,
        Some(reply) if is_refusal(reply) => State::Idle,
        _ => return State::Waiting,
    };
    replies.pop_front();
    state
}

/// Takes all that belongs to a running test. Returns the state after it.
fn report(replies: &mut VecDeque<Reply>) -> State {
    loop {
        match replies.front() {
            Some(Reply::Interim(_) | Reply::Sent | Reply::Report { last: false, .. }) => drop(replies.pop_front()),
            Some(Reply::Report { last: true, .. }) => {
                replies.pop_front();
                return State::Idle;
            }
            Some(reply) if is_refusal(reply) => {
                replies.pop_front();
                return State::Idle;
            }
            _ => return State::Running,
        }
    }
}

/// Whether an error leaves the session as it is.
fn is_refusal(reply: &Reply) -> bool {
    use ErrorCode::{Busy, Failed, Refused, Unsupported};
    matches!(reply, Reply::Error(error) if [Busy, Failed, Refused, Unsupported].contains(&error.code))
}

/// Whether an error ends the session.
fn is_last_word(reply: &Reply) -> bool {
    use ErrorCode::{Protocol, Stopping, TimedOut};
    matches!(reply, Reply::Error(error) if [Protocol, Stopping, TimedOut].contains(&error.code))
}

/// Open files of this process.
fn files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Open files after the last session had time to end. A slower end only weakens the test.
fn files_at_rest() -> usize {
    let counts = std::iter::repeat_with(|| {
        thread::sleep(Duration::from_millis(20));
        files()
    });
    counts.take(10).min().unwrap_or_default()
}

/// An ordinary client measures. A daemon that still holds the last client's test may be busy for a moment.
fn measures(served: &Served) {
    eventually("an ordinary client measures", || {
        let ran = Session::connect(&served.target())
            .and_then(|mut it| it.run(&stream(5), &DataAddresses::default(), &mut (), &never_stopped()));
        match ran {
            Ok(_) => return true,
            Err(ClientError::Daemon { error, .. }) if error.code == ErrorCode::Busy => {}
            Err(other) => panic!("{other}"),
        }
        false
    });
}

/// A daemon with room for an ordinary test and a random one. A leak of one session makes the next ones fail.
fn small(exclusive: bool) -> Served {
    let queue_ns = exclusive.then_some(60_000_000_000);
    let limits = Limits { sessions: 2, sessions_per_client: 2, memory_bytes: 1 << 20, queue_ns, ..Limits::default() };
    Served::new(Config { limits, ..Config::default() })
}

fn leaves_nothing(conversation: &[Step]) {
    let exclusive = conversation.iter().any(|step| matches!(step, Step::Turn));
    let served = small(exclusive);
    measures(&served);
    let before = files_at_rest();
    play(&served, conversation, exclusive);
    measures(&served);
    eventually("the files are closed", || files() <= before);
}

#[test]
fn any_client_is_answered_and_leaves_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for exclusive in [false, true] {
        let served = small(exclusive);
        measures(&served);
        let before = files_at_rest();
        let played = runner(32).run(&prop::collection::vec(step(exclusive), 0..14), |steps| {
            play(&served, &steps, exclusive);
            measures(&served);
            eventually("the files are closed", || files() <= before);
            Ok(())
        });
        played.unwrap();
    }
}

/// Conversations that are worth a place of their own: each reaches a state that random ones reach seldom.
#[test]
fn chosen_clients_leave_nothing_behind() {
    use Step::{
        Abort, ConnectFar, ConnectRank, Cut, HangUp, Join, Look, Measure, Nonsense, Pause, Prepare, PrepareRank, Probe,
        Start, Stop, Turn,
    };
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let conversations: [&[Step]; 12] = [
        // A test that runs until its near end hangs up, and another one after it.
        &[Prepare(0, Side::Far), Join, ConnectFar, Pause(7), Start(0), HangUp, Pause(7), Probe, Prepare(2, Side::Far)],
        // Cancelled under load.
        &[Prepare(5, Side::Far), Join, ConnectFar, Pause(7), Start(1), Measure(2), Stop(3), Abort, Probe],
        // A request that no test under load allows.
        &[Prepare(0, Side::Far), Join, ConnectFar, Pause(7), Start(40), Look],
        // Gone in the middle of a frame, under load.
        &[Prepare(4, Side::Far), Join, ConnectFar, Pause(7), Start(0), Cut(3)],
        // A near end that is not told its peer.
        &[Prepare(0, Side::Near), ConnectFar, Probe],
        // Ranks: one whose other never comes, one that is sent elsewhere, and one that is not told of the other.
        &[PrepareRank(0), ConnectRank { elsewhere: false }, Probe, Prepare(2, Side::Far)],
        &[PrepareRank(2), ConnectRank { elsewhere: true }, Probe],
        &[PrepareRank(0), ConnectFar, Probe, PrepareRank(3), PrepareRank(4), PrepareRank(5), Probe],
        &[PrepareRank(0), Start(1), Probe],
        &[Prepare(0, Side::Far), Nonsense, Probe],
        // One turn for one test: the second has none.
        &[Turn, Prepare(0, Side::Far), Join, ConnectFar, Pause(7), Start(0), Pause(7), Abort, Prepare(0, Side::Far)],
        // A turn that is not used, and one that is asked for twice.
        &[Turn, Probe, Abort, Turn, Turn],
    ];
    conversations.into_iter().for_each(leaves_nothing);
}
