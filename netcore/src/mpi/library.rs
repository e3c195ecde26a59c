//! An MPI library, opened at run time, and its calls as safe functions.
//!
//! A build needs no MPI, and one program serves every family. Errors come back as values.
//!
//! The library is initialised for calls of one thread at a time (`MPI_THREAD_SERIALIZED`), since a library that expects
//! several takes locks: a ping-pong of one byte over shared memory takes up to twice as long with Open MPI 4.1. The
//! [`super::Lease`] keeps threads apart.

use std::{
    ffi::{CStr, CString, c_int, c_void},
    io,
    mem::transmute,
    ptr::NonNull,
};

use super::{Family, Handle, Length};

mod collectives;

/// Bytes of the texts that a library writes; more than any `MPI_MAX_…` of the families.
const TEXT_BYTES: usize = 8192;

/// A status of any family: 24 (Open MPI), 20 (MPICH) or 32 bytes (the standard ABI).
#[repr(C, align(8))]
#[derive(Default)]
struct Status([u32; 8]);

/// A request in progress. Its memory stays where it is until a test says that it is complete.
#[derive(Debug, Default)]
pub struct Request(usize);

/// A communicator.
#[derive(Clone, Copy, Debug)]
pub struct Comm(usize);

macro_rules! calls {
    ($($field:ident: $symbol:literal($($argument:ty),*);)+) => {
        /// The library's functions. Handles are `usize`.
        struct Calls {
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)+
        }

        impl Calls {
            fn find(find: impl Fn(&str) -> Result<NonNull<c_void>, String>) -> Result<Self, String> {
                // SAFETY: the standard fixes the arguments of each of these names, and a handle of any family is passed as a
                // register of the size of a pointer.
                Ok(unsafe {
                    Self {
                        $($field: transmute::<NonNull<c_void>, unsafe extern "C" fn($($argument),*) -> c_int>(
                            find($symbol)?,
                        ),)+
                    }
                })
            }
        }
    };
}

calls! {
    init_thread: "MPI_Init_thread"(usize, usize, c_int, *mut c_int);
    finalize: "MPI_Finalize"();
    comm_rank: "MPI_Comm_rank"(usize, *mut c_int);
    comm_size: "MPI_Comm_size"(usize, *mut c_int);
    comm_set_errhandler: "MPI_Comm_set_errhandler"(usize, usize);
    comm_group: "MPI_Comm_group"(usize, *mut usize);
    group_incl: "MPI_Group_incl"(usize, c_int, *const c_int, *mut usize);
    group_free: "MPI_Group_free"(*mut usize);
    comm_create_group: "MPI_Comm_create_group"(usize, usize, c_int, *mut usize);
    comm_free: "MPI_Comm_free"(*mut usize);
    error_string: "MPI_Error_string"(c_int, *mut u8, *mut c_int);
    get_processor_name: "MPI_Get_processor_name"(*mut u8, *mut c_int);
    get_library_version: "MPI_Get_library_version"(*mut u8, *mut c_int);
    get_count: "MPI_Get_count"(*const Status, usize, *mut c_int);
    send: "MPI_Send"(*const u8, c_int, usize, c_int, c_int, usize);
    recv: "MPI_Recv"(*mut u8, c_int, usize, c_int, c_int, usize, *mut Status);
    isend: "MPI_Isend"(*const u8, c_int, usize, c_int, c_int, usize, *mut usize);
    irecv: "MPI_Irecv"(*mut u8, c_int, usize, c_int, c_int, usize, *mut usize);
    sendrecv: "MPI_Sendrecv"(*const u8, c_int, usize, c_int, c_int, *mut u8, c_int, usize, c_int, c_int, usize, *mut Status);
    iprobe: "MPI_Iprobe"(c_int, c_int, usize, *mut c_int, *mut Status);
    test: "MPI_Test"(*mut usize, *mut c_int, *mut Status);
    cancel: "MPI_Cancel"(*mut usize);
    barrier: "MPI_Barrier"(usize);
    bcast: "MPI_Bcast"(*mut u8, c_int, usize, c_int, usize);
    reduce: "MPI_Reduce"(*const u8, *mut u8, c_int, usize, usize, c_int, usize);
    allreduce: "MPI_Allreduce"(*const u8, *mut u8, c_int, usize, usize, usize);
    gather: "MPI_Gather"(*const u8, c_int, usize, *mut u8, c_int, usize, c_int, usize);
    scatter: "MPI_Scatter"(*const u8, c_int, usize, *mut u8, c_int, usize, c_int, usize);
    allgather: "MPI_Allgather"(*const u8, c_int, usize, *mut u8, c_int, usize, usize);
    alltoall: "MPI_Alltoall"(*const u8, c_int, usize, *mut u8, c_int, usize, usize);
    alltoallv: "MPI_Alltoallv"(*const u8, *const c_int, *const c_int, usize, *mut u8, *const c_int, *const c_int, usize, usize);
    reduce_scatter_block: "MPI_Reduce_scatter_block"(*const u8, *mut u8, c_int, usize, usize, usize);
}

