//! The training examples of a worker's batches.

use super::TaskConfig;
use super::order::{Order, Visit};

/// The examples of a worker at each step. Unless it has a shard of its own, the workers share one
/// sequence, which is the same for all compressors.
#[derive(Debug)]
pub struct Sampler {
    rank: usize,
    workers: usize,
    /// Examples per worker and step.
    pub(super) batch: usize,
    pub(super) seed: u64,
    /// The worker's own examples; `None` if all workers share all examples.
    shard: Option<Vec<u32>>,
    examples: usize,
    order: Order,
}

impl Sampler {
    /// The part of worker `rank` in a training set of `examples` examples, at least one. If the
    /// training set is split, `shard` has the worker's own examples.
    pub fn new(config: &TaskConfig, rank: usize, shard: Option<Vec<u32>>, examples: usize) -> Self {
        let &TaskConfig { workers, batch, seed, .. } = config;
        let order = match &shard {
            Some(shard) => Order::own(seed, rank, shard.clone()),
            None => Order::common(seed, examples),
        };
        Self { rank, workers, batch, seed, shard, examples, order }
    }

    /// The worker's batch of a step. A step in another epoch than the last one costs a permutation
    /// of the examples.
    pub fn visits(&mut self, step: u64) -> impl Iterator<Item = Visit> {
        let before = match self.shard {
            Some(_) => step,
            None => step * self.workers as u64 + self.rank as u64,
        };
        let start = before * self.batch as u64;
        (start..start + self.batch as u64).map(|position| self.order.at(position))
    }

    /// The examples of this worker if each example belongs to one worker: its shard, or every n-th
    /// of all, for n workers.
    pub(super) fn own_examples(&self) -> Vec<u32> {
        let all = || (0..self.examples as u32).skip(self.rank).step_by(self.workers);
        self.shard.clone().unwrap_or_else(|| all().collect())
    }

    /// The weight of an example in its worker's sum that makes the mean over workers the mean over
    /// all examples.
    pub(super) fn weight(&self) -> f32 {
        self.workers as f32 / self.examples as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Split;

    #[test]
    fn examples_of_shards_of_any_size_weigh_the_same() {
        let config = TaskConfig { workers: 2, batch: 1, augment: false, seed: 0 };
        let split: Split = "shards:sizes=3+1".parse().unwrap();
        for shards in [split.shards(&[0; 4], 2, 0).unwrap(), None] {
            let shard = |rank: usize| shards.as_ref().map(|shards| shards[rank].clone());
            let samplers = [0, 1].map(|rank| Sampler::new(&config, rank, shard(rank), 4));
            // Half of the sum over both workers of half of each example is a quarter of the sum
            // over all four.
            assert_eq!(samplers.each_ref().map(Sampler::weight), [0.5, 0.5]);
            let own = samplers.each_ref().map(|sampler| sampler.own_examples().len());
            assert_eq!(own, if shards.is_some() { [3, 1] } else { [2, 2] });
        }
    }
}
