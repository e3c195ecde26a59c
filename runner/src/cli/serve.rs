//! `plumb serve`, the far end, and `plumb key`, which makes a key file for both ends of a session. A command finds its key by
//! [`KeyFile`].

use std::{
    collections::BTreeMap,
    env,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use netcore::{
    client::LONGEST_WAIT,
    control::{DEFAULT_PORT, key::Key, netns},
    daemon::{Config, Daemon, Event, Limits, Network, listen},
    measure::{addresses::addresses, clock::nanoseconds, host::HostFacts},
    peers::Program,
};
use schemas::units;

use super::serve_log::{Format, Log, Serving};
use crate::{
    error::{Error, Exit},
    launch::lifeline,
    metrics::{self, Served, Server},
    signals::Interrupts,
    style,
};

pub const EXAMPLES: &str = "\
Examples:
  plumb serve                                          on loopback, without a key
  plumb serve --listen 0.0.0.0                         for other hosts, with a new key
  plumb serve --key-file lab.key                       on every address, for clients with the key
  plumb serve --key-file lab.key --allow-hooks         these may also run programs here, as you
  plumb serve --listen 10.0.0.2 --allow 10.0.0.0/24    on one address, without a key, for one net
  plumb serve --also netperf,iperf3                    clients of these programs, too
  plumb serve --also stamp=8862                        a STAMP reflector (RFC 8762), too
  plumb serve --key-file lab.key --metrics 9464        Prometheus scrapes 127.0.0.1:9464

Its addresses and a new key go to standard output. It logs to standard error: sessions, programs, and each test with its client, \
workload, bytes, time and ending. With --log-format json every line is a JSON object (docs/reference/protocol.md has the fields).

SIGTERM, SIGINT and SIGHUP end it: new sessions are refused and running tests finish; a second one ends them at once.";

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Listen on this address only [default: every address with a key, loopback without one; port 12864]. Without a key
    /// and without --allow a new key is made and printed.
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Serve clients of netperf (port 12865) and iperf3 (5201) too, and reflect packets of stamp (862), on loopback, or on the
    /// address of --listen. No key protects these protocols.
    #[arg(long, value_name = "PROGRAM[=PORT]", value_delimiter = ',', value_parser = program)]
    also: Vec<(Program, u16)>,
    #[command(flatten)]
    key: KeyFile,
    /// Take the data of tests at these ports, a port for each listening socket, and not at the port of the control connections.
    #[arg(long, value_name = "FIRST-LAST", value_parser = port_range)]
    data_ports: Option<(u16, u16)>,
    /// Accept sessions from this network only; may be repeated.
    #[arg(long, value_name = "CIDR")]
    allow: Vec<Network>,
    /// Let tests connect from here to this network, not only to their client; may be repeated.
    #[arg(long, value_name = "CIDR")]
    allow_connect: Vec<Network>,
    /// Let tests send the contents of the regular files in this folder; may be repeated.
    #[arg(long, value_name = "DIR")]
    allow_files: Vec<PathBuf>,
    /// Let clients with the key run programs here, with your rights: the hooks of plans that are `on` this host.
    #[arg(long)]
    allow_hooks: bool,
    /// Most sessions at the same time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_sessions: u32,
    /// Most sessions of one client address at the same time [default: three quarters of all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_sessions_per_client: Option<u32>,
    /// Most memory of all tests at the same time: buffers, histograms, readings of intervals and their text in reports.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = units::parse_size)]
    max_memory: u64,
    /// Most parallel connections of a test.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_flows: u32,
    /// Longest test, including warm-up and cool-down.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = units::parse_duration)]
    max_duration: Duration,
    /// Run the tests of one client at a time; others wait in a queue, first come first served.
    #[arg(long)]
    exclusive: bool,
    /// Longest wait for a turn with --exclusive, at most 24h; then the client's test fails.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = queue_timeout, requires = "exclusive")]
    queue_timeout: Duration,
    /// Serve from within this network namespace. --metrics stays in the namespace of this process.
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Answer scrapes of Prometheus at http://ADDR/metrics (docs/guide/live.md). A port alone is on loopback, and 0 is a free one; no
    /// key protects another address.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Log lines for people, or a JSON object per line.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: Format,
    /// For launchers: take half of a key from the first line of standard input, print one line for programs with the other
    /// half, and end with standard input (docs/guide/clusters.md).
    #[arg(long, hide = true, conflicts_with_all = ["key_file", "data_ports", "allow", "allow_connect", "also", "exclusive", "netns", "metrics"])]
    launched: bool,
    #[command(flatten)]
    launch: lifeline::Options,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, DEFAULT_PORT));
    }
    text.parse()
        .map_err(|_| format!("`{text}` is not an address: write 10.0.0.2, 10.0.0.2:12864 or [2001:db8::1]:12864"))
}

