//! A thread that runs a reducer while the caller computes.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use super::Reducer;
use super::queue::Queue;
use crate::{ExchangeError, Result};

/// Work for a reducer's thread. Closures are jobs.
pub(super) trait Job: Send {
    fn run(self: Box<Self>, reducer: &mut Reducer);
}

impl<F: FnOnce(&mut Reducer) + Send> Job for F {
    fn run(self: Box<Self>, reducer: &mut Reducer) {
        self(reducer);
    }
}

/// The jobs of a reducer's thread.
pub(super) type Jobs = Queue<Box<dyn Job>>;

/// Runs a [`Reducer`] in a background thread, one job at a time, in the order of submission.
///
/// Every rank submits the same averages in the same order, so the ranks match even if one caller is
/// ahead of another. Dropping it finishes the submitted jobs in the background;
/// [`join`](Self::join) waits for them.
pub struct ReducerThread {
    jobs: Arc<Jobs>,
    thread: Option<JoinHandle<()>>,
}

/// Drops the remaining jobs when the thread ends, and with them the channels that their submitters
/// wait on.
struct Ending(Arc<Jobs>);

impl fmt::Debug for ReducerThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReducerThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.close();
        self.0.clear();
    }
}

impl ReducerThread {
    /// Moves `reducer` to a thread called `name`.
    ///
    /// # Errors
    /// `System` if a thread cannot start.
    pub fn new(name: &str, mut reducer: Reducer) -> Result<Self> {
        let jobs = Arc::<Jobs>::default();
        let ending = Ending(Arc::clone(&jobs));
        let work = move || {
            while let Some(job) = ending.0.pop() {
                job.run(&mut reducer);
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
            ExchangeError::System(format!("a thread for the exchange cannot start: {error}"))
        })?;
        Ok(Self { jobs, thread: Some(thread) })
    }

    /// Submits a job and returns at once; the job sends its result itself. Returns false if the
    /// thread has ended, by a panic or because it was [closed](Self::close).
    pub fn submit(&self, job: impl FnOnce(&mut Reducer) + Send + 'static) -> bool {
        self.jobs.push(Box::new(job)).is_ok()
    }

    /// The queue of its jobs.
    pub(super) fn jobs(&self) -> Arc<Jobs> {
        Arc::clone(&self.jobs)
    }

    /// Submits a job and waits for its answer; `None` if the thread has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reducer) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.submit(move |reducer| {
            // The caller waits for it.
            let _ = answer.send(question(reducer));
        });
        answered.recv().ok()
    }

    /// Takes no further jobs, and waits until the submitted ones are done and the transport is
    /// dropped.
    pub fn close(&mut self) {
        self.jobs.close();
        // The submitter of a job that panicked has noticed: its answer is missing.
        let _ = self.thread.take().map(JoinHandle::join);
    }

    /// Waits until all jobs are done and the transport is dropped.
    pub fn join(mut self) {
        self.close();
    }
}

impl Drop for ReducerThread {
    fn drop(&mut self) {
        self.jobs.close();
    }
}
