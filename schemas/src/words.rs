//! The words of columns that hold one of a fixed set, each listed once: type, text and documentation come from here.
//!
//! Readers of tables compare text with [`Record::as_str`] and its like, so an unknown word of a newer version stays
//! readable. A typed row refuses it. [`OneOrMany`] is a key of a plan that takes a word or a list.

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor},
};
use std::fmt;

/// A word as the documentation shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub text: &'static str,
    /// The meaning, where the word alone does not say it; else empty.
    pub note: &'static str,
}

/// `` `ok`, `failed` or `confirm` (measured again) ``
pub fn listed(words: &[Word]) -> String {
    let mut text = String::new();
    for (i, word) in words.iter().enumerate() {
        text.push_str(match i {
            0 => "",
            _ if i + 1 == words.len() => " or ",
            _ => ", ",
        });
        text.push('`');
        text.push_str(word.text);
        text.push('`');
        if !word.note.is_empty() {
            text.push_str(" (");
            text.push_str(word.note);
            text.push(')');
        }
    }
    text
}

/// A text that is none of a column's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not one of {}", listed(.words))]
pub struct UnknownWord {
    pub found: String,
    pub words: &'static [Word],
}

/// An enum of words: each with its text, and with a note where the word alone does not say its meaning.
#[macro_export]
macro_rules! words {
    ($(
        $(#[$meta:meta])*
        $name:ident { $( $(#[$of_word:meta])* $variant:ident = $text:literal $(($note:literal))?, )* }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $( $(#[$of_word])* $variant, )* }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),*];
            pub const WORDS: &[$crate::words::Word] = &[$($crate::words::Word { text: $text, note: concat!($($note)?) }),*];

            /// As it stands in a cell.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        /// A word reads as its text.
        impl ::std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                self.as_str()
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err($crate::words::UnknownWord { found: text.to_owned(), words: Self::WORDS }),
                }
            }
        }
    )* };
}

words! {
    /// The kind of a row of the results table, from the one that filters prefer to the last resort.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "PlotRecord")]
    Record {
        /// One iteration of a case: the independent observation. Rows without a `record` count as these.
        Iteration = "iteration",
        /// A case's iterations condensed.
        Summary = "summary",
        /// One stream of an iteration.
        Stream = "stream",
        /// One interval of an iteration.
        Interval = "interval",
        /// One probe of a search: counted only where it is asked for, or where there is nothing else.
        Probe = "probe",
    }

    /// A phase of an iteration.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Phase {
        /// Load, not counted.
        Warmup = "warmup",
        /// The measurement.
        Measure = "measure",
        /// Load, not counted.
        Cooldown = "cooldown",
    }

    Status {
        Ok = "ok",
        Failed = "failed",
        Timeout = "timeout",
        Skipped = "skipped",
        Discarded = "discarded",
        Confirm = "confirm" ("measured again because a verdict failed"),
        Cut = "cut" ("ended by a signal before its end: not counted, and measured again by `--resume`"),
    }

    /// How a cycle of a watched plan ended.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    CycleStatus {
        Ok = "ok",
        Judged = "judged" ("measured whole; an assertion or a comparison failed"),
        Failed = "failed" ("a case could not be measured; the values of others are kept"),
        Down = "down" ("nothing was measured: a far end cannot be reached, or the run broke off"),
        Unwritten = "unwritten" ("results could not be written: a full disk"),
        Cut = "cut" ("ended by a signal"),
    }

    /// The direction of the payload that a row counts.
    Way {
        Forward = "forward" ("from → to"),
        Reverse = "reverse",
        Both = "both",
    }

    /// The reporter of the far end's counts.
    Control {
        Session = "session" ("both ends report"),
        None = "none" ("the far end is a service that takes no part; what only it could count is empty"),
        Netperf = "netperf" ("the far end is netserver; what it does not report is empty"),
        Iperf3 = "iperf3" ("the far end is `iperf3 -s`; what it does not report is empty"),
        Stamp = "stamp" ("the far end is a STAMP reflector; only the near end reports, with what the answers say"),
    }

    OfferedUnit {
        Bits = "bits",
        Messages = "messages",
        Transactions = "transactions",
    }

    /// The time that was measured, from the kind that a person means by "latency" to the last resort.
    LatencyKind {
        Response = "response" ("from the intended send"),
        RoundTrip = "round_trip",
        Connect = "connect",
        Send = "send",
        Receive = "receive",
        Operation = "operation" ("of several ranks, at each of them"),
    }

    /// A code point of Explicit Congestion Notification.
    CodePoint {
        Ect0 = "ect0",
        Ect1 = "ect1" ("as L4S traffic"),
        Ce = "ce" ("marked by the sender itself"),
    }

    /// The effect of a path on the code points of the packets that it carried.
    EcnPath {
        Kept = "kept" ("all arrived as they were sent"),
        Marked = "marked" ("some or all met congestion"),
        Bleached = "bleached" ("some or all arrived as Not-ECT, as if the sender knew nothing of it"),
        Remarked = "remarked" ("some or all arrived as another ECT"),
        Mixed = "mixed" ("several of these; the counts tell how many"),
    }

    /// The way in which the delays of the two directions were told apart.
    OneWayClock {
        User = "user" ("two clocks; the programs' times of arrival, which are later than the kernels'"),
        Kernel = "kernel" ("two clocks; the kernels' times of arrival"),
        Synchronised = "synchronised" ("two wall clocks whose errors both kernels bound more closely than the round trips do"),
        Shared = "shared" ("both ends have the same clock: one machine"),
        Reflector = "reflector" ("two clocks; the times that a STAMP reflector wrote, whatever they are"),
    }

    /// The confidence in a figure of latency under load, from the least.
    Confidence {
        Low = "low" ("too few intervals for a moving average"),
        Medium = "medium" ("measured, and not stable at the end"),
        High = "high" ("stable at the end"),
    }

    DemandUnit {
        PerKib = "us_per_kib",
        PerTransaction = "us_per_transaction",
    }

    /// The part of the path or of an end that kept a test from being faster.
    LimitedBy {
        ReceiverWindow = "receiver window" ("the sender waited for room in the receiver's buffer"),
        SendBuffer = "send buffer" ("the sender's buffer held less than the path"),
        CongestionWindow = "congestion window" ("the sender waited for acknowledgements, as its congestion control allows"),
        Application = "application" ("the sending program had too little to send"),
        Loss = "loss" ("the congestion control slowed down because segments were lost"),
        Pacing = "pacing" ("the plan's rate spaced the sends"),
        Bbr = "BBR" ("BBR spaced the sends, by its estimate of the path"),
        SenderCpu = "sender CPU" ("the sender's data thread always ran, or waited for a CPU or for its quota"),
        ReceiverCpu = "receiver CPU" ("the same at the receiver, or its CPU was busy with soft interrupts"),
        Path = "path" ("a link between the ends was full whose speed nobody named, or lost what it could not carry"),
        Wire = "wire" ("the link was full"),
        Queue = "queue" ("a queue on the path or at an end dropped packets"),
        RoundTrip = "round trip" ("each transaction waited for the one before it"),
        Unknown = "unknown" ("the evidence is thin, or contradicts itself"),
    }

    /// The outcome of a probe of a search, or of the search.
    Search {
        Held = "held" ("the bound holds at the load of this probe"),
        Exceeded = "exceeded" ("it does not, or a queue took in a part of the load"),
        Unreached = "unreached" ("the load was not really offered; of a search: above what held, it could not be"),
        Found = "found" ("the limit lies between two loads that are close enough"),
        AtLeast = "at_least" ("even the highest load held"),
        Nothing = "nothing" ("not even the lowest load held"),
        Open = "open" ("the search ended before the limit was known closely enough"),
    }

    /// The outcome of an assertion or a comparison.
    #[derive(Default)]
    Verdict {
        Pass = "pass",
        Fail = "fail",
        #[default]
        Inconclusive = "inconclusive" ("the measurement cannot tell"),
        Regression = "regression" ("large, significant and for the worse"),
        Improvement = "improvement" ("large, significant and for the better"),
        Changed = "changed" ("large and significant, in a metric that is neither better nor worse"),
        Same = "same" ("no change that counts"),
        NoWorse = "no worse" ("no change for the worse that counts; it may be better"),
        Missing = "missing" ("nothing to compare with"),
        Error = "error" ("the comparison may not be made: the environments differ"),
        Noticed = "noticed" ("of `--self-test`: the worsened data fail"),
        Unnoticed = "unnoticed" ("they do not"),
    }

    /// Whether a failure fails the run or only warns.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "Level")]
    Severity {
        /// It fails.
        #[default]
        Error = "error" ("a failure fails the run"),
        /// It warns.
        Warn = "warn" ("a failure is only reported"),
    }

    /// The stretch of time that counters cover.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Span {
        Before = "before" ("the machine at rest before the load"),
        Interval = "interval",
        Measure = "measure" ("the measure phase"),
        After = "after" ("the machine at rest after the load"),
    }
}

