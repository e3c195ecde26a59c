//! Datagrams of a phase: how many arrived, and runs of those that did not.

use serde::{Deserialize, Serialize};

use super::is_zero;

/// Fate of the messages that were *sent* in a phase, whenever they arrived. Loss in a phase is `sent` at the sending
/// end minus `received` at the receiving end: a gap that straddles an edge belongs to the phase of its sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatagramPhase {
    /// Messages that this end sent in the phase.
    pub sent: u64,
    /// Messages of the phase that arrived at this end, duplicates not counted.
    pub received: u64,
    /// Of these, messages that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Messages of the phase that arrived again.
    pub duplicated: u64,
    /// Messages that the sender had sent when the last one of the phase arrived, by its number. Only where the sender does
    /// not say the phase (iperf3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbered: Option<u64>,
    /// Messages that this end sent before the phase: their numbers come before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u64,
    /// Runs of loss; only of the measure phase, at an end that receives numbered messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<LossRuns>,
}

/// Runs of consecutive messages that did not arrive (RFC 3357), among the messages of a phase. A message that comes late counts
/// as lost once 4096 later ones have been numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossRuns {
    /// Lowest number that arrived, and the highest plus 1; the runs lie between them. Equal: none arrived.
    pub first: u64,
    pub end: u64,
    pub runs: u64,
    /// Messages in all runs.
    pub lost: u64,
    /// Messages in the longest run.
    pub longest: u64,
}

impl LossRuns {
    /// With the runs at both edges, which only the sender's numbers show: it sent `sent` messages after `before` others.
    pub fn whole(self, before: u64, sent: u64) -> Self {
        let edges = if self.first == self.end {
            [sent, 0]
        } else {
            [self.first.saturating_sub(before), before.saturating_add(sent).saturating_sub(self.end)]
        };
        edges.into_iter().filter(|length| *length > 0).fold(self, |mut all, length| {
            all.add(length);
            all
        })
    }

    /// Adds a run.
    pub fn add(&mut self, length: u64) {
        self.runs = self.runs.saturating_add(1);
        self.lost = self.lost.saturating_add(length);
        self.longest = self.longest.max(length);
    }
}
