//! A phase or interval at both ends, and the flows of each that a row is about.

use netcore::report::{FlowWindow, Latencies, Window};
use netcore::spec::Role;
use schemas::words::{LatencyKind, Way};

/// The same phase or interval at both ends; an end that reported none of it is `None`.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// At the near end.
    pub near: Option<&'a Window>,
    /// At the far end.
    pub far: Option<&'a Window>,
}

/// A sum of counts that another host may have made up.
pub(super) fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The flows of one end that a row is about.
pub(super) struct End<'a> {
    pub(super) window: &'a Window,
    pub(super) flows: Vec<&'a FlowWindow>,
    /// In a duplex flow each end both sends and receives; a row about one way takes one of the two.
    pub(super) sends: bool,
    receives: bool,
}

impl End<'_> {
    pub(super) fn sum(&self, count: impl Fn(&FlowWindow) -> u64) -> u64 {
        total(self.flows.iter().map(|f| count(f)))
    }

    pub(super) fn has(&self, roles: &[Role]) -> bool {
        self.flows.iter().any(|f| roles.contains(&f.role))
    }

    pub(super) fn is_sender(&self) -> bool {
        self.sends && self.has(&[Role::Sender, Role::Duplex, Role::Requester, Role::Responder])
    }

    pub(super) fn is_receiver(&self) -> bool {
        self.receives && self.has(&[Role::Receiver, Role::Duplex, Role::Requester, Role::Responder])
    }

    /// The flows in whose sending the row is interested: of a duplex flow's two ends, one where the row is about one way.
    pub(super) fn senders(&self) -> impl Iterator<Item = &FlowWindow> {
        let sends = |f: &&FlowWindow| self.sends && matches!(f.role, Role::Sender | Role::Duplex | Role::Requester);
        self.flows.iter().copied().filter(sends)
    }

    /// Latencies that belong to the row: a duplex flow's send calls go the one way, its receive calls the other.
    pub(super) fn latencies(&self) -> impl Iterator<Item = &Latencies> {
        let counts = |l: &&Latencies| match l.kind.parse() {
            Ok(LatencyKind::Send) => self.sends,
            Ok(LatencyKind::Receive) => self.receives,
            _ => true,
        };
        self.flows.iter().flat_map(|f| &f.latencies).filter(counts)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.window.elapsed_ns as f64 / 1e9
    }
}

/// The part of an end that a row about `way` needs. Flows with the role `reverse` carry payload in reverse only: receivers of
/// the near end, senders of the far end.
pub(super) fn end(window: &Window, way: Way, stream: Option<u32>, reverse: Role) -> End<'_> {
    let takes = |role: Role| match way {
        Way::Both => true,
        Way::Forward => role != reverse,
        Way::Reverse => role == reverse || role == Role::Duplex,
    };
    let flows = window.flows.iter().filter(|f| stream.is_none_or(|s| s == f.flow) && takes(f.role)).collect();
    let one_of_two = way != Way::Both && window.flows.iter().any(|f| f.role == Role::Duplex);
    let is_source = (way == Way::Forward) == (reverse == Role::Receiver);
    End { window, flows, sends: !one_of_two || is_source, receives: !one_of_two || !is_source }
}
