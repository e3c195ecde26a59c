//! Round trips to the hops of the path, before the load and under it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::foreign;

/// Most hops that are probed. A longer path, or a loop of routes, is probed no further.
pub const MOST_HOPS: usize = 30;

/// Most round trips that are kept of a hop, in each state of the path.
pub const MOST_TRIPS: usize = 128;

/// Most addresses that are kept of a hop.
pub const MOST_ADDRESSES: usize = 4;

/// The hops between the near end and the far end, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbedPath {
    #[serde(deserialize_with = "foreign::at_most::<_, _, MOST_HOPS>")]
    pub hops: Vec<Hop>,
    /// Whether the last one is the far end itself.
    pub reached: bool,
}

/// A hop, by the number of routers to it: the first one is the router next to the near end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hop {
    /// Its addresses in the order in which they answered; several if the path changed, or if packets take several paths.
    #[serde(deserialize_with = "foreign::at_most::<_, _, MOST_ADDRESSES>")]
    pub addresses: Vec<IpAddr>,
    /// Before the load.
    pub idle: RoundTrips,
    /// During the measure phase.
    pub loaded: RoundTrips,
}

/// Round trips of probes to a hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrips {
    /// Probes whose answer came or did not come in time.
    pub asked: u32,
    /// Microseconds, by round: all hops are asked at the same time. `None`: no answer.
    #[serde(deserialize_with = "foreign::at_most::<_, _, MOST_TRIPS>")]
    pub us: Vec<Option<u32>>,
}

impl RoundTrips {
    /// Those that were answered.
    pub fn answers(&self) -> impl Iterator<Item = u32> {
        self.us.iter().flatten().copied()
    }
}
