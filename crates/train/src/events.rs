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
    /// The worker's state.
    Saved(SavePoint, Box<State>),
}

/// Where in a run workers save their states. Of one step the point in memory comes first: workers may save there, and then,
/// at a stop, for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SavePoint {
    /// Steps done.
    pub(crate) step: u64,
    /// Whether the state belongs in a file.
    pub(crate) to_file: bool,
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
