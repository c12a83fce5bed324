//! The interface of a task: its allowed settings and splits, and its replicas.

use super::{Metric, Replica, TaskConfig};
use crate::Split;
use crate::models::ModelError;

/// A task that models learn from one kind of data.
pub trait Task<'a> {
    /// The measure of its models' quality.
    fn metric(&self) -> Metric;

    /// The number of training examples: images, tokens or ratings.
    fn examples(&self) -> usize;

    /// Refuses settings that do not fit the task, and data that is too small for training or
    /// evaluation.
    ///
    /// # Errors
    /// The reason and the remedy.
    fn check(&self, config: &TaskConfig) -> Result<(), String>;

    /// The number of steps for all workers together to see the training set once.
    fn steps_per_epoch(&self, config: &TaskConfig) -> f64 {
        self.examples() as f64 / (config.workers * config.batch) as f64
    }

    /// The examples of each worker; `None` if all workers share one sequence of examples.
    ///
    /// # Errors
    /// The reason and the remedy: the task has no such split, or a worker would get no example.
    fn shards(
        &self,
        split: &Split,
        workers: usize,
        seed: u64,
    ) -> Result<Option<Vec<Vec<u32>>>, String> {
        if split.is_by_class() {
            return Err(format!(
                "the split '{split}' sorts examples by class, but these examples do not have one \
                 class each; use shared or shards"
            ));
        }
        // The other splits only count the labels.
        split.shards(&vec![0; self.examples()], workers, seed)
    }

    /// The replica of worker `rank`. It draws its batches from `shard` or, without one, from the
    /// sequence shared by all workers.
    ///
    /// # Errors
    /// If the model cannot be built for the data.
    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError>;
}

/// Refuses augmentation, which is for images of one class each.
pub(super) fn refuse_augmentation(config: &TaskConfig, reason: &str) -> Result<(), String> {
    if config.augment { Err(reason.to_owned()) } else { Ok(()) }
}
