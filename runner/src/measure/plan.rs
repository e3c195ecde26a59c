//! The plan that the options of `plumb measure` stand for.

use std::{fmt::Write as _, time::Duration};

use netcore::{control::dial::split_port, peers::Program, spec::IDLE as IDLE_PATH};
use schemas::{
    text::shown_way,
    units::{self, Rate},
    words::Way,
};

use super::SERVER;

/// Options of the command line.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The far end as `--host` takes it; `None`: this process has both ends.
    pub host: Option<String>,
    /// The program that serves there in place of a daemon.
    pub speaks: Option<Program>,
    /// Whether ssh sends this program along.
    pub copy: bool,
    pub load: Load,
    /// Workloads by name, in the place of both directions with their round trips.
    pub workloads: Vec<String>,
    /// Whether the hops of the path are probed.
    pub hops: bool,
    /// Time of a round trip on the idle path, as far as it is known.
    pub round_trip: Duration,
}

/// The load, and the time for all of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Load {
    /// Time for all of it: seconds, or with a unit (`1m`).
    #[arg(short = 't', long = "time", value_name = "TIME", default_value = "20", value_parser = time)]
    pub length: Duration,
    /// Parallel streams in each direction.
    #[arg(short = 'P', long = "parallel", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub streams: u32,
    /// Download only: the far end sends.
    #[arg(short = 'R', long = "reverse")]
    pub reverse: bool,
    /// Datagrams over UDP, at the rate of -b.
    #[arg(short = 'u', long = "udp")]
    pub udp: bool,
    /// Offered load of each direction: `10M` and `10Mbit/s` are ten million bits per second.
    #[arg(short = 'b', long = "bitrate", value_name = "RATE", value_parser = rate)]
    pub rate: Option<String>,
    /// Bytes per send call: `64K` is 65536.
    #[arg(short = 'l', long = "length", value_name = "SIZE", value_parser = size)]
    pub message_size: Option<String>,
    /// Congestion control of the senders, `cubic` or `bbr` for example [default: each system's own].
    #[arg(short = 'C', long = "congestion", value_name = "NAME", conflicts_with = "udp", value_parser = congestion)]
    pub congestion: Option<String>,
    /// Print a line on standard error per interval of this length.
    #[arg(short = 'i', long = "interval", value_name = "TIME", value_parser = length)]
    pub interval: Option<Duration>,
}

/// The time for all of it: in less than two seconds nothing has a rate.
fn time(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text) {
        Ok(time) if time < Duration::from_secs(2) => {
            Err(format!("`{text}` is too short to measure anything: write -t 2 or more; 20 is the default"))
        }
        _ => length(text),
    }
}

fn length(text: &str) -> Result<Duration, String> {
    let length = units::parse_duration(text).map_err(|e| e.to_string())?;
    if length < Duration::from_millis(100) {
        return Err(format!("`{text}` is too short to measure anything: 1 is a usual -i"));
    }
    if length > Duration::from_hours(24) {
        return Err("longer than 24 h: write a plan, `plumb plans show soak` begins one".to_owned());
    }
    Ok(length)
}

/// Least load in bits per second: a datagram of 125 bytes each second.
const LEAST_RATE: f64 = 1000.0;

/// A rate as a plan writes it. iperf3's letters are powers of 1000.
fn rate(text: &str) -> Result<String, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
    let written = match unit {
        "" => format!("{digits}bit/s"),
        "K" | "k" => format!("{digits}kbit/s"),
        "M" | "m" => format!("{digits}Mbit/s"),
        "G" | "g" => format!("{digits}Gbit/s"),
        _ => text.to_owned(),
    };
    match units::parse_rate(&written) {
        Ok(Rate::Bits(bits)) if bits >= LEAST_RATE => Ok(written),
        Ok(Rate::Bits(bits)) if bits > 0.0 => Err(format!(
            "`{text}` is less than a message a second: did you mean {digits}M, millions of bits per second?"
        )),
        Ok(_) => Err(format!("`{text}` is no load: write bits per second, as 10M or 10Mbit/s")),
        Err(e) => Err(e.to_string()),
    }
}

