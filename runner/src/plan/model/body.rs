//! The body of a test.

use std::{borrow::Cow, collections::BTreeMap};

use netcore::spec::{
    Arrival, BufferOptions, Close, Collectable, Cpus, Direction, Io, PaceMode, Payload, Receive, SocketOptions,
    quantity::BitsPerSecond,
    ranks::{Class, Operation},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};

use super::{
    Assert, Command, Control, Find, Hooks, Iterations, OneOrMany, Pairs, Ports, Ranks, Skip, StopWhen, Warmup, Window,
    Word,
};
use crate::plan::{
    quantity::{Rate, Size, Time},
    workload::Workload,
};

/// A test: its workload, hosts, load, length, iterations and assertions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Probe the hops of the path before the load and under it: where does the queue stand? Of a group, its first stream does.
    pub hops: Option<bool>,
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

/// Pacing of an offered load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Concurrent {
    /// Their start.
    pub start: Option<Start>,
    /// The window over which they are summed.
    pub window: Option<Window>,
    /// The members by name; each is a test body merged over the test.
    pub members: BTreeMap<String, TestBody>,
}

/// The start of the members of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Start {
    /// The largest skew that counts; past it the iteration is repeated. 5 ms by default.
    pub max_skew: Option<Time>,
}

/// Swept keys. `plan::matrix` reads them from the tree, which knows their places; this type is for the published schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    #[serde(default)]
    pub factor: Option<f64>,
    /// Each value is the one before plus this.
    #[serde(default)]
    pub step: Option<Word>,
    /// With a factor: also the values half-way between (1, 1.5, 2, 3, 4, 6, …).
    #[serde(default)]
    pub half_steps: Option<bool>,
    /// Also each value minus and plus this (NetPIPE's perturbation).
    #[serde(default)]
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
