//! The calls of MPI that the transport needs, with buffers that live as long as MPI uses them.
//!
//! All `unsafe` code of this crate is here. The safe layer of the `mpi` crate ignores the codes
//! that calls return, because with MPI's default handler an error ends the process. Here errors are
//! returned, and name a rank.

#![allow(unsafe_code, reason = "MPI is a C library")]

use std::fmt;
use std::mem::{self, MaybeUninit};
use std::os::raw::{c_int, c_void};

use mpi::ffi;

/// The most bytes of one message: MPI counts in `int`.
pub(crate) const MOST_BYTES: usize = c_int::MAX as usize;

/// The number of sessions after which tags repeat: MPI guarantees tags up to 32767.
const SESSIONS: c_int = 16_000;

/// Separates the kinds of messages, and the messages of different sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Messages of exchanges, in a session.
    Message(u32),
    /// Notices between transports, in a session.
    Notice(u32),
}

impl Tag {
    fn number(self) -> c_int {
        let (session, kind) = match self {
            Tag::Message(session) => (session, 0),
            Tag::Notice(session) => (session, 1),
        };
        2 * (session % SESSIONS as u32) as c_int + kind
    }
}

/// The code that a call of MPI failed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault(c_int);

impl Fault {
    fn check(code: c_int) -> Result<(), Self> {
        if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(Self(code)) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MPI error {}", self.0)
    }
}

/// Sets MPI to return errors to the caller instead of ending the job.
pub(crate) fn return_errors() -> Result<(), Fault> {
    // SAFETY: both are handles that MPI defines; MPI is initialized, as there is a `World`.
    Fault::check(unsafe {
        ffi::MPI_Comm_set_errhandler(ffi::RSMPI_COMM_WORLD, ffi::RSMPI_ERRORS_RETURN)
    })
}

/// Ends this process with a status, without exit handlers: MPI's may wait forever.
pub(crate) fn exit_at_once(status: c_int) -> ! {
    unsafe extern "C" {
        fn _exit(status: c_int) -> !;
    }
    // SAFETY: `_exit` of the C library takes any status and does not return.
    unsafe { _exit(status) }
}

/// A send or a receive in progress, with its buffer.
pub(crate) struct Transfer {
    /// The request; `None` when it is complete.
    request: Option<ffi::MPI_Request>,
    bytes: Vec<u8>,
    /// The rank at the other end.
    peer: usize,
}

// SAFETY: a request belongs to the process, not to a thread; MPI was initialized for calls from any
// thread, one at a time; and only its transport uses a transfer, through `&mut`.
unsafe impl Send for Transfer {}

impl Transfer {
    /// Starts to send bytes to a rank.
    ///
    /// # Panics
    /// If they are more than [`MOST_BYTES`].
    pub(crate) fn send(peer: usize, tag: Tag, bytes: Vec<u8>) -> Result<Self, Fault> {
        let (to, length) = (peer as c_int, count(bytes.len()));
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer has `length` initialized bytes, and stays where it is until the
        // request is complete: `Transfer` gives it out or frees it only then, and nobody writes to
        // it.
        Fault::check(unsafe {
            ffi::MPI_Isend(
                bytes.as_ptr().cast::<c_void>(),
                length,
                ffi::RSMPI_UINT8_T,
                to,
                tag.number(),
                ffi::RSMPI_COMM_WORLD,
                request.as_mut_ptr(),
            )
        })?;
        // SAFETY: the call succeeded, so it has written the request.
        Ok(Self { request: Some(unsafe { request.assume_init() }), bytes, peer })
    }

    /// The rank at the other end.
    pub(crate) fn peer(&self) -> usize {
        self.peer
    }

    /// Whether the transfer is complete. Lets MPI make progress.
    pub(crate) fn is_done(&mut self) -> Result<bool, Fault> {
        let Some(request) = &mut self.request else { return Ok(true) };
        let mut done = 0;
        // SAFETY: the request is one that MPI gave us and has not completed yet.
        Fault::check(unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
        if done != 0 {
            self.request = None;
        }
        Ok(done != 0)
    }

    /// The buffer of a complete transfer.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        assert!(self.request.is_none(), "MPI still uses the buffer");
        mem::take(&mut self.bytes)
    }
}

/// MPI may still use the buffer of an abandoned transfer, so it is never freed.
impl Drop for Transfer {
    fn drop(&mut self) {
        if self.request.is_some() {
            mem::forget(mem::take(&mut self.bytes));
        }
    }
}

/// A message that has been matched and waits to be received.
pub(crate) struct Arrival {
    /// Its length in bytes.
    pub(crate) length: usize,
    /// Its sender.
    pub(crate) from: usize,
    message: ffi::MPI_Message,
}

impl Arrival {
    /// The next message of a rank, or of any rank, if there is one.
    pub(crate) fn probe(from: Option<usize>, tag: Tag) -> Result<Option<Self>, Fault> {
        let mut found = 0;
        let (mut message, mut status) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: all pointers are to places for the values that the call writes.
        Fault::check(unsafe {
            ffi::MPI_Improbe(
                from.map_or(ffi::RSMPI_ANY_SOURCE, |from| from as c_int),
                tag.number(),
                ffi::RSMPI_COMM_WORLD,
                &mut found,
                message.as_mut_ptr(),
                status.as_mut_ptr(),
            )
        })?;
        if found == 0 {
            return Ok(None);
        }
        // SAFETY: a message was found, so the call has written it and its status.
        let (message, status) = unsafe { (message.assume_init(), status.assume_init()) };
        let mut length = 0;
        // SAFETY: the status belongs to a message that was found.
        Fault::check(unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut length) })?;
        let length = usize::try_from(length).map_err(|_| Fault(length))?;
        Ok(Some(Self { length, from: status.MPI_SOURCE as usize, message }))
    }

    /// Starts to receive it into a buffer, whose old content is replaced.
    pub(crate) fn receive(mut self, mut bytes: Vec<u8>) -> Result<Transfer, Fault> {
        bytes.resize(self.length, 0);
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer has room for the announced length, is not shared, and stays where it
        // is until the request is complete, see `Transfer`.
        Fault::check(unsafe {
            ffi::MPI_Imrecv(
                bytes.as_mut_ptr().cast::<c_void>(),
                count(self.length),
                ffi::RSMPI_UINT8_T,
                &mut self.message,
                request.as_mut_ptr(),
            )
        })?;
        // SAFETY: the call succeeded, so it has written the request.
        Ok(Transfer { request: Some(unsafe { request.assume_init() }), bytes, peer: self.from })
    }
}

/// A length as MPI counts.
fn count(length: usize) -> c_int {
    c_int::try_from(length).expect("lengths are checked before a call")
}