/// The name of a congestion control, as a plan may write it without quotes. The kernel says whether it has it.
fn congestion(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("the name of a congestion control: cubic, bbr, reno, …".to_owned())
    }
}

/// A size as a plan writes it. iperf3's letters are powers of 1024.
fn size(text: &str) -> Result<String, String> {
    let written = match text.strip_suffix(['K', 'k']) {
        Some(digits) => format!("{digits}KiB"),
        None => text.strip_suffix(['M', 'm']).map_or_else(|| text.to_owned(), |digits| format!("{digits}MiB")),
    };
    match units::parse_size(&written) {
        Ok(0) => Err("a message has at least one byte".to_owned()),
        Ok(_) => Ok(written),
        Err(e) => Err(e.to_string()),
    }
}

impl Load {
    /// Directions of the load, as the plan names them; their tests have the names that a user sees who sits at the near end.
    fn directions(&self) -> &'static [Way] {
        if self.reverse { &[Way::Reverse] } else { &[Way::Reverse, Way::Forward] }
    }
}

/// Name of the test on the idle path.
pub const IDLE: &str = "idle";

/// Members of a direction's group: the streams, and the round trips beside them.
pub const LOAD: &str = "load";
pub const PROBE: &str = "probe";

/// Fewest iterations with an interval worth naming, and the margin at which they end.
const LEAST: u32 = 3;
const MARGIN: &str = "5%";

/// Shortest time in which a load shows a rate.
const SHORTEST: Duration = Duration::from_millis(300);

/// Warm-up that outlasts the slow start of TCP. It overruns the queue of the path, and what arrives behind the losses is held back by
/// the receiver's kernel until they are repaired: a measurement that begins before counts it as its own. One stream of BBR over a
/// bucket of 20 Mbit/s: 4 to 13 % too much after 300 ms; eight over one of 100 Mbit/s: 5 %; none after a second.
pub const SETTLING: Duration = Duration::from_secs(1);

/// Time of a direction from which on the load of one stream gets this warm-up: less would leave no time to measure. A note says what a
/// shorter one counted too much.
const SETTLES_FROM: Duration = Duration::from_millis(2100);

/// Setting up an iteration, apart from round trips.
const SETTING_UP: Duration = Duration::from_millis(100);

/// Share below which each phase is shorter, so that the time suffices.
const HURRY: Duration = Duration::from_millis(1300);

/// Probes per second: enough for percentiles, and no load by themselves. Each waits for its answer, and then for the next due time: one
/// that left as soon as the answer came would go in step with a load that has the same round trip.
const PROBES: &str = "rate: 100/s, pacing: {catch_up: 0}";

/// Lengths in an iteration of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    /// Fewest iterations: where the time does not suffice for [`LEAST`], one.
    least: u32,
    /// Round trips on the idle path.
    idle: Duration,
    /// From the begin of the iteration to the begin of the load.
    after: Duration,
    warmup: Duration,
    measure: Duration,
    /// Before the next iteration: the queue drains.
    pause: Duration,
}

impl Lengths {
    /// Of a path with this round trip: a load doubles with each one until it fills the path, so that twenty end the slow start
    /// of any; and the queue of a load is empty some round trips after its end.
    fn of(round_trip: Duration, share: Duration, interval: Option<Duration>, settling: Duration) -> Self {
        let part: u32 = if share < HURRY { 3 } else { 1 };
        let at_least =
            |ms: u32, trips: u32| (trips * round_trip).clamp(Duration::from_millis(ms.into()), Duration::from_secs(3));
        let (idle, pause) = (at_least(250 / part, 5), at_least(200 / part, 3));
        let warmup = at_least(300 / part, 20).max(settling);
        let after = idle + at_least(150, 2);
        let (least, measure) = window(share, after + warmup + pause + SETTING_UP + 4 * round_trip, interval);
        let whole = |length: Duration| Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        Self {
            least,
            idle: whole(idle),
            after: whole(after),
            warmup: whole(warmup),
            measure: whole(measure),
            pause: whole(pause),
        }
    }

    /// A single iteration that takes all of the time: in several, routers would answer too few probes in each.
    fn single(self, share: Duration, round_trip: Duration) -> Self {
        let fixed = self.iteration(round_trip).saturating_sub(self.measure) + IDLE_PATH;
        let measure = share.saturating_sub(fixed).max(SHORTEST);
        Self {
            least: 1,
            measure: Duration::from_millis(u64::try_from(measure.as_millis()).unwrap_or(u64::MAX)),
            ..self
        }
    }

