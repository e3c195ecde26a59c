//! Runs a request: reaches the far end, measures until the result is confident, and prints.

use std::{io::Write, thread};

use netcore::{
    client::{self, ClientError, Outcome, Timeouts},
    control::stop::{StopFlag, Urgency},
    peers::{CpuClock, PeerError},
    report::{Ending, TcpInfo, TcpInfoHere},
    spec::{TestSpec, support},
};

use super::{
    banner, blocks,
    confidence::Iterations,
    ends::{Ends, Reached},
    facts::Facts,
    figures::Figures,
    interim::Interim,
    keyed,
    kind::Task,
    mapping::{option_of, test_spec},
    outcome::figures,
    request::Request,
    sizes::DefaultSizes,
    specifics::Form,
    table, usage,
};

/// Why a request has no result: what to print, and the exit code.
pub struct Failure {
    pub text: String,
    pub code: u8,
}

/// The exit code of a test that failed, and of wrong options of a test.
pub const FAILED: u8 = 1;

/// The exit code where the far end cannot be reached or refuses, and of values that cannot be used.
pub const REFUSED: u8 = 255;

impl Failure {
    fn refused(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: REFUSED }
    }
}

/// Output, which is flushed after each piece: scripts read interim results as they come.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure { text: format!("standard output: {error}"), code: FAILED })
}

/// Reaches the far end.
fn reach(ends: &Ends, request: &Request) -> Result<Reached, Failure> {
    ends.reach(request).map_err(|error| match &error {
        ClientError::Peer { source: PeerError::Unreached(_), .. } => {
            let (host, port) = (request.host(), request.globals.port);
            Failure::refused(format!(
                "establish control: are you sure there is a netserver listening on {host} at port {port}?\n{error}\n"
            ))
        }
        error => failure(error),
    })
}

fn ends(request: &Request) -> Result<Ends, Failure> {
    Ends::of(request).map_err(|why| Failure::refused(format!("{why}\n")))
}

/// Runs a request to its end, and prints its results.
pub fn run(request: &Request, stop: &StopFlag) -> Result<(), Failure> {
    for line in &request.globals.remarks {
        print(&format!("{line}\n"))?;
    }
    let defaults = DefaultSizes::of(request.shape.transport, request.specifics.local_buffers);
    let test = match request.task {
        Some(Task::Test(_)) => spec(request, defaults)?,
        Some(Task::Uuid) => return print(&uuid(request)),
        Some(Task::LocalCpu) => {
            return print(&cpu_clock(request, "local", CpuClock { rate: TICKS_PER_SECOND, cpus: cpus() }));
        }
        Some(Task::RemoteCpu) => {
            let mut far = reach(&ends(request)?, request)?;
            let nobody = || Failure::refused("-N: without a control connection there is nobody to ask\n");
            let clock = far.peer().ok_or_else(nobody)?.cpu_clock(Timeouts::default());
            return print(&cpu_clock(request, "remote", clock.map_err(|error| failure(&error))?));
        }
        None => {
            let text = usage::unknown_test(&request.globals.test);
            return Err(Failure { text, code: FAILED });
        }
    };
    let ends = ends(request)?;
    let mut far = reach(&ends, request)?;
    if request.globals.headers {
        print(&banner::render(request, far.address))?;
    }
    let mut iterations = Iterations::default();
    let mut last = None;
    while iterations.needs_more(request.globals.goal.as_ref()) && (last.is_none() || stop.urgency() == Urgency::None) {
        if last.is_some() {
            far = reach(&ends, request)?;
        }
        let outcome = measure(&mut far, request, &test, stop)?;
        let nothing = || Failure { text: "the test was stopped before it began to measure\n".to_owned(), code: FAILED };
        let figures = figures(&outcome, request, defaults).ok_or_else(nothing)?;
        iterations.push(&figures, request.shape, request.unit);
        last = Some(figures);
    }
    // The loop runs at least once.
    let Some(figures) = last else { return Ok(()) };
    print(&results(request, &test, &figures, &iterations, far.address.is_ipv6()))?;
    if let Some(tcp) = figures.tcp.filter(|_| std::env::var_os("DUMP_TCP_INFO").is_some()) {
        crate::style::tell(tcp_info(tcp));
    }
    Ok(())
}

