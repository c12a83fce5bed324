//! A thread that averages groups of tensors while the caller computes the next.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::{ExchangeError, Reducer};

type Job = Box<dyn FnOnce(&mut Reducer) + Send>;

/// Works with [`Reducer`] in a thread of its own, one job after the other in the order in which they came.
///
/// Every rank submits the same averages in the same order, so ranks stay in step however far their callers
/// are. Dropping it lets the jobs submitted so far end, and does not wait for them; [`join`](Self::join) does.
pub struct ReducerThread {
    jobs: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl ReducerThread {
    /// Moves `buckets` to a thread called `name`.
    ///
    /// # Errors
    /// `Config` where the system starts no thread.
    pub fn new(name: &str, mut buckets: Reducer) -> Result<Self, ExchangeError> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || queue.into_iter().for_each(|job| job(&mut buckets));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|error| {
            ExchangeError::Config(format!("a thread for the exchange cannot start: {error}"))
        })?;
        Ok(Self { jobs, thread })
    }

    /// Hands over a job and returns at once; results leave through what the job captures. False if the thread has
    /// ended, after a panic.
    pub fn submit(&self, job: impl FnOnce(&mut Reducer) + Send + 'static) -> bool {
        self.jobs.send(Box::new(job)).is_ok()
    }

    /// Waits until all jobs before are done, and for the answer; `None` if the thread has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reducer) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.submit(move |buckets| {
            // The caller waits for it.
            let _ = answer.send(question(buckets));
        });
        answered.recv().ok()
    }

    /// Waits until all jobs are done and the transport is dropped.
    pub fn join(self) {
        drop(self.jobs);
        // A job that panicked has been noticed by whoever waited for it.
        let _ = self.thread.join();
    }
}
