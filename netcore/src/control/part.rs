//! A part of a test in this process, whatever its kind: what a session does with it, from its preparation to its report. One
//! descriptor of an end under load wakes the control thread for each interval and at the end, so that it can poll it together
//! with the control connection.

use std::{
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    message::{Part, Peer},
    stop::Event,
};
use crate::{
    end::{End, Endpoints, Running, Token},
    error::EndError,
    io::fill::FillFiles,
    measure::watch::News,
    ranks::{RankEnd, RankRunning},
    report::{Counts, Report, SideReport, Window},
    transport::control_port::DataPorts,
};

/// A part before its start.
pub(crate) trait PreparedPart {
    /// The endpoints that other parts connect to.
    fn endpoints(&self) -> Endpoints;

    /// Connects all flows. `peers`: those of [`super::message::Connect`].
    fn connect(&mut self, peers: &[Peer], within: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), EndError>;

    /// Addresses that the flows of a far end were opened from. They choose where its datagrams go.
    fn accepted_from(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Begins the load at an instant of this host's monotonic clock. `watch`: whether its intervals are asked for.
    fn start(self: Box<Self>, t0_ns: u64, watch: bool) -> Result<Box<dyn RunningPart>, EndError>;
}

/// A part under load. Dropping it ends it at once. Its descriptor is readable when there is news.
pub(crate) trait RunningPart: AsFd {
    /// Clears the descriptor. Look for news after this, not before.
    fn clear_news(&self) {}

    fn take_interval(&self) -> Option<Window> {
        None
    }

    fn is_finished(&self) -> bool;

    /// Whether it has sent all that the stop rule asks of it and still receives.
    fn is_awaiting_end_of_data(&self) -> bool {
        false
    }

    fn begin_at(&self, _at_ns: u64) {}

    fn stop_at(&self, at_ns: u64);

    /// Waits for the end and returns the report.
    fn finish(self: Box<Self>) -> Report;
}

/// Prepares a part: `address` and `ports` of its data sockets, and the files that it was admitted with.
pub(crate) fn prepare(
    part: &Part,
    (address, ports): (Option<IpAddr>, &DataPorts),
    token: Token,
    files: FillFiles,
) -> Result<Box<dyn PreparedPart>, EndError> {
    Ok(match part {
        Part::End { spec, side } => Box::new(End::prepare_with(spec, *side, (address, ports), token, files)?),
        Part::Rank { spec, rank, .. } => Box::new(RankEnd::prepare(spec, *rank as usize, (address, ports), token)?),
    })
}

impl PreparedPart for RankEnd {
    fn endpoints(&self) -> Endpoints {
        self.endpoints()
    }

    fn connect(&mut self, peers: &[Peer], within: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), EndError> {
        let peers: Vec<_> = peers.iter().map(|peer| (peer.address, peer.endpoints.clone())).collect();
        self.connect(&peers, within, cancelled)
    }

    fn start(self: Box<Self>, t0_ns: u64, _watch: bool) -> Result<Box<dyn RunningPart>, EndError> {
        Ok(Box::new((*self).start(t0_ns)?))
    }
}

impl RunningPart for RankRunning {
    fn is_finished(&self) -> bool {
        self.is_finished()
    }

    fn stop_at(&self, at_ns: u64) {
        self.stop_at(at_ns);
    }

    fn finish(self: Box<Self>) -> Report {
        Report::Rank(Box::new((*self).finish()))
    }
}

/// Dropping it ends the test at once.
pub(crate) struct Load {
    running: Arc<Running>,
    news: Arc<Event>,
    intervals: mpsc::Receiver<Window>,
    /// Present until [`Load::finish`].
    waiter: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts an end. With `watch`, its intervals come through [`Load::take_interval`] and also in the report.
    pub(crate) fn start(end: End, t0_ns: u64, watch: bool) -> Result<Self, EndError> {
        let news = Arc::new(Event::new().map_err(EndError::system("no descriptors for a pipe"))?);
        let (sender, intervals) = mpsc::channel();
        let on_interval = watch.then(|| {
            let news = Arc::clone(&news);
            let notify = move |window: &Window| {
                // It fails once the control thread has given up; the end goes on undisturbed.
                if sender.send(window.clone()).is_ok() {
                    news.set();
                }
            };
            Box::new(notify) as Box<dyn FnMut(&Window) + Send>
        });
        let running = Arc::new(end.start(t0_ns, on_interval)?);
        let waiter = {
            let (running, news) = (Arc::clone(&running), Arc::clone(&news));
            thread::Builder::new().name("waiter".into()).spawn(move || {
                let mut known = News::default();
                while !known.reported {
                    known = running.wait_for_news(known, Duration::from_hours(1));
                    news.set();
                }
            })
        };
        match waiter {
            Ok(waiter) => Ok(Self { running, news, intervals, waiter: Some(waiter) }),
            Err(error) => {
                running.abort();
                Err(EndError::system("no thread to wait for the end of the test")(error))
            }
        }
    }

    /// Whether the phases have ended and this end has sent its last.
    pub(crate) fn is_load_over(&self) -> bool {
        self.running.is_load_over()
    }

    /// Gives up what is under way after the load.
    pub(crate) fn release(&self) {
        self.running.release();
    }

    /// Payload counts of each flow so far.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        self.running.counts()
    }

    pub(crate) fn abort(&self) {
        self.running.abort();
    }

    /// Waits for the end and returns the report.
    pub(crate) fn finish(mut self) -> SideReport {
        self.join();
        self.running.finish()
    }

    /// Waits for the end. Whether it was not waited for before.
    fn join(&mut self) -> bool {
        // The waiter cannot panic; if it did, waiting for the report would replace it.
        self.waiter.take().map(JoinHandle::join).is_some()
    }
}

impl PreparedPart for End {
    fn endpoints(&self) -> Endpoints {
        self.endpoints()
    }

    fn connect(&mut self, peers: &[Peer], within: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), EndError> {
        self.connect_unless(peers.first().map(|far| (far.address, &far.endpoints)), within, cancelled)
    }

    fn accepted_from(&self) -> Vec<IpAddr> {
        self.peers()
    }

    fn start(self: Box<Self>, t0_ns: u64, watch: bool) -> Result<Box<dyn RunningPart>, EndError> {
        Ok(Box::new(Load::start(*self, t0_ns, watch)?))
    }
}

impl RunningPart for Load {
    fn clear_news(&self) {
        self.news.clear();
    }

    fn take_interval(&self) -> Option<Window> {
        self.intervals.try_recv().ok()
    }

    fn is_finished(&self) -> bool {
        self.running.is_finished()
    }

    fn is_awaiting_end_of_data(&self) -> bool {
        self.running.is_awaiting_end_of_data()
    }

    fn begin_at(&self, monotonic_ns: u64) {
        self.running.begin_at(monotonic_ns);
    }

    fn stop_at(&self, monotonic_ns: u64) {
        self.running.stop_at(monotonic_ns);
    }

    fn finish(self: Box<Self>) -> Report {
        Report::End(Box::new((*self).finish()))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.abort();
        if self.join() {
            drop(self.running.finish());
        }
    }
}

impl AsFd for Load {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}