impl Status {
    /// Measured well: `ok`, or `confirm`, which counts for its verdict only.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Ok | Self::Confirm)
    }
}

impl Control {
    /// The program at a far end that reports less than a daemon.
    pub const fn silent_program(self) -> Option<&'static str> {
        match self {
            Self::Session => None,
            Self::None => Some("a service of its own"),
            Self::Netperf => Some("netserver"),
            Self::Iperf3 => Some("iperf3"),
            Self::Stamp => Some("a STAMP reflector"),
        }
    }
}

impl CycleStatus {
    /// Whether values are missing: such cycles in a row are an outage. One that a signal ended says nothing about the network.
    pub fn is_outage(self) -> bool {
        matches!(self, Self::Failed | Self::Down | Self::Unwritten)
    }

    /// Whether every case was measured and kept.
    pub fn is_measured(self) -> bool {
        matches!(self, Self::Ok | Self::Judged)
    }
}

impl DemandUnit {
    /// The work that the CPU time is for, as a unit.
    pub const fn per(self) -> &'static str {
        match self {
            Self::PerKib => "KiB",
            Self::PerTransaction => "transaction",
        }
    }
}

impl Search {
    /// Stands between a bound and the highest load at which it holds, wherever an answer is told.
    pub const HOLDS: &str = "holds up to";