    fn iteration(&self, round_trip: Duration) -> Duration {
        self.after + self.warmup + self.measure + self.pause + SETTING_UP + 4 * round_trip
    }
}

/// Fewest iterations in a time, of which each spends `fixed` besides its measurement, and the length of that: whole intervals,
/// if there are any.
fn window(time: Duration, fixed: Duration, interval: Option<Duration>) -> (u32, Duration) {
    let shortest = interval.unwrap_or_default().max(SHORTEST);
    // With fewer than three values an interval says nothing: then all the time goes into one.
    let least = if time >= LEAST * (fixed + shortest) { LEAST } else { 1 };
    let rest = (time / least).saturating_sub(fixed).max(shortest);
    let measure = match interval {
        Some(interval) => {
            let times = rest.as_millis() / interval.as_millis().max(1);
            interval * u32::try_from(times.max(1)).unwrap_or(u32::MAX)
        }
        // A second shows what a path carries; what is left of the time goes into more iterations.
        None if least > 1 => rest.min(Duration::from_millis(900)),
        None => rest,
    };
    (least, measure.max(shortest))
}

/// Whole seconds of a length, one at least, that hold an interval, if there are any: a netserver that sends counts no others.
fn whole_seconds(length: Duration, interval: Option<Duration>) -> Duration {
    let least = interval.map_or(1, |interval| interval.as_secs() + u64::from(interval.subsec_nanos() > 0));
    Duration::from_secs(length.as_secs().max(least))
}

/// `{min: 3, max: 5, margin: 5%}`: iterations that fit into a time, until the answer is good enough.
fn policy(least: u32, time: Duration, one: Duration, metrics: &str) -> String {
    let fit = u32::try_from(time.as_millis() / one.as_millis().max(1)).unwrap_or(u32::MAX);
    match least {
        1 => "1".to_owned(),
        _ => format!("{{min: {least}, max: {}, margin: {MARGIN}{metrics}}}", fit.clamp(least, 1000)),
    }
}

