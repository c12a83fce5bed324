//! A thread that runs a reducer while the caller computes.

use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use super::Reducer;
use super::queue::Queue;
use crate::ExchangeError;

/// Work for a reducer's thread. Closures are jobs.
pub(super) trait Job: Send {
    fn run(self: Box<Self>, reducer: &mut Reducer);
}

impl<F: FnOnce(&mut Reducer) + Send> Job for F {
    fn run(self: Box<Self>, reducer: &mut Reducer) {
        self(reducer);
    }
}

/// Runs a [`Reducer`] in a thread of its own, one job after the other in the order in which they were submitted.
///
/// Every rank submits the same averages in the same order, so that ranks stay in step however far their callers
/// are. Dropping it lets the jobs submitted so far end, and does not wait for them; [`join`](Self::join) does.
pub struct ReducerThread {
    jobs: Arc<Queue<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

/// Whoever waits for a job that will not be run is told so: its channel is dropped with it.
struct Ending(Arc<Queue<Box<dyn Job>>>);

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
    /// `Config` where the system starts no thread.
    pub fn new(name: &str, mut reducer: Reducer) -> Result<Self, ExchangeError> {
        let jobs = Arc::<Queue<Box<dyn Job>>>::default();
        let ending = Ending(Arc::clone(&jobs));
        let work = move || {
            while let Some(job) = ending.0.pop() {
                job.run(&mut reducer);
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
            ExchangeError::Config(format!("a thread for the exchange cannot start: {error}"))
        })?;
        Ok(Self { jobs, thread: Some(thread) })
    }

    /// Submits a job and returns at once; results leave through what the job captures. False if the thread has
    /// ended, after a panic.
    pub fn submit(&self, job: impl FnOnce(&mut Reducer) + Send + 'static) -> bool {
        self.push(Box::new(job)).is_ok()
    }

    /// Submits a job; gives it back if the thread has ended.
    pub(super) fn push(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
        self.jobs.push(job)
    }

    /// Waits until all jobs submitted before are done, and for the answer; `None` if the thread has ended.
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

    /// Waits until all jobs are done and the transport is dropped.
    pub fn join(mut self) {
        self.jobs.close();
        // A job that panicked has been noticed by whoever waited for it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for ReducerThread {
    fn drop(&mut self) {
        self.jobs.close();
    }
}