/// The engine's test.
fn spec(request: &Request, defaults: DefaultSizes) -> Result<TestSpec, Failure> {
    let spec = test_spec(request, defaults).map_err(|why| Failure::refused(format!("{why}\n")))?;
    support::check(&spec).map_err(|refusal| Failure::refused(by_option(&refusal)))?;
    Ok(spec)
}

/// The engine's reason against a test, after the option that asks for it.
fn by_option(refusal: &support::Unsupported) -> String {
    match option_of(refusal.key) {
        Some(option) => format!("{option}: {}\n", refusal.reason),
        None => format!("{}\n", refusal.reason),
    }
}

/// One iteration.
fn measure(far: &mut Reached, request: &Request, spec: &TestSpec, stop: &StopFlag) -> Result<Outcome, Failure> {
    let outcome = outcome(far, request, spec, stop).map_err(|error| failure(&error))?;
    for report in [Some(&outcome.near), outcome.far.as_ref()].into_iter().flatten() {
        if let Ending::Failed(why) = &report.ending {
            return Err(Failure { text: format!("{why}\n"), code: FAILED });
        }
    }
    Ok(outcome)
}

fn outcome(far: &mut Reached, request: &Request, spec: &TestSpec, stop: &StopFlag) -> Result<Outcome, ClientError> {
    let data = far.data.clone();
    let prepared = client::prepare(None, far.far(), spec, &data, Timeouts::default())?;
    thread::sleep(request.globals.pause);
    let running = prepared.start(None)?;
    // A closed pipe ends the output, not the measurement: what follows fails to be printed, too.
    let mut show = |text: &str| drop(print(text));
    let form = request.output.as_ref().map_or(Form::Columns, |(form, _)| *form);
    running.wait(&mut Interim::new(request.shape, request.unit, form, &mut show), stop)
}

fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Peer { source: PeerError::Unsupported(refusal), .. } => Failure::refused(by_option(refusal)),
        ClientError::Peer { .. } => Failure::refused(format!("{error}\n")),
        other => Failure { text: format!("{other}\n"), code: FAILED },
    }
}

fn results(request: &Request, spec: &TestSpec, figures: &Figures, iterations: &Iterations, is_ipv6: bool) -> String {
    let goal = request.globals.goal;
    let widths = iterations.widths(goal.map_or(99, |goal| goal.level));
    let facts = Facts {
        request,
        spec,
        figures,
        means: iterations.means(),
        widths,
        iterations: iterations.count(),
        uuid: uuid(request),
        is_ipv6,
    };
    if let Some((form, selection)) = &request.output {
        return keyed::render(*form, selection, &facts, request.globals.headers);
    }
    let missed = goal.is_some_and(|goal| !iterations.reached(&goal));
    let warning = if missed { usage::unconfident(widths) } else { String::new() };
    warning + &table::render(&facts) + &blocks::render(&facts)
}

/// The identifier of `-u`, or a new one.
fn uuid(request: &Request) -> String {
    request.specifics.uuid.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string())
}

/// The three lines of `DUMP_TCP_INFO`. One of the names is misspelt in netperf.
fn tcp_info(tcp: TcpInfo) -> String {
    let TcpInfo { pmtu_bytes, rtt_us, rtt_var_us, cwnd_segments, retransmits, here, .. } = tcp;
    let TcpInfoHere { rto_us, ato_us, rcv_ssthresh_bytes, snd_ssthresh_segments, reordering_segments, .. } = here;
    format!(
        "tcpi_rto {rto_us} tcpi_ato {ato_us} tcpi_pmtu {pmtu_bytes} tcpi_rcv_ssthresh {rcv_ssthresh_bytes}\n\
         tcpi_rtt {rtt_us} tcpi_rttvar {rtt_var_us} tcpi_snd_ssthresh {snd_ssthresh_segments} tpci_snd_cwnd {cwnd_segments}\n\
         tcpi_reordering {reordering_segments} tcpi_total_retrans {retransmits}"
    )
}

fn cpus() -> u32 {
    thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX))
}

/// Rate of the clock of `/proc/stat`.
const TICKS_PER_SECOND: f32 = 100.0;

/// The rate of a CPU clock, and with `-v 2` the number of CPUs.
fn cpu_clock(request: &Request, end: &str, CpuClock { rate, cpus }: CpuClock) -> String {
    if request.globals.verbosity < 2 {
        return rate.to_string();
    }
    let (verb, plural) = if cpus == 1 { ("is", "") } else { ("are", "s") };
    format!("{rate}\nThere {verb} {cpus} {end} cpu{plural}\n")
}
