//! Runs a request: reaches the far end, measures until the result is confident, and prints, with `-D` also on the way.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    thread,
};

use netcore::{
    client::{self, ClientError, DataAddresses, Far, Observer, Outcome, Peer, Target, Timeouts},
    control::stop::{StopFlag, Urgency},
    peers::{CpuClock, PeerError, Program, netperf::answer::cpus},
    report::{Counts, Ending, Phase, TcpInfo, TcpInfoHere, Window},
    spec::{Family, Side, TestSpec, support},
};

use super::{
    facts::{Facts, Iterations, Widths},
    figures::{Figures, figures},
    kind::{Shape, Task, Unit},
    mapping::{DefaultSizes, option_of, test_spec},
    request::Request,
    selection::{self, CommandLine},
    specifics::Form,
    table,
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
pub fn run(line: &CommandLine, stop: &StopFlag) -> Result<(), Failure> {
    let request = &line.request;
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
            let text = unknown_test(&request.globals.test);
            return Err(Failure { text, code: FAILED });
        }
    };
    let ends = ends(request)?;
    let mut far = reach(&ends, request)?;
    if request.globals.headers {
        print(&table::banner(request, far.address))?;
    }
    let mut iterations = Iterations::default();
    let mut last = None;
    while iterations.needs_more(request.globals.goal.as_ref()) && (last.is_none() || stop.urgency() == Urgency::None) {
        if last.is_some() {
            far = reach(&ends, request)?;
        }
        let outcome = measure(&mut far, line, &test, stop)?;
        let nothing = || Failure { text: "the test was stopped before it began to measure\n".to_owned(), code: FAILED };
        let figures = figures(&outcome, request, defaults).ok_or_else(nothing)?;
        iterations.push(&figures, request.shape, request.unit);
        last = Some(figures);
    }
    // The loop runs at least once.
    let Some(figures) = last else { return Ok(()) };
    print(&results(line, &test, &figures, &iterations, far.address.is_ipv6()))?;
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
fn measure(far: &mut Reached, line: &CommandLine, spec: &TestSpec, stop: &StopFlag) -> Result<Outcome, Failure> {
    let outcome = outcome(far, line, spec, stop).map_err(|error| failure(&error))?;
    for report in outcome.ends() {
        if let Ending::Failed(why) = &report.ending {
            return Err(Failure { text: format!("{why}\n"), code: FAILED });
        }
    }
    Ok(outcome)
}

fn outcome(far: &mut Reached, line: &CommandLine, spec: &TestSpec, stop: &StopFlag) -> Result<Outcome, ClientError> {
    let request = &line.request;
    let data = far.data.clone();
    let prepared = client::prepare(None, far.far(), spec, &data, Timeouts::default())?;
    thread::sleep(request.globals.pause);
    let running = prepared.start(None)?;
    // A closed pipe ends the output, not the measurement: what follows fails to be printed, too.
    let mut show = |text: &str| drop(print(text));
    let form = line.output.as_ref().map_or(Form::Columns, |(form, _)| *form);
    running.wait(&mut Interim::new(request.shape, request.unit, form, &mut show), stop)
}

fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Peer { source: PeerError::Unsupported(refusal), .. } => Failure::refused(by_option(refusal)),
        ClientError::Peer { .. } => Failure::refused(format!("{error}\n")),
        other => Failure { text: format!("{other}\n"), code: FAILED },
    }
}

fn results(line: &CommandLine, spec: &TestSpec, figures: &Figures, iterations: &Iterations, is_ipv6: bool) -> String {
    let request = &line.request;
    let goal = request.globals.goal;
    let widths = iterations.widths(goal.map_or(99, |goal| goal.level));
    let facts = Facts { request, spec, figures, iterations, widths, uuid: uuid(request), is_ipv6 };
    if let Some((form, selection)) = &line.output {
        return selection::render(*form, selection, &facts, request.globals.headers);
    }
    let missed = goal.is_some_and(|goal| !iterations.reached(&goal));
    let warning = if missed { unconfident(widths) } else { String::new() };
    warning + &table::render(&facts) + &table::blocks(&facts)
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

/// For a name of `-t` that is no test.
fn unknown_test(name: &str) -> String {
    format!(
        "The test you requested ({name}) is unknown to this netperf.\n\
         It has TCP_STREAM, TCP_MAERTS, TCP_RR, TCP_CRR, TCP_CC, TCP_SENDFILE, UDP_STREAM,\n\
         UDP_RR, SCTP_STREAM, SCTP_RR, OMNI, LOC_CPU, REM_CPU and UUID.\n"
    )
}

/// For iterations that did not become confident, with the full widths that were reached.
fn unconfident(widths: Widths) -> String {
    let [throughput, local, remote] =
        [widths.throughput, widths.local_cpu, widths.remote_cpu].map(|width| 100.0 * width);
    format!(
        "!!! WARNING\n\
         !!! Desired confidence was not achieved within the specified iterations.\n\
         !!! The results of the iterations vary more than was asked for: look for\n\
         !!! the cause in the hosts and in the network before you use this result.\n\
         !!! Confidence intervals: Throughput      : {throughput:.3}%\n\
         !!!                       Local CPU util  : {local:.3}%\n\
         !!!                       Remote CPU util : {remote:.3}%\n\n"
    )
}

/// The addresses of a test, by the names that were given.
pub struct Ends {
    /// Of the control connection, in the order of trying; at least one.
    controls: Vec<IpAddr>,
    /// Local address of the control connection.
    bind: Option<IpAddr>,
    data: DataAddresses,
}

/// A far end that was reached.
pub struct Reached {
    /// `None`: a service without a control connection (`-N`).
    peer: Option<Peer>,
    /// Destination of the data.
    pub address: IpAddr,
    pub data: DataAddresses,
}

impl Reached {
    pub fn far(&mut self) -> Far<'_> {
        self.peer.as_mut().map_or(Far::Service(None), Far::Peer)
    }

    pub fn peer(&mut self) -> Option<&mut Peer> {
        self.peer.as_mut()
    }
}

