//! A random daemon for the real client.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use netcore::{
    client::{DataAddresses, Session, Target, Timeouts},
    control::{
        channel::Channel,
        frame::{GREETING_BOUND, REPLY_BOUND},
        message::{ErrorCode, Greeting, Hello, Part, Reply, ReplyError, Request},
    },
    end::{End, Endpoints},
    measure::{
        clock::{monotonic_ns, reading, wall_ns},
        host::HostFacts,
    },
    report::{ClockReading, Ending, Report, SideReport},
    spec::{Pattern, Side, Stop, TestSpec, Transport},
};
use proptest::prelude::*;

use crate::{
    ALONE, runner,
    served::{never_stopped, soon},
};

/// Far longer than the client's timeouts: a client that takes longer hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// Its behaviour at a request.
#[derive(Clone, Copy, Debug)]
enum Whim {
    /// Answers as it should.
    Honest,
    /// The same after some milliseconds.
    Late(u8),
    /// Answers something.
    Says(u8),
    /// The same some times, and then as it should.
    Repeats(u8, u8),
    /// Sends a frame with invalid content.
    Nonsense,
    /// Sends the beginning of a frame, and leaves.
    Cut(u8),
    Leaves,
    /// Says nothing more and stays.
    Hangs,
    /// Says the same without end.
    Floods(u8),
}

fn whim() -> impl Strategy<Value = Whim> {
    prop_oneof![
        40 => Just(Whim::Honest),
        6 => (0u8..20).prop_map(Whim::Late),
        3 => any::<u8>().prop_map(Whim::Says),
        2 => (any::<u8>(), 0u8..100).prop_map(|(what, often)| Whim::Repeats(what, often)),
        1 => Just(Whim::Nonsense),
        1 => any::<u8>().prop_map(Whim::Cut),
        1 => Just(Whim::Leaves),
        1 => Just(Whim::Hangs),
        1 => any::<u8>().prop_map(Whim::Floods),
    ]
}

/// Any answer, also one that is a lie.
fn saying(which: u8) -> Reply {
    let report = |ending| serde_json::to_string(&SideReport::empty(Side::Far, ending)).unwrap();
    let probed = |arrived_ns, monotonic_ns, wall_ns| {
        let answered = ClockReading {
            monotonic_ns,
            wall_ns,
            raw_ns: u64::MAX,
            boot_ns: 0,
            within_ns: u64::MAX,
            wall_error_ns: None,
        };
        Reply::Probed { arrived_ns, answered }
    };
    let prepared = |address: [u8; 4], ports: &[u16]| {
        Reply::Prepared(Endpoints { address: Some(address.into()), ports: ports.to_vec(), ..Endpoints::default() })
    };
    match which % 16 {
        0 => probed(0, u64::MAX, i64::MIN),
        1 => probed(u64::MAX, u64::MAX, i64::MAX),
        2 => probed(monotonic_ns(), monotonic_ns(), wall_ns()),
        3 => Reply::Seen(Box::default()),
        4 => prepared([192, 0, 2, 1], &[80]),
        5 => prepared([127, 0, 0, 1], &[1]),
        6 => prepared([127, 0, 0, 1], &[]),
        7 => Reply::Ready,
        8 => Reply::Sent,
        9 => Reply::Idle,
        10 => Reply::Report { text: report(Ending::Complete), last: true },
        11 => Reply::Report { text: report(Ending::Failed("\u{1b}[2J".into())), last: true },
        12 => Reply::Report { text: "{".into(), last: true },
        13 => Reply::Report { text: " ".repeat(10_000), last: false },
        14 => Reply::Error(ReplyError::new(ErrorCode::Failed, "")),
        _ => Reply::Error(ReplyError::new(ErrorCode::Stopping, "x".repeat(10_000))),
    }
}