    /// The end of a search in words, to stand behind the load that it ended at.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Found => "the highest that held",
            Self::AtLeast => "at least (the search ends here)",
            Self::Unreached => "at least (no more could be offered)",
            Self::Nothing => "nothing held",
            Self::Open | Self::Held | Self::Exceeded => "so far (ended early)",
        }
    }
}

impl Verdict {
    /// A statement that does not hold, or a change for the worse.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Fail | Self::Regression)
    }

    /// Place in what people read: 0 what is bad comes first, 2 what is well comes last.
    #[must_use]
    pub fn place(self) -> u8 {
        match self {
            bad if bad.is_bad() => 0,
            well if well.is_well() => 2,
            _ => 1,
        }
    }

    /// A statement that holds, or a change that needs no attention.
    pub fn is_well(self) -> bool {
        matches!(self, Self::Pass | Self::Same | Self::NoWorse | Self::Improvement | Self::Changed)
    }
}

impl LimitedBy {
    /// The cause as a statement names it: `sender_cpu` or `sender CPU`.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.key() == text.trim().to_lowercase().replace(' ', "_"))
    }

    /// `sender_cpu`
    pub fn key(self) -> String {
        self.as_str().to_lowercase().replace(' ', "_")
    }

    /// Its place in [`Self::ALL`], as the value of an iteration.
    pub fn index(self) -> f64 {
        f64::from(self as u8)
    }

    /// The cause in that place.
    pub fn at(index: f64) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.index().total_cmp(&index).is_eq())
    }
}

/// One word or a list of words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OneOrMany(pub Vec<String>);

struct OneOrManyVisitor;

impl<'de> Visitor<'de> for OneOrManyVisitor {
    type Value = OneOrMany;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word or a list of words")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany, E> {
        Ok(OneOrMany(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        if all.is_empty() {
            return Err(A::Error::custom("the list is empty: write a word, or leave the key out"));
        }
        Ok(OneOrMany(all))
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor)
    }
}

crate::published!(OneOrMany as "OneOrMany", {"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_others_refused_with_the_list() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(*status));
        }
        let error = "up".parse::<Way>().unwrap_err();
        assert_eq!(error.to_string(), "`up` is not one of `forward` (from → to), `reverse` or `both`");
    }

    #[test]
    fn a_word_is_a_list_of_one() {
        let read = |text| serde_json::from_str::<OneOrMany>(text).map(|words| words.0);
        assert_eq!(read("\"test\"").unwrap(), ["test"]);
        assert_eq!(read("[\"test\", \"streams\"]").unwrap(), ["test", "streams"]);
        for wrong in ["{}", "true", "7"] {
            assert!(read(wrong).unwrap_err().to_string().contains("a word or a list of words"), "{wrong}");
        }
        assert!(read("[]").unwrap_err().to_string().contains("the list is empty"));
        let both = OneOrMany(vec!["a".into(), "b".into()]);
        assert_eq!(read(&serde_json::to_string(&both).unwrap()).unwrap(), both.0, "written and read back");
    }
}
