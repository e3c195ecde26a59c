//! A part of a test in this process, whatever its kind: what a session does with it, from its preparation to its report.

use std::{net::IpAddr, os::fd::AsFd, time::Duration};

use super::message::{Part, Peer};
use crate::{
    end::{End, Endpoints, Token},
    error::EndError,
    io::fill::FillFiles,
    ranks::{RankEnd, RankRunning},
    report::{Report, Window},
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
