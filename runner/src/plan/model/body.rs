//! The test body.

use std::{borrow::Cow, collections::BTreeMap, fmt, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{
    Buffers, Close, CpuList, Level, OneOrMany, Ports, Socket, Statement,
    common::{STATEMENT, Word, either_schema},
};
use crate::plan::{
    quantity::{MetricName, Rate, Ratio, Size, Time},
    workload::Workload,
};

/// A test: what runs, between which hosts, how long, how often, and what must come out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestBody {
    /// What runs: transport and pattern in one word (netperf -t).
    pub workload: Option<Workload>,
    /// The host that opens the connections; left out: this process.
    pub from: Option<String>,
    /// The host that accepts them; left out: the embedded daemon (netperf -H, iperf3 -c).
    pub to: Option<String>,
    /// Which way the payload goes (iperf3 -R, --bidir).
    pub direction: Option<Direction>,
    /// Parallel connections in each direction (iperf3 -P).
    #[schemars(range(min = 1))]
    pub streams: Option<u32>,
    /// Threads that move data at each end; left out: one per stream.
    #[schemars(range(min = 1))]
    pub threads: Option<u32>,
    /// Bytes per send call (netperf -m, iperf3 -l).
    pub message_size: Option<Size>,
    /// Bytes asked for per receive call (netperf -M).
    pub receive_size: Option<Size>,
    /// Bytes per request (netperf -r).
    pub request_size: Option<Size>,
    /// Bytes per response (netperf -r).
    pub response_size: Option<Size>,
    /// Outstanding transactions per stream (netperf -b plus one).
    #[schemars(range(min = 1))]
    pub inflight: Option<u32>,
    /// Drain all replies at hand with one read and refill with one send: other semantics, labelled in the results.
    pub coalesce: Option<bool>,
    /// Offered load of each direction, over all streams: 1Gbit/s, 125MB/s, 20k/s (netperf -b and -w, iperf3 -b).
    pub rate: Option<Rate>,
    /// Who keeps the time of the offered load, and how.
    pub pacing: Option<Pacing>,
    /// How due times are spread; uniform and poisson count latency from the intended send.
    pub arrival: Option<Arrival>,
    /// By which calls bytes cross the socket.
    pub io: Option<Io>,
    /// Socket options at `from`, and at `to` too where `remote_socket` does not say otherwise.
    pub socket: Option<Socket>,
    /// Socket options at `to`.
    pub remote_socket: Option<Socket>,
    /// Buffers at `from`, and at `to` too where `remote_buffers` does not say otherwise.
    pub buffers: Option<Buffers>,
    /// Buffers at `to`.
    pub remote_buffers: Option<Buffers>,
    /// What is sent: zero, random or a file.
    pub payload: Option<Payload>,
    /// Check every byte that arrives (NetPIPE -i).
    pub integrity: Option<bool>,
    /// CPUs of the data threads at `from` (netperf -T).
    pub cpu: Option<CpuList>,
    /// CPUs of the data threads at `to`.
    pub remote_cpu: Option<CpuList>,
    /// Data ports at `from`: connect workloads cycle through a range (netperf -P).
    pub ports: Option<Ports>,
    /// Data ports at `to`.
    pub remote_ports: Option<Ports>,
    /// How connections of the connect workloads are closed.
    pub close: Option<Close>,
    /// A datagram request unanswered for this long counts as lost (netperf -e).
    pub reply_timeout: Option<Time>,
    /// Load that is not counted, before: a duration, or auto (iperf3 -O).
    pub warmup: Option<Warmup>,
    /// Load that is not counted, after.
    pub cooldown: Option<Time>,
    /// The measurement ends after this long (netperf -l, iperf3 -t).
    pub duration: Option<Time>,
    /// The measurement ends after this many payload bytes (netperf -l -N, iperf3 -n).
    pub bytes: Option<Size>,
    /// The measurement ends after this many transactions.
    pub transactions: Option<u64>,
    /// Length of interim intervals; 0: none (netperf -D, iperf3 -i).
    pub interval: Option<Time>,
    /// How often it is measured: a count, or until confident (netperf -i and -I).
    pub iterations: Option<Iterations>,
    /// Swept keys: every combination is a case.
    pub matrix: Option<Matrix>,
    /// Members that start together, instead of a workload.
    pub concurrent: Option<Concurrent>,
    /// What is collected besides byte counters.
    pub collect: Option<Vec<Collect>>,
    /// What must come out.
    pub assert: Option<Vec<Assert>>,
    /// What must come out, added to what was inherited.
    #[serde(rename = "assert+")]
    pub assert_more: Option<Vec<Assert>>,
    /// Skips the rest of an axis once it holds.
    pub stop_when: Option<StopWhen>,
    /// Searches the highest offered load at which something holds.
    pub find: Option<Find>,
    /// The program of a command workload.
    pub command: Option<Command>,
    /// Programs around the measurement; refused unless allowed on the command line.
    pub hooks: Option<Hooks>,
    /// Words to choose tests by; they travel into the results.
    pub tags: Option<Vec<String>>,
    /// true, or the reason why the test is not run.
    pub skip: Option<Skip>,
    /// Profiles merged under this body, left to right.
    pub extends: Option<OneOrMany>,
    /// Idle time before each iteration.
    pub pause: Option<Time>,
    /// The longest an iteration may take beyond what it should.
    pub timeout: Option<Time>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant),* }
    };
}

