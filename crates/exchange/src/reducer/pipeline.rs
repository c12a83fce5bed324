//! Averages gradients in a thread while the next ones are being computed.
//!
//! Gradients become ready one by one and fill buckets, one bucket per group. A bucket is sent to
//! the reducer's thread when it is complete and all buckets before it have been sent, and comes
//! back with the mean. Buckets and queues are reused: a steady state allocates nothing.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gradwire::{Dtype, Tensor};

use super::queue::Queue;
use super::thread::{Job, Jobs};
use super::{GradientSink, Reducer, ReducerThread};
use crate::codecs::SentElements;
use crate::control::{TransportJob, TransportOwner};
use crate::error::refuse;
use crate::group::Group;
use crate::{ExchangeError, Result, StepReport};

/// A reducer in its own thread, fed with gradients as they become ready.
pub(crate) struct Pipeline {
    feed: Arc<Feed>,
    done: Arc<Queue<Box<Bucket>>>,
    stopped: Arc<AtomicBool>,
    /// `Some` until the pipeline is dropped.
    thread: Option<ReducerThread>,
}

/// The gradients of a group, then their mean.
pub(crate) struct Bucket {
    /// The group's number.
    pub(crate) group: usize,
    /// The group's tensors, by their places in the model.
    pub(crate) indices: Vec<usize>,
    /// The tensors' values, concatenated.
    pub(crate) values: Vec<f32>,
    /// For each tensor, the elements that the messages carried.
    pub(crate) sent_elements: Vec<SentElements>,
    /// The time that the thread spent on this bucket.
    pub(crate) busy: Duration,
    /// The cost of the step so far.
    pub(crate) report: StepReport,
    step: u64,
    /// Whether it is the last bucket of its step.
    last: bool,
    /// The number of tensors whose gradients are not in it yet.
    missing: usize,
    outcome: Result<Result<()>, Box<dyn Any + Send>>,
    done: Arc<Queue<Box<Bucket>>>,
    stopped: Arc<AtomicBool>,
}

impl Pipeline {
    /// Moves a reducer to a thread, with these groups of the model's tensors.
    ///
    /// # Errors
    /// `System` if a thread cannot start.
    pub(crate) fn new(mut reducer: Reducer, groups: &[Vec<usize>]) -> Result<Self> {
        let done = Arc::<Queue<Box<Bucket>>>::default();
        let stopped = Arc::<AtomicBool>::default();
        let tensors = reducer.tensors().to_vec();
        let mut places: Vec<Place> = tensors.iter().map(|_| Place::default()).collect();
        let mut buckets = Vec::with_capacity(groups.len());
        for members in groups {
            let group = reducer.add_group(members.clone());
            let group_of = Group::new(members.clone(), &tensors, Dtype::F32);
            let Group { indices, ranges, tensors: own, .. } = group_of;
            for (&index, range) in indices.iter().zip(ranges) {
                places[index] = Place { group, range, ready: false };
            }
            buckets.push(Some(Box::new(Bucket {
                group,
                sent_elements: vec![SentElements::default(); indices.len()],
                indices,
                values: vec![0.0; own.iter().map(Tensor::elements).sum()],
                busy: Duration::ZERO,
                report: StepReport::default(),
                step: 0,
                last: group + 1 == groups.len(),
                missing: 0,
                outcome: Ok(Ok(())),
                done: Arc::clone(&done),
                stopped: Arc::clone(&stopped),
            })));
        }
        let name = format!("exchange {}", reducer.transport().rank());
        let thread = ReducerThread::new(&name, reducer)?;
        let buckets = Mutex::new(Buckets { buckets, places, step: None, next: 0 });
        let feed = Arc::new(Feed { buckets, jobs: thread.jobs(), done: Arc::clone(&done) });
        Ok(Self { feed, done, stopped, thread: Some(thread) })
    }

    /// The receiver of a step's gradients as they become ready; `None` while a step is in progress.
    /// If no bucket of a step has been sent, the step starts over: its backward pass was abandoned.
    pub(crate) fn sink(&self, step: u64) -> Option<Arc<dyn GradientSink>> {
        let mut buckets = self.feed.lock();
        if buckets.in_progress().is_some() {
            return None;
        }
        buckets.begin(step);
        drop(buckets);
        Some(self.feed.clone())
    }

    /// Takes all gradients of a step that the sink has not received, and ends the step.
    ///
    /// # Errors
    /// `Config` while another step is in progress.
    pub(crate) fn complete(&self, step: u64, gradients: &[Vec<f32>]) -> Result<()> {
        let mut buckets = self.feed.lock();
        if let Some(other) = buckets.in_progress().filter(|&other| other != step) {
            return refuse(format!(
                "step {step} begins while step {other} is in progress; end step {other} first"
            ));
        }
        if buckets.step != Some(step) {
            buckets.begin(step);
        }
        for (index, gradient) in gradients.iter().enumerate() {
            self.feed.take(&mut buckets, index, gradient);
        }
        buckets.step = None;
        Ok(())
    }

