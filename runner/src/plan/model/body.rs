//! The body of a test, with its warm-up, iterations, assertions and searches.

use std::{borrow::Cow, collections::BTreeMap};

use analyze::judge::{Judge, Scope};
use netcore::spec::{
    Arrival, BufferOptions, Close, Collectable, Cpus, Direction, Io, PaceMode, Payload, QuicOptions, Receive,
    SocketOptions, TlsOptions,
    quantity::BitsPerSecond,
    ranks::{Class, Operation},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use schemas::words::Severity;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny},
};

use super::{
    Command, Control, FindBy, Hooks, OneOrMany, Pairs, Ports, STATEMENT, Skip, Statement, Timestamps, Window, Word,
    word_or_map,
};
use crate::plan::{
    quantity::{MetricName, Rate, Ratio, Size, Time},
    workload::Workload,
};

/// A test: its workload, hosts, load, length, iterations and assertions.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestBody {
    /// Transport and pattern in one word (netperf -t).
    pub workload: Option<Workload>,
    /// The host that opens the connections; left out: this process.
    pub from: Option<String>,
    /// The host that accepts them; left out: the embedded daemon (netperf -H, iperf3 -c).
    pub to: Option<String>,
    /// The hosts of a test of several ranks, in the order of their ranks; or a number: so many on this machine.
    pub ranks: Option<Ranks>,
    /// Ranks on each of these hosts; 1 by default.
    #[schemars(range(min = 1))]
    pub ranks_per_host: Option<u32>,
    /// The operation between the ranks.
    pub operation: Option<Operation>,
    /// The class of a NAS kernel.
    pub class: Option<Class>,
    /// Busy time of each rank before each exchange of a pattern of applications.
    pub compute: Option<Time>,
    /// `session`: a daemon at the far end; `none`: a plain service at `remote_ports`, for example 7, echo (netperf -N).
    pub control: Option<Control>,
    /// Whether UDP sockets are connected at both ends; false: every call names the other end's address, as netperf's do.
    pub connected: Option<bool>,
    /// Direction of the payload (iperf3 -R, --bidir).
    pub direction: Option<Direction>,
    /// Parallel connections in each direction (iperf3 -P).
    #[schemars(range(min = 1))]
    pub streams: Option<u32>,
    /// Threads that move data at each end (neper -T): fewer than streams carry several each. Left out: one per stream.
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
    /// One read drains all replies at hand and one send refills: other semantics, labelled in the results.
    pub coalesce: Option<bool>,
    /// Offered load of each direction, over all streams: 1Gbit/s, 125MB/s, 20k/s (netperf -b and -w, iperf3 -b).
    pub rate: Option<Rate>,
    /// Speed of the path between the two ends, where their interfaces do not tell it: for `wire_ratio`.
    pub wire: Option<BitsPerSecond>,
    /// Pacing of the offered load.
    pub pacing: Option<Pacing>,
    /// Spread of due times; uniform and poisson count latency from the intended send.
    pub arrival: Option<Arrival>,
    /// By which calls bytes cross the socket.
    pub io: Option<Io>,
    /// The receiver's use of a stream's bytes: copied to its buffers, or counted and discarded.
    pub receive: Option<Receive>,
    /// Socket options at `from`, and at `to` unless `remote_socket` overrides them.
    pub socket: Option<SocketOptions>,
    /// Socket options at `to`.
    pub remote_socket: Option<SocketOptions>,
    /// Buffers at `from`, and at `to` unless `remote_buffers` overrides them.
    pub buffers: Option<BufferOptions>,
    /// Buffers at `to`.
    pub remote_buffers: Option<BufferOptions>,
    /// The bytes that are sent: zero, random or a file's.
    pub payload: Option<Payload>,
    /// Check every byte that arrives (NetPIPE -i).
    pub integrity: Option<bool>,
    /// CPUs of the data threads at `from` (netperf -T).
    pub cpu: Option<Cpus>,
    /// CPUs of the data threads at `to`.
    pub remote_cpu: Option<Cpus>,
    /// Data ports at `from`: connect workloads cycle through a range (netperf -P).
    pub ports: Option<Ports>,
    /// Data ports at `to`.
    pub remote_ports: Option<Ports>,
    /// The way in which connect workloads close connections.
    pub close: Option<Close>,
    /// A datagram request unanswered for this long counts as lost (netperf -e).
    pub reply_timeout: Option<Time>,
    /// Time from the start of a group until this member's load begins.
    pub after: Option<Time>,
    /// The member of the group that measures the same round trip on the idle path.
    pub idle: Option<String>,
    /// Uncounted load before the measurement: a duration, or auto (iperf3 -O).
    pub warmup: Option<Warmup>,
    /// Uncounted load after the measurement.
    pub cooldown: Option<Time>,
    /// The measurement ends after this long (netperf -l, iperf3 -t).
    pub duration: Option<Time>,
    /// The measurement ends after this many payload bytes (netperf -l -N, iperf3 -n).
    pub bytes: Option<Size>,
    /// The measurement ends after this many transactions.
    pub transactions: Option<u64>,
    /// Length of interim intervals; 0: none (netperf -D, iperf3 -i).
    pub interval: Option<Time>,
    /// Number of measurements: a count, or until confident (netperf -i and -I).
    pub iterations: Option<Iterations>,
    /// Swept keys: every combination is a case.
    pub matrix: Option<Matrix>,
    /// Pairs of hosts that are measured, instead of `from` and `to`.
    pub pairs: Option<Pairs>,
    /// Members that start together, instead of a workload.
    pub concurrent: Option<Concurrent>,
    /// Measurements besides byte counters.
    pub collect: Option<Vec<Collectable>>,
    /// The cipher of TLS and QUIC, and how the connections of tls_crr, tls_cc, quic_crr and quic_cc begin.
    pub tls: Option<TlsOptions>,
    /// How the connections of QUIC send.
    pub quic: Option<QuicOptions>,
    /// Probe the hops of the path before the load and under it: where does the queue stand? Of a group, its first stream does.
    pub hops: Option<bool>,
    /// Tell the delays of requests and of their answers apart (udp_rr).
    pub one_way: Option<bool>,
    /// Ask the kernels when some of the messages leave, and tell the times in both hosts apart (udp_rr); implies one_way.
    pub timestamps: Option<Timestamps>,
    /// Look for outages of at least this length in paced requests or messages of a stream; they carry times (one_way).
    pub outage: Option<Time>,
    /// Assertions on the results.
    pub assert: Option<Vec<Assert>>,
    /// Assertions in addition to the inherited ones.
    #[serde(rename = "assert+")]
    pub assert_more: Option<Vec<Assert>>,
    /// A condition that skips the rest of an axis.
    pub stop_when: Option<StopWhen>,
    /// Searches the highest offered load at which a bound holds.
    pub find: Option<Find>,
    /// The program of a command workload.
    pub command: Option<Command>,
    /// Programs around the measurement; refused unless allowed on the command line.
    pub hooks: Option<Hooks>,
    /// Words for `--only`; they are also in the results.
    pub tags: Option<Vec<String>>,
    /// true, or the reason why the test is skipped.
    pub skip: Option<Skip>,
    /// Profiles merged under this body, left to right.
    pub extends: Option<OneOrMany>,
    /// Idle time before each iteration.
    pub pause: Option<Time>,
    /// The longest an iteration may take beyond what it should.
    pub timeout: Option<Time>,
}

