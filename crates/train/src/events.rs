//! What workers tell the thread that keeps the record.

use std::sync::mpsc::Sender;

use gradwire::State;
use gradwire_models::models::Score;

use crate::diagnosis::Diagnosis;
use crate::record::Sample;

/// Something that happened at a worker.
pub(crate) enum Event {
    /// It has done a step, and takes this one next.
    Step(Sample, u64),
    /// The evaluation after this number of steps is complete.
    Evaluated(u64, Score),
    /// The first worker has diagnosed its gradients and residuals.
    Diagnosed(Box<Diagnosis>),
    /// Its state after this number of steps.
    Saved(u64, Box<State>),
}

/// A worker's line to the thread that keeps the record.
#[derive(Clone)]
pub(crate) struct Events(pub(crate) Sender<(usize, Event)>);

impl Events {
    /// Tells an event of worker `rank`.
    pub(crate) fn tell(&self, rank: usize, event: Event) {
        // The receiver is gone only when the run has failed already.
        let _ = self.0.send((rank, event));
    }
}
