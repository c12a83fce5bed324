//! What defines a training run.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use gradwire_exchange::{Exchange, Rule};

use crate::plan::Plan;
use gradwire_models::Split;
use gradwire_models::data::Dataset;
use gradwire_models::models::ModelKind;
use gradwire_models::optim::OptimizerKind;
use gradwire_models::schedule::LearningRate;

/// Everything that defines a run; the same configuration gives the same bits (backup workers
/// excepted, whose steps depend on who arrives first).
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// The model to train.
    pub model: ModelKind,
    /// The data it learns.
    pub data: Arc<Dataset>,
    /// Compressor, memory and local steps, over the run.
    pub compressor: Plan,
    /// What travels.
    pub send: Payload,
    /// How the training set is split among workers. Workers with more examples count for more.
    pub split: Split,
    /// The part of the workers that takes part in each round, drawn from the seed; in (0, 1].
    pub participation: f64,
    /// The probability with which one of those fails to deliver; in \[0, 1).
    pub dropout: f64,
    /// Whether a worker with an optimizer of its own forgets the momentum of what it has sent.
    pub mask: bool,
    /// Whether gradients of the last layers are exchanged while those of the first are still being computed.
    pub overlap: bool,
    /// How compressed tensors are exchanged.
    pub exchange: Exchange,
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
    /// Weight of the ℓ1 penalty: so much of each parameter's sign is added to its gradient.
    pub l1: f32,
    /// Steps between snapshots of variance-reduced gradients: what travels is how a batch's gradient differs from that
    /// at the last snapshot, and the whole training set's gradient there is shared exactly (Johnson and Zhang 2013). 0:
    /// plain gradients.
    pub svrg: u64,
    /// The most that the ℓ2 norm of a worker's gradient may be in a step; a longer one is scaled down
    /// before it goes anywhere. `None`: no bound.
    pub clip: Option<f32>,
    /// The learning rate over steps.
    pub learning_rate: LearningRate,
    /// Random crops (4 pixels of padding) and horizontal flips of colour images, random shifts (2
    /// pixels) of grey ones.
    pub augment: bool,
    /// Seeds initial parameters, data order, augmentation, dropout and every random draw of compressors.
    pub seed: u64,
    /// Compressors of certain tensors; the first rule that is for a tensor counts, before what follows.
    pub rules: Vec<Rule>,
    /// Whether tensors of one dimension or none, biases and the scales of norms, travel uncompressed.
    pub raw_vectors: bool,
    /// Tensors with fewer elements travel uncompressed.
    pub raw_below: usize,
    /// Tensors whose name contains one of these words travel uncompressed.
    pub raw_names: Vec<String>,
    /// Steps between evaluations on the test set; the last step is always evaluated.
    pub evaluate_every: u64,
    /// The most test images or tokens an evaluation before the last looks at (the last takes all).
    pub evaluate_at_most: usize,
    /// How long a rank waits for another. Servers wait out evaluations, so those must fit in; a rank
    /// that dies is noticed at once, whatever the deadline.
    pub deadline: Duration,
    /// Compare a digest of the parameters across ranks every so many steps; 0: never.
    pub check_every: u64,
    /// A worker that is held up in every step, to see what that does to the others.
    pub straggler: Option<Straggler>,
    /// Steps between looks at the first worker's gradients and residuals; 0: none.
    pub diagnose_every: u64,
}

/// A worker that takes longer than its work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    /// Its rank.
    pub worker: usize,
    /// What it waits at the end of its part of each step.
    pub delay: Duration,
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.worker, self.delay.as_secs_f64())
    }
}

impl FromStr for Straggler {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (worker, seconds) = text.split_once('=')?;
            let seconds = seconds.parse().ok()?;
            let delay = Duration::try_from_secs_f64(seconds).ok()?;
            Some(Self { worker: worker.parse().ok()?, delay })
        };
        read().ok_or_else(|| {
            format!("'{text}' is not a worker and the seconds it waits, such as 3=0.2")
        })
    }
}

/// What workers send each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Payload {
    /// Gradients, summed over the local steps of a round; the optimizer runs on their mean.
    #[default]
    Gradients,
    /// Changes of parameters: each worker runs its own optimizer for the local steps of a round, and the
    /// mean change is added to the common parameters (McMahan et al. 2017; Sattler et al. 2018,
    /// Algorithm 1).
    Updates,
    /// The parameters themselves, from the same local steps; their mean becomes the common ones (Øland
    /// and Raj 2015).
    Weights,
}

impl Payload {
    /// Whether each worker has an optimizer of its own.
    pub(crate) fn is_local(self) -> bool {
        self != Payload::Gradients
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Payload::Gradients => "gradients",
            Payload::Updates => "updates",
            Payload::Weights => "weights",
        })
    }
}

impl FromStr for Payload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "gradients" => Ok(Payload::Gradients),
            "updates" => Ok(Payload::Updates),
            "weights" => Ok(Payload::Weights),
            _ => Err(format!(
                "'{text}' is nothing that workers send; give gradients, updates or weights"
            )),
        }
    }
}

impl RunConfig {
    /// How many workers take part in each round.
    pub(crate) fn participants(&self) -> usize {
        ((self.participation * self.workers as f64).round() as usize).clamp(1, self.workers)
    }

    /// Backup workers, without whose gradients a step may go on.
    pub(crate) fn backups(&self) -> usize {
        match self.exchange {
            Exchange::ParameterServer { backups, .. } => backups,
            _ => 0,
        }
    }
}
