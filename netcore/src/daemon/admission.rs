//! Admission of clients, tests and programs. Every number in a test is bounded before anything is allocated or opened for it.

use std::{net::IpAddr, path::Path};

use super::Config;
use crate::{
    control::message::{ErrorCode, Execute, Limits, Part, Peer, READING_TEXT_BYTES, ReplyError},
    error::EndError,
    io::fill::{FillFiles, Readable, Unread},
    measure::{KEPT_BYTES, LARGEST_KEPT_BYTES},
    pattern, ranks,
    report::FlowWindow,
    spec::{
        Phases, Side, Stop, TestSpec, memory,
        ranks::{MOST_RANKS, RanksSpec},
        support,
    },
};

/// The lowest data port that a client may choose.
pub(super) const LOWEST_PORT: u16 = 1024;

/// The shortest interval, nanoseconds.
pub(super) const SHORTEST_INTERVAL_NS: u64 = 1_000_000;

/// A reading as a value and in the text of a report, without its histograms, bytes.
const READING_BYTES: u64 = size_of::<FlowWindow>() as u64 + READING_TEXT_BYTES as u64;

/// Limit of the addresses that an end uses in turn: it proves itself from each of them, by a connection each.
pub(super) const MOST_ADDRESSES: usize = 256;

/// Addresses of the control connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
}

/// Whether clients may come from an address.
pub(super) fn allows(config: &Config, address: IpAddr) -> bool {
    config.allow.is_empty() || config.allow.iter().any(|network| network.contains(address))
}

/// Admits a program, only for clients that have proven a key: it runs with all rights of the daemon. This holds on
/// loopback, too, since every user of the machine can connect to it.
pub(crate) fn program(config: &Config, asked: &Execute) -> Result<(), ReplyError> {
    if !config.allow_hooks || config.key.is_none() {
        return refuse(
            "this daemon runs no programs for its clients, and the plan has a hook on it: check the program of the hook, and \
             start its `plumb serve` with --allow-hooks and --key-file",
        );
    }
    if asked.argv.is_empty() {
        return refuse("a hook without a program");
    }
    let is_ours = |name: &String| {
        name.starts_with("PLUMB_") && name.chars().all(|c| c == '_' || c.is_ascii_uppercase() || c.is_ascii_digit())
    };
    if let Some(name) = asked.environment.keys().find(|name| !is_ours(name)) {
        return refuse(format!(
            "the variable {name:?} cannot be set for a hook: the names of its variables begin with PLUMB_"
        ));
    }
    if asked.limit_ns > config.limits.duration_ns {
        return refuse(format!(
            "the hook may take {} s, more than the {} s that this daemon grants (--max-duration)",
            seconds(asked.limit_ns),
            seconds(config.limits.duration_ns)
        ));
    }
    Ok(())
}

/// An admitted part of a test.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Memory that it takes, bytes.
    pub(crate) bytes: u64,
    pub(crate) flows: u32,
    /// The files that it reads.
    pub(crate) files: FillFiles,
}

/// Admits a part of a test.
pub(crate) fn part(config: &Config, part: &Part) -> Result<Admitted, ReplyError> {
    match part {
        Part::End { spec, side } => end(config, spec, *side),
        Part::Rank { spec, rank: number, ranks } => rank(config, spec, *number, *ranks),
    }
}

fn end(config: &Config, spec: &TestSpec, side: Side) -> Result<Admitted, ReplyError> {
    let limits = &config.limits;
    let flows = spec.flows();
    if flows > limits.flows {
        return refused(format!(
            "{flows} flows are more than the {} that this daemon grants (--max-flows)",
            limits.flows
        ));
    }
    support::check(spec).map_err(|unsupported| ReplyError::new(ErrorCode::Unsupported, unsupported.to_string()))?;
    // A test that stops by a count has no cool-down.
    let length_ns = spec.phases.length_ns().unwrap_or(spec.phases.warmup_ns);
    check_length(limits, length_ns)?;
    let intervals = check_intervals(config, spec, length_ns)?;
    let buffer_bytes = check_buffers(config, spec, side)?;
    if spec.near.bind.len().max(spec.far.bind.len()) > MOST_ADDRESSES {
        return refused(format!("an end of a test uses at most {MOST_ADDRESSES} addresses of its own"));
    }
    if spec.end(side).port.is_some_and(|port| port < LOWEST_PORT) {
        return refused(format!("data ports below {LOWEST_PORT} are not given to clients"));
    }
    if spec.pace.is_some_and(|pace| !(pace.events_per_s.is_finite() && pace.events_per_s > 0.0) || pace.burst == 0) {
        return refused("a rate must be a positive number, and its bursts at least one message long");
    }
    let readings = intervals.saturating_mul(u64::from(flows));
    let histogram_bytes = pattern::histogram_bytes(spec, side);
    let counters = if spec.collect.system || spec.collect.cpu_per_core { intervals } else { 0 };
    let kept_bytes =
        kept_bytes(if pattern::has_latencies(spec, side) { readings } else { 0 }).saturating_add(kept_bytes(counters));
    let of_readings = readings.saturating_mul(READING_BYTES);
    let bytes = [of_readings, kept_bytes, histogram_bytes].into_iter().fold(buffer_bytes, u64::saturating_add);
    Ok(Admitted { bytes, flows, files: open_files(config, spec, side)? })
}