/// The hosts of ranks, or their number: its words, as written.
#[derive(Clone, Debug)]
pub struct Ranks(pub Vec<String>);

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Count(u32),
            Hosts(OneOrMany),
        }
        match Written::deserialize(deserializer) {
            Ok(Written::Count(count)) => Ok(Self(vec![count.to_string()])),
            Ok(Written::Hosts(hosts)) => Ok(Self(hosts.0)),
            Err(_) => Err(D::Error::custom("neither a number of ranks nor hosts: 4, node[1-4], or [a, b]")),
        }
    }
}

impl JsonSchema for Ranks {
    fn schema_name() -> Cow<'static, str> {
        "Ranks".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let hosts = generator.subschema_for::<OneOrMany>();
        let count = json_schema!({"type": "integer", "minimum": 2});
        json_schema!({"description": "hosts, or a number of ranks on this machine", "anyOf": [count, hosts]})
    }
}

/// Pacing of an offered load.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pacing {
    /// The sender or the kernel.
    pub mode: Option<PaceMode>,
    /// Messages sent back to back at each due time (netperf -b).
    #[schemars(range(min = 1))]
    pub burst: Option<u32>,
    /// Time between bursts, instead of `rate` (netperf -w).
    pub every: Option<Time>,
    /// Due times that are made up for after a stall.
    pub catch_up: Option<u32>,
}

/// Members that start together.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Concurrent {
    /// Their start.
    pub start: Option<Start>,
    /// The window over which they are summed.
    pub window: Option<Window>,
    /// The members by name; each is a test body merged over the test.
    #[schemars(extend("default" = {}))]
    pub members: BTreeMap<String, TestBody>,
}

/// The start of the members of a group.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Start {
    /// The largest skew that counts; past it the iteration is repeated. 5 ms by default.
    pub max_skew: Option<Time>,
}

/// Swept keys. `plan::matrix` reads them from the tree, which knows their places; this type is for the published schema.
#[derive(Clone, Debug, Default)]
pub struct Matrix;

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The values of an axis: a list, or a generator.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatrixValue {
    /// The first value.
    pub from: Word,
    /// The last value, if the steps meet it.
    pub to: Word,
    /// Each value is the one before times this.
    pub factor: Option<f64>,
    /// Each value is the one before plus this.
    pub step: Option<Word>,
    /// With a factor: also the values half-way between (1, 1.5, 2, 3, 4, 6, …).
    pub half_steps: Option<bool>,
    /// Also each value minus and plus this (NetPIPE's perturbation).
    pub perturb: Option<Word>,
}

