//! Which examples of the training set are a worker's batch.

use super::TaskConfig;
use super::order::Order;

/// A worker's part of every step.
#[derive(Debug, Clone)]
pub(super) struct Sampler {
    /// The worker.
    pub(super) rank: usize,
    /// Number of workers.
    pub(super) workers: usize,
    /// Examples per worker and step.
    pub(super) batch: usize,
    /// The worker's own examples; `None` where all workers share all examples.
    pub(super) shard: Option<Vec<u32>>,
}

impl Sampler {
    /// The part of worker `rank`.
    pub(super) fn new(config: &TaskConfig, rank: usize, shard: Option<Vec<u32>>) -> Self {
        Self { rank, workers: config.workers, batch: config.batch, shard }
    }

    /// The worker's sequence of examples, of a training set of this size.
    pub(super) fn order(&self, seed: u64, examples: usize) -> Order {
        match &self.shard {
            Some(shard) => Order::own(seed, self.rank, shard.clone()),
            None => Order::common(seed, examples),
        }
    }

    /// Where in its sequence of examples the worker's batch of a step begins.
    pub(super) fn start(&self, step: u64) -> u64 {
        let before = match self.shard {
            Some(_) => step,
            None => step * self.workers as u64 + self.rank as u64,
        };
        before * self.batch as u64
    }
}
