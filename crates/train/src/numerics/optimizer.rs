//! The mark of the optimizers of a run.

use gradwire::Tensor;
use gradwire_exchange::Optimizer;

use super::cache::cached;
use super::mark::{Mark, values};
use crate::outer::OuterOptimizer;
use crate::settings::TrainingSettings;

/// The number of updates.
const UPDATES: u64 = 4;

pub(super) fn mark(settings: &TrainingSettings) -> Option<String> {
    let TrainingSettings { optimizer, weight_decay, outer, outer_rate, .. } = settings;
    let outer_name = outer.map_or_else(String::new, |outer| outer.to_string());
    let key = format!("optimizer {optimizer} {weight_decay} {outer_name} {outer_rate}");
    cached(key, || {
        let tensors = [Tensor::new("weight", &[24, 40]), Tensor::new("bias", &[40])];
        let mut mark = Mark::default();
        update(&mut *optimizer.build(&tensors, *weight_decay), &tensors, &mut mark);
        if let Some(outer) = outer {
            let mut outer = OuterOptimizer::new(outer.build(&tensors, 0.0), *outer_rate);
            update(&mut outer, &tensors, &mut mark);
        }
        Some(mark.text())
    })
}

/// Updates fixed parameters, and adds the exchanged values and the parameters to the mark.
pub(super) fn update(optimizer: &mut dyn Optimizer, tensors: &[Tensor], mark: &mut Mark) {
    for (index, tensor) in tensors.iter().enumerate() {
        let mut parameters = values(tensor.elements(), index as u64, 0, 0);
        for step in 1..=UPDATES {
            let mut gradient = values(tensor.elements(), index as u64, 0, step);
            optimizer.to_exchange(index, &parameters, &mut gradient);
            mark.floats(&gradient);
            optimizer.update(index, 0.01, &gradient, &mut parameters);
            mark.floats(&parameters);
        }
    }
}
