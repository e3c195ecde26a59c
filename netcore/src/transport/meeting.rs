//! Facts that the two ends of a test have of each other before their flows are connected.

use std::{
    fs::{Metadata, Permissions, symlink_metadata},
    net::IpAddr,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::PathBuf,
    sync::Arc,
};

use chacha20::ChaCha8Rng;
use nix::unistd::geteuid;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::{Deadline, check_family, connection::Token};
use crate::{
    error::EndError,
    mpi::Place,
    spec::{TestSpec, Transport},
};

/// Endpoints that the near end must connect to, as the far end's kernel chose them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoints {
    /// Address of the data sockets, if it differs from the peer's known address.
    pub address: Option<IpAddr>,
    /// Ports: one that serves every flow, or one per flow.
    pub ports: Vec<u16>,
    /// Whether the port is that of the control connections: a client that has reached the daemon at another port uses that. At a near end:
    /// whether its process has reached that port.
    pub at_control: bool,
    /// Context identifier of a vsock end.
    pub cid: Option<u32>,
    /// Hardware address of a link end.
    pub mac: Option<[u8; 6]>,
    /// SHA-256 of the certificate of an end of TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<[u8; 32]>,
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

// The folder of a test's Unix sockets and FIFOs. Both ends derive its name from the session's token. No path crosses the wire:
// an end that opened the paths of its peer could be led to any socket or pipe that its user may open.

/// Whether a transport's sockets have names in the file system.
pub fn has_names(transport: Transport) -> bool {
    matches!(transport, Transport::UnixStream | Transport::UnixSeqpacket | Transport::UnixDatagram | Transport::Pipe)
}

/// A folder that only this user may enter.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// At the end that made it: removes it with its content.
    _made: Option<TempDir>,
}

impl Folder {
    /// Far end: makes the folder.
    pub fn make(token: &Token) -> Result<Self, EndError> {
        let made = tempfile::Builder::new()
            .prefix(&name(token))
            .rand_bytes(0)
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(EndError::system("cannot make a folder for the test's sockets (TMPDIR names another place)"))?;
        Ok(Self { path: made.path().to_owned(), _made: Some(made) })
    }

    /// Near end: finds the folder that the far end made.
    pub fn find(token: &Token) -> Result<Self, EndError> {
        let path = std::env::temp_dir().join(name(token));
        let impossible = |what: &str| {
            EndError::Impossible(format!(
                "{} {what}: both ends of a Unix socket or pipe must be on one host, belong to one user and have the same TMPDIR",
                path.display()
            ))
        };
        let found = symlink_metadata(&path).map_err(|_| impossible("is not there"))?;
        if !found.is_dir() || !is_private(&found) {
            return Err(impossible("is not a private folder of this user"));
        }
        Ok(Self { path, _made: None })
    }

    /// The place of a socket or FIFO that this end makes.
    pub fn place(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A socket or FIFO that the other end made.
    pub fn made(&self, name: &str) -> Result<PathBuf, EndError> {
        let path = self.path.join(name);
        let found = symlink_metadata(&path)
            .map_err(EndError::system(format!("the other end has not made {}", path.display())))?;
        let kind = found.file_type();
        if !(kind.is_socket() || kind.is_fifo()) || found.uid() != geteuid().as_raw() {
            return Err(EndError::Impossible(format!("{} is not a socket or pipe of this user", path.display())));
        }
        Ok(path)
    }
}

fn is_private(found: &Metadata) -> bool {
    let others = libc::S_IRWXG | libc::S_IRWXO;
    found.uid() == geteuid().as_raw() && found.mode() & others == 0
}

/// Everybody may list the names in the folder of temporary files. So the name does not give the token away: it is the
/// key stream of ChaCha8 under the token.
fn name(token: &Token) -> String {
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(token);
    let name: u128 = ChaCha8Rng::from_seed(seed).random();
    format!("plumb-{name:032x}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn token(last: u8) -> Token {
        let mut token = [last; 16];
        token[..4].copy_from_slice(&std::process::id().to_be_bytes());
        token
    }

    #[test]
    fn the_folder_is_private_and_goes_with_its_maker() {
        let token = token(1);
        assert!(Folder::find(&token).unwrap_err().to_string().contains("is not there"));
        let made = Folder::make(&token).unwrap();
        let path = made.place("");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(Folder::make(&token).is_err(), "another test has it");
        nix::unistd::mkfifo(&made.place("x"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let found = Folder::find(&token).unwrap();
        assert_eq!(found.made("x").unwrap(), made.place("x"));
        drop(found);
        assert!(path.exists());
        drop(made);
        assert!(!path.exists());
    }

    #[test]
    fn an_end_opens_nothing_but_sockets_and_pipes_of_its_user() {
        let folder = Folder::make(&token(2)).unwrap();
        std::fs::write(folder.place("file"), "x").unwrap();
        let fifo = folder.place("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        symlink(&fifo, folder.place("link")).unwrap();
        folder.made("fifo").unwrap();
        for name in ["file", "link", "none"] {
            folder.made(name).unwrap_err();
        }
    }

    #[test]
    fn a_folder_that_others_may_enter_or_a_link_to_one_is_refused() {
        let token = token(3);
        let folder = Folder::make(&token).unwrap();
        std::fs::set_permissions(folder.place(""), Permissions::from_mode(0o755)).unwrap();
        assert!(Folder::find(&token).unwrap_err().to_string().contains("private folder"));
        drop(folder);
        let elsewhere = tempfile::tempdir().unwrap();
        let link = std::env::temp_dir().join(name(&token));
        symlink(elsewhere.path(), &link).unwrap();
        let error = Folder::find(&token).unwrap_err();
        std::fs::remove_file(&link).unwrap();
        assert!(error.to_string().contains("private folder"), "{error}");
    }

    #[test]
    fn the_name_does_not_give_the_token_away() {
        let token = token(4);
        let hex = format!("{:032x}", u128::from_be_bytes(token));
        assert!(!name(&token).contains(&hex) && name(&token) != name(&self::token(5)));
    }
}
