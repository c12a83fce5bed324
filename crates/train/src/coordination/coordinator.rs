//! The operations that all workers of a run perform together.

use std::ops::Range;

use gradwire::State;
use gradwire_exchange::DistributedOptimizer;
use gradwire_models::models::Score;
use gradwire_models::tasks::Replica;

use crate::events::SavePoint;
use crate::failure::Failure;
use crate::record::Sample;

/// The parts of a worker that an evaluation uses.
pub(crate) struct Participant<'a> {
    pub(crate) replica: &'a dyn Replica,
    pub(crate) parameters: &'a [Vec<f32>],
    pub(crate) exchange: &'a mut dyn DistributedOptimizer,
}

/// One worker's access to these operations. All workers make the same calls in the same order,
/// except [`report`](Self::report) and [`abandon`](Self::abandon).
pub(crate) trait Coordinator: Send {
    /// Whether the worker ends before `step`, which belongs to `round`.
    fn stops(
        &mut self,
        step: u64,
        round: Range<u64>,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<bool, Failure>;

    /// Reports the measurements of a step, and which step the worker takes next.
    fn report(&mut self, sample: Sample, next: u64);

    /// Evaluates the global model on the first `examples` of the test set, with the batch-norm
    /// statistics of worker `statistics_of`. Returns the score on the first worker.
    fn evaluate(
        &mut self,
        examples: usize,
        statistics_of: Option<usize>,
        worker: Participant<'_>,
    ) -> Result<Option<Score>, Failure>;

    /// Sends the worker's state to the thread that keeps the record.
    fn save(
        &mut self,
        point: SavePoint,
        state: State,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<(), Failure>;

    /// At the end of a run that goes on without lost workers, waits until the first worker has
    /// everything: a worker that has ended could not help to repeat the end.
    fn end(&mut self, exchange: &mut dyn DistributedOptimizer) -> Result<(), Failure> {
        let _ = exchange;
        Ok(())
    }

    /// Releases the workers that wait for this one, which has failed.
    fn abandon(&self);
}
