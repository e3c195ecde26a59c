//! The plan that the options of `plumb measure` stand for.

use std::{fmt::Write as _, time::Duration};

use netcore::peers::Program;

use super::SERVER;
use crate::plan::split_port;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The far end as `--host` takes it; `None`: this process has both ends.
    pub host: Option<String>,
    /// The program that serves there in place of a daemon.
    pub speaks: Option<Program>,
    /// Whether ssh sends this program along.
    pub copy: bool,
    /// Time for all of it.
    pub length: Duration,
    pub streams: u32,
    /// Directions of the load.
    pub directions: Vec<Direction>,
    /// Whether the load is datagrams.
    pub udp: bool,
    /// Offered load, as a plan writes it.
    pub rate: Option<String>,
    /// Size of messages, as a plan writes it.
    pub message_size: Option<String>,
    /// Length of the intervals of the load.
    pub interval: Option<Duration>,
    /// Workloads by name, in the place of both directions with their round trips.
    pub workloads: Vec<String>,
    /// Time of a round trip on the idle path, as far as it is known.
    pub round_trip: Duration,
}

/// A direction of the load, as a user sees it who sits at the near end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Download,
    Upload,
}

impl Direction {
    /// Name of its test.
    pub fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }

    /// As a plan writes it.
    fn key(self) -> &'static str {
        match self {
            Self::Download => "reverse",
            Self::Upload => "forward",
        }
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

/// Probes per second: enough for percentiles, and no load by themselves.
const PROBE_RATE: &str = "100/s";

/// Lengths in an iteration of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
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
    fn of(round_trip: Duration, share: Duration) -> Self {
        let at_least =
            |ms: u64, trips: u32| (trips * round_trip).clamp(Duration::from_millis(ms), Duration::from_secs(3));
        let (idle, warmup, pause) = (at_least(250, 5), at_least(300, 20), at_least(200, 3));
        let after = idle + at_least(150, 2);
        let rest = (share / LEAST).saturating_sub(after + warmup + pause);
        // A second shows what a path carries; what is left of the time goes into more iterations.
        let measure = rest.clamp(Duration::from_millis(300), Duration::from_millis(900));
        let whole = |length: Duration| Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
        Self {
            idle: whole(idle),
            after: whole(after),
            warmup: whole(warmup),
            measure: whole(measure),
            pause: whole(pause),
        }
    }

    fn iteration(&self) -> Duration {
        self.after + self.warmup + self.measure + self.pause
    }
}

/// Iterations that fit into a time, and at least [`LEAST`].
fn fitting(time: Duration, one: Duration) -> u32 {
    let fit = time.as_millis() / one.as_millis().max(1);
    u32::try_from(fit).unwrap_or(u32::MAX).clamp(LEAST, 1000)
}

/// `300ms`
fn ms(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

impl Asked {
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
        keys.extend(port.map(|_| format!("control: {}", quoted(host))));
        keys.extend(self.speaks.map(|program| format!("speaks: {}", program.name())));
        format!("hosts:\n  {SERVER}: {{{}}}\n", keys.join(", "))
    }

    /// Keys of the load, one per line.
    fn load(&self) -> Vec<String> {
        let mut keys = vec![format!("workload: {}", if self.udp { "udp_stream" } else { "tcp_stream" })];
        keys.extend((self.streams > 1).then(|| format!("streams: {}", self.streams)));
        keys.extend(self.rate.as_ref().map(|rate| format!("rate: {rate}")));
        keys.extend(self.message_size.as_ref().map(|size| format!("message_size: {size}")));
        keys.extend(self.interval.map(|interval| format!("interval: {}", ms(interval))));
        keys
    }

    /// Time for each direction, after the round trips of the idle path.
    fn share(&self) -> Duration {
        let count = u32::try_from(self.directions.len()).unwrap_or(1).max(1);
        self.length.saturating_sub(self.idle_length()) / count
    }

    fn idle_length(&self) -> Duration {
        let length =
            (self.length / 12).clamp(Duration::from_millis(500), Duration::from_secs(2)).max(5 * self.round_trip);
        Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
    }

    /// Both directions, each with round trips beside it, and the idle path.
    fn path(&self, text: &mut String) {
        let lengths = Lengths::of(self.round_trip, self.share());
        // An iteration takes some time to set up, too.
        let one = lengths.iteration() + Duration::from_millis(100) + 4 * self.round_trip;
        let most = fitting(self.share(), one);
        // Other programs run one test at a time, or know no idle path.
        let is_ours = self.speaks.is_none();
        let _ = writeln!(text, "  iterations: {{min: {LEAST}, max: {most}, margin: {MARGIN}, metrics: [throughput]}}");
        let _ = writeln!(text, "  pause: {}", ms(lengths.pause));
        let _ = writeln!(text, "tests:");
        if self.speaks != Some(Program::Iperf3) {
            let rate = if is_ours { format!(", rate: {PROBE_RATE}") } else { String::new() };
            let length = ms(self.idle_length());
            let _ = writeln!(text, "  # Round trips while nothing else is under way.");
            let _ = writeln!(text, "  {IDLE}: {{workload: tcp_rr{rate}, duration: {length}, iterations: 1}}");
        }
        for direction in &self.directions {
            let (warmup, measure) = (ms(lengths.warmup), ms(lengths.measure));
            let _ = writeln!(text, "  {}:", direction.name());
            let mut load = self.load();
            load.push(format!("direction: {}", direction.key()));
            if !is_ours {
                load.push(format!("duration: {}", ms(lengths.warmup + lengths.measure)));
                for key in load {
                    let _ = writeln!(text, "    {key}");
                }
                continue;
            }
            let after = ms(lengths.after);
            let _ = writeln!(
                text,
                "    # Round trips on the idle path, then beside the load: the difference is the queue."
            );
            let _ = writeln!(text, "    concurrent:");
            let _ = writeln!(text, "      start: {{max_skew: 50ms}}");
            let _ = writeln!(text, "      window: own");
            let _ = writeln!(text, "      members:");
            let idle = ms(lengths.idle);
            let _ = writeln!(text, "        {IDLE}: {{workload: tcp_rr, rate: {PROBE_RATE}, duration: {idle}}}");
            let begin = format!("after: {after}, warmup: {warmup}, duration: {measure}");
            let _ = writeln!(text, "        {PROBE}: {{workload: tcp_rr, rate: {PROBE_RATE}, idle: {IDLE}, {begin}}}");
            let _ = writeln!(text, "        {LOAD}: {{{}, {begin}}}", load.join(", "));
        }
    }

    /// Each workload by itself.
    fn named(&self, text: &mut String) {
        let count = u32::try_from(self.workloads.len()).unwrap_or(1).max(1);
        let share = self.length / count;
        let measure = (share / LEAST).saturating_sub(Duration::from_millis(400));
        let measure = measure.clamp(Duration::from_millis(300), Duration::from_secs(2));
        let one = measure + Duration::from_millis(400);
        let most = fitting(share, one);
        let _ = writeln!(text, "  warmup: 300ms\n  duration: {}", ms(measure));
        let _ = writeln!(text, "  iterations: {{min: {LEAST}, max: {most}, margin: {MARGIN}}}");
        for key in self.load().into_iter().skip(1) {
            let _ = writeln!(text, "  {key}");
        }
        if self.directions == [Direction::Download] {
            let _ = writeln!(text, "  direction: {}", Direction::Download.key());
        }
        let _ = writeln!(text, "tests:");
        for workload in &self.workloads {
            let _ = writeln!(text, "  {workload}: {{workload: {workload}}}");
        }
    }
}