impl Ends {
    /// Looks the names up. The error is a sentence.
    pub fn of(request: &Request) -> Result<Self, String> {
        let globals = &request.globals;
        let data_family = request.specifics.family.unwrap_or(Family::Any);
        let one =
            |name: Option<&String>, family| name.map(|name| resolve(name, family).map(|found| found[0])).transpose();
        let controls = resolve(request.host(), globals.family)?;
        let bind = one(globals.local.as_ref(), globals.family)?;
        let near = one(request.specifics.local.as_ref(), data_family)?.or(bind);
        let near = near.filter(|address| !address.is_unspecified());
        let far = one(request.specifics.host.as_ref(), data_family)?;
        Ok(Self { controls, bind, data: DataAddresses { near, far, near_netns: None } })
    }

    /// Reaches the far end, by its addresses in turn.
    pub fn reach(&self, request: &Request) -> Result<Reached, ClientError> {
        let (first, others) = self.controls.split_first().expect("a name has an address");
        if request.globals.no_control {
            let address = self.data.far.unwrap_or(*first);
            let data = DataAddresses { far: Some(address), ..self.data.clone() };
            return Ok(Reached { peer: None, address, data });
        }
        let mut control = *first;
        let mut peer = self.connect(request, control);
        for other in others {
            if peer.is_ok() {
                break;
            }
            control = *other;
            peer = self.connect(request, control);
        }
        let mut peer = peer?;
        if let Some(passphrase) = &request.globals.passphrase {
            peer.introduce(passphrase)?;
        }
        Ok(Reached { peer: Some(peer), address: self.data.far.unwrap_or(control), data: self.data.clone() })
    }

    fn connect(&self, request: &Request, control: IpAddr) -> Result<Peer, ClientError> {
        let control = SocketAddr::new(control, request.globals.port).to_string();
        Peer::connect(Program::Netperf, &Target { bind: self.bind, ..Target::new(request.host(), control) })
    }
}

/// The addresses of a host in a family: one at least. The error is a sentence.
fn resolve(host: &str, family: Family) -> Result<Vec<IpAddr>, String> {
    let unknown = |why: &str| format!("Could not resolve the host {host}: {why}");
    let name = host.trim_start_matches('[').trim_end_matches(']');
    // netperf's name of the wildcard.
    let name = if name == "::0" { "::" } else { name };
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(name, 0)).map_err(|error| unknown(&error.to_string()))?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).filter(|ip| family.fits(*ip)).collect();
    match (found.is_empty(), family) {
        (false, _) => Ok(found),
        (true, Family::V6) => Err(unknown("it has no IPv6 address")),
        (true, _) => Err(unknown("it has no IPv4 address")),
    }
}

/// Prints an interim result for each interval of this end that moved something. An interval without work lasts until the next
/// work, as in netperf, which looks at its clock after each operation: readers divide by these rates.
pub struct Interim<'a> {
    shape: Shape,
    unit: Unit,
    form: Form,
    /// Results so far, which `-k` numbers.
    count: usize,
    /// Time since the last result.
    since_ns: u64,
    print: &'a mut dyn FnMut(&str),
}

impl<'a> Interim<'a> {
    pub fn new(shape: Shape, unit: Unit, form: Form, print: &'a mut dyn FnMut(&str)) -> Self {
        Self { shape, unit, form, count: 0, since_ns: 0, print }
    }

    /// Bytes, and the transactions of tests that have them.
    fn work(&self, window: &Window) -> (f64, Option<f64>) {
        let counts: Counts = window.flows.iter().map(|flow| flow.counts).sum();
        let transactions = self.shape.has_transactions().then_some(counts.transactions as f64);
        (counts.bytes_sent.saturating_add(counts.bytes_received) as f64, transactions)
    }
}