fn program(text: &str) -> Result<(Program, u16), String> {
    let (name, port) = text.split_once('=').map_or((text, None), |(name, port)| (name, Some(port)));
    let unknown = |_| format!("`{name}` is not served: netperf, iperf3 and stamp are");
    let program: Program = name.parse().map_err(unknown)?;
    let port =
        port.map(str::parse).transpose().map_err(|_| format!("`{text}` has no port number: write {name}=5301"))?;
    Ok((program, port.unwrap_or(program.port())))
}

/// Addresses for each other program: those of loopback, or the one that `--listen` names.
fn also(args: &Args) -> Result<Vec<(Program, Vec<SocketAddr>)>, Error> {
    let mut served: BTreeMap<Program, u16> = BTreeMap::new();
    for (program, port) in &args.also {
        if served.insert(*program, *port).is_some() {
            return Err(Error::Usage(format!("--also names {} twice: leave one out", program.as_str())));
        }
    }
    let ips = args
        .listen
        .map_or_else(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()], |address| vec![address.ip()]);
    let of = |port: u16| ips.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    Ok(served.into_iter().map(|(program, port)| (program, of(port))).collect())
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<u16>(), last.parse::<u16>()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok((first, last)),
        _ => Err(format!("`{text}` is no range of ports: write 20000-20100")),
    }
}

fn queue_timeout(text: &str) -> Result<Duration, String> {
    let wait = units::parse_duration(text).map_err(|e| e.to_string())?;
    if wait <= LONGEST_WAIT { Ok(wait) } else { Err("at most 24h".to_owned()) }
}

/// A key for as long as this daemon serves.
fn new_key(format: Format) -> Result<Key, Error> {
    if format == Format::Json {
        let remedy = "give it one with --key-file FILE, or name the networks that need none with --allow CIDR";
        return Err(Error::Usage(format!("a new key is printed for people, not into a log of JSON lines: {remedy}")));
    }
    Key::generate_short().map_err(Error::measurement)
}

/// How other machines name this one: by its host name, but a network namespace by the first of its own addresses, since the host
/// name leads elsewhere.
fn own_name(netns: Option<&str>) -> String {
    let within = || netns::within(netns, addresses).ok()?.ok()?.into_iter().map(|it| it.address).min();
    let address = netns.and_then(|_| within()).map(|address| address.to_string());
    address.or_else(|| HostFacts::collect().hostname).unwrap_or_default()
}

/// The command for the other machine: `PLUMB_KEY=7q4k-… plumb measure b.lab`.
fn invitation(key: &Key, address: Option<SocketAddr>, netns: Option<&str>) -> String {
    let (host, port) = match address {
        Some(address) if !address.ip().is_unspecified() => (address.ip().to_string(), address.port()),
        other => (own_name(netns), other.map_or(DEFAULT_PORT, |address| address.port())),
    };
    let place = match (port, host.contains(':')) {
        (DEFAULT_PORT, _) => host,
        (port, true) => format!("[{host}]:{port}"),
        (port, false) => format!("{host}:{port}"),
    };
    format!(
        "On the other machine, until this one ends (Ctrl-C):\n  PLUMB_KEY={} plumb measure {place}\n",
        key.to_short()
    )
}

