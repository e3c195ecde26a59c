//! `AF_VSOCK`: the machine's context identifier, and listening on a free port.

use std::os::fd::OwnedFd;

use super::{Protocol, address::Address, connection};
use crate::{error::EndError, spec::EndSpec, sys};

/// This machine, whatever its identifier (VMADDR_CID_LOCAL); needs the module `vsock_loopback`.
const LOCAL: u32 = 1;

/// Any local identifier (VMADDR_CID_ANY).
const ANY: u32 = u32::MAX;

/// This machine's context identifier; `None`: it has none.
fn own_cid() -> Option<u32> {
    sys::vsock_cid().ok().filter(|cid| *cid != ANY)
}

/// Listens on the test's port, or on a free one; returns the socket, the identifier and the port.
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

/// The far end's address as the near end reaches it.
pub fn address(cid: u32, port: u16) -> Address {
    let cid = if own_cid() == Some(cid) { LOCAL } else { cid };
    Address::Vsock(cid, port.into())
}