impl Observer for Interim<'_> {
    fn interval(&mut self, side: Side, window: &Window) {
        if side != Side::Near || window.phase != Phase::Measure || window.elapsed_ns == 0 {
            return;
        }
        let (bytes, transactions) = self.work(window);
        self.since_ns += window.elapsed_ns;
        if transactions.unwrap_or(bytes) == 0.0 {
            return;
        }
        let seconds = std::mem::take(&mut self.since_ns) as f64 / 1e9;
        let rate = self.unit.rate(bytes, transactions, seconds);
        let text = render(self.form, self.count, self.unit, rate, (seconds, window.wall_end_ns));
        self.count += 1;
        (self.print)(&text);
    }
}

/// One result over some seconds until a wall-clock time, which is printed in Unix seconds.
fn render(form: Form, index: usize, unit: Unit, rate: f64, (seconds, wall_end_ns): (f64, i64)) -> String {
    let unit = unit.label();
    let ends_ms = wall_end_ns.div_euclid(1_000_000);
    let end = format!("{}.{:03}", ends_ms.div_euclid(1000), ends_ms.rem_euclid(1000));
    match form {
        Form::Columns => {
            format!("Interim result: {rate:>7.2} {unit}/s over {seconds:.3} seconds ending at {end}\n")
        }
        Form::Csv => format!("{rate:>7.2},{unit}/s,{seconds:.3},{end}\n"),
        Form::KeyValue => format!(
            "NETPERF_INTERIM_RESULT[{index}]={rate:.2}\nNETPERF_UNITS[{index}]={unit}/s\n\
             NETPERF_INTERVAL[{index}]={seconds:.3}\nNETPERF_ENDING[{index}]={end}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use netcore::{
        report::{Counts, FlowWindow},
        spec::{Role, Transport},
    };

    use super::{super::kind::Calls, *};

    #[test]
    fn names_resolve_in_their_family() {
        let first = |host, family| resolve(host, family).map(|found| found[0].to_string());
        assert_eq!(first("127.0.0.1", Family::Any).unwrap(), "127.0.0.1");
        assert_eq!(first("[::1]", Family::V6).unwrap(), "::1");
        assert_eq!(first("::0", Family::V6).unwrap(), "::");
        assert!(first("127.0.0.1", Family::V6).unwrap_err().contains("127.0.0.1: it has no IPv6 address"));
        assert!(
            first("no such host", Family::Any).unwrap_err().starts_with("Could not resolve the host no such host: ")
        );
    }

    fn window(bytes_sent: u64, transactions: u64) -> Window {
        let counts = Counts { bytes_sent, transactions, ..Counts::default() };
        let flow = FlowWindow::of(0, Role::Sender, counts);
        Window {
            phase: Phase::Measure,
            start_ns: 0,
            elapsed_ns: 200_400_000,
            wall_end_ns: 1_795_403_450_276_900_000,
            flows: vec![flow],
            cpu: None,
            evidence: None,
        }
    }

    fn printed(calls: Calls, form: Form, windows: &[(Side, Window)]) -> String {
        let shape = Shape { transport: Transport::Tcp, calls, connects: false };
        let mut text = String::new();
        let mut print = |line: &str| text.push_str(line);
        let mut interim = Interim::new(shape, Unit::of(None, shape.has_transactions()), form, &mut print);
        for (side, window) in windows {
            interim.interval(*side, window);
        }
        text
    }

    #[test]
    fn an_interval_lasts_until_there_was_work() {
        // A transaction that began in the second interval ends in the third. After it there is none.
        let windows = [1002, 0, 1002, 0].map(|transactions| (Side::Near, window(1, transactions)));
        assert_eq!(
            printed(Calls::BOTH, Form::Csv, &windows),
            "5000.00,Trans/s,0.200,1795403450.276\n2500.00,Trans/s,0.401,1795403450.276\n"
        );
    }

    #[test]
    fn the_three_forms_are_netperfs() {
        let windows =
            [(Side::Near, window(250_500_000, 0)), (Side::Far, window(1, 0)), (Side::Near, window(501_000, 0))];
        assert_eq!(
            printed(Calls::SEND, Form::Columns, &windows),
            "Interim result: 10000.00 10^6bits/s over 0.200 seconds ending at 1795403450.276\n\
             Interim result:   20.00 10^6bits/s over 0.200 seconds ending at 1795403450.276\n"
        );
        assert_eq!(printed(Calls::SEND, Form::Csv, &windows[..1]), "10000.00,10^6bits/s,0.200,1795403450.276\n");
        assert_eq!(
            printed(Calls::BOTH, Form::KeyValue, &[(Side::Near, window(1002, 1002)), (Side::Near, window(0, 501))]),
            "NETPERF_INTERIM_RESULT[0]=5000.00\nNETPERF_UNITS[0]=Trans/s\nNETPERF_INTERVAL[0]=0.200\n\
             NETPERF_ENDING[0]=1795403450.276\nNETPERF_INTERIM_RESULT[1]=2500.00\nNETPERF_UNITS[1]=Trans/s\n\
             NETPERF_INTERVAL[1]=0.200\nNETPERF_ENDING[1]=1795403450.276\n"
        );
    }
}