/// A call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{call}: {text}")]
pub struct MpiError {
    pub call: &'static str,
    /// The library's words.
    pub text: String,
}

impl From<MpiError> for io::Error {
    fn from(error: MpiError) -> Self {
        Self::other(error)
    }
}

/// Handles of the family, resolved.
struct Handles {
    byte: usize,
    double: usize,
    sum: usize,
    errors_return: usize,
    status_ignore: *mut Status,
    any_source: i32,
    serialized: c_int,
    length: Length,
}

/// An opened library.
pub struct Library {
    pub family: Family,
    /// The file's name as it was opened.
    pub file: String,
    calls: Calls,
    handles: Handles,
    world: Comm,
}

// SAFETY: the pointer among the handles is a constant that is never read through. Calls of several threads are kept apart by
// the lease.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Opens a file as the libraries expect: their plug-ins look for symbols among the global ones.
fn dlopen(file: &str) -> Result<NonNull<c_void>, String> {
    let name = CString::new(file).map_err(|_| format!("`{file}` is no file name"))?;
    // SAFETY: the name is a C string that lives during the call. The library's initialisers run, as in every MPI program.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: dlerror returns null or a C string that stays until the next call of this thread.
        let text =
            unsafe { libc::dlerror().cast_const().as_ref().map(|first| CStr::from_ptr(std::ptr::from_ref(first))) };
        text.map_or_else(|| format!("{file} cannot be opened"), |text| text.to_string_lossy().into_owned())
    })
}

fn symbol(library: NonNull<c_void>, name: &str) -> Option<NonNull<c_void>> {
    let name = CString::new(name).ok()?;
    // SAFETY: the handle is an open library, which is never closed, and the name a C string.
    NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
}

/// The text that a call writes, with the length that it says.
fn text(call: impl FnOnce(*mut u8, *mut c_int) -> c_int) -> String {
    let mut bytes = vec![0u8; TEXT_BYTES];
    let mut length = 0;
    if call(bytes.as_mut_ptr(), &raw mut length) != 0 {
        return String::new();
    }
    let length = usize::try_from(length).unwrap_or(0).min(TEXT_BYTES);
    String::from_utf8_lossy(&bytes[..length]).trim_end_matches('\0').trim().to_owned()
}

impl Library {
    /// Opens the file and looks at what it is.
    pub(super) fn open(file: &str) -> Result<Self, String> {
        let library = dlopen(file)?;
        let find =
            |name: &str| symbol(library, name).ok_or_else(|| format!("{file} has no {name}: it is no MPI library"));
        let calls = Calls::find(find)?;
        // SAFETY: the buffers are long enough for any family, and the call is allowed before the initialisation.
        let version = text(|bytes, length| unsafe { (calls.get_library_version)(bytes, length) });
        let exports = |name: &str| symbol(library, name).is_some();
        let family = Family::of(exports, file, &version).ok_or_else(|| {
            format!(
                "{file} is `{}`, whose ABI is not known here: Open MPI, MPICH and its relatives are",
                name_and_version(&version)
            )
        })?;
        let row = family.row();
        let value = |handle: Handle| match handle {
            Handle::Is(number) => Ok(number),
            Handle::At(name) => find(name).map(|address| address.as_ptr() as usize),
        };
        let handles = Handles {
            byte: value(row.byte)?,
            double: value(row.double)?,
            sum: value(row.sum)?,
            errors_return: value(row.errors_return)?,
            status_ignore: row.status_ignore as *mut Status,
            any_source: row.any_source,
            serialized: row.serialized,
            length: row.length,
        };
        Ok(Self { family, file: file.to_owned(), calls, handles, world: Comm(value(row.world)?) })
    }

    /// In the place of a rank: any one.
    pub(super) fn any_source(&self) -> i32 {
        self.handles.any_source
    }

    pub(super) fn world(&self) -> Comm {
        self.world
    }

    /// Whether a call succeeded, else the library's words.
    #[inline]
    fn check(&self, call: &'static str, code: c_int) -> Result<(), MpiError> {
        if code == 0 { Ok(()) } else { Err(self.error(call, code)) }
    }