    /// Waits for the next bucket with its mean. A panic of the thread is resumed in the caller.
    ///
    /// # Errors
    /// The errors of the reducer.
    pub(crate) fn wait(&self) -> Result<Box<Bucket>> {
        let mut bucket = self.done.pop().ok_or_else(ExchangeError::ended)?;
        let outcome = std::mem::replace(&mut bucket.outcome, Ok(Ok(())));
        if !matches!(outcome, Ok(Ok(()))) {
            // The exchange has ended. The bucket does not come back, so no caller may wait for it.
            self.done.close();
        }
        match outcome {
            Ok(outcome) => outcome.map(|()| bucket),
            Err(panic) => panic::resume_unwind(panic),
        }
    }

    /// Takes a bucket back for the next step.
    pub(crate) fn give_back(&self, bucket: Box<Bucket>) {
        let group = bucket.group;
        self.feed.lock().buckets[group] = Some(bucket);
    }

    /// Runs `question` in the thread after all submitted jobs, and waits for its answer.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reducer) -> R + Send + 'static,
    ) -> Result<R> {
        let answer = self.thread.as_ref().and_then(|thread| thread.ask(question));
        answer.ok_or_else(ExchangeError::ended)
    }
}

impl TransportOwner for Pipeline {
    fn run(&mut self, task: TransportJob) -> Result<()> {
        self.ask(|reducer| reducer.run(task))?
    }
}

/// Waits until the thread has dropped the transport, because its owner may need it back. Buckets
/// that the thread has not begun are not averaged. A rank that panics stops the other ranks.
impl Drop for Pipeline {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        if thread::panicking() {
            thread.submit(Reducer::abort);
        }
        thread.join();
    }
}

/// The sink of a pipeline.
struct Feed {
    buckets: Mutex<Buckets>,
    jobs: Arc<Jobs>,
    done: Arc<Queue<Box<Bucket>>>,
}

/// The buckets of the step in progress that have not been sent.
struct Buckets {
    buckets: Vec<Option<Box<Bucket>>>,
    /// The place of each tensor of the model.
    places: Vec<Place>,
    step: Option<u64>,
    /// The first bucket that has not been sent.
    next: usize,
}

/// The place of a tensor's gradient in a bucket.
#[derive(Default)]
struct Place {
    group: usize,
    range: Range<usize>,
    ready: bool,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}

impl GradientSink for Feed {
    fn ready(&self, index: usize, gradient: &[f32]) {
        self.take(&mut self.lock(), index, gradient);
    }
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a gradient of the step in progress, if it has not come yet, and sends the buckets that
    /// are complete.
    fn take(&self, buckets: &mut Buckets, index: usize, gradient: &[f32]) {
        if !buckets.fill(index, gradient) {
            return;
        }
        while let Some(bucket) = buckets.next_complete() {
            if self.jobs.push(bucket).is_err() {
                // The thread has ended, so no caller may wait for the bucket.
                self.done.close();
            }
        }
    }
}

impl Buckets {
    /// The step in progress: some of its buckets have been sent.
    fn in_progress(&self) -> Option<u64> {
        self.step.filter(|_| self.next > 0)
    }

    fn begin(&mut self, step: u64) {
        (self.step, self.next) = (Some(step), 0);
        self.places.iter_mut().for_each(|place| place.ready = false);
        for bucket in self.buckets.iter_mut().flatten() {
            (bucket.step, bucket.missing) = (step, bucket.indices.len());
        }
    }

    /// Copies a gradient to its bucket, if it belongs to the step in progress and has not come yet.
    fn fill(&mut self, index: usize, gradient: &[f32]) -> bool {
        let Some(place) = self.places.get_mut(index).filter(|place| !place.ready) else {
            return false;
        };
        let Some(bucket) = &mut self.buckets[place.group] else { return false };
        if self.step.is_none() || gradient.len() != place.range.len() {
            return false;
        }
        place.ready = true;
        for (value, gradient) in bucket.values[place.range.clone()].iter_mut().zip(gradient) {
            // Adding to 0 turns −0 into 0, as in a sum that begins with 0.
            *value = 0.0 + gradient;
        }
        bucket.missing -= 1;
        true
    }

    /// The next bucket, if it is complete.
    fn next_complete(&mut self) -> Option<Box<Bucket>> {
        let bucket = self.buckets.get_mut(self.next)?.take_if(|bucket| bucket.missing == 0)?;
        self.next += 1;
        Some(bucket)
    }
}

impl Job for Bucket {
    fn run(mut self: Box<Self>, reducer: &mut Reducer) {
        let start = Instant::now();
        let bucket = &mut *self;
        bucket.outcome = match bucket.stopped.load(Ordering::Relaxed) {
            true => Ok(Err(ExchangeError::ended())),
            false => catch_unwind(AssertUnwindSafe(|| bucket.average(reducer))),
        };
        if self.outcome.is_err() {
            reducer.abort();
        }
        self.report = reducer.report();
        self.busy = start.elapsed();
        let done = Arc::clone(&self.done);
        // The queue is closed if nobody waits any more.
        let _ = done.push(self);
    }
}

impl Bucket {
    fn average(&mut self, reducer: &mut Reducer) -> Result<()> {
        if self.group == 0 {
            reducer.begin(self.step);
        }
        reducer.average(self.group, self.step, &mut self.values)?;
        if self.last {
            reducer.flush()?;
        }
        for (&index, sent_elements) in self.indices.iter().zip(&mut self.sent_elements) {
            reducer.swap_sent_elements(index, sent_elements);
        }
        Ok(())
    }
}