/// Serves one client by the list of whims, one per request; then honestly.
fn serve(stream: TcpStream, whims: &[Whim]) -> Option<()> {
    let mut raw = stream.try_clone().unwrap();
    let mut whims = whims.iter().copied();
    let mut channel = Channel::accept(stream, None, soon()).ok()?;
    let _: Hello = channel.recv(soon()).ok()?;
    let hello = Hello { tool_version: "0".into(), process: 0, limits: None, host: HostFacts::default(), mpi: None };
    channel.send(&Greeting::Hello(Box::new(hello)), GREETING_BOUND, soon()).ok()?;
    channel.set_bound(REPLY_BOUND);
    let mut end: Option<End> = None;
    loop {
        let request = channel.recv::<Request>(soon()).ok()?;
        let mut say = |reply: &Reply| channel.send(reply, REPLY_BOUND, soon()).ok();
        match whims.next().unwrap_or(Whim::Honest) {
            Whim::Honest => {}
            Whim::Late(ms) => thread::sleep(Duration::from_millis(ms.into())),
            Whim::Says(which) => {
                say(&saying(which))?;
                continue;
            }
            Whim::Repeats(which, often) => (0..often).try_for_each(|_| say(&saying(which)))?,
            Whim::Nonsense => raw.write_all(b"\0\0\0\x02{]").ok()?,
            Whim::Cut(at) => {
                let frame = b"\0\0\0\x08\"ready\"";
                return raw.write_all(&frame[..usize::from(at) % frame.len()]).ok();
            }
            Whim::Leaves => return None,
            Whim::Floods(which) => loop {
                say(&saying(which))?;
            },
            Whim::Hangs => {
                // Until the client gives up.
                while channel.recv::<Request>(soon()).is_ok() {}
                return None;
            }
        }
        let reply = match request {
            Request::Probe => Reply::Probed { arrived_ns: monotonic_ns(), answered: reading() },
            Request::Look(_) => Reply::Seen(Box::default()),
            Request::Prepare(prepare) => {
                // This client has no test of several ranks.
                let Part::End { spec, .. } = prepare.part else { return None };
                let far = End::prepare(&spec, Side::Far, Some([127, 0, 0, 1].into()), prepare.token).ok()?;
                let endpoints = far.endpoints();
                end = Some(far);
                Reply::Prepared(endpoints)
            }
            Request::Connect(_) => match end.as_mut().map(|end| end.connect(None, Duration::from_secs(2))) {
                Some(Ok(())) => Reply::Ready,
                _ => Reply::Error(ReplyError::new(ErrorCode::Failed, "it did not connect")),
            },
            Request::Start { .. } => {
                end = None;
                let report = Report::End(Box::new(SideReport::empty(Side::Far, Ending::Complete)));
                Reply::Report { text: serde_json::to_string(&report).ok()?, last: true }
            }
            Request::Abort => Reply::Idle,
            Request::Stop { .. } | Request::Measure { .. } | Request::Execute(_) | Request::Turn => continue,
        };
        say(&reply)?;
    }
}

/// Two tests on one session, as a plan's iterations are.
fn client(address: SocketAddr, transport: Transport) -> Result<(), String> {
    // Short for a test that waits for it, and long enough for a busy machine to answer.
    let brief = Duration::from_secs(1);
    let timeouts = Timeouts { connect: brief, reply: brief, ready: brief, grace: brief, counted: brief, turn: brief };
    let target = Target { timeouts, ..Target::new("server", address.to_string()) };
    let mut spec = TestSpec::new(Pattern::Stream, transport);
    spec.phases.stop = Stop::AfterNs(5_000_000);
    let mut session = Session::connect(&target).map_err(|error| error.to_string())?;
    let run = |session: &mut Session| {
        session.run(&spec, &DataAddresses::default(), &mut (), &never_stopped()).map_err(|error| error.to_string())
    };
    let first = run(&mut session);
    run(&mut session).and(first).map(drop)
}

fn play(whims: &[Whim], transport: Transport) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let whims = whims.to_vec();
    let daemon = thread::spawn(move || drop(listener.accept().map(|(stream, _)| serve(stream, &whims))));
    let (sender, ended) = mpsc::channel();
    let client = thread::spawn(move || sender.send(client(address, transport)));
    let result = ended.recv_timeout(PATIENCE).expect("the client hangs, or panicked");
    client.join().unwrap().unwrap();
    daemon.join().unwrap();
    if let Err(sentence) = result {
        assert!(sentence.len() > 10, "{sentence:?}");
    }
}

#[test]
fn the_client_ends_with_a_sentence_whatever_the_daemon_does() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let transport = prop_oneof![Just(Transport::Tcp), Just(Transport::Udp), Just(Transport::UnixStream)];
    // The clock takes sixteen requests, and a test three or four.
    let played = runner(12).run(&(prop::collection::vec(whim(), 0..28), transport), |(whims, transport)| {
        play(&whims, transport);
        Ok(())
    });
    played.unwrap();
}

/// Each kind of whim at each request of a session with a test.
#[test]
fn chosen_daemons_do_not_hang_the_client() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let whims = [Whim::Hangs, Whim::Says(8), Whim::Says(10), Whim::Repeats(8, 200), Whim::Cut(5)];
    // The first probe; the last one; prepare, connect, start.
    let conversations = [0, 15, 16, 17, 18].into_iter().flat_map(|at| whims.map(|whim| (at, vec![whim])));
    // Without end, to the request to give up the first test.
    let floods = [8, 9, 13].map(|which| (18, vec![Whim::Says(3), Whim::Floods(which)]));
    thread::scope(|scope| {
        for (at, whims) in conversations.chain(floods) {
            scope.spawn(move || play(&[vec![Whim::Honest; at], whims].concat(), Transport::Tcp));
        }
    });
}