/// `300ms`
fn ms(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

impl Asked {
    /// The plan of the loads alone, without round trips beside them: in it `--why` changes one setting after the other. Its tests
    /// have the names of those of [`Self::plan`].
    pub fn loads(&self) -> String {
        if !self.workloads.is_empty() {
            return self.plan();
        }
        let lengths = self.lengths(self.share(), self.load.interval);
        let to = if self.host.is_some() { format!("to: {SERVER}, ") } else { String::new() };
        let (warmup, measure) = (ms(lengths.warmup), ms(lengths.measure));
        let mut text = format!("version: 1\nname: measure\n{}", self.inventory());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "defaults: {{{to}warmup: {warmup}, duration: {measure}}}\ntests:");
        for direction in self.load.directions() {
            let load = self.load().join(", ");
            let _ = writeln!(text, "  {}: {{{load}, direction: {direction}}}", shown_way(direction));
        }
        text
    }

    /// The plan, with comments for its reader.
    pub fn plan(&self) -> String {
        let mut text = String::from("version: 1\nname: measure\n");
        let question = match &self.host {
            Some(host) => format!("What does the path to {host} carry, and what does a round trip take?"),
            None => "What does this machine's own network stack carry?".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "description: {}", serde_json::Value::from(question));
        text.push_str(&self.inventory());
        let _ = writeln!(text, "defaults:");
        if self.host.is_some() {
            let _ = writeln!(text, "  to: {SERVER}");
        }
        if self.workloads.is_empty() {
            self.path(&mut text);
        } else {
            self.named(&mut text);
        }
        text
    }

    /// The far end.
    fn inventory(&self) -> String {
        let Some(host) = &self.host else { return String::new() };
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut keys = Vec::new();
        if let Some(place) = host.strip_prefix("ssh://") {
            let place = place.trim_end_matches('/');
            let (user, place) = place.rsplit_once('@').map_or((None, place), |(user, place)| (Some(user), place));
            let (name, port) = split_port(place);
            keys.push(format!("host: {}", quoted(name)));
            keys.extend(user.map(|user| format!("user: {}", quoted(user))));
            keys.extend(port.map(|port| format!("port: {port}")));
            keys.extend(self.copy.then(|| "copy: true".to_owned()));
            return format!("hosts:\n  {SERVER}: {{launch: {{ssh: {{{}}}}}}}\n", keys.join(", "));
        }
        let (name, port) = split_port(host);
        keys.push(format!("address: {}", quoted(name)));
        keys.extend(port.filter(|_| self.speaks.is_none()).map(|_| format!("control: {}", quoted(host))));
        keys.extend(self.speaks.map(|program| format!("speaks: {}", program.as_str())));
        format!("hosts:\n  {SERVER}: {{{}}}\n", keys.join(", "))
    }

    /// Keys of the load, one per line.
    fn load(&self) -> Vec<String> {
        let mut keys = vec![format!("workload: {}", if self.load.udp { "udp_stream" } else { "tcp_stream" })];
        keys.extend((self.load.streams > 1).then(|| format!("streams: {}", self.load.streams)));
        keys.extend(self.load.rate.as_ref().map(|rate| format!("rate: {rate}")));
        keys.extend(self.load.message_size.as_ref().map(|size| format!("message_size: {size}")));
        let congestion = self.load.congestion.as_ref();
        keys.extend(congestion.map(|name| format!("socket: {{congestion_control: \"{name}\"}}")));
        keys.extend(self.load.interval.map(|interval| format!("interval: {}", ms(interval))));
        keys
    }

    /// Time for each direction, after the round trips of the idle path.
    fn share(&self) -> Duration {
        let count = u32::try_from(self.load.directions().len()).unwrap_or(1).max(1);
        self.load.length.saturating_sub(self.idle_length()) / count
    }

    /// Lengths of an iteration of a direction, or of a workload, that has this time in all.
    fn lengths(&self, share: Duration, interval: Option<Duration>) -> Lengths {
        let settles = !self.load.udp && (self.load.streams > 1 || share >= SETTLES_FROM);
        let lengths = Lengths::of(self.round_trip, share, interval, if settles { SETTLING } else { Duration::ZERO });
        if self.speaks.is_none() {
            return lengths;
        }
        // Other programs count from the first byte on.
        let measure = whole_seconds(lengths.warmup + lengths.measure, interval);
        Lengths { warmup: Duration::ZERO, measure, ..lengths }
    }

    fn idle_length(&self) -> Duration {
        let length =
            (self.load.length / 12).clamp(Duration::from_millis(500), Duration::from_secs(2)).max(5 * self.round_trip);
        Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
    }

    /// Both directions, each with round trips beside it, and the idle path.
    fn path(&self, text: &mut String) {
        let lengths = self.lengths(self.share(), self.load.interval);
        let lengths = if self.hops { lengths.single(self.share(), self.round_trip) } else { lengths };
        let one = lengths.iteration(self.round_trip);
        // Other programs run one test at a time, or know no idle path.
        let is_ours = self.speaks.is_none();
        let policy = policy(lengths.least, self.share(), one, ", metrics: [throughput]");
        let _ = writeln!(text, "  iterations: {policy}");
        let _ = writeln!(text, "  pause: {}", ms(lengths.pause));
        let _ = writeln!(text, "tests:");
        if self.speaks.is_none_or(Program::has_round_trips) {
            let rate = if is_ours { format!(", {PROBES}") } else { String::new() };
            let length = ms(self.idle_length());
            let _ = writeln!(text, "  # Round trips while nothing else is under way.");
            let _ = writeln!(text, "  {IDLE}: {{workload: tcp_rr{rate}, duration: {length}, iterations: 1}}");
        }
        for direction in self.load.directions() {
            let (warmup, measure) = (ms(lengths.warmup), ms(lengths.measure));
            let _ = writeln!(text, "  {}:", shown_way(direction));
            let mut load = self.load();
            load.push(format!("direction: {direction}"));
            if !is_ours {
                load.push(format!("duration: {}", ms(lengths.measure)));
                for key in load {
                    let _ = writeln!(text, "    {key}");
                }
                continue;
            }
            load.extend(self.hops.then(|| "hops: true".to_owned()));
            let after = ms(lengths.after);
            let _ = writeln!(
                text,
                "    # Round trips on the idle path, then beside the load: the difference is the queue."
            );
            let _ = writeln!(text, "    concurrent:");
            let _ = writeln!(text, "      start: {{max_skew: 100ms}}");
            let _ = writeln!(text, "      window: own");
            let _ = writeln!(text, "      members:");
            let idle = ms(lengths.idle);
            let _ = writeln!(text, "        {IDLE}: {{workload: tcp_rr, {PROBES}, duration: {idle}}}");
            let begin = format!("after: {after}, warmup: {warmup}, duration: {measure}");
            let _ = writeln!(text, "        {PROBE}: {{workload: tcp_rr, {PROBES}, idle: {IDLE}, {begin}}}");
            let _ = writeln!(text, "        {LOAD}: {{{}, {begin}}}", load.join(", "));
        }
    }

    /// Each workload by itself.
    fn named(&self, text: &mut String) {
        let count = u32::try_from(self.workloads.len()).unwrap_or(1).max(1);
        let share = self.load.length / count;
        let warmup = self.lengths(share, None).warmup;
        let idle = if self.hops { IDLE_PATH } else { Duration::ZERO };
        let fixed = warmup + SETTING_UP + 4 * self.round_trip + idle;
        let interval = self.load.interval.or(self.speaks.map(|_| Duration::from_secs(1)));
        let (least, measure) = window(share, fixed, interval);
        let (least, measure) =
            if self.hops { (1, share.saturating_sub(fixed).max(SHORTEST)) } else { (least, measure) };
        let measure = if self.speaks.is_some() { whole_seconds(measure, interval) } else { measure };
        let _ = writeln!(text, "  warmup: {}\n  duration: {}", ms(warmup), ms(measure));
        let _ = writeln!(text, "  iterations: {}", policy(least, share, measure + fixed, ""));
        for key in self.load().into_iter().skip(1) {
            let _ = writeln!(text, "  {key}");
        }
        if self.hops {
            let _ = writeln!(text, "  hops: true");
        }
        if self.load.reverse {
            let _ = writeln!(text, "  direction: {}", Way::Reverse);
        }
        let _ = writeln!(text, "tests:");
        for workload in &self.workloads {
            let _ = writeln!(text, "  {workload}: {{workload: {workload}}}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{LoadOptions, load_str};

    fn asked(seconds: f64) -> Asked {
        Asked {
            host: Some("b.lab".to_owned()),
            speaks: None,
            copy: false,
            load: Load {
                length: Duration::from_secs_f64(seconds),
                streams: 1,
                reverse: false,
                udp: false,
                rate: None,
                message_size: None,
                congestion: None,
                interval: None,
            },
            workloads: Vec::new(),
            hops: false,
            round_trip: Duration::from_micros(200),
        }
    }

    #[test]
    fn it_takes_the_time_that_was_asked_for() {
        for seconds in [2.0, 3.0, 5.0, 8.0, 15.0, 20.0, 60.0] {
            let asked = asked(seconds);
            let lengths = asked.lengths(asked.share(), None);
            let one = lengths.iteration(asked.round_trip);
            let all = asked.idle_length() + 2 * lengths.least * one;
            assert!(all.as_secs_f64() <= seconds + 0.3, "-t {seconds}: {all:?}");
            let several =
                Asked { load: Load { streams: 8, ..asked.load.clone() }, ..asked.clone() }.lengths(asked.share(), None);
            let all = asked.idle_length() + 2 * several.least * several.iteration(asked.round_trip);
            // Their warm-up is longer than the least time.
            assert!(all.as_secs_f64() <= seconds.max(4.0) + 0.3, "-t {seconds} -P 8: {all:?}");
            assert!(several.warmup >= SETTLING, "-t {seconds} -P 8: {several:?}");
            assert_eq!(lengths.warmup >= SETTLING, seconds >= 5.0, "-t {seconds}: {lengths:?}");
            assert_eq!(lengths.least, if seconds < 15.0 { 1 } else { LEAST }, "-t {seconds}");
        }
    }

    #[test]
    fn the_loads_have_the_tests_of_the_plan() {
        let datagrams = Load { udp: true, rate: Some("10Mbit/s".into()), ..asked(5.0).load };
        for asked in [asked(20.0), Asked { host: None, load: datagrams, ..asked(5.0) }] {
            let load = |text: &str| load_str("measure", text, &LoadOptions::default()).unwrap();
            let (loads, plan) = (load(&asked.loads()), load(&asked.plan()));
            let names =
                |plan: &crate::plan::Plan| plan.cases.iter().map(|case| case.test.to_string()).collect::<Vec<_>>();
            assert_eq!(names(&loads), names(&plan)[1..]);
            assert!(loads.cases.iter().all(|case| case.group.is_none()));
        }
    }

    #[test]
    fn every_plan_is_one_and_a_window_holds_whole_intervals() {
        let second = Duration::from_secs(1);
        let in_intervals = |seconds, reverse| Asked {
            load: Load { reverse, interval: Some(second), ..asked(seconds).load },
            ..asked(seconds)
        };
        let reversed = in_intervals(4.0, true);
        let named = Asked { workloads: vec!["tcp_rr".to_owned(), "udp_rr".to_owned()], ..asked(2.0) };
        let long = in_intervals(20.0, false);
        let far = Asked { round_trip: Duration::from_millis(300), ..asked(20.0) };
        let hops = Asked { hops: true, ..asked(20.0) };
        let of_workloads = Asked { hops: true, ..named.clone() };
        for asked in [asked(2.0), asked(20.0), reversed, named, long, far, hops, of_workloads] {
            let text = asked.plan();
            if let Err(wrong) = load_str("measure", &text, &LoadOptions::default()) {
                panic!("{}\n{text}", wrong.render(crate::plan::Format::Human));
            }
        }
        let (least, measure) = window(4 * second, second, Some(second));
        assert_eq!((least, measure), (1, 3 * second));
        let (least, measure) = window(10 * second, second, Some(second));
        assert_eq!((least, measure), (3, 2 * second));
    }

    #[test]
    fn every_time_is_right_for_the_other_programs() {
        let streams = ["tcp_stream".to_owned(), "tcp_rr".to_owned()];
        for (seconds, ms) in (2..=30).flat_map(|seconds| [0, 100, 1000, 1300].map(|ms| (f64::from(seconds), ms))) {
            for (program, known) in [(Program::Netperf, 2), (Program::Iperf3, 1)] {
                let interval = (ms > 0).then(|| Duration::from_millis(ms));
                let load = Load { interval, ..asked(seconds).load };
                let asked = Asked { speaks: Some(program), load, ..asked(seconds) };
                let named = Asked { workloads: streams[..known].to_vec(), ..asked.clone() };
                let back = Asked { load: Load { reverse: true, ..asked.load.clone() }, ..named.clone() };
                let back = Asked { workloads: streams[..1].to_vec(), ..back };
                for text in [asked.plan(), asked.loads(), named.plan(), back.plan()] {
                    if let Err(wrong) = load_str("measure", &text, &LoadOptions::default()) {
                        panic!("-t {seconds} -i {ms} ms: {}\n{text}", wrong.render(crate::plan::Format::Human));
                    }
                }
                let lengths = asked.lengths(asked.share(), interval);
                let all = 2 * lengths.least * lengths.iteration(asked.round_trip) + asked.idle_length();
                assert!(ms > 0 || all.as_secs_f64() <= seconds + 2.0, "-t {seconds}: {all:?}");
            }
        }
    }

    #[test]
    fn letters_mean_what_iperf3_means_by_them() {
        for (typed, written) in
            [("10M", "10Mbit/s"), ("2.5g", "2.5Gbit/s"), ("64000", "64000bit/s"), ("1MB/s", "1MB/s")]
        {
            assert_eq!(rate(typed).unwrap(), written);
        }
        for (typed, written) in [("128K", "128KiB"), ("1m", "1MiB"), ("1472", "1472"), ("1KiB", "1KiB")] {
            assert_eq!(size(typed).unwrap(), written);
        }
        for wrong in ["0", "0M", "10", "M", "fast", "5k/s", "-3M"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "K", "-1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "0.01", "-1", "2d", "100h"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }
}