words!(
    /// Which way the payload goes.
    Direction {
        /// from → to.
        Forward,
        /// to → from.
        Reverse,
        /// Both at once, each on connections of its own.
        Bidirectional,
    }
);
words!(
    /// How due times are spread.
    Arrival {
        /// Each request waits for an answer.
        Closed,
        /// Evenly.
        Uniform,
        /// Exponential gaps.
        Poisson,
    }
);
words!(
    /// By which calls bytes cross the socket.
    Io {
        /// What is best; results say what it was.
        Auto,
        /// One blocking call per operation.
        Blocking,
        /// Non-blocking calls driven by poll.
        Nonblocking,
        /// Non-blocking calls in a busy loop.
        Spin,
        /// io_uring.
        Uring,
        /// sendfile from a file in memory.
        Sendfile,
        /// splice and vmsplice.
        Splice,
        /// MSG_ZEROCOPY.
        Zerocopy,
        /// Several messages per call.
        Batch,
    }
);
words!(
    /// Who keeps the time of an offered load.
    PacingMode {
        /// The sending thread.
        User,
        /// The kernel, by SO_MAX_PACING_RATE.
        Kernel,
        /// The kernel, by SO_TXTIME.
        Txtime,
    }
);
words!(
    /// What is collected besides byte counters.
    Collect {
        /// CPU shares by state.
        Cpu,
        /// CPU shares of each core.
        CpuPerCore,
        /// TCP_INFO.
        TcpInfo,
        /// Latency of send and receive calls; round trips are always timed.
        Latency,
        /// Counters of the interface in use.
        Nic,
        /// Interrupts by CPU.
        Interrupts,
        /// Protocol counters of the kernel.
        Snmp,
        /// The system log: CPU, memory, interrupts, paging, interfaces per interval.
        System,
    }
);
words!(
    /// Whether the interval or the point is judged.
    Judge {
        /// The confidence interval: pass, fail or inconclusive.
        Ci,
        /// The mean (or the only value).
        Point,
    }
);
words!(
    /// Which rows are judged.
    Scope {
        /// Each stream.
        Stream,
        /// Each direction.
        Direction,
        /// The sum.
        Total,
    }
);
words!(
    /// Over which window a concurrent group is summed.
    Window {
        /// The window that all members share.
        Intersection,
        /// Each member's own.
        Own,
    }
);

/// Who keeps the time of an offered load, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pacing {
    /// Who keeps the time.
    pub mode: Option<PacingMode>,
    /// Messages sent back to back at each due time (netperf -b).
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// Time between bursts, instead of `rate` (netperf -w).
    pub every: Option<Time>,
    /// How many due times may be made up for after a stall.
    pub catch_up: Option<u32>,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Payload {
    /// Zero bytes.
    Zero,
    /// Pseudo-random bytes.
    Random,
    /// A file's bytes.
    File(PathBuf),
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "zero" => Ok(Self::Zero),
            "random" => Ok(Self::Random),
            path if path.contains(['/', '.']) => Ok(Self::File(path.into())),
            _ => Err(D::Error::custom(format!(
                "unknown payload `{text}`: write zero, random, or the path of a file (./{text})"
            ))),
        }
    }
}

impl JsonSchema for Payload {
    fn schema_name() -> Cow<'static, str> {
        "Payload".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "zero, random, or a file's path", "type": "string", "examples": ["zero", "random"]})
    }
}

/// Load before the measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Warmup {
    /// This long.
    For(Time),
    /// Until the last intervals are flat.
    Auto(WarmupAuto),
}

/// Bounds of a warm-up that ends by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WarmupAuto {
    /// The longest it may take, 10 s unless said.
    pub max: Option<Time>,
}

/// How often a case is measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Iterations {
    /// This often.
    Count(u32),
    /// Until confident.
    Until(IterationsDetail),
}

