//! `plumb measure`: measures to a host without a plan file.

use std::{
    fs,
    io::Write,
    net::ToSocketAddrs,
    path::PathBuf,
    time::{Duration, Instant},
};

use analyze::table::layout::Sheet;
use netcore::{
    control::{DEFAULT_PORT, dial, key::Key},
    peers::Program,
    spec::Pattern,
};
use schemas::{
    columns::Row,
    text::{plain, shell_word},
};

use super::{run::announce, serve::KeyFile};
use crate::{
    campaign::{self, Options, Report},
    error::{Error, Exit},
    hosts::Hosts,
    launch::recipe::DaemonOptions,
    measure::{
        self, SERVER,
        plan::{Asked, Load},
    },
    plan::{
        self, LoadOptions, Plan,
        workload::{Kind, Workload},
    },
    progress::Progress,
    schedule::step,
    signals::Interrupts,
    why::{self, Means, Source},
};

pub const EXAMPLES: &str = "\
Examples:
  plumb measure                                        this machine's own network stack
  plumb measure b.lab                                  the path to b.lab, where `plumb serve` runs
  PLUMB_KEY=7q4k-… plumb measure b.lab                 with the key that it printed
  plumb measure ssh://user@b.lab --copy                ssh starts the far end, and sends it along
  plumb measure b.lab -R -P 4 -t 10                    download with four streams, ten seconds
  plumb measure b.lab -u -b 10M                        datagrams at 10 Mbit/s
  plumb measure b.lab -C cubic                         the senders use cubic
  plumb measure b.lab tcp_rr udp_rr                    these workloads
  plumb measure b.lab --save nightly.yaml              keeps the plan, for plumb run and for CI
  plumb measure b.lab --hops                           and says at which link the queue stands
  plumb measure b.lab --why                            and proves what limits it, by changing it

The throughput is what the receiver counted; `± 5 %` is the 95 % confidence interval of its mean over the iterations, which end \
when it is reached or the time is over. `+ 1.9 ms under load` is how much longer half of the round trips took at least beside the \
load than on the idle path.

Where no `plumb serve` answers on port 12864, ports 5201 and 12865 are tried: `iperf3 -s` and netserver.";

/// Other programs to speak to, in the order in which their ports are tried.
const OTHERS: [Program; 2] = [Program::Iperf3, Program::Netperf];

/// Time within which another program's port must answer.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a command line")]
pub struct Args {
    /// The far end: `b.lab`, `b.lab:PORT`, or `ssh://user@b.lab`, where ssh starts it [default: this machine]
    #[arg(value_name = "HOST")]
    host: Option<String>,
    /// Workloads to measure instead of download and upload, such as tcp_rr or udp_rr.
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<String>,
    #[command(flatten)]
    load: Load,
    /// Only IPv4.
    #[arg(short = '4', conflicts_with = "v6")]
    v4: bool,
    /// Only IPv6.
    #[arg(short = '6')]
    v6: bool,
    /// Then change the setting that each limit names, and say whether that was it: about a minute for a limit.
    #[arg(long, conflicts_with = "json")]
    why: bool,
    /// Also probe the hops of the path before and under load, and say at which link the queue stands. Each direction is one iteration.
    #[arg(long)]
    hops: bool,
    /// Print one JSON document instead of lines.
    #[arg(short = 'J', long)]
    json: bool,
    /// Send this program along with ssh, and leave nothing there.
    #[arg(long)]
    copy: bool,
    /// Write the plan to FILE, too: `plumb run FILE` measures the same again.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write all rows to FILE, as `plumb run -o` does.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    key: KeyFile,
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    let mut asked = asked(args)?;
    let key = args.key.load()?;
    let interrupts = Interrupts::install(announce)?;
    // Who ends it early wants to see what it found.
    let interrupts = interrupts.keeping_cuts();
    let began = Instant::now();
    match measure(args, &mut asked, key.clone(), &interrupts) {
        Err(error) => match interrupts.exit() {
            // Whatever was waited for when the signal came did not happen: that is not this error's fault.
            Some(exit) => {
                error.print();
                Ok(exit)
            }
            None => Err(error),
        },
        Ok(report) => {
            show(args, &asked, &report, began.elapsed())?;
            if args.why && !interrupts.requested() {
                prove(&asked, &report, key, &interrupts)?;
            }
            Ok(report.exit(&interrupts))
        }
    }
}

