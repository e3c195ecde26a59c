//! Facts that the two ends of a test have of each other before their flows are connected.

use std::{net::IpAddr, os::fd::OwnedFd, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Deadline, check_family, connection::Token, folder::Folder};
use crate::{error::EndError, mpi::Place, spec::TestSpec};

/// Endpoints that the near end must connect to, as the far end's kernel chose them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoints {
    /// Address of the data sockets, if it differs from the peer's known address.
    pub address: Option<IpAddr>,
    /// Ports: one that serves every flow, or one per flow.
    pub ports: Vec<u16>,
    /// Whether the port is that of the control connections: a client that has reached the daemon at another port uses that.
    pub at_control: bool,
    /// Context identifier of a vsock end.
    pub cid: Option<u32>,
    /// Hardware address of a link end.
    pub mac: Option<[u8; 6]>,
    /// Rank and tags of an end of MPI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi: Option<Place>,
}

/// The sockets of a far end, and how they are reached.
#[derive(Default)]
pub struct Listening {
    /// Sockets: one that serves every flow, or one per flow.
    pub sockets: Vec<Arc<OwnedFd>>,
    pub endpoints: Endpoints,
    /// Folder of sockets or FIFOs.
    pub folder: Option<Folder>,
}

/// Destination and source of a near end's connections.
#[derive(Clone, Copy)]
pub struct Destination<'a> {
    pub ip: IpAddr,
    pub endpoints: &'a Endpoints,
    pub data_ip: Option<IpAddr>,
    /// Folder of sockets or FIFOs.
    pub folder: Option<&'a Folder>,
}

impl Destination<'_> {
    /// Address of the far end's data, of the family of the test.
    pub fn ip(&self, spec: &TestSpec) -> Result<IpAddr, EndError> {
        let ip = self.endpoints.address.unwrap_or(self.ip);
        check_family(spec, ip)?;
        Ok(ip)
    }
}

/// The test whose ends meet.
#[derive(Clone, Copy)]
pub struct Meeting<'a> {
    pub spec: &'a TestSpec,
    pub token: &'a Token,
    pub deadline: &'a Deadline<'a>,
}