    #[cold]
    fn error(&self, call: &'static str, code: c_int) -> MpiError {
        // SAFETY: the buffers are long enough, and the library is initialised: it has made this code.
        let said = text(|bytes, length| unsafe { (self.calls.error_string)(code, bytes, length) });
        MpiError { call, text: if said.is_empty() { format!("error {code}") } else { said.replace('\n', " ") } }
    }

    /// Initialises for calls of one thread at a time; `Ok(false)`: the library does not offer that.
    pub(super) fn init(&self) -> Result<bool, MpiError> {
        let mut granted = 0;
        // SAFETY: MPI 2 and later take null in the place of the arguments.
        let code = unsafe { (self.calls.init_thread)(0, 0, self.handles.serialized, &raw mut granted) };
        if code != 0 {
            // Before the initialisation some libraries have no texts.
            return Err(MpiError { call: "MPI_Init_thread", text: format!("error {code}") });
        }
        // SAFETY: both handles are the family's own.
        let code = unsafe { (self.calls.comm_set_errhandler)(self.world.0, self.handles.errors_return) };
        self.check("MPI_Comm_set_errhandler", code)?;
        Ok(granted >= self.handles.serialized)
    }

    pub(super) fn finalize(&self) {
        // SAFETY: the caller has the lease, so no other call is under way. An error leaves nothing to do.
        unsafe { (self.calls.finalize)() };
    }

