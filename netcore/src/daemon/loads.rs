//! The loads of a daemon's clients over time: a measurement beside another client's load is not alone on its machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::measure::clock::monotonic_ns;

/// Identity of a client process, as it names itself.
pub(super) type Client = u64;

/// Limit of the loads that are remembered one by one.
pub(super) const MOST_SPANS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Loads {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    next: u64,
    spans: Vec<Span>,
}

/// A load from its begin to its end, nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Span {
    number: u64,
    /// `None`: loads of several clients.
    client: Option<Client>,
    begin_ns: u64,
    /// `None`: it goes on.
    end_ns: Option<u64>,
}

/// A load that goes on until this is dropped.
#[derive(Debug)]
pub(super) struct Running<'l> {
    loads: &'l Loads,
    number: u64,
    client: Client,
}

impl Loads {
    pub(super) fn begin(&self, client: Client, at_ns: u64) -> Running<'_> {
        let mut known = self.lock();
        let number = known.next;
        known.next += 1;
        known.spans.push(Span { number, client: Some(client), begin_ns: at_ns, end_ns: None });
        Running { loads: self, number, client }
    }

    /// Loads that go on.
    pub(super) fn running(&self) -> usize {
        self.lock().spans.iter().filter(|span| span.end_ns.is_none()).count()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running<'_> {
    /// For how long loads of other clients ran between two instants, nanoseconds.
    pub(super) fn beside_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let known = self.loads.lock();
        let others = known.spans.iter().filter(|span| span.client != Some(self.client));
        let mut parts: Vec<(u64, u64)> = others
            .map(|span| (span.begin_ns.max(from_ns), span.end_ns.unwrap_or(u64::MAX).min(to_ns)))
            .filter(|(begin, end)| begin < end)
            .collect();
        parts.sort_unstable();
        let (mut sum, mut reached) = (0, 0);
        for (begin, end) in parts {
            sum += end.saturating_sub(begin.max(reached));
            reached = reached.max(end);
        }
        sum
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut known = self.loads.lock();
        let now = monotonic_ns();
        for span in known.spans.iter_mut().filter(|span| span.number == self.number) {
            span.end_ns = Some(now);
        }
        // An ended load matters to those that began before its end.
        let oldest = known.spans.iter().filter(|span| span.end_ns.is_none()).map(|span| span.begin_ns).min();
        known.spans.retain(|span| span.end_ns.is_none_or(|end| oldest.is_some_and(|oldest| end > oldest)));
        if known.spans.len() > MOST_SPANS {
            known.join_nearest();
        }
    }
}

impl Known {
    /// Makes one of the two ended loads with the shortest pause between them; the pause then counts as load.
    fn join_nearest(&mut self) {
        self.spans.sort_by_key(|span| (span.end_ns.is_none(), span.begin_ns));
        let ended = self.spans.partition_point(|span| span.end_ns.is_some());
        let end = |span: &Span| span.end_ns.unwrap_or(u64::MAX);
        let pause = |i: &usize| self.spans[i + 1].begin_ns.saturating_sub(end(&self.spans[*i]));
        let Some(first) = (0..ended.saturating_sub(1)).min_by_key(pause) else { return };
        let gone = self.spans.remove(first + 1);
        let kept = &mut self.spans[first];
        kept.end_ns = kept.end_ns.max(gone.end_ns);
        kept.client = kept.client.filter(|client| gone.client == Some(*client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_other_clients_count_and_each_instant_once() {
        let loads = Loads::default();
        let mine = loads.begin(1, 100);
        let of_mine = loads.begin(1, 150);
        assert_eq!(mine.beside_ns(100, 1000), 0);
        let (first, second) = (loads.begin(2, 300), loads.begin(3, 500));
        assert_eq!(mine.beside_ns(100, 1000), 700);
        assert_eq!(mine.beside_ns(100, 200), 0);
        assert_eq!(second.beside_ns(0, 1000), 900);
        drop((first, second));
        assert_eq!(mine.beside_ns(100, 1000), 700, "they ended long after 1000");
        drop((mine, of_mine));
        assert!(loads.lock().spans.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_no_load_is_forgotten() {
        let loads = Loads::default();
        let mine = loads.begin(1, 0);
        let first = monotonic_ns();
        for client in 2..5000 {
            drop(loads.begin(client, monotonic_ns()));
        }
        let last = monotonic_ns();
        assert!(loads.lock().spans.len() <= MOST_SPANS + 1);
        let known = mine.beside_ns(first, last);
        assert!(0 < known && known <= last - first, "{known} of {} ns", last - first);
        let own: Vec<_> = (0..3000).map(|_| drop(loads.begin(1, monotonic_ns()))).collect();
        assert_eq!(own.len(), 3000);
        assert!(loads.lock().spans.len() <= MOST_SPANS + 1);
    }
}
