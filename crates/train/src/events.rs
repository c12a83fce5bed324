//! Messages from workers to the thread that keeps the record.

use std::sync::mpsc::Sender;

use gradwire::State;
use gradwire_models::models::Score;

use crate::diagnosis::Diagnosis;
use crate::record::Sample;

/// Something that happened at a worker.
pub(crate) enum Event {
    /// The worker has done a step; the number is its next step.
    Step(Sample, u64),
    /// The evaluation after this number of steps is complete.
    Evaluated(u64, Score),
    /// The first worker has diagnosed its gradients and residuals.
    Diagnosed(Box<Diagnosis>),
    /// The worker's state after this number of steps, and whether it belongs in a file.
    Saved(u64, Box<State>, bool),
}

/// A worker's channel to the thread that keeps the record.
#[derive(Clone)]
pub(crate) struct Events(pub(crate) Sender<(usize, Event)>);

impl Events {
    /// Sends an event of worker `rank`.
    pub(crate) fn tell(&self, rank: usize, event: Event) {
        // The receiver is gone only when the run has failed already.
        let _ = self.0.send((rank, event));
    }
}