fn asked(args: &Args) -> Result<Asked, Error> {
    // `plumb measure tcp_rr` measures this machine.
    let is_workload = |text: &String| text.parse::<Workload>().is_ok();
    let (host, first) = match &args.host {
        Some(text) if is_workload(text) => (None, Some(text.clone())),
        host => (host.clone(), None),
    };
    if args.copy && !host.as_ref().is_some_and(|host| host.starts_with("ssh://")) {
        return Err(Error::Usage("--copy goes with a host that ssh reaches: ssh://user@b.lab".into()));
    }
    if args.hops && host.is_none() {
        return Err(Error::Usage("--hops goes with a host: the path to this machine itself has no hops".into()));
    }
    if args.v6 && host.is_none() {
        return Err(Error::Usage(
            "-6 goes with a host; of this machine itself, a plan measures IPv6 by `socket: {ipv6: true}`".into(),
        ));
    }
    let workloads: Vec<String> = first.into_iter().chain(args.workloads.iter().cloned()).collect();
    let kind = |name: &String| name.parse::<Workload>().map(|workload| workload.kind);
    let is_stream = |name: &&String| matches!(kind(name), Ok(Kind::Traffic { pattern: Pattern::Stream, .. }) | Err(_));
    if let Some(other) = workloads.iter().find(|name| args.load.reverse && !is_stream(name)) {
        return Err(Error::Usage(format!("-R is for streams, and {other} is none: leave it out")));
    }
    let floods = |name: &String| matches!(kind(name), Ok(Kind::Traffic { pattern: Pattern::Stream, transport, .. }) if transport.is_datagram());
    if args.load.rate.is_none() && (args.load.udp || workloads.iter().any(floods)) {
        return Err(Error::Usage(format!(
            "datagrams need a rate, so that they do not flood the path: plumb measure{} -b 10M",
            words(false)
        )));
    }
    let host = host.map(|host| of_version(host, args)).transpose()?;
    Ok(Asked {
        speaks: host.as_deref().and_then(by_port),
        host,
        copy: args.copy,
        load: args.load.clone(),
        workloads,
        hops: args.hops,
        round_trip: Duration::ZERO,
    })
}

/// The program whose own port is named.
fn by_port(host: &str) -> Option<Program> {
    let port = dial::split_port(host).1.filter(|_| !host.starts_with("ssh://"))?;
    OTHERS.into_iter().find(|program| program.port() == port)
}

/// With -4 or -6, the host's first address of that version of IP.
fn of_version(host: String, args: &Args) -> Result<String, Error> {
    if !(args.v4 || args.v6) || host.starts_with("ssh://") {
        return Ok(host);
    }
    let version = if args.v4 { "IPv4" } else { "IPv6" };
    let (name, port) = dial::split_port(&host);
    let found = (name, port.unwrap_or(DEFAULT_PORT)).to_socket_addrs();
    let found = found.map_err(|e| {
        Error::Measurement(format!("{name} was not found: {e}; check its spelling, or write its address (10.0.0.2)"))
    })?;
    let Some(address) = found.map(|address| address.ip()).find(|ip| ip.is_ipv4() == args.v4) else {
        return Err(Error::Measurement(format!(
            "{name} has no {version} address; leave -{} out",
            if args.v4 { 4 } else { 6 }
        )));
    };
    Ok(match (port, address.is_ipv6()) {
        (None, _) => address.to_string(),
        (Some(port), true) => format!("[{address}]:{port}"),
        (Some(port), false) => format!("{address}:{port}"),
    })
}

