//! Long operations: their progress, and Ctrl-C.

use std::cell::RefCell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gradwire_delta::Progress;
use pyo3::prelude::*;

use crate::errors::{self, Failure};

/// The time between two looks at an operation.
const GLANCE: Duration = Duration::from_millis(100);

/// A function of Python that is called with the bytes that are done, and with those of the whole.
pub(super) type Listener<'py> = Option<Bound<'py, PyAny>>;

thread_local! {
    /// The addresses of the senders and receivers whose operations this thread watches.
    static WATCHED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Refuses a sender or receiver whose operation this thread watches: a progress function, or a
/// handler of signals, that used it would be silent until the operation has ended.
pub(super) fn refuse_watched<T>(end: &T) -> Result<(), Failure> {
    match WATCHED.with_borrow(|watched| watched.contains(&address(end))) {
        false => Ok(()),
        true => Err(Failure::config(
            "a progress function, or a handler of signals, uses the sender or receiver whose \
             operation has called it; it may read the version, and use the rest after the operation",
        )),
    }
}

fn address<T>(end: &T) -> usize {
    std::ptr::from_ref(end).addr()
}

/// An end whose operation this thread watches.
struct Watched;

impl Watched {
    fn new<T>(end: &T) -> Result<Self, Failure> {
        refuse_watched(end)?;
        WATCHED.with_borrow_mut(|watched| watched.push(address(end)));
        Ok(Self)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // One that began later has ended before.
        WATCHED.with_borrow_mut(Vec::pop);
    }
}

/// As [`watched`], for an operation of a sender or receiver, which is [refused](refuse_watched)
/// meanwhile.
pub(super) fn watched_of<T, R: Send>(
    end: &T,
    py: Python<'_>,
    listener: &Listener<'_>,
    operation: impl FnOnce(&Progress) -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let _watched = Watched::new(end)?;
    watched(py, listener, operation)
}

/// Runs an operation on a thread of its own, without the interpreter's lock. Meanwhile this thread
/// looks for Ctrl-C and calls `listener`, about ten times a second; the last call says that all is
/// done. An exception stops the operation, and is raised once that has ended.
///
/// The operation must be one that can be given up at any time, even after it has succeeded.
pub(super) fn watched<R: Send>(
    py: Python<'_>,
    listener: &Listener<'_>,
    operation: impl FnOnce(&Progress) -> Result<R, Failure> + Send,
) -> PyResult<R> {
    let progress = Progress::default();
    let tell = |done: u64, total: u64| match listener {
        // Before the whole is known there is nothing to tell.
        Some(listener) if total > 0 => listener.call1((done, total)).map(drop),
        _ => Ok(()),
    };
    thread::scope(|scope| {
        let (send, mut ended) = mpsc::sync_channel(1);
        let run = || progress.watch(|| errors::caught(|| operation(&progress)));
        thread::Builder::new().spawn_scoped(scope, move || {
            // This thread waits for it.
            let _ = send.send(run());
        })?;
        loop {
            let waited;
            (ended, waited) = py.detach(move || {
                let waited = ended.recv_timeout(GLANCE);
                (ended, waited)
            });
            match waited {
                Ok(result) => {
                    let result = result?;
                    tell(progress.total(), progress.total())?;
                    return Ok(result);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::config("the operation has ended early").into());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let told = tell(progress.done(), progress.total());
                    if let Err(raised) = told.and_then(|()| py.check_signals()) {
                        progress.stop();
                        let _ = py.detach(move || ended.recv());
                        return Err(raised);
                    }
                }
            }
        }
    })
}