/// Measured until every metric's mean is known to a margin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IterationsDetail {
    /// At least this often: 3 unless said.
    #[schemars(range(min = 1))]
    pub min: Option<u32>,
    /// At most this often: 30 unless said.
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// The confidence level: 95 % unless said.
    pub confidence: Option<Ratio>,
    /// The half-width of the interval relative to the mean: 2.5 % unless said (netperf -I 99,5 is 99 %, 2.5 %).
    pub margin: Option<Ratio>,
    /// Which metrics: the workload's headline unless said.
    pub metrics: Option<Vec<MetricName>>,
}

/// A word, or a map that says more: read without guessing, so that an error keeps its place.
macro_rules! word_or_map {
    ($name:ident, $detail:ident, $expecting:literal, $types:tt, |$text:ident| $from_word:expr, |$map:ident| $from_map:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Both;
                impl<'de> Visitor<'de> for Both {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: serde::de::Error>(self, $text: &str) -> Result<$name, E> {
                        $from_word
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$name, A::Error> {
                        let $map = $detail::deserialize(MapAccessDeserializer::new(map))?;
                        Ok($from_map)
                    }
                }
                deserializer.deserialize_str(Both)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                either_schema($expecting, &json_schema!($types), &generator.subschema_for::<$detail>())
            }
        }
    };
}

word_or_map!(
    Warmup,
    WarmupAuto,
    "a duration, auto, or {max: 30s}",
    {"type": ["string", "number"], "minimum": 0},
    |text| if text == "auto" {
        Ok(Warmup::Auto(WarmupAuto::default()))
    } else {
        schemas::units::parse_duration(text).map(|d| Warmup::For(Time(d))).map_err(E::custom)
    },
    |detail| Warmup::Auto(detail)
);

word_or_map!(
    Iterations,
    IterationsDetail,
    "a count, or {min, max, confidence, margin, metrics}",
    {"type": "integer", "minimum": 1},
    |text| text.parse().ok().filter(|n| *n > 0).map(Iterations::Count).ok_or_else(|| E::custom(format!(
        "`{text}` is no count: write 5, or a map such as {{min: 5, max: 30, margin: 2.5%}}"
    ))),
    |detail| Iterations::Until(detail)
);

/// What must come out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assert(pub AssertDetail);

/// A statement with its conditions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssertDetail {
    /// METRIC OP LIMIT.
    pub that: Statement,
    /// Only for cases whose keys have these values; comparisons such as "<=64KiB" too.
    #[serde(default)]
    pub when: Option<BTreeMap<String, Word>>,
    /// error (fails the run) or warn.
    #[serde(default)]
    pub severity: Option<Level>,
    /// Whether the interval or the point is judged; by default the interval where there are three iterations.
    #[serde(default)]
    pub judge: Option<Judge>,
    /// Which rows are judged; by default the total.
    #[serde(default)]
    pub scope: Option<Scope>,
    /// Which member of a concurrent group.
    #[serde(default)]
    pub member: Option<String>,
}

fn bare(that: Statement) -> AssertDetail {
    AssertDetail { that, when: None, severity: None, judge: None, scope: None, member: None }
}

word_or_map!(
    Assert,
    AssertDetail,
    "METRIC OP LIMIT, or {that, when, severity, judge, scope, member}",
    {"type": "string", "pattern": STATEMENT},
    |text| Statement::parse(text).map(|that| Assert(bare(that))).map_err(E::custom),
    |detail| Assert(detail)
);

/// When the rest of an axis is skipped.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StopWhen(pub StopWhenDetail);

/// A statement, and the axis whose rest is skipped once it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopWhenDetail {
    /// METRIC OP LIMIT.
    pub that: Statement,
    /// The axis; by default the only one there is.
    #[serde(default)]
    pub axis: Option<String>,
}

word_or_map!(
    StopWhen,
    StopWhenDetail,
    "METRIC OP LIMIT, or {that, axis}",
    {"type": "string", "pattern": STATEMENT},
    |text| Statement::parse(text).map(|that| StopWhen(StopWhenDetail { that, axis: None })).map_err(E::custom),
    |detail| StopWhen(detail)
);

/// The search for the highest offered load at which something holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// What must hold.
    pub metric: MetricName,
    /// The most it may be.
    #[serde(default)]
    pub at_most: Option<Word>,
    /// The least it may be.
    #[serde(default)]
    pub at_least: Option<Word>,
    /// The key that is searched: `rate` or `inflight`.
    pub by: FindBy,
    /// Where the search starts.
    #[serde(default)]
    pub from: Option<Word>,
    /// Where it ends.
    #[serde(default)]
    pub to: Option<Word>,
    /// How closely the answer is wanted, relative to it: 1 % unless said.
    #[serde(default)]
    pub within: Option<Ratio>,
    /// The most probes: 20 unless said.
    #[serde(default)]
    pub max_probes: Option<u32>,
}