fn measure(args: &Args, asked: &mut Asked, key: Option<Key>, interrupts: &Interrupts) -> Result<Report, Error> {
    let mut progress = Progress::brief();
    let mut met = None;
    if asked.speaks.is_none() {
        let first = load(asked)?;
        let steps = step::steps(&first, "", &first.axis_paths);
        let (interim, allowed) = (args.load.interval.is_some(), DaemonOptions { hooks: false });
        match Hosts::open(&first, &steps, key.as_ref(), interim, allowed, interrupts.flag(), &progress) {
            Ok(hosts) => {
                // The fastest round trip that the far end's clock was read by.
                let clock = hosts.records().get(SERVER).and_then(|record| record.clock.as_ref());
                let round_trip_ns = clock.map_or(0, |clock| clock.bound_ns.saturating_mul(2));
                asked.round_trip = Duration::from_nanos(round_trip_ns);
                met = Some(hosts);
            }
            Err(error) => asked.speaks = Some(other_program(asked).ok_or(error)?),
        }
    }
    if let Some(program) = asked.speaks.filter(|_| asked.hops) {
        let what = format!(
            "--hops needs `plumb serve` at the far end: {} leaves no time to probe the idle path",
            program.server()
        );
        return Err(Error::Usage(what));
    }
    let plan = load(asked)?;
    if let Some(path) = &args.save {
        save(path, asked)?;
    }
    let options =
        Options { output: args.output.clone(), key, interim: args.load.interval.is_some(), ..Options::default() };
    campaign::run(&[plan], &options, met, interrupts, &mut progress)
}

/// Proves the limits that were named, with the loads alone.
fn prove(asked: &Asked, report: &Report, key: Option<Key>, interrupts: &Interrupts) -> Result<(), Error> {
    let source = Source { name: "measure".to_owned(), text: asked.loads(), options: LoadOptions::default() };
    let plan = source.load()?;
    let of_load = |mut row: Row| {
        let case = plan.cases.iter().find(|case| Some(&*case.test) == row.test.as_deref())?;
        (row.case_id, row.member) = (Some(case.id.clone()), None);
        Some(row)
    };
    let rows: Vec<Row> = why::limited(report.summaries.iter().cloned()).into_iter().filter_map(of_load).collect();
    let mut means = Means { key, interrupts, progress: Progress::brief() };
    let answers = super::why::prove(&source, &rows, &mut means)?;
    let mut out = anstream::stdout().lock();
    super::shown(writeln!(out).and_then(|()| why::finding::write(&answers, true, &Sheet::stdout(), &mut out)))
}

fn load(asked: &Asked) -> Result<Plan, Error> {
    Ok(plan::load_str("measure", &asked.plan(), &LoadOptions::default())?)
}

/// The program that answers on its own port where no daemon does.
fn other_program(asked: &Asked) -> Option<Program> {
    let host = asked.host.as_deref().filter(|host| !host.starts_with("ssh://"))?;
    let answers = |port: u16| {
        let found = dial::resolve_or(host, port).ok()?;
        dial::dial(&found, None, Instant::now() + PATIENCE).ok()
    };
    if dial::split_port(host).1.is_some() || answers(DEFAULT_PORT).is_some() {
        return None;
    }
    OTHERS.into_iter().find(|program| answers(program.port()).is_some())
}

fn save(path: &PathBuf, asked: &Asked) -> Result<(), Error> {
    let text = asked.plan();
    if fs::read_to_string(path).is_ok_and(|kept| kept == text) {
        return Ok(());
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).open(path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let what = path.display();
            Err(Error::Usage(format!("{what} exists and is another plan: remove it, or name another file with --save")))
        }
        other => other.map_err(Error::output(path.display())),
    }
}

/// Prints the answer. A closed pipe is ignored: the exit code still tells the outcome.
fn show(args: &Args, asked: &Asked, report: &Report, took: Duration) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    let written = if args.json {
        writeln!(out, "{:#}", measure::json(asked, report, took))
    } else {
        measure::write(asked, report, took, &Sheet::stdout(), &mut out).and_then(|()| match &args.save {
            Some(path) => writeln!(out, "plan: {0}; plumb run {0} measures the same again", path.display()),
            None => writeln!(out, "keep it: plumb measure{} --save nightly.yaml", words(args.output.is_some())),
        })
    };
    super::shown(written.and_then(|()| out.flush()))
}

/// The words of this command line behind `plumb measure`, for a shell. Without `-o FILE` where that is written: it would be replaced.
fn words(is_written: bool) -> String {
    let mut is_file = false;
    let words = std::env::args().skip(2).filter(|word| {
        let is_output = is_written && (word.starts_with("-o") || word.starts_with("--output"));
        let is_left_out = std::mem::replace(&mut is_file, is_output && (word == "-o" || word == "--output"));
        word != "--why" && !is_left_out && !is_output
    });
    words.flat_map(|word| [" ".to_owned(), shell_word(&plain(&word), "")]).collect()
}