    /// Number of this rank in a communicator, and the number of all.
    pub(super) fn rank_and_size(&self, comm: Comm) -> Result<(i32, i32), MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is valid, and both variables live during the calls.
        let codes =
            unsafe { [(self.calls.comm_rank)(comm.0, &raw mut rank), (self.calls.comm_size)(comm.0, &raw mut size)] };
        codes.into_iter().try_for_each(|code| self.check("MPI_Comm_rank", code))?;
        Ok((rank, size))
    }

    /// The library's name and version, in its own words.
    pub(super) fn version(&self) -> String {
        // SAFETY: the buffers are long enough.
        let text = text(|bytes, length| unsafe { (self.calls.get_library_version)(bytes, length) });
        name_and_version(&text).replace('\t', " ")
    }

    pub(super) fn processor(&self) -> String {
        // SAFETY: the buffers are long enough.
        text(|bytes, length| unsafe { (self.calls.get_processor_name)(bytes, length) })
    }

    /// The bytes of a message, by its status.
    #[inline]
    fn length(&self, status: &Status) -> usize {
        match self.handles.length {
            Length::At { word, flags } => {
                let low = u64::from(status.0[word]);
                let high = u64::from(status.0[word + 1] >> flags);
                // A message lies in memory.
                #[expect(clippy::cast_possible_truncation)]
                let bytes = (high << 32 | low) as usize;
                bytes
            }
            Length::Asked => {
                let mut count = 0;
                // SAFETY: the status was written by a call that has succeeded.
                unsafe { (self.calls.get_count)(std::ptr::from_ref(status), self.handles.byte, &raw mut count) };
                usize::try_from(count).unwrap_or(0)
            }
        }
    }

    #[inline]
    pub(super) fn send(&self, comm: Comm, bytes: &[u8], to: i32, tag: i32) -> Result<(), MpiError> {
        // SAFETY: the bytes are borrowed until the call has returned, which is when MPI is done with them.
        let code = unsafe { (self.calls.send)(bytes.as_ptr(), count(bytes.len()), self.handles.byte, to, tag, comm.0) };
        self.check("MPI_Send", code)
    }

    /// Receives a message and returns its length. One that is too long is an error.
    #[inline]
    pub(super) fn receive(&self, comm: Comm, buffer: &mut [u8], from: i32, tag: i32) -> Result<usize, MpiError> {
        let mut status = Status::default();
        // SAFETY: the buffer is borrowed until the call has returned, and the status is as long as any family's.
        let code = unsafe {
            let bytes = count(buffer.len());
            (self.calls.recv)(buffer.as_mut_ptr(), bytes, self.handles.byte, from, tag, comm.0, &raw mut status)
        };
        self.check("MPI_Recv", code)?;
        Ok(self.length(&status))
    }

    /// Sends and receives at the same time.
    pub(super) fn send_receive(
        &self,
        comm: Comm,
        (bytes, to): (&[u8], i32),
        (buffer, from): (&mut [u8], i32),
        tag: i32,
    ) -> Result<usize, MpiError> {
        let mut status = Status::default();
        let (sent, room) = (count(bytes.len()), count(buffer.len()));
        let byte = self.handles.byte;
        // SAFETY: both are borrowed until the call has returned, and do not overlap.
        let code = unsafe {
            (self.calls.sendrecv)(
                bytes.as_ptr(),
                sent,
                byte,
                to,
                tag,
                buffer.as_mut_ptr(),
                room,
                byte,
                from,
                tag,
                comm.0,
                &raw mut status,
            )
        };
        self.check("MPI_Sendrecv", code)?;
        Ok(self.length(&status))
    }

    /// Begins to send.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the request is complete.
    #[inline]
    pub(super) unsafe fn begin_send(&self, comm: Comm, bytes: &[u8], to: i32, tag: i32) -> Result<Request, MpiError> {
        let mut request = 0;
        let (from, bytes) = (bytes.as_ptr(), count(bytes.len()));
        // SAFETY: the caller keeps the bytes; the request was zero, as a handle of 32 bits needs.
        let code = unsafe { (self.calls.isend)(from, bytes, self.handles.byte, to, tag, comm.0, &raw mut request) };
        self.check("MPI_Isend", code)?;
        Ok(Request(request))
    }

    /// Begins to receive into `bytes` bytes from `buffer` on.
    ///
    /// # Safety
    /// The memory stays valid, and is used by nothing else, until the request is complete.
    #[inline]
    pub(super) unsafe fn begin_receive(
        &self,
        comm: Comm,
        (buffer, bytes): (*mut u8, usize),
        from: i32,
        tag: i32,
    ) -> Result<Request, MpiError> {
        let mut request = 0;
        let bytes = count(bytes);
        // SAFETY: the caller keeps the memory; the request was zero, as a handle of 32 bits needs.
        let code = unsafe { (self.calls.irecv)(buffer, bytes, self.handles.byte, from, tag, comm.0, &raw mut request) };
        self.check("MPI_Irecv", code)?;
        Ok(Request(request))
    }

    /// Whether a request is complete, and then the length of the message (of a receive). Makes progress.
    #[inline]
    pub(super) fn test(&self, request: &mut Request) -> Result<Option<usize>, MpiError> {
        let (mut done, mut status) = (0, Status::default());
        // SAFETY: the request is one of this library; once complete it is its null request, which is complete as well.
        let code = unsafe { (self.calls.test)(&raw mut request.0, &raw mut done, &raw mut status) };
        self.check("MPI_Test", code)?;
        Ok((done != 0).then(|| self.length(&status)))
    }

    /// The same without the length: of a send.
    #[inline]
    pub(super) fn is_complete(&self, request: &mut Request) -> Result<bool, MpiError> {
        let mut done = 0;
        // SAFETY: as in `test`; the family's constant says that no status is wanted.
        let code = unsafe { (self.calls.test)(&raw mut request.0, &raw mut done, self.handles.status_ignore) };
        self.check("MPI_Test", code)?;
        Ok(done != 0)
    }

    /// Sends a short message, and asks `more` between two looks whether to go on. `Ok(false)`: it was given up.
    pub(super) fn send_kept(
        &self,
        comm: Comm,
        bytes: &[u8],
        to: i32,
        tag: i32,
        more: impl Fn() -> bool,
    ) -> Result<bool, MpiError> {
        // It stays for ever where the send is given up, which the library may still read.
        let kept: *mut [u8] = Box::into_raw(bytes.into());
        // SAFETY: the bytes are never freed before the request is complete, and never written.
        let mut request = unsafe { self.begin_send(comm, &*kept, to, tag) }?;
        while !self.is_complete(&mut request)? {
            if !more() {
                return Ok(false);
            }
        }
        // SAFETY: the bytes came from a box, the request is complete, and only this has them.
        drop(unsafe { Box::from_raw(kept) });
        Ok(true)
    }

    /// Asks for the end of a receive that has found no message. It is complete soon.
    pub(super) fn cancel(&self, request: &mut Request) -> Result<(), MpiError> {
        // SAFETY: the request is one of this library.
        self.check("MPI_Cancel", unsafe { (self.calls.cancel)(&raw mut request.0) })
    }

    /// The length of the next message, if it has come. Makes progress.
    pub(super) fn probe(&self, comm: Comm, from: i32, tag: i32) -> Result<Option<usize>, MpiError> {
        let (mut there, mut status) = (0, Status::default());
        // SAFETY: both variables live during the call.
        let code = unsafe { (self.calls.iprobe)(from, tag, comm.0, &raw mut there, &raw mut status) };
        self.check("MPI_Iprobe", code)?;
        Ok((there != 0).then(|| self.length(&status)))
    }
}

/// A count of elements. Buffers have at most a GiB.
#[inline]
fn count(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// The name and version: `Open MPI v4.1.4`, `MPICH Version: 4.0.2`.
fn name_and_version(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.split(',').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests;
