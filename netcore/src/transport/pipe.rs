//! Pipes: two FIFOs for each flow, one each way, in a private folder. An opened FIFO is an ordinary pipe, and its name lets
//! ends in different processes of one host share it.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use nix::{
    fcntl::{FcntlArg, fcntl},
    poll::PollFlags,
    sys::stat::Mode,
    unistd::mkfifo,
};

use super::{
    Link,
    connection::{PREAMBLE_BYTES, Token, flow_of, preamble, set_blocking, wait},
    meeting::{Destination, Folder, Listening, Meeting},
};
use crate::{
    error::EndError,
    spec::{Bytes, TestSpec},
};

/// Far end: two FIFOs for each flow.
pub fn listen(spec: &TestSpec, token: &Token) -> Result<Listening, EndError> {
    let folder = Folder::make(token)?;
    let sockets: Result<_, _> = (0..spec.flows()).map(|flow| make(&folder, flow).map(Arc::new)).collect();
    Ok(Listening { sockets: sockets?, folder: Some(folder), ..Listening::default() })
}

/// Far end: the flows of those FIFOs.
pub fn accept(at: &Listening, meeting: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let folder = at.folder.as_ref().ok_or_else(no_folder)?;
    at.sockets.iter().zip(0..).map(|(pipe, flow)| admit(pipe, folder, flow, meeting)).collect()
}

/// Near end: opens the FIFOs of each flow.
pub fn open(to: Destination<'_>, Meeting { spec, token, .. }: Meeting<'_>) -> Result<Vec<Link>, EndError> {
    let folder = to.folder.ok_or_else(no_folder)?;
    let send_buffer = spec.near.socket.send_buffer;
    (0..spec.flows()).map(|flow| open_flow(folder, token, flow, send_buffer)).collect()
}

fn no_folder() -> EndError {
    EndError::Impossible("the test has no folder for its pipes".to_owned())
}

/// Name of the FIFO from the near end to the far end.
fn up(flow: u32) -> String {
    format!("up{flow}")
}

/// Name of the FIFO from the far end to the near end.
fn down(flow: u32) -> String {
    format!("down{flow}")
}

/// Opens a FIFO without waiting for its other end.
fn open_one(path: &Path, write: bool) -> Result<OwnedFd, EndError> {
    OpenOptions::new().read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(path).map(OwnedFd::from).map_err(
        EndError::system(format!("cannot open the pipe {} (both ends of it must be on one host)", path.display())),
    )
}

/// Far end: creates the FIFOs of a flow and opens the one that it receives from.
fn make(folder: &Folder, flow: u32) -> Result<OwnedFd, EndError> {
    for name in [up(flow), down(flow)] {
        let path = folder.place(&name);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(EndError::system(format!("cannot make the pipe {}", path.display())))?;
    }
    open_one(&folder.made(&up(flow))?, false)
}

/// Sets the capacity, where the test asks for one.
fn resize(pipe: &OwnedFd, bytes: Option<Bytes>) -> Result<(), EndError> {
    let Some(Bytes(bytes)) = bytes else { return Ok(()) };
    let what = format!("cannot make a pipe hold {bytes} bytes (fs.pipe-max-size bounds it)");
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(i32::try_from(bytes).unwrap_or(i32::MAX)))
        .map(drop)
        .map_err(EndError::system(what))
}

/// Near end: opens both FIFOs and proves itself.
fn open_flow(folder: &Folder, token: &Token, flow: u32, send_buffer: Option<Bytes>) -> Result<Link, EndError> {
    let receive = open_one(&folder.made(&down(flow))?, false)?;
    let send = open_one(&folder.made(&up(flow))?, true)?;
    resize(&send, send_buffer)?;
    let mut file = File::from(send);
    file.write_all(&preamble(token, flow)).map_err(EndError::system("cannot begin a pipe's flow"))?;
    finish(flow, file.into(), receive.into())
}

/// Far end: waits for the near end's proof and opens the other direction.
fn admit(
    receive: &Arc<OwnedFd>,
    folder: &Folder,
    flow: u32,
    Meeting { spec, token, deadline }: Meeting<'_>,
) -> Result<Link, EndError> {
    let mut file = File::from(receive.try_clone().map_err(EndError::system("cannot copy a descriptor"))?);
    let mut bytes = [0; PREAMBLE_BYTES];
    let mut got = 0;
    while got < PREAMBLE_BYTES {
        if deadline.left().is_zero() {
            return Err(deadline.missed(flow as usize, flow + 1, "the near end did not open the pipe"));
        }
        // Before its writer has opened it, a FIFO is readable and empty.
        if wait(&**receive, PollFlags::POLLIN, deadline.left().min(std::time::Duration::from_millis(20)))? {
            match file.read(&mut bytes[got..]) {
                Ok(0) => std::thread::sleep(std::time::Duration::from_millis(1)),
                Ok(n) => got += n,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(EndError::system("cannot read a pipe")(error)),
            }
        }
    }
    if flow_of(&bytes, token) != Some(flow) {
        return Err(EndError::Impossible(format!(
            "a stranger has opened the pipe {}",
            folder.place(&up(flow)).display()
        )));
    }
    let send = open_one(&folder.made(&down(flow))?, true)?;
    resize(&send, spec.far.socket.send_buffer)?;
    finish(flow, send, receive.clone())
}

fn finish(flow: u32, send: OwnedFd, receive: Arc<OwnedFd>) -> Result<Link, EndError> {
    set_blocking(&send, true)?;
    set_blocking(&receive, true)?;
    Ok(Link { is_pipe: true, ..Link::new(flow, Arc::new(send), receive) })
}

/// Frees a thread that is blocked on a pipe: makes room for a writer, and gives a byte to a reader. The link is marked as
/// freed before, so that neither takes that for the peer's data.
pub fn free(link: &Link) {
    use std::os::fd::AsRawFd;
    let again = |fd: &OwnedFd, write: bool| open_one(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd())), write);
    if let Ok(reader) = again(&link.send, false) {
        let _ = File::from(reader).read(&mut vec![0; 65_536]);
    }
    if let Ok(writer) = again(&link.receive, true) {
        let _ = File::from(writer).write(&[0]);
    }
}
