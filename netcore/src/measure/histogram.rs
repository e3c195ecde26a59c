//! Latency histograms: a thread records without a lock, and the sampler gets them cut at the edges.
//!
//! A thread records into a histogram of its own. When it sees a new epoch it exchanges the full histogram, with its
//! epoch, for the empty one in its [`HistogramSlot`]: one lock per window, no allocation. A thread that is blocked in a
//! call hands over late, so the sampler sorts by epoch and not by time.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
pub use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use crate::lock::Lock;

/// The histogram's upper bound: an hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Significant digits.
const DIGITS: u8 = 3;

/// Memory of a histogram, bytes.
pub const BYTES: u64 = 33 * 1024 * 8;

/// An empty histogram of nanoseconds, three significant digits, from 1 ns to an hour.
pub fn empty() -> Histogram<u64> {
    // The constants fulfil the constructor's conditions (1 ≤ low, 2·low ≤ high, digits ≤ 5).
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("constant bounds are valid")
}

/// The slot that a recorder fills and the sampler empties.
#[derive(Debug)]
pub struct HistogramSlot {
    inner: Lock<Contents>,
}

#[derive(Debug)]
struct Contents {
    /// Allocated before the load begins: a new histogram takes about 50 µs, since all its pages are new to the process.
    spare: Vec<Histogram<u64>>,
    full: Vec<(u64, Histogram<u64>)>,
}

impl Default for HistogramSlot {
    fn default() -> Self {
        Self { inner: Lock::new(Contents { spare: vec![empty(), empty()], full: Vec::with_capacity(4) }) }
    }
}

impl HistogramSlot {
    /// Exchanges a full histogram for an empty one.
    fn exchange(&self, epoch: u64, full: &mut Histogram<u64>) {
        let mut contents = self.inner.lock();
        let spare = contents.spare.pop().unwrap_or_else(empty);
        let full = std::mem::replace(full, spare);
        if full.is_empty() { contents.spare.push(full) } else { contents.full.push((epoch, full)) }
    }

    /// Takes the full histograms, passes them to `add(epoch, histogram)`, and leaves an empty one for the next edge.
    pub fn collect(&self, mut add: impl FnMut(u64, &Histogram<u64>)) {
        let full = std::mem::take(&mut self.inner.lock().full);
        for (epoch, mut histogram) in full {
            add(epoch, &histogram);
            histogram.reset();
            let spare = &mut self.inner.lock().spare;
            if spare.is_empty() {
                spare.push(histogram);
            }
        }
    }
}

/// A thread's own histogram, and the slot that it hands over by.
pub struct Recorder {
    slot: Arc<HistogramSlot>,
    epoch: u64,
    histogram: Histogram<u64>,
}

impl Recorder {
    /// Begins with this epoch.
    pub fn new(slot: Arc<HistogramSlot>, epoch: u64) -> Self {
        let histogram = slot.inner.lock().spare.pop().unwrap_or_else(empty);
        Self { slot, epoch, histogram }
    }

    /// Records a latency that ended in this epoch.
    #[inline]
    pub fn record(&mut self, epoch: u64, nanoseconds: u64) {
        if epoch != self.epoch {
            self.slot.exchange(self.epoch, &mut self.histogram);
            self.epoch = epoch;
        }
        if self.histogram.record(nanoseconds).is_err() {
            self.histogram.saturating_record(nanoseconds);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.slot.exchange(self.epoch, &mut self.histogram);
    }
}

/// Encodes a histogram in HdrHistogram's V2 form, base64.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail, and the counts of this type are in the format's range.
    V2Serializer::new().serialize(histogram, &mut bytes).expect("a histogram can be written to memory");
    STANDARD.encode(bytes)
}

/// Decodes the text of [`encode`]; `None` for anything else.
pub fn decode(text: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(text).ok()?;
    if !has_own_header(&bytes) {
        return None;
    }
    Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
}

/// Whether a header of 40 bytes is as [`encode`] writes it: uncompressed V2, the length of the counts, three digits, from
/// 1 ns. The text comes from another host, and the decoder would reserve the memory for any size that stands there.
fn has_own_header(bytes: &[u8]) -> bool {
    const COOKIE: u32 = 0x1c84_9313;
    let Some((header, counts)) = bytes.split_first_chunk::<40>() else { return false };
    let word = |i: usize| u32::from_be_bytes(header.as_chunks::<4>().0[i]);
    word(0) == COOKIE
        && word(1) as usize == counts.len()
        && word(3) == u32::from(DIGITS)
        && (word(4), word(5)) == (0, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cut_where_the_epoch_changes() {
        let slot = Arc::new(HistogramSlot::default());
        {
            let mut recorder = Recorder::new(slot.clone(), 1);
            recorder.record(1, 100);
            recorder.record(1, 200);
            recorder.record(2, 300);
            recorder.record(9, 400);
        }
        let mut seen = Vec::new();
        slot.collect(|epoch, histogram| seen.push((epoch, histogram.len(), histogram.max())));
        assert_eq!(seen, [(1, 2, 200), (2, 1, 300), (9, 1, 400)]);
        slot.collect(|_, _| panic!("everything was taken"));
    }

    #[test]
    fn its_memory_is_known() {
        assert_eq!(empty().distinct_values() as u64 * 8, BYTES);
    }

    #[test]
    fn what_is_longer_than_the_longest_is_kept_at_the_end() {
        let slot = Arc::new(HistogramSlot::default());
        Recorder::new(slot.clone(), 0).record(0, u64::MAX);
        slot.collect(|_, histogram| assert!(histogram.max() >= LONGEST_NS));
    }

    #[test]
    fn histograms_travel_as_text() {
        let mut histogram = empty();
        histogram.record(12_345).unwrap();
        histogram.record(99_999_999).unwrap();
        let back = decode(&encode(&histogram)).unwrap();
        assert_eq!((back.len(), back.min(), back.max()), (2, histogram.min(), histogram.max()));
        assert_eq!(decode("not a histogram"), None);
    }

    #[test]
    fn sizes_are_checked_before_memory_is_reserved() {
        let mut histogram = empty();
        histogram.record(12_345).unwrap();
        let good = STANDARD.decode(encode(&histogram)).unwrap();
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            decode(&STANDARD.encode(changed)).map(|histogram| histogram.len())
        };
        assert_eq!(with(0, &[]), Some(1));
        // Four gigabytes of counts; five digits; from 2 ns; compressed.
        assert_eq!(with(4, &[0xff; 4]), None);
        assert_eq!(with(12, &5u32.to_be_bytes()), None);
        assert_eq!(with(16, &2u64.to_be_bytes()), None);
        assert_eq!(with(0, &0x1c84_9314u32.to_be_bytes()), None);
        assert_eq!(decode(&STANDARD.encode(&good[..39])), None);
    }
}
