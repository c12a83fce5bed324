//! The mark of a model and its operations.

use gradwire_models::tasks::{Replica, TaskConfig};

use super::cache::cached;
use super::data::data_for;
use super::mark::Mark;
use crate::settings::TrainingSettings;

/// The most examples of a batch.
const BATCH: usize = 4;
/// The rate of the step between the two batches.
const RATE: f32 = 0.01;

pub(super) fn mark(settings: &TrainingSettings) -> Option<String> {
    let TrainingSettings { model, batch, augment, .. } = settings;
    let (batch, augment) = ((*batch).min(BATCH), augment.unwrap_or(false));
    let config = TaskConfig { workers: 1, batch, augment, seed: 0 };
    cached(format!("model {model} {batch} {augment}"), || {
        let data = data_for(model, &config)?;
        let mut replica = model.task(&data).ok()?.replica(&config, 0, None).ok()?;
        Some(of(&mut *replica))
    })
}

/// The mark of a replica: of its initial parameters, of two steps, and of an evaluation.
pub(super) fn of(replica: &mut dyn Replica) -> String {
    let mut mark = Mark::default();
    let mut parameters = replica.initial_parameters(0);
    mark.tensors(&parameters);
    for step in 0..2 {
        let mut gradients: Vec<Vec<f32>> =
            parameters.iter().map(|values| vec![0.0; values.len()]).collect();
        replica.load_batch(step);
        let all = 0..replica.parts();
        let loss = replica.add_gradients(step, all, &parameters, &mut gradients, None);
        mark.number(loss);
        mark.tensors(&gradients);
        for (values, gradient) in parameters.iter_mut().zip(&gradients) {
            values.iter_mut().zip(gradient).for_each(|(value, by)| *value -= RATE * by);
        }
    }
    let score = replica.score(&parameters, replica.statistics(), 1, 0);
    mark.number(score.loss);
    mark.text()
}
