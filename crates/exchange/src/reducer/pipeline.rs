//! Gradients on their way to the thread that averages them.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gradwire::Tensor;

use crate::collective::ranges;
use crate::{ExchangeError, GradientSink, Reducer, ReducerThread, StepReport};

/// The line, for all who hand over.
pub(super) struct Hands(Mutex<Line>);

impl Hands {
    pub(super) fn new(line: Line) -> Self {
        Self(Mutex::new(line))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hands")
    }
}

impl GradientSink for Hands {
    fn ready(&self, index: usize, gradient: &[f32]) {
        self.lock().take(index, gradient);
    }
}

/// The groups of a step, each of which leaves when it is complete and all before it have left.
pub(super) struct Line {
    /// There until the exchange ends.
    pub(super) background: Option<ReducerThread>,
    done: Sender<Done>,
    groups: Vec<Group>,
    places: Vec<Place>,
    /// The step in progress.
    step: Option<u64>,
    /// Whether nothing more is to be sent.
    stopped: Arc<AtomicBool>,
    /// The first group that has not left.
    next: usize,
}

/// A group of tensors, one behind the other.
struct Group {
    names: Arc<[String]>,
    elements: usize,
    values: Vec<f32>,
    /// Tensors that have not come.
    missing: usize,
}

/// Where a tensor's values go.
struct Place {
    group: usize,
    range: Range<usize>,
    here: bool,
}

/// A group that has been averaged, or not.
pub(super) struct Done {
    /// The mean, where there is one.
    pub(super) values: Vec<f32>,
    /// What each of its messages carried.
    pub(super) carried: Vec<Carried>,
    /// Time it took the thread.
    pub(super) busy: Duration,
    /// What the step has cost so far.
    pub(super) report: StepReport,
    /// Why not; a panic of the thread goes on where it is waited for.
    pub(super) outcome: Result<Result<(), ExchangeError>, Box<dyn Any + Send>>,
}

/// What the last message for a tensor carried.
#[derive(Debug, Default, Clone)]
pub(super) struct Carried {
    /// Positions; `None` where it carried all.
    pub(super) positions: Option<Vec<u32>>,
    /// Its length.
    pub(super) bytes: usize,
}

impl Line {
    /// A line of these groups that leads to `background`, which answers to `done`.
    pub(super) fn new(
        groups: &[Vec<usize>],
        tensors: &[Tensor],
        background: ReducerThread,
        done: Sender<Done>,
    ) -> Self {
        let mut places: Vec<_> =
            tensors.iter().map(|_| Place { group: 0, range: 0..0, here: false }).collect();
        let mut all = Vec::with_capacity(groups.len());
        for (group, members) in groups.iter().enumerate() {
            let own: Vec<Tensor> = members.iter().map(|&index| tensors[index].clone()).collect();
            for (&index, range) in members.iter().zip(ranges(&own)) {
                places[index] = Place { group, range, here: false };
            }
            all.push(Group {
                names: own.iter().map(|tensor| tensor.name().to_owned()).collect(),
                elements: own.iter().map(Tensor::elements).sum(),
                values: Vec::new(),
                missing: members.len(),
            });
        }
        Self {
            background: Some(background),
            done,
            groups: all,
            places,
            step: None,
            stopped: Arc::new(AtomicBool::new(false)),
            next: 0,
        }
    }

    /// The step in progress, if that is another and some of its groups have left.
    pub(super) fn other_than(&self, step: u64) -> Option<u64> {
        self.step.filter(|&other| other != step && self.next > 0)
    }

    /// Sends nothing more but what is on its way.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Begins a step, for which nothing has come yet.
    pub(super) fn begin(&mut self, step: u64) {
        self.step = Some(step);
        self.next = 0;
        self.places.iter_mut().for_each(|place| place.here = false);
        for group in &mut self.groups {
            group.values.resize(group.elements, 0.0);
            group.missing = 0;
        }
        for place in &self.places {
            self.groups[place.group].missing += 1;
        }
    }

    /// Takes a gradient of the step in progress, if it has not come yet.
    fn take(&mut self, index: usize, gradient: &[f32]) {
        let Some(place) = self.places.get_mut(index).filter(|place| !place.here) else { return };
        if self.step.is_none() || gradient.len() != place.range.len() {
            return;
        }
        place.here = true;
        let group = &mut self.groups[place.group];
        for (value, gradient) in group.values[place.range.clone()].iter_mut().zip(gradient) {
            // As in a sum that begins with 0, which leaves no zero with a sign.
            *value = 0.0 + gradient;
        }
        group.missing -= 1;
        self.advance();
    }

    /// Takes all gradients of a step that have not come, and ends it.
    pub(super) fn complete(&mut self, step: u64, gradients: &[Vec<f32>]) {
        if self.step != Some(step) {
            self.begin(step);
        }
        for (index, gradient) in gradients.iter().enumerate() {
            self.take(index, gradient);
        }
        self.step = None;
    }

    /// Takes back the memory of a group.
    pub(super) fn give_back(&mut self, group: usize, values: Vec<f32>) {
        self.groups[group].values = values;
    }

    /// Lets groups leave in their order, as far as they are complete.
    fn advance(&mut self) {
        let step = self.step.unwrap_or_default();
        while let Some(group) = self.groups.get_mut(self.next).filter(|group| group.missing == 0) {
            let (names, values) = (Arc::clone(&group.names), std::mem::take(&mut group.values));
            let (done, stopped) = (self.done.clone(), Arc::clone(&self.stopped));
            let last = self.next + 1 == self.groups.len();
            let job = move |buckets: &mut Reducer| {
                let averaged = match stopped.load(Ordering::Relaxed) {
                    true => Done::gone(),
                    false => average(buckets, &names, step, values, last),
                };
                // Who does not wait any more has failed.
                let _ = done.send(averaged);
            };
            if !self.background.as_ref().is_some_and(|background| background.submit(job)) {
                let _ = self.done.send(Done::gone());
            }
            self.next += 1;
        }
    }
}

impl Done {
    fn gone() -> Self {
        Self {
            values: Vec::new(),
            carried: Vec::new(),
            busy: Duration::ZERO,
            report: StepReport::default(),
            outcome: Ok(Err(gone())),
        }
    }
}

/// The thread has ended.
pub(super) fn gone() -> ExchangeError {
    ExchangeError::Config("the thread of the exchange has ended".to_owned())
}

/// Averages a group, in the background.
fn average(
    buckets: &mut Reducer,
    names: &[String],
    step: u64,
    mut values: Vec<f32>,
    last: bool,
) -> Done {
    let start = Instant::now();
    let mut carried = Vec::with_capacity(names.len());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let group = buckets.group_of(names)?;
        buckets.average(group, step, &mut values)?;
        if last {
            buckets.flush()?;
        }
        buckets.carried(group, |positions, bytes| {
            carried.push(Carried { positions: positions.map(<[u32]>::to_vec), bytes });
        });
        Ok(())
    }));
    if outcome.is_err() {
        buckets.abort();
    }
    Done { values, carried, busy: start.elapsed(), report: buckets.report(), outcome }
}
