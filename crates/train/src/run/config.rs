//! What defines a training run.

use std::sync::Arc;
use std::time::Duration;

use gradwire::Spec;
use gradwire_exchange::Strategy;

use crate::data::Dataset;
use crate::models::ModelKind;
use crate::optim::OptimizerKind;
use crate::schedule::LearningRate;

/// Everything that defines a run; the same configuration gives the same bits (backup workers
/// excepted, whose steps depend on who arrives first).
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// The model to train.
    pub model: ModelKind,
    /// The data it learns.
    pub data: Arc<Dataset>,
    /// Compressor, memory and local steps.
    pub compressor: Spec,
    /// How compressed tensors are exchanged.
    pub strategy: Strategy,
    /// Number of workers.
    pub workers: usize,
    /// Training steps.
    pub steps: u64,
    /// Images per worker and step; of text, streams that a worker reads side by side.
    pub batch: usize,
    /// The update rule.
    pub optimizer: OptimizerKind,
    /// Weight of the ℓ2 penalty, added to the gradient as `weight_decay · parameter`.
    pub weight_decay: f32,
    /// The most that the ℓ2 norm of a worker's gradient may be in a step; a longer one is scaled down
    /// before it goes anywhere. `None`: no bound.
    pub clip: Option<f32>,
    /// The learning rate over steps.
    pub learning_rate: LearningRate,
    /// Random crops (4 pixels of padding) and horizontal flips.
    pub augment: bool,
    /// Seeds initial parameters, data order, augmentation, dropout and every random draw of compressors.
    pub seed: u64,
    /// Tensors with fewer elements travel uncompressed.
    pub raw_below: usize,
    /// Steps between evaluations on the test set; the last step is always evaluated.
    pub evaluate_every: u64,
    /// The most test images or tokens an evaluation before the last looks at (the last takes all).
    pub evaluate_at_most: usize,
    /// How long a rank waits for another. Servers wait out evaluations, so those must fit in; a rank
    /// that dies is noticed at once, whatever the deadline.
    pub deadline: Duration,
    /// Compare a digest of the parameters across ranks every so many steps; 0: never.
    pub check_every: u64,
}

impl RunConfig {
    /// Backup workers, without whose gradients a step may go on.
    pub(crate) fn backups(&self) -> usize {
        match self.strategy {
            Strategy::ParameterServer { backups, .. } => backups,
            Strategy::AllReduce | Strategy::AllGather | Strategy::ScatterReduce => 0,
        }
    }
}