fn rank(config: &Config, spec: &RanksSpec, rank: u32, ranks: u32) -> Result<Admitted, ReplyError> {
    let limits = &config.limits;
    if !(2..=MOST_RANKS).contains(&ranks) || rank >= ranks {
        return refused(format!(
            "rank {rank} of {ranks} cannot be: a test has 2 to {MOST_RANKS} ranks, counted from 0"
        ));
    }
    let flows = ranks - 1;
    if flows > limits.flows {
        return refused(format!(
            "a rank has a connection to each of the {flows} others, more than the {} that this daemon grants (--max-flows)",
            limits.flows
        ));
    }
    check_length(limits, spec.length_ns().unwrap_or(spec.warmup_ns))?;
    if let Err(error) = ranks::check(spec, ranks, limits.buffer_bytes) {
        return refused(error.to_string());
    }
    Ok(Admitted { bytes: ranks::memory_bytes(spec, ranks), flows, files: FillFiles::default() })
}

fn check_length(limits: &Limits, length_ns: u64) -> Result<(), ReplyError> {
    if length_ns <= limits.duration_ns {
        return Ok(());
    }
    refuse(format!(
        "the test takes {} s with warm-up and cool-down, more than the {} s that this daemon grants (--max-duration)",
        seconds(length_ns),
        seconds(limits.duration_ns)
    ))
}

/// Memory of so many histograms of readings, or counters of intervals, bytes: all as values and again as the report's text.
fn kept_bytes(count: u64) -> u64 {
    2 * count.saturating_mul(LARGEST_KEPT_BYTES as u64).min(KEPT_BYTES as u64)
}

/// Bound of the memory of every test that the limits grant, bytes.
#[cfg(any(test, fuzzing))]
pub(crate) fn most_bytes(limits: &Limits) -> u64 {
    let of_readings = limits.interval_readings * READING_BYTES + 2 * kept_bytes(u64::MAX);
    limits.buffer_bytes + of_readings + u64::from(limits.flows) * pattern::MOST_HISTOGRAM_BYTES
}

/// The longest time for a part that stops by a count, nanoseconds: the time that the daemon grants, and the time for which it
/// keeps readings of all intervals.
pub(crate) fn longest_counted(limits: &Limits, part: &Part) -> u64 {
    if let Part::End { spec, .. } = part { longest_kept(limits, spec) } else { limits.duration_ns }
}

fn longest_kept(limits: &Limits, spec: &TestSpec) -> u64 {
    let granted = limits.interval_readings / u64::from(spec.flows()).max(1);
    // The last interval may be shorter.
    let intervals = granted.saturating_sub(settling_intervals(&spec.phases)).saturating_sub(1);
    let kept_ns = intervals.checked_mul(spec.phases.interval_ns).filter(|_| spec.phases.interval_ns > 0);
    limits.duration_ns.min(kept_ns.unwrap_or(u64::MAX))
}

/// Intervals of a time, with a shorter one at its end.
fn intervals(length_ns: u64, interval_ns: u64) -> u64 {
    length_ns.checked_div(interval_ns).map_or(0, |n| n.saturating_add(1))
}

/// Intervals of a warm-up that may end early.
fn settling_intervals(phases: &Phases) -> u64 {
    intervals(phases.warmup_ns, phases.settle_ns)
}

/// Bounds the intervals of a test, and returns their number.
fn check_intervals(config: &Config, spec: &TestSpec, length_ns: u64) -> Result<u64, ReplyError> {
    let Phases { interval_ns, settle_ns, .. } = spec.phases;
    let length_ns = match spec.phases.stop {
        Stop::AfterNs(_) => length_ns,
        // It ends in time.
        _ => longest_kept(&config.limits, spec),
    };
    let intervals = intervals(length_ns, interval_ns).saturating_add(settling_intervals(&spec.phases));
    let readings = intervals.saturating_mul(u64::from(spec.flows()));
    let granted = config.limits.interval_readings;
    let shortest_ns = [interval_ns, settle_ns].into_iter().filter(|ns| *ns > 0).min().unwrap_or(u64::MAX);
    if shortest_ns < SHORTEST_INTERVAL_NS || readings > granted {
        return refused(format!(
            "intervals of {} s would make up to {readings} readings of {} flows; this daemon keeps {granted}, of intervals of \
             at least a millisecond: lengthen `interval`, or shorten the test",
            seconds(shortest_ns),
            spec.flows()
        ));
    }
    Ok(intervals)
}

