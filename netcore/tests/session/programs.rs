//! Programs that a daemon runs for its client.

use std::{path::Path, time::Duration};

use netcore::{
    client::{ClientError, Session, Target},
    control::{
        frame::REQUEST_BOUND,
        key::Key,
        message::{ErrorCode, Execute, Executed, Request},
        stop::Urgency,
    },
    daemon::{Config, Limits, Timeouts},
};

use crate::common::{Raw, Served, eventually, never_stopped, soon};

fn serving() -> (Served, Target) {
    let key = Some(Key::generate().unwrap());
    let limits = Limits { sessions: 1, ..Limits::default() };
    // A debug build on a busy machine takes a while to encrypt what a program may print.
    let timeouts = Timeouts { message: Duration::from_mins(5), ..Timeouts::default() };
    let served = Served::new(Config { key: key.clone(), allow_hooks: true, limits, timeouts, ..Config::default() });
    let target = Target { key, ..served.target() };
    (served, target)
}

fn shell(script: &str) -> Execute {
    let argv = ["sh", "-c", script].map(str::to_owned).into();
    let environment = [("PLUMB_CASE".to_owned(), "a b".to_owned())].into();
    Execute { argv, environment, limit_ns: 600_000_000_000 }
}

/// Writes its process number to a file, and hangs.
fn hanging(file: &Path) -> Execute {
    let file = file.display();
    shell(&format!(
        "trap 'echo polite; exit 0' INT; echo $$ > {file}.new; mv {file}.new {file}; while :; do sleep 0.01; done"
    ))
}

fn number(file: &Path) -> String {
    eventually("the program has begun", || file.exists());
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Whether this process began with SIGINT ignored: shells then set no trap for it.
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 << 1 != 0
}

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("cmdline").exists()
}

#[test]
fn what_it_prints_comes_back_and_no_more_than_is_kept() {
    let (_served, target) = serving();
    let mut session = Session::connect(&target).unwrap();
    let mut execute = |script: &str| session.execute(shell(script), &never_stopped(), Urgency::None).unwrap();
    let Executed::Done { stdout, stderr, elapsed_ns } = execute("echo $PLUMB_CASE; echo so >&2") else { panic!() };
    assert_eq!((stdout.as_str(), stderr.as_str()), ("a b\n", "so\n"));
    assert!(elapsed_ns > 0);
    let failed = execute("echo no >&2; exit 3");
    assert!(
        matches!(&failed, Executed::Failed { timed_out: false, message } if message.ends_with("exited with 3: no")),
        "{failed:?}"
    );
    // Each of these bytes takes six on the wire; only those beyond the bound are cut off.
    let Executed::Done { stdout, stderr, .. } = execute("head -c 1500000 /dev/zero; head -c 1500000 /dev/zero >&2")
    else {
        panic!()
    };
    assert_eq!((stdout.len(), stderr.len()), (Execute::OUTPUT_BOUND, Execute::OUTPUT_BOUND));
}

#[test]
fn a_client_ends_it_and_goes_on() {
    let (_served, target) = serving();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut session = Session::connect(&target).unwrap();
    if ignores_interrupts() {
        return crate::needs::skip("SIGINT is ignored here, as in the background of a script; programs end by force");
    }
    let stop = never_stopped();
    let executed = std::thread::scope(|scope| {
        let asked = hanging(&file);
        let running = scope.spawn(|| session.execute(asked, &stop, Urgency::None).unwrap());
        number(&file);
        stop.request();
        running.join().unwrap()
    });
    assert!(matches!(&executed, Executed::Done { stdout, .. } if stdout == "polite\n"), "{executed:?}");
    assert!(!is_alive(&number(&file)));
    let next = session.execute(shell("echo next"), &never_stopped(), Urgency::None).unwrap();
    assert!(matches!(&next, Executed::Done { stdout, .. } if stdout == "next\n"), "{next:?}");
}

#[test]
fn a_daemon_that_is_stopped_at_once_ends_it() {
    let (mut served, target) = serving();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut session = Session::connect(&target).unwrap();
    let error = std::thread::scope(|scope| {
        let asked = hanging(&file);
        let running = scope.spawn(|| session.execute(asked, &never_stopped(), Urgency::None).unwrap_err());
        number(&file);
        served.stop.request();
        std::thread::sleep(Duration::from_millis(50));
        assert!(is_alive(&number(&file)), "an orderly end lets it finish");
        served.stop.request();
        running.join().unwrap()
    });
    assert!(matches!(&error, ClientError::Daemon { error, .. } if error.code == ErrorCode::Stopping), "{error}");
    served.join();
    assert!(!is_alive(&number(&file)));
}

/// Messages that may cross a report are read beside a program, too, and a client that never pauses must not outlast it.
#[test]
fn a_client_that_floods_does_not_keep_a_daemon_from_ending_its_program() {
    let (mut served, target) = serving();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut raw = Raw::with_key(served.address, target.key.as_ref());
    raw.0.send(&Request::Execute(Box::new(hanging(&file))), REQUEST_BOUND, soon()).unwrap();
    number(&file);
    std::thread::scope(|scope| {
        scope.spawn(|| while raw.0.send(&Request::Stop { at_ns: 0 }, REQUEST_BOUND, soon()).is_ok() {});
        served.stop.request();
        served.stop.request();
        served.join();
    });
    assert!(!is_alive(&number(&file)));
}