words!(
    /// What a search varies.
    FindBy {
        /// The offered load.
        Rate,
        /// Outstanding transactions.
        Inflight,
    }
);

/// A program that prints numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// The program and its arguments; no shell.
    pub run: Vec<Word>,
    /// The named importer that reads its output (`iperf3`, `netperf`, …).
    #[serde(default)]
    pub import: Option<String>,
    /// A regular expression whose named groups are results columns.
    #[serde(default)]
    pub regex: Option<String>,
}

/// Programs around the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hooks {
    /// Once before the first iteration of a case.
    pub setup: Option<Hook>,
    /// Before each iteration.
    pub prepare: Option<Hook>,
    /// After each iteration.
    pub conclude: Option<Hook>,
    /// Once after the last iteration of a case, whatever happened.
    pub cleanup: Option<Hook>,
}

/// A program on a host: its argv, or a map that says more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hook {
    /// The program and its arguments; no shell.
    pub run: Vec<String>,
    /// The host it runs on; left out: this one.
    pub on: Option<String>,
    /// How long it may take: 30 s unless said.
    pub timeout: Option<Time>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HookDetail {
    /// The program and its arguments; no shell.
    run: Vec<Word>,
    /// The host it runs on; left out: this one.
    #[serde(default)]
    on: Option<String>,
    /// How long it may take: 30 s unless said.
    #[serde(default)]
    timeout: Option<Time>,
}

impl<'de> Deserialize<'de> for Hook {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Both;
        impl<'de> Visitor<'de> for Both {
            type Value = Hook;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a program with its arguments as a list, or {run, on, timeout}")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Hook, A::Error> {
                let mut run = Vec::new();
                while let Some(Word(item)) = items.next_element()? {
                    run.push(item);
                }
                Ok(Hook { run, on: None, timeout: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Hook, A::Error> {
                let detail = HookDetail::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Hook { run: detail.run.into_iter().map(|w| w.0).collect(), on: detail.on, timeout: detail.timeout })
            }
        }
        deserializer.deserialize_any(Both)
    }
}

impl JsonSchema for Hook {
    fn schema_name() -> Cow<'static, str> {
        "Hook".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let detail = generator.subschema_for::<HookDetail>();
        either_schema(
            "a program with its arguments, or {run, on, timeout}",
            &json_schema!({"type": "array", "items": {"type": ["string", "number", "boolean"]}}),
            &detail,
        )
    }
}

/// Whether, or why, a test is not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Skip {
    /// Without a reason.
    Plain(bool),
    /// For this reason.
    Because(String),
}

impl<'de> Deserialize<'de> for Skip {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.as_str() {
            "true" => Self::Plain(true),
            "false" => Self::Plain(false),
            _ => Self::Because(text),
        })
    }
}

impl JsonSchema for Skip {
    fn schema_name() -> Cow<'static, str> {
        "Skip".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": "true, or the reason", "type": ["boolean", "string"]})
    }
}

/// Members that start together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Concurrent {
    /// How they start.
    pub start: Option<Start>,
    /// Over which window they are summed.
    pub window: Option<Window>,
    /// The members by name; each is a test body merged over the test.
    pub members: BTreeMap<String, TestBody>,
}

/// How the members of a group start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Start {
    /// The largest skew that counts; past it the iteration is repeated. 5 ms unless said.
    pub max_skew: Option<Time>,
}

/// Swept keys. Read from the tree by `matrix`, which knows the places; this type is for the published schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Matrix;

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The values of an axis: a list, or a generator.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "its shape is the published schema of a generator")]
pub struct MatrixValue {
    /// The first value.
    from: Word,
    /// The last value, if the steps meet it.
    to: Word,
    /// Each value is the one before times this.
    #[serde(default)]
    factor: Option<f64>,
    /// Each value is the one before plus this.
    #[serde(default)]
    step: Option<Word>,
    /// With a factor: also the values half-way between (1, 1.5, 2, 3, 4, 6, …).
    #[serde(default)]
    half_steps: Option<bool>,
    /// Also each value minus and plus this (NetPIPE's perturbation).
    #[serde(default)]
    perturb: Option<Word>,
}

impl JsonSchema for Matrix {
    fn schema_name() -> Cow<'static, str> {
        "Matrix".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let generated = generator.subschema_for::<MatrixValue>();
        let scalars = json_schema!({"type": "array", "items": {}});
        let cases = json_schema!({"type": "array", "items": {"type": "object"}});
        json_schema!({
            "description": "each key of a test (dotted for nested ones) with its values; include, exclude and zip are words of their own",
            "type": "object",
            "properties": {"include": cases, "exclude": cases, "zip": cases},
            "additionalProperties": {"anyOf": [scalars, generated]}
        })
    }
}