impl JsonSchema for Matrix {
    fn schema_name() -> Cow<'static, str> {
        "Matrix".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let generated = generator.subschema_for::<MatrixValue>();
        let scalars = json_schema!({"type": "array", "items": {}});
        let cases = json_schema!({"type": "array", "items": {"type": "object"}});
        let hosts = json_schema!({
            "description": "hosts, ranges of them in a list, or a range alone: node[1-16]",
            "anyOf": [scalars, {"type": "string", "pattern": r"[\[,]"}]
        });
        json_schema!({
            "description": "each key of a test (dotted for nested ones) with its values; include, exclude and zip are words of their own",
            "type": "object",
            "properties": {"include": cases, "exclude": cases, "zip": cases, "from": hosts, "to": hosts},
            "additionalProperties": {"anyOf": [scalars, generated]}
        })
    }
}

/// Load before the measurement.
#[derive(Clone, Debug)]
pub enum Warmup {
    /// This long.
    For(Time),
    /// Until the last intervals are flat.
    Auto(WarmupAuto),
}

/// Bounds of a warm-up that ends by itself.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WarmupAuto {
    /// The longest it may take; 10 s by default.
    pub max: Option<Time>,
}

/// Number of iterations of a case.
#[derive(Clone, Debug)]
pub enum Iterations {
    /// This often.
    Count(u32),
    /// Until confident.
    Until(IterationsDetail),
}

/// Measured until every metric's mean is known to a margin.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IterationsDetail {
    /// At least this often; 3 by default.
    #[schemars(range(min = 1))]
    pub min: Option<u32>,
    /// At most this often; 30 by default.
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// The confidence level; 95 % by default.
    pub confidence: Option<Ratio>,
    /// The half-width of the interval relative to the mean: 2.5 % by default (netperf -I 99,5 is 99 %, 2.5 %).
    pub margin: Option<Ratio>,
    /// The metrics; by default the workload's headline.
    pub metrics: Option<Vec<MetricName>>,
}

word_or_map!(
    Warmup,
    WarmupAuto,
    "a duration, auto, or {max: 30s}",
    {"type": ["string", "number"], "minimum": 0},
    |text| if text == "auto" {
        Ok(Warmup::Auto(WarmupAuto::default()))
    } else {
        schemas::units::parse_duration(text).map(|d| Warmup::For(Time(d)))
    },
    |detail| Warmup::Auto(detail)
);

word_or_map!(
    Iterations,
    IterationsDetail,
    "a count, or {min, max, confidence, margin, metrics}",
    {"type": "integer", "minimum": 1},
    |text| text.parse().ok().filter(|n| *n > 0).map(Iterations::Count).ok_or_else(|| format!(
        "`{text}` is not a count: write 5, or a map such as {{min: 5, max: 30, margin: 2.5%}}"
    )),
    |detail| Iterations::Until(detail)
);

/// A statement that must hold.
#[derive(Clone, Debug)]
pub struct Assert(pub AssertDetail);

/// A statement with its conditions.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssertDetail {
    /// METRIC OP LIMIT.
    pub that: Statement,
    /// Only for cases whose keys have these values, or fulfil comparisons such as "<=64KiB".
    pub when: Option<BTreeMap<String, Word>>,
    /// error (fails the run) or warn.
    pub severity: Option<Severity>,
    /// Whether the interval or the point is judged; by default the interval where there are three iterations.
    pub judge: Option<Judge>,
    /// Rows that are judged; by default the total.
    pub scope: Option<Scope>,
    /// Member of a concurrent group.
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
    |text| Statement::parse(text).map(|that| Assert(bare(that))),
    |detail| Assert(detail)
);

/// A condition that skips the rest of an axis.
#[derive(Clone, Debug)]
pub struct StopWhen(pub StopWhenDetail);

/// A statement, and the axis whose rest is skipped once it holds.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopWhenDetail {
    /// METRIC OP LIMIT.
    pub that: Statement,
    /// The axis; by default the only one there is.
    pub axis: Option<String>,
}

word_or_map!(
    StopWhen,
    StopWhenDetail,
    "METRIC OP LIMIT, or {that, axis}",
    {"type": "string", "pattern": STATEMENT},
    |text| Statement::parse(text).map(|that| StopWhen(StopWhenDetail { that, axis: None })),
    |detail| StopWhen(detail)
);

/// The search for the highest offered load at which something holds.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Find {
    /// The metric that has a bound.
    pub metric: MetricName,
    /// The most it may be.
    pub at_most: Option<Word>,
    /// The least it may be.
    pub at_least: Option<Word>,
    /// The key that is searched: `rate` or `inflight`.
    pub by: FindBy,
    /// The lowest load.
    pub from: Option<Word>,
    /// The highest load. Without one, the load is doubled until the bound is exceeded.
    pub to: Option<Word>,
    /// Precision of the answer, relative to it; 1 % by default.
    pub within: Option<Ratio>,
    /// The most probes; 40 by default.
    pub max_probes: Option<u32>,
}
