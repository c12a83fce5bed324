//! Local steps: between two exchanges a worker updates its own parameters with its own optimizer.

use gradwire::{State, StateError};
use gradwire_exchange::{DistributedOptimizer, Optimizer};

use crate::settings::Payload;

/// The worker's own parameters and optimizer. At the end of a round it sends the parameter update
/// since the beginning of the round, or the parameters; then it continues from the common
/// parameters.
pub(crate) struct LocalSteps {
    /// The worker's own parameters.
    pub(crate) parameters: Vec<Vec<f32>>,
    pub(crate) optimizer: Box<dyn Optimizer>,
    /// Whether to reset the momentum of elements that have been sent.
    pub(crate) mask: bool,
    pub(crate) send: Payload,
}

impl LocalSteps {
    /// One local step.
    pub(crate) fn update(&mut self, learning_rate: f32, gradients: &[Vec<f32>]) {
        for (index, (gradient, parameters)) in
            gradients.iter().zip(&mut self.parameters).enumerate()
        {
            self.optimizer.update(index, learning_rate, gradient, parameters);
        }
    }

    /// Writes the values to send: the parameters, or their change from the common ones.
    pub(crate) fn write(&self, common: &[Vec<f32>], out: &mut [Vec<f32>]) {
        for ((out, own), common) in out.iter_mut().zip(&self.parameters).zip(common) {
            if self.send == Payload::Weights {
                out.copy_from_slice(own);
                continue;
            }
            for ((out, own), common) in out.iter_mut().zip(own).zip(common) {
                *out = own - common;
            }
        }
    }

    /// Continues from the common parameters, after a round of `exchange`.
    pub(crate) fn follow(&mut self, common: &[Vec<f32>], exchange: &dyn DistributedOptimizer) {
        for (index, (own, common)) in self.parameters.iter_mut().zip(common).enumerate() {
            own.copy_from_slice(common);
            if self.mask
                && let Some(sent) = exchange.sent(index)
            {
                self.optimizer.mask(index, sent);
            }
        }
    }

    /// Adds the optimizer's state to `state`.
    pub(crate) fn save(&self, state: &mut State) {
        self.optimizer.save("local/", state);
    }

    /// Restores the state that [`save`](Self::save) wrote, between two rounds, while the worker has
    /// the `common` parameters.
    pub(crate) fn restore(&mut self, common: &[Vec<f32>], state: &State) -> Result<(), StateError> {
        self.optimizer.restore("local/", state)?;
        self.parameters.clone_from_slice(common);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gradwire::Tensor;
    use gradwire_models::optim::OptimizerKind;

    use super::*;

    #[test]
    fn a_restored_worker_continues_from_its_own_parameters() {
        let momentum: OptimizerKind = "momentum".parse().unwrap();
        let tensors = [Tensor::new("a", &[2])];
        let local = || LocalSteps {
            parameters: vec![vec![1.0, 2.0]],
            optimizer: momentum.build(&tensors, 0.0),
            mask: false,
            send: Payload::Updates,
        };
        let mut state = State::new();
        local().save(&mut state);
        // Asynchronous workers differ: this one does not have the initial parameters.
        let common = [vec![5.0, 6.0]];
        let mut restored = local();
        restored.restore(&common, &state).unwrap();
        let mut sent = [vec![9.0, 9.0]];
        restored.write(&common, &mut sent);
        assert_eq!(sent, [[0.0, 0.0]]);
    }
}
