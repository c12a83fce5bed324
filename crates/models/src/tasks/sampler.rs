//! The training examples of a worker's batches.

use super::TaskConfig;
use super::order::{Order, Visit};

/// A worker's part of every step.
#[derive(Debug)]
pub(super) struct Sampler {
    rank: usize,
    workers: usize,
    /// Examples per worker and step.
    pub(super) batch: usize,
    pub(super) seed: u64,
    /// The worker's own examples; `None` where all workers share all examples.
    shard: Option<Vec<u32>>,
    examples: usize,
    order: Order,
}

impl Sampler {
    /// The part of worker `rank`, of a training set of `examples` examples.
    pub(super) fn new(
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
        examples: usize,
    ) -> Self {
        let &TaskConfig { workers, batch, seed, .. } = config;
        let order = match &shard {
            Some(shard) => Order::own(seed, rank, shard.clone()),
            None => Order::common(seed, examples),
        };
        Self { rank, workers, batch, seed, shard, examples, order }
    }

    /// The worker's batch of a step.
    pub(super) fn visits(&mut self, step: u64) -> impl Iterator<Item = Visit> {
        let before = match self.shard {
            Some(_) => step,
            None => step * self.workers as u64 + self.rank as u64,
        };
        let start = before * self.batch as u64;
        (start..start + self.batch as u64).map(|position| self.order.at(position))
    }

    /// The examples of this worker if each example belongs to one worker: its shard, or every n-th of all, for n
    /// workers.
    pub(super) fn own_examples(&self) -> Vec<u32> {
        let all = || (0..self.examples as u32).skip(self.rank).step_by(self.workers);
        self.shard.clone().unwrap_or_else(|| all().collect())
    }

    /// The weight of an example in its worker's sum, so that the mean over workers is the mean over all examples.
    pub(super) fn weight(&self) -> f32 {
        self.workers as f32 / self.examples as f32
    }
}
