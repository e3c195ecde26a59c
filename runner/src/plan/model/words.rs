//! Choices of one word, and what is sent.

use std::{borrow::Cow, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

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
    /// Who is at the far end.
    Control {
        /// A daemon: both ends report.
        Session,
        /// A service that takes no part (echo, discard, chargen): the near end reports alone.
        None,
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

words!(
    /// What a search varies.
    FindBy {
        /// The offered load.
        Rate,
        /// Outstanding transactions.
        Inflight,
    }
);

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
