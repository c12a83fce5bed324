//! Variance-reduced gradients: a worker sends the difference between the gradient of a batch and
//! the gradient of the same batch at a snapshot of the parameters.
//!
//! Every `svrg` steps all workers take a snapshot x̃ of the common parameters. Together they
//! compute the gradient of the whole training set at x̃, and share its exact mean μ. In between, a
//! worker sends ∇f_batch(x) − ∇f_batch(x̃), compressed; the optimizer gets the mean of these
//! differences plus μ. The nearer x is to x̃, the smaller are the difference and the error of its
//! compression (Johnson and Zhang 2013; Yu, Wu and Huang 2019 with the quantizer `lpc-svrg`).
//!
//! A step costs two backward passes. A snapshot costs one pass over the worker's part of the
//! training set and one uncompressed exchange. Both are counted when they occur.

use gradwire::{State, StateError, Tensor};

use crate::checkpoint::{save_values, values_of};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::rounds::Rounds;
use crate::settings::Payload;
use gradwire_models::tasks::Replica;

/// One worker's snapshot.
pub(crate) struct Svrg {
    every: u64,
    snapshot: Vec<Vec<f32>>,
    /// The mean gradient of the whole training set at the snapshot, over all workers; added to the
    /// mean of the differences before the optimizer.
    pub(crate) mean: Vec<Vec<f32>>,
    scratch: Vec<Vec<f32>>,
}

impl Svrg {
    /// Renews the snapshot every `every` steps.
    pub(crate) fn new(every: u64, parameters: &[Vec<f32>]) -> Self {
        let zeros = || parameters.iter().map(|values| vec![0.0; values.len()]).collect();
        Self { every, snapshot: parameters.to_vec(), mean: zeros(), scratch: zeros() }
    }

    /// Whether a new snapshot is due at a step.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        step.is_multiple_of(self.every)
    }

    /// Takes a snapshot, with this worker's part of the mean gradient. Every worker calls it with
    /// the same parameters before the same step, and then averages the [gradients](Self::mean).
    pub(crate) fn renew(&mut self, replica: &mut dyn Replica, parameters: &[Vec<f32>]) {
        self.snapshot.clone_from_slice(parameters);
        self.mean.iter_mut().for_each(|values| values.fill(0.0));
        replica.add_full_gradient(parameters, &mut self.scratch, &mut self.mean);
    }

    /// Adds the difference between the gradients of the loaded batch, at the parameters and at the
    /// snapshot. Returns the mean loss at the parameters.
    pub(crate) fn add_gradients(
        &mut self,
        replica: &mut dyn Replica,
        step: u64,
        parameters: &[Vec<f32>],
        sum: &mut [Vec<f32>],
    ) -> f64 {
        self.scratch.iter_mut().for_each(|values| values.fill(0.0));
        let (snapshot, scratch) = (&self.snapshot, &mut self.scratch);
        replica.add_gradients(step, 0..replica.parts(), snapshot, scratch, None);
        for (sum, there) in sum.iter_mut().flatten().zip(self.scratch.iter().flatten()) {
            *sum -= there;
        }
        replica.add_gradients(step, 0..replica.parts(), parameters, sum, None)
    }

    /// Adds the snapshot and its mean gradient to `state`.
    pub(crate) fn save(&self, tensors: &[Tensor], state: &mut State) {
        save_values("snapshot", tensors, &self.snapshot, state);
        state.set_floats("shift", self.mean.concat());
    }

    /// Restores the state that [`save`](Self::save) wrote.
    pub(crate) fn restore(&mut self, tensors: &[Tensor], state: &State) -> Result<(), StateError> {
        self.snapshot = values_of("snapshot", tensors, state)?;
        let elements = tensors.iter().map(Tensor::elements).sum();
        let mut mean = state.floats_of("shift", elements)?.iter().copied();
        self.mean.iter_mut().flatten().zip(&mut mean).for_each(|(value, saved)| *value = saved);
        Ok(())
    }
}

/// Refuses settings that variance reduction does not work with.
pub(crate) fn check(config: &RunConfig) -> Result<(), TrainError> {
    if config.svrg == 0 {
        return Ok(());
    }
    let everyone = config.participation == 1.0 && config.dropout == 0.0;
    let conditions = [
        (!config.augments(), "images without augmentation: leave augment off"),
        (config.send == Payload::Gradients, "gradients: give --send gradients"),
        (everyone, "every worker in every round"),
        (config.exchange.servers() == 0, "an exchange without servers"),
        (
            config.clip.is_none(),
            "gradients without clipping, which would bound their correction instead: leave out --clip",
        ),
    ];
    conditions.into_iter().try_for_each(|(holds, what)| needs(holds, what))
}

/// Refuses rounds of several steps.
pub(crate) fn check_rounds(config: &RunConfig, rounds: &Rounds) -> Result<(), TrainError> {
    let each_step = config.svrg == 0 || rounds.longest() == 1;
    needs(each_step, "an exchange at each step: leave out every=")
}

/// Refuses a model without a gradient of the whole training set, and one whose gradient of an
/// example depends on the other examples in the batch: the gradient of the whole training set would
/// not be the mean of the batches' gradients.
pub(crate) fn check_replica(config: &RunConfig, replica: &dyn Replica) -> Result<(), TrainError> {
    needs(config.svrg == 0 || replica.has_full_gradient(), "a fixed set of training images")?;
    let independent = config.svrg == 0 || replica.statistics().is_empty();
    needs(independent, "a model without batch normalisation, such as lenet5 or cifar-cnn")
}

fn needs(holds: bool, what: &str) -> Result<(), TrainError> {
    if holds {
        return Ok(());
    }
    Err(TrainError::Config(format!("variance-reduced gradients (svrg) need {what}")))
}
