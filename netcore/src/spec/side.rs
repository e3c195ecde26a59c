//! The two ends of a test, and what a flow does at each.

use serde::{Deserialize, Serialize};

use super::{Direction, EndSpec, Pattern, TestSpec, Transport};

/// One of the two ends of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The end that opens the data connections (`from`).
    #[default]
    Near,
    /// The end that accepts them (`to`).
    Far,
}

/// Role of a flow at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sends a stream.
    Sender,
    /// Receives a stream.
    Receiver,
    /// Sends and receives a stream on one connection.
    Duplex,
    /// Sends requests (or opens connections).
    Requester,
    /// Answers requests (or accepts connections).
    Responder,
}

impl TestSpec {
    /// Options of one end.
    pub fn end(&self, side: Side) -> &EndSpec {
        match side {
            Side::Near => &self.near,
            Side::Far => &self.far,
        }
    }

    /// Roles of a flow's threads at an end.
    pub(crate) fn roles(&self, side: Side, flow: u32) -> &'static [Role] {
        if self.transport == Transport::Icmp && side == Side::Far {
            // The kernel answers.
            return &[];
        }
        if self.pattern != Pattern::Stream {
            return match side {
                Side::Near => &[Role::Requester],
                Side::Far => &[Role::Responder],
            };
        }
        let near_sends = match self.direction {
            Direction::Forward => true,
            Direction::Reverse => false,
            // The first half of the flows goes forward.
            Direction::Bidirectional => flow < self.streams,
            Direction::Duplex => return &[Role::Sender, Role::Receiver],
        };
        if near_sends == (side == Side::Near) { &[Role::Sender] } else { &[Role::Receiver] }
    }

    /// Whether a flow has the role at an end.
    pub(crate) fn has_role(&self, side: Side, role: Role) -> bool {
        // The flows of a direction are alike, and the last one is of the other direction where there are two.
        [0, self.flows().saturating_sub(1)].iter().any(|flow| self.roles(side, *flow).contains(&role))
    }
}
