//! One worker's end of what all workers do together.

use std::ops::Range;

use gradwire::State;
use gradwire_exchange::DistributedOptimizer;
use gradwire_models::models::Score;
use gradwire_models::tasks::Replica;

use crate::failure::Failure;
use crate::record::Sample;

/// A worker, as far as others need it.
pub(crate) struct Participant<'a> {
    pub(crate) replica: &'a dyn Replica,
    pub(crate) parameters: &'a [Vec<f32>],
    pub(crate) exchange: &'a mut dyn DistributedOptimizer,
}

/// Acts together with the other workers. All workers make the same calls in the same order, but for
/// [`report`](Self::report) and [`abandon`](Self::abandon).
pub(crate) trait Coordinator: Send {
    /// Whether the worker ends before `step`, of the round that these steps belong to.
    fn stops(
        &mut self,
        step: u64,
        round: Range<u64>,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<bool, Failure>;

    /// Reports what a step took, and which step the worker takes next.
    fn report(&mut self, sample: Sample, next: u64);

    /// Evaluates the global model on the first `examples` of the test set, with the batch-norm statistics of worker
    /// `statistics_of`. The first worker gets the score.
    fn evaluate(
        &mut self,
        examples: usize,
        statistics_of: Option<usize>,
        worker: Participant<'_>,
    ) -> Result<Option<Score>, Failure>;

    /// Hands the worker's state after `step` steps to the thread that writes checkpoints.
    fn save(
        &mut self,
        step: u64,
        state: State,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<(), Failure>;

    /// Cancels what other workers wait for this one for: it has failed.
    fn abandon(&self);
}
