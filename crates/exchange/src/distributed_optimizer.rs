//! The interface between a trainer and an exchange.

use std::sync::Arc;

use gradwire::{State, Tensor};

use crate::control::Control;
use crate::group_config::check_lengths;
use crate::{GradientSink, Result, StepReport};

/// The input of one step.
#[derive(Debug, Clone, Copy)]
pub struct StepInput<'a> {
    /// The training step. Steps increase, and are the same on every rank.
    pub step: u64,
    /// The learning rate.
    pub learning_rate: f32,
    /// This rank's gradients, one flat buffer per tensor.
    pub gradients: &'a [Vec<f32>],
    /// If each gradient is a sum of parts, such as micro-batches: the elementwise sums of the
    /// squares of the parts. `None`: every gradient is a single part. Only used if
    /// [`needs_squares`](DistributedOptimizer::needs_squares).
    pub squares: Option<&'a [Vec<f32>]>,
    /// Added to the mean gradient before the optimizer runs; the same on every rank. For
    /// variance-reduced gradients, which are sent as differences from it. An exchange with servers
    /// refuses it.
    pub shift: Option<&'a [Vec<f32>]>,
}

impl<'a> StepInput<'a> {
    /// Plain gradients.
    pub fn new(step: u64, learning_rate: f32, gradients: &'a [Vec<f32>]) -> Self {
        Self { step, learning_rate, gradients, squares: None, shift: None }
    }

    /// Refuses buffers whose number or lengths do not match the tensors.
    pub(crate) fn check(&self, tensors: &[Tensor], parameters: &[Vec<f32>]) -> Result<()> {
        let given = [Some(self.gradients), Some(parameters), self.squares, self.shift];
        given.into_iter().flatten().try_for_each(|buffers| check_lengths(tensors, buffers))
    }
}

/// One rank's end of an exchange: gradients in, the same new parameters on every rank out.
///
/// Every rank calls the same operations in the same order with the same, increasing steps. An error
/// ends the exchange: it names the rank and the operation, and the other ranks stop as well.
/// Dropping an end announces that this rank has left; ranks that still need it fail.
pub trait DistributedOptimizer: Send {
    /// The tensors of the model, in the order of gradients and parameters.
    fn tensors(&self) -> &[Tensor];

    /// A sink that takes gradients of this step one by one, before all are known. The next call
    /// must be [`step`](Self::step) for the same step, with all gradients. `None` if the exchange
    /// cannot send gradients early.
    ///
    /// After a backward pass that failed, a new sink drops the gradients that the old one has
    /// taken. If some of them have been sent, they cannot be dropped, and the result is `None`.
    fn gradient_sink(&mut self, step: u64) -> Option<Arc<dyn GradientSink>> {
        let _ = step;
        None
    }

    /// Exchanges one step's gradients and updates `parameters` in place.
    ///
    /// Exchanges built on collectives average the gradients and run the optimizer on every rank;
    /// the parameter server runs it once and sends model deltas back. With backup workers, later
    /// steps may be done without a late rank: see [`StepReport::skipped`].
    fn step(&mut self, input: StepInput<'_>, parameters: &mut [Vec<f32>]) -> Result<StepReport>;

    /// Whether some compressor uses [`StepInput::squares`].
    fn needs_squares(&self) -> bool {
        false
    }

    /// The elements of a tensor that this rank's messages carried in the last step, as increasing
    /// flat positions. An empty slice if the rank did not take part; `None` if all elements were
    /// sent. Momentum masking needs it.
    fn sent(&self, index: usize) -> Option<&[u32]> {
        let _ = index;
        None
    }

    /// The length in bytes of this rank's messages for its gradient of a tensor in the last step. A
    /// message to several ranks counts once; averages that the rank sends on do not count.
    fn message_bytes(&self, index: usize) -> usize {
        let _ = index;
        0
    }

    /// Calls `show` with this rank's residual of a tensor, once per slice if the tensor is sent in
    /// slices. Before the first message, or without error feedback, there is no call.
    fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        let _ = (index, show);
    }

    /// The global model, if it differs from the ranks' parameters (a parameter server keeps it in
    /// full precision); otherwise `None`. Called by rank 0 only. With backup workers it is the
    /// current model, which may include later steps of other workers.
    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>>;

    /// Adds all state that a resumed run needs to `state`: residuals, optimizer, servers. Every
    /// worker calls it after the same step; servers' state goes to worker 0.
    fn save(&mut self, state: &mut State) -> Result<()>;

    /// Restores the state that the same rank's [`save`](Self::save) wrote. Every worker calls it
    /// before its next step. Parameters are not in the state: the trainer keeps them.
    fn restore(&mut self, state: &State) -> Result<()>;

    /// The control channel to the other workers. All workers make the same calls between the same
    /// two steps.
    fn control(&mut self) -> Control<'_>;
}
