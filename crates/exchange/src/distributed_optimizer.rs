//! One rank's end of a strategy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

use gradwire::{State, Tensor};

use crate::{ExchangeError, GradientSink, Traffic};

/// What a trainer needs of a strategy: gradients in, the same new parameters on every rank out.
///
/// Every rank calls the same operations in the same order with the same, increasing steps. An error
/// ends the exchange: it names the rank and the operation, and the others stop as well. Dropping an
/// exchange tells the others that this rank has left; those that still need it fail.
pub trait DistributedOptimizer: Send {
    /// The tensors of the model, in the order of `gradients` and `parameters`.
    fn tensors(&self) -> &[Tensor];

    /// Who takes gradients of this step as soon as they are known, where exchanging may begin before all are: the next
    /// call is [`step`](Self::step) for it, with all gradients. `None` where there is nothing to gain.
    fn early(&mut self, step: u64) -> Option<Arc<dyn GradientSink>> {
        let _ = step;
        None
    }

    /// Exchanges one step's gradients and updates `parameters` in place.
    ///
    /// Strategies built on collectives average the gradients and run the optimizer on every rank;
    /// the parameter server runs it once and hands back model deltas. With backup workers a rank
    /// that comes late may find later steps done without it: see [`StepReport::skipped`].
    fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        gradients: &[Vec<f32>],
        parameters: &mut [Vec<f32>],
    ) -> Result<StepReport, ExchangeError>;

    /// Whether the compressor goes by how the parts of a gradient differ, so that
    /// [`observe`](Self::observe) tells it something.
    fn keeps_squares(&self) -> bool {
        false
    }

    /// Tells the compressor of the parts that the next step's gradients are sums of: the sums of their squares, one
    /// flat buffer a tensor. May be called several times a step.
    fn observe(&mut self, squares: &[Vec<f32>]) -> Result<(), ExchangeError> {
        let _ = squares;
        Ok(())
    }

    /// Adds the mean of `values`, one flat buffer a tensor, to the mean gradient of every step from this one on. Every
    /// worker calls it before the same step; the values travel uncompressed. Gradients that are sent as differences
    /// need it. Returns what it took.
    ///
    /// # Errors
    /// `Config` where parameters are held by servers.
    fn shift(&mut self, step: u64, values: &[Vec<f32>]) -> Result<Traffic, ExchangeError> {
        let _ = (step, values);
        let reason =
            "servers do not shift gradients; take all-gather, all-reduce or scatter-reduce";
        Err(ExchangeError::Config(reason.to_owned()))
    }

    /// Which elements of a tensor this rank's messages of the last step carried: increasing flat
    /// positions, none where the rank was absent; `None` where every element travelled. Momentum
    /// masking needs it.
    fn sent(&self, index: usize) -> Option<&[u32]> {
        let _ = index;
        None
    }

    /// The length of this rank's messages for a tensor in the last step, in bytes, counted once whoever
    /// they went to.
    fn message_bytes(&self, index: usize) -> usize {
        let _ = index;
        0
    }

    /// Shows what this rank's messages for a tensor have left out so far: nothing before the first, or
    /// without error feedback; in several pieces where it is sent in slices.
    fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        let _ = (index, show);
    }

    /// The global model, where it differs from the ranks' parameters (a parameter server keeps the
    /// full-precision one); `None` where it does not. Called by rank 0 only. With backup workers
    /// it is the model of the moment, which the others may have taken further.
    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>, ExchangeError>;

    /// Adds all state that a resumed run needs to `state`: residuals, optimizer, servers. Every
    /// worker calls it after the same step; servers' state goes to worker 0.
    fn save(&mut self, state: &mut State) -> Result<(), ExchangeError>;

    /// Takes back what the same rank's [`save`](Self::save) wrote. Every worker calls it before
    /// its next step. Parameters are not in the state: the trainer keeps them.
    fn restore(&mut self, state: &State) -> Result<(), ExchangeError>;

    /// Gives worker 0 what every worker has to say beside the exchange, in the order of ranks; the others `None`.
    /// Every worker calls it between the same two steps.
    ///
    /// # Errors
    /// Those of the transport.
    fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError>;

    /// Gives every worker what worker 0 has to say; it is written to `message` of the others. Every worker calls it
    /// between the same two steps.
    ///
    /// # Errors
    /// Those of the transport.
    fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError>;

    /// Compares a [digest](crate::digest) of the workers' parameters and fails on every worker,
    /// naming the ranks that differ. Every worker calls it after the same step.
    fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<(), ExchangeError>;
}

/// What one step of an exchange cost this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepReport {
    /// Processor time spent encoding.
    pub compress: Duration,
    /// Processor time spent decoding and adding.
    pub decompress: Duration,
    /// Time spent sending, and waiting for others.
    pub wire: Duration,
    /// Processor time spent in the optimizer.
    pub update: Duration,
    /// Time in which a thread of this rank's own encoded, sent, waited for others and decoded; 0 where the exchange
    /// works in its caller's.
    pub background: Duration,
    /// Of it, what the caller waited for in [`step`](DistributedOptimizer::step); the rest was hidden.
    pub waited: Duration,
    /// Bytes this rank sent and received, as counted by the transport.
    pub traffic: Traffic,
    /// Exchanges after this one that are in the parameters already, done without this late rank:
    /// it goes on that many exchanges further. Always 0 without backup workers.
    pub skipped: u64,
}

/// Runs `work` and adds the processor time it took to `total`: how long it would have taken on a core
/// of its own, whatever else the machine does.
pub(crate) fn worked<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = ThreadTime::now();
    let result = work();
    *total += start.elapsed();
    result
}

/// Runs `work`, which waits for others, and adds the time that passed to `total`.
pub(crate) fn timed<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
