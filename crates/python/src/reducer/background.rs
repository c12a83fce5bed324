//! The background thread of a reducer, and how the interpreter waits for it.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gradwire_exchange::patience::GRACE;
use gradwire_exchange::{Outcome, Reducer, ReducerThread};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::progress::{Pending, Shared};
use crate::errors::Failure;

/// The time between two checks for Ctrl-C.
const GLANCE: Duration = Duration::from_millis(50);

/// The thread of a reducer. All waiting leaves the interpreter to other threads and ends at Ctrl-C.
pub(super) struct Background {
    /// None after `close`.
    thread: Mutex<Option<ReducerThread>>,
    /// Disconnected when the thread has dropped its transport.
    ended: Mutex<Receiver<()>>,
    /// Whether `close` waits only a moment.
    hurries: AtomicBool,
    /// The process with the thread; a forked process has none.
    process: u32,
    shared: Arc<Shared>,
}

impl Background {
    pub(super) fn new(thread: ReducerThread, ended: Receiver<()>) -> Self {
        Self {
            thread: Mutex::new(Some(thread)),
            ended: Mutex::new(ended),
            hurries: AtomicBool::new(false),
            process: process::id(),
            shared: Arc::default(),
        }
    }

    /// Whether this process was forked from the one with the thread.
    pub(super) fn forked(&self) -> bool {
        self.process != process::id()
    }

    /// Whether an average has failed.
    pub(super) fn failed(&self) -> bool {
        self.shared.lock().failure.is_some()
    }

    /// Whether the averages of a step that are done so far were skipped.
    pub(super) fn skipped(&self, step: u64) -> bool {
        let now = self.shared.lock().step;
        now.step == Some(step) && now.skipped
    }

    /// Submits an average of `elements` values, and returns. The thread calls `done()` afterwards.
    pub(super) fn average(
        &self,
        step: u64,
        elements: usize,
        done: Option<Py<PyAny>>,
        average: impl FnOnce(&mut Reducer) -> Result<Outcome, Failure> + Send + 'static,
    ) -> PyResult<()> {
        self.check_process()?;
        let pending = Pending::new(&self.shared);
        let submitted = self.submit(move |reducer| {
            let shared = &pending.0;
            let result = average(reducer);
            shared.done(step, elements, reducer, result);
            if let Err(failure) = call(done) {
                shared.lock().failure.get_or_insert(failure);
            }
        });
        if submitted { Ok(()) } else { Err(gone().into()) }
    }

    /// Submits a call of `callable()` after the averages submitted so far, and returns.
    pub(super) fn call_later(&self, callable: Py<PyAny>) -> PyResult<()> {
        self.check_process()?;
        let pending = Pending::new(&self.shared);
        let submitted = self.submit(move |_| {
            if let Err(failure) = call(Some(callable)) {
                pending.0.lock().failure.get_or_insert(failure);
            }
        });
        if submitted { Ok(()) } else { Err(gone().into()) }
    }

    /// Waits until all averages are done, and all messages of this rank have left. Adds `remedy` to
    /// an error about a gradient with NaN or infinity.
    pub(super) fn wait(&self, py: Python<'_>, remedy: &str) -> PyResult<()> {
        self.check_process()?;
        self.flush();
        loop {
            let waited = py.detach(|| {
                let progress = self.shared.lock();
                if progress.pending == 0 {
                    return Some(progress.failure.clone());
                }
                drop(self.shared.news.wait_timeout(progress, GLANCE));
                None
            });
            match waited {
                Some(None) => return Ok(()),
                Some(Some(failure)) => {
                    return Err(failure.with_remedy(remedy).into());
                }
                None => py.check_signals()?,
            }
        }
    }

    /// Asks the thread a question, and waits for the answer.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Reducer) -> gradwire_exchange::Result<R> + Send + 'static,
    ) -> PyResult<R> {
        self.check_process()?;
        let (answer, mut answered) = mpsc::sync_channel(1);
        self.submit(move |reducer| {
            // Nobody waits for it after Ctrl-C.
            let _ = answer.send(question(reducer));
        });
        loop {
            let waited;
            (answered, waited) = py.detach(move || {
                let waited = answered.recv_timeout(GLANCE);
                (answered, waited)
            });
            match waited {
                Ok(answer) => return Ok(answer.map_err(Failure::from)?),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Err(gone().into()),
            }
        }
    }

    /// The cost of the last step, and of all steps together.
    pub(super) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_process()?;
        self.shared.stats(py)
    }

    /// Ends the thread after the submitted averages, and waits for it. Does nothing in a forked
    /// process.
    pub(super) fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forked() {
            return Ok(());
        }
        // The thread finishes its jobs by itself.
        drop(self.thread().take());
        let until = self.hurries.load(Ordering::Relaxed).then(|| Instant::now() + GRACE);
        let wait = || {
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.recv_timeout(GLANCE)
        };
        while py.detach(wait) == Err(RecvTimeoutError::Timeout) {
            py.check_signals()?;
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
        }
        Ok(())
    }

    /// Makes `close` wait only a moment.
    pub(super) fn hurry(&self) {
        self.hurries.store(true, Ordering::Relaxed);
    }

    /// Aborts the exchange on all ranks.
    pub(super) fn abort(&self) {
        if !self.forked() {
            self.submit(Reducer::abort);
        }
    }

    /// In a forked process, refuses to wait for a thread that does not exist there.
    fn check_process(&self) -> Result<(), Failure> {
        if self.forked() {
            return Err(Failure::config(format!(
                "this exchange belongs to process {}, and this process is a fork without its threads and connections; use the \
                 exchange there, or create another one here",
                self.process
            )));
        }
        Ok(())
    }

    /// Submits a job; returns false if the thread has ended or was closed.
    fn submit(&self, job: impl FnOnce(&mut Reducer) + Send + 'static) -> bool {
        self.thread().as_ref().is_some_and(|thread| thread.submit(job))
    }

    fn thread(&self) -> MutexGuard<'_, Option<ReducerThread>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a flush of all messages.
    fn flush(&self) {
        let pending = Pending::new(&self.shared);
        let submitted = self.submit(move |reducer| {
            if let Err(error) = reducer.flush() {
                pending.0.lock().failure.get_or_insert(error.into());
            }
        });
        if !submitted {
            self.shared.lock().failure.get_or_insert_with(gone);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.forked() {
            // Dropping it would take locks that a thread of the other process may hold, and end
            // connections of that process.
            std::mem::forget(std::mem::take(&mut self.thread));
        }
    }
}

/// Calls back into Python.
fn call(callable: Option<Py<PyAny>>) -> Result<(), Failure> {
    called(callable, |_, _| Ok(()))
}

/// Calls back into Python, which may answer with a number.
pub(super) fn ask(callable: Option<Py<PyAny>>) -> Result<Option<f32>, Failure> {
    called(callable, |py, answer| answer.extract::<Option<f32>>(py))
}

fn called<R: Default>(
    callable: Option<Py<PyAny>>,
    read: impl FnOnce(Python<'_>, Py<PyAny>) -> PyResult<R>,
) -> Result<R, Failure> {
    let Some(callable) = callable else { return Ok(R::default()) };
    let called = Python::try_attach(|py| {
        let called = callable.call0(py).and_then(|answer| read(py, answer));
        called.map_err(|error| Failure::config(format!("a callback failed: {error}")))
    });
    called.unwrap_or_else(|| Err(Failure::config("the interpreter is ending")))
}

fn gone() -> Failure {
    Failure::config(
        "the exchange has ended: it was closed, or failed; create it again, with register or LocalSteps",
    )
}
