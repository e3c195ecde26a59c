//! Control connections that something else than the network carries.

use std::{fmt, io, net::IpAddr, os::unix::net::UnixStream, sync::Arc};

/// Opens control connections to one daemon: ends of socket pairs, which only this process can reach.
#[derive(Clone)]
pub struct Relayed {
    /// Address of the daemon's traffic: the connection itself shows none.
    pub(super) address: IpAddr,
    open: Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>,
}

impl Relayed {
    pub fn new(address: IpAddr, open: impl Fn() -> io::Result<UnixStream> + Send + Sync + 'static) -> Self {
        Self { address, open: Arc::new(open) }
    }

    pub(super) fn dial(&self) -> io::Result<UnixStream> {
        (self.open)()
    }
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayed").field("address", &self.address).finish_non_exhaustive()
    }
}