pub fn run(args: &Args) -> Result<Exit, Error> {
    if args.launched {
        let listen = args.listen.map_or_else(|| lifeline::listen(args.launch.relay), |address| vec![address]);
        let config = Config {
            listen,
            allow_files: args.allow_files.clone(),
            allow_hooks: args.allow_hooks,
            ..Config::default()
        };
        return lifeline::serve(&args.launch, config).map(|()| Exit::Success);
    }
    let found = args.key.load()?;
    // Of --allow, the user names the networks that need no key.
    let is_open = args.listen.is_some_and(|address| !address.ip().is_loopback()) && args.allow.is_empty();
    let made = if found.is_none() && is_open { Some(new_key(args.log_format)?) } else { None };
    let key = found.or_else(|| made.clone());
    let has_key = key.is_some();
    if args.allow_hooks && !has_key {
        // Not even on loopback, which every user of this machine can reach.
        return Err(Error::Usage(
            "--allow-hooks lets clients run programs as you, and without a key anybody can be a client: add --key-file FILE \
             (`plumb key FILE` makes one)"
                .into(),
        ));
    }
    let format = args.log_format;
    let log = Arc::new(Log::new(format));
    let place = listen(args.listen, has_key);
    let limits = Limits {
        sessions: args.max_sessions,
        sessions_per_client: args.max_sessions_per_client.unwrap_or((args.max_sessions * 3 / 4).max(1)),
        memory_bytes: args.max_memory,
        flows: args.max_flows,
        duration_ns: nanoseconds(args.max_duration),
        queue_ns: args.exclusive.then_some(nanoseconds(args.queue_timeout)),
        ..Limits::default()
    };
    let config = Config {
        listen: place.addresses,
        also: also(args)?,
        key,
        data_ports: args.data_ports,
        allow: args.allow.clone(),
        allow_connect: args.allow_connect.clone().into(),
        allow_files: args.allow_files.clone(),
        allow_hooks: args.allow_hooks,
        limits: limits.clone(),
        netns: args.netns.clone(),
        log: Some(Arc::new({
            let log = Arc::clone(&log);
            move |event: &Event<'_>| log.tell(event)
        })),
        ..Config::default()
    };
    let interrupts = Interrupts::install(|_| {})?;
    let scraped = args.metrics.map(Server::bind).transpose()?;
    let daemon = Arc::new(Daemon::bind(config).map_err(Error::measurement)?);
    let metrics = scraped.as_ref().map(Server::url);
    if let Some(scraped) = scraped {
        scraped.start(Arc::new(Served::new(Arc::clone(&daemon))))?;
    }
    if let Some(advice) = place.advice {
        style::tell(format.note(&advice));
    }
    let also = Program::ALL.iter().map(|&program| {
        let addresses: Vec<String> = daemon.listening(Some(program)).map(|address| address.to_string()).collect();
        (program.as_str(), addresses)
    });
    let addresses: Vec<String> = daemon.local_addrs().map(|address| address.to_string()).collect();
    let serving = format.serving(&Serving {
        version: env!("CARGO_PKG_VERSION"),
        addresses,
        data_ports: args.data_ports,
        also: also.filter(|(_, addresses)| !addresses.is_empty()).collect(),
        key_required: has_key,
        runs_programs: args.allow_hooks,
        max_sessions: limits.sessions,
        max_flows: limits.flows,
        max_duration_s: args.max_duration.as_secs_f64(),
        exclusive: args.exclusive,
        metrics,
        pid: std::process::id(),
    });
    let invitation =
        made.map(|key| invitation(&key, daemon.local_addrs().next(), args.netns.as_deref())).unwrap_or_default();
    super::print(&(serving + &invitation))?;
    let served = daemon.run(interrupts.flag()).map_err(Error::measurement);
    log.finish();
    served?;
    // A service that ends when asked has succeeded, whichever signal it was.
    Ok(Exit::Success)
}

pub const KEY_EXAMPLES: &str = "\
Examples:
  plumb key lab.key
  scp -p lab.key b.lab:
  plumb serve --key-file lab.key                       (there)
  plumb run lab.yaml --key-file lab.key                (here)

Anybody with the file may start sessions: copy it over a channel you trust. An existing file is never replaced. As \
~/.config/plumb/key it is every command's key; PLUMB_KEY_FILE names another file, and PLUMB_KEY holds a key itself.";

/// The key that a command line asks for.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct KeyFile {
    /// File of the key that both ends share (see `plumb key`) [default: the key in PLUMB_KEY, the file in PLUMB_KEY_FILE, or
    /// ~/.config/plumb/key]
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
}

impl KeyFile {
    /// The key: of the option, else of the environment, else of the user's configuration. `None`: there is none.
    pub(super) fn load(&self) -> Result<Option<Key>, Error> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        if self.key_file.is_none()
            && let Some(text) = set("PLUMB_KEY")
        {
            let text = text.to_string_lossy();
            return Key::from_text(&text, "PLUMB_KEY").map(Some).map_err(|e| Error::Usage(e.to_string()));
        }
        let of_user = || {
            let folder = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".config")));
            folder.map(|folder| folder.join("plumb/key")).filter(|path| path.exists())
        };
        let file = self.key_file.clone().or_else(|| set("PLUMB_KEY_FILE").map(PathBuf::from)).or_else(of_user);
        file.as_deref().map(Key::load).transpose().map_err(Error::measurement)
    }
}

#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// The new file, readable by its owner only [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub fn make_key(args: &KeyArgs) -> Result<Exit, Error> {
    let key = Key::generate().map_err(Error::measurement)?;
    match &args.file {
        Some(path) => key.save(path).map_err(Error::measurement)?,
        None => super::print(&format!("{}\n", key.to_hex()))?,
    }
    Ok(Exit::Success)
}