/// Bounds the memory that the engines allocate.
fn check_buffers(config: &Config, spec: &TestSpec, side: Side) -> Result<u64, ReplyError> {
    let buffers = &spec.end(side).buffers;
    let alignment = buffers.alignment.unwrap_or(1);
    if !alignment.is_power_of_two() || alignment > 1 << 30 || buffers.offset > 1 << 30 {
        return refused("buffer alignment must be a power of two, and alignment and offset at most 1 GiB");
    }
    if buffers.ring == 0 {
        return refused("a ring must have at least one buffer");
    }
    let bytes = memory::buffer_bytes(spec, side);
    if bytes > config.limits.buffer_bytes {
        return refused(format!(
            "the buffers of this test take {bytes} bytes; this daemon grants {}: use smaller messages, a smaller ring, \
             or fewer streams",
            config.limits.buffer_bytes
        ));
    }
    Ok(bytes)
}

/// Files need --allow-files, unlike with netserver, which sends any file that a client names. The answer does not tell whether
/// a file elsewhere exists.
fn open_files(config: &Config, spec: &TestSpec, side: Side) -> Result<FillFiles, ReplyError> {
    // Where all may be read, nothing is hidden.
    let has_all = config.allow_files.iter().any(|folder| folder == Path::new("/"));
    let readable = if has_all { Readable::Everything } else { Readable::Within(&config.allow_files) };
    FillFiles::open(spec, side, readable).or_else(|unread| match unread {
        Unread::Forbidden(path) => {
            let is_certificate = spec.certificate() == Some(path.as_path());
            let other = if is_certificate { "leave `tls.certificate` out" } else { "use payload `random`" };
            refused(format!(
                "this daemon does not read {} for its clients: {other}, or start it with --allow-files and the folder of that file",
                path.display()
            ))
        }
        Unread::Failed(error) => Err(reply_error(&error)),
    })
}

/// Admits the places that a part here is to connect to. A rank connects to those before it; the others connect to it, which
/// proves that they want its traffic.
pub(crate) fn connect(config: &Config, addresses: Addresses, part: &Part, peers: &[Peer]) -> Result<(), ReplyError> {
    if peers.len() != part.peers() {
        return refuse(format!(
            "this part of a test must be told of {} others to connect to, and was told of {}",
            part.peers(),
            peers.len()
        ));
    }
    peers.iter().take(part.connects()).try_for_each(|peer| destination(config, addresses, peer))
}

fn destination(config: &Config, addresses: Addresses, peer: &Peer) -> Result<(), ReplyError> {
    for address in [Some(peer.address), peer.endpoints.address].into_iter().flatten() {
        if !reaches(config, addresses, address) {
            return refuse(format!(
                "this daemon connects only to its client {} and to itself, not to {address}: start it with \
                 --allow-connect {address} to make it the near end of tests with that host",
                addresses.peer
            ));
        }
    }
    let local = peer.endpoints.cid.is_some() || peer.endpoints.mac.is_some();
    if local && !addresses.peer.is_loopback() && config.allow_connect.is_empty() {
        return refuse(
            "this daemon opens sockets other than IP sockets only for clients on its own machine: start it with \
             --allow-connect to make it the near end of such tests",
        );
    }
    Ok(())
}

pub(super) fn reply_error(error: &EndError) -> ReplyError {
    let unsupported = matches!(error, EndError::Unsupported(_));
    let code = if unsupported { ErrorCode::Unsupported } else { ErrorCode::Failed };
    ReplyError::new(code, error.to_string())
}

/// Admits the peers that a far end here sends datagrams to. A connection proves that its other end wants it; the source of a
/// datagram proves nothing, and a client that forges it could direct the load at another host.
pub(super) fn datagrams(config: &Config, addresses: Addresses, peers: &[IpAddr]) -> Result<(), ReplyError> {
    let Some(address) = peers.iter().find(|address| !reaches(config, addresses, **address)) else { return Ok(()) };
    refuse(format!(
        "this daemon sends datagrams only to its client {} and to itself, and the near end's come from {address}: start \
         it with --allow-connect {address} to allow that, or say `bind: {address}` for the near end's host where both were launched",
        addresses.peer
    ))
}

fn reaches(config: &Config, addresses: Addresses, address: IpAddr) -> bool {
    let address = address.to_canonical();
    address == addresses.peer || address == addresses.local || config.allow_connect.contains(address)
}

fn refuse(message: impl Into<String>) -> Result<(), ReplyError> {
    refused(message)
}

fn refused<T>(message: impl Into<String>) -> Result<T, ReplyError> {
    Err(ReplyError::new(ErrorCode::Refused, message))
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests;
