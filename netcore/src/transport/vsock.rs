//! `AF_VSOCK`: which context identifier a machine has, and where a far end listens.

use std::os::fd::OwnedFd;

use super::{Protocol, address::Address, connection};
use crate::{error::EndError, spec::EndSpec, sys};

/// This very machine, whatever its identifier (VMADDR_CID_LOCAL); needs the module `vsock_loopback`.
const LOCAL: u32 = 1;

/// Any local identifier (VMADDR_CID_ANY).
const ANY: u32 = u32::MAX;

/// This machine's context identifier; `None` where no transport has given it one.
fn own_cid() -> Option<u32> {
    sys::vsock_cid().ok().filter(|cid| *cid != ANY)
}

/// Listens on a port that is free, or on the test's; gives the socket, the identifier and the port.
pub fn listen(protocol: Protocol, end: &EndSpec, backlog: u32) -> Result<(OwnedFd, u32, u16), EndError> {
    let mut port = end.port.unwrap_or(20_000);
    loop {
        match connection::listener(protocol, &Address::Vsock(ANY, port.into()), end, backlog) {
            Ok(socket) => return Ok((socket, own_cid().unwrap_or(LOCAL), port)),
            Err(EndError::System { source, .. })
                if source.raw_os_error() == Some(libc::EADDRINUSE) && end.port.is_none() && port < u16::MAX =>
            {
                port += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Where a near end finds the far one.
#[must_use]
pub fn address(cid: u32, port: u16) -> Address {
    let cid = if own_cid() == Some(cid) { LOCAL } else { cid };
    Address::Vsock(cid, port.into())
}
