//! Variance-reduced gradients: what travels is how the gradient of a batch differs from the gradient of the same batch
//! at a snapshot of the parameters.
//!
//! Every so many steps all workers take the common parameters x̃ for a snapshot, compute the gradient of the whole
//! training set there together, and share its exact mean μ. In between a worker sends, compressed,
//! ∇f_batch(x) − ∇f_batch(x̃); the mean of that plus μ is what the optimizer goes by. The nearer x is to x̃ the smaller
//! what travels, and what its compression loses (Johnson and Zhang 2013; Yu, Wu and Huang 2019 with the quantizer
//! `lpc-svrg`).
//!
//! A step costs two backward passes, a snapshot one pass over the worker's part of the training set and one
//! uncompressed exchange, both counted where they occur.

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::{DistributedOptimizer, ExchangeError, Traffic};

use super::learner::Learner;
use super::{Payload, RunConfig, TrainError};
use gradwire_models::data::Content;
use gradwire_models::models::floats_of;

/// One worker's snapshot. The exchange keeps the mean gradient there.
pub(super) struct Svrg {
    every: u64,
    snapshot: Vec<Vec<f32>>,
    scratch: Vec<Vec<f32>>,
}

impl Svrg {
    /// Renews the snapshot every so many steps.
    pub(super) fn new(every: u64, parameters: &[Vec<f32>]) -> Self {
        let zeros = parameters.iter().map(|values| vec![0.0; values.len()]).collect();
        Self { every, snapshot: parameters.to_vec(), scratch: zeros }
    }

    /// Takes a new snapshot if it is time. Every worker calls it with the same parameters before the same step.
    pub(super) fn renew(
        &mut self,
        step: u64,
        learner: &mut Learner<'_>,
        parameters: &[Vec<f32>],
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<Traffic, ExchangeError> {
        if !step.is_multiple_of(self.every) {
            return Ok(Traffic::default());
        }
        self.snapshot.clone_from_slice(parameters);
        let mut mean: Vec<Vec<f32>> =
            parameters.iter().map(|values| vec![0.0; values.len()]).collect();
        learner.add_whole_gradient(parameters, &mut self.scratch, &mut mean);
        exchange.shift(step, &mean)
    }

    /// Adds the difference between the gradients of the batch laid out, here and at the snapshot. Returns the mean
    /// loss here.
    pub(super) fn add_gradients(
        &mut self,
        learner: &mut Learner<'_>,
        step: u64,
        parameters: &[Vec<f32>],
        sum: &mut [Vec<f32>],
    ) -> f64 {
        self.scratch.iter_mut().for_each(|values| values.fill(0.0));
        let (snapshot, scratch) = (&self.snapshot, &mut self.scratch);
        learner.without_a_trace(|learner| learner.add_gradients(step, snapshot, scratch));
        for (sum, there) in sum.iter_mut().flatten().zip(self.scratch.iter().flatten()) {
            *sum -= there;
        }
        learner.add_gradients(step, parameters, sum)
    }

    /// Adds the snapshot to `state`.
    pub(super) fn save(&self, tensors: &[Tensor], state: &mut State) {
        for (tensor, values) in tensors.iter().zip(&self.snapshot) {
            state.set_floats(&format!("snapshot/{}", tensor.name()), values.clone());
        }
    }

    /// Takes back what [`save`](Self::save) wrote.
    pub(super) fn restore(&mut self, tensors: &[Tensor], state: &State) -> Result<(), StateError> {
        let entry = |tensor: &Tensor| format!("snapshot/{}", tensor.name());
        let read = |t: &Tensor| floats_of(state, entry(t), t.elements());
        self.snapshot = tensors.iter().map(read).collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// Refuses what a snapshot's gradient has no meaning for.
pub(super) fn check(config: &RunConfig) -> Result<(), TrainError> {
    if config.svrg == 0 {
        return Ok(());
    }
    let images = matches!(&config.data.content, Content::Images(_));
    let everyone = config.participation == 1.0 && config.dropout == 0.0;
    let each_step = config.compressor.first().every() == 1 && config.compressor.is_of_one();
    let conditions = [
        (images, "a fixed set of training images"),
        (!config.augments(), "images as they are: leave augmentation off"),
        (config.send == Payload::Gradients, "gradients to be sent"),
        (everyone, "every worker in every round"),
        (each_step, "one compressor, and an exchange at each step: leave out every="),
        (config.exchange.servers() == 0, "an exchange without servers"),
        (
            config.compressor.first().entry().id != "variance",
            "another compressor than variance, which goes by parts of plain gradients",
        ),
    ];
    match conditions.into_iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, needs)) => {
            Err(TrainError::Config(format!("variance-reduced gradients (svrg) need {needs}")))
        }
    }
}
