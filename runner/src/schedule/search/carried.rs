//! Shares of a load that the sender offered and the path carried.

use std::time::Duration;

use analyze::judge::offered;
use schemas::columns::Row;

/// Operations that may be missing at the edges of a window of a load that counts as reached.
const EDGE: f64 = 2.0;

/// Time by which a busy machine may read the two edges of a window late. The window of the arrivals may be off by that.
pub const EDGE_S: f64 = 0.005;

/// Shares of the load of one probe, each 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// Offered by the sender.
    pub offered: f64,
    /// Of that, neither arrived in the window nor lost: a queue took it in.
    pub queued: f64,
}

impl Carried {
    /// Without a sender that falls behind, and without a queue.
    pub const WHOLE: Self = Self { offered: 1.0, queued: 0.0 };

    /// `filling`: see `queued_share`.
    pub fn of(row: &Row, filling: Duration) -> Self {
        Self {
            // Unknown counts as not offered.
            offered: offered::share_of(row).unwrap_or(0.0),
            queued: queued_share(row, filling),
        }
    }

    /// The worse of two directions.
    pub fn or_worse(self, other: Self) -> Self {
        Self { offered: self.offered.min(other.offered), queued: self.queued.max(other.queued) }
    }
}

/// Growth of a queue that counts as none, as a share of what was offered: the edges of the window are not exact.
pub fn tolerance(within: f64, window_s: Option<f64>) -> f64 {
    let edges = window_s.map_or(f64::INFINITY, |window_s| EDGE_S / window_s);
    edges.clamp(within / 10.0, within / 2.0)
}

/// The share of what was sent that neither arrived in the window nor was lost. `filling`: time in which the first data of the
/// window were still on their way.
pub fn queued_share(row: &Row, filling: Duration) -> f64 {
    let share = || {
        let (sent, arrived, elapsed) = (row.sent_bits_per_s?, row.throughput_bits_per_s?, row.elapsed_s?);
        let messages = EDGE * row.message_bytes.unwrap_or(0) as f64 * 8.0 / elapsed;
        let on_the_way = sent * filling.as_secs_f64() / elapsed;
        let gone = sent * row.loss_ratio.unwrap_or(0.0);
        (sent > 0.0).then(|| (sent - gone - arrived - messages - on_the_way) / sent)
    };
    // Only a stream has a receiver whose arrivals say something about the sender's load.
    let is_stream = row.transactions_per_s.is_none();
    share().filter(|_| is_stream).map_or(0.0, |share| share.clamp(0.0, 1.0))
}
