//! The error of the messages of a trial.

use std::collections::HashMap;

use gradwire::Floats;

use crate::{Bucket, Recording};

/// Sums over steps of the tensors of some buckets.
pub(crate) struct Sums {
    tensors: HashMap<usize, Sum>,
    /// A gradient as `f32`, for reuse.
    wide: Vec<f32>,
}

/// The sums of one tensor.
struct Sum {
    /// The sent mean minus the true mean.
    error: Vec<f32>,
    /// The true mean.
    truth: Vec<f32>,
}

impl Sums {
    pub(crate) fn of(buckets: &[Bucket], recording: &Recording<'_>) -> Self {
        let sum = |&at: &usize| {
            let zeros = vec![0.0; recording.tensors[at].elements()];
            (at, Sum { error: zeros.clone(), truth: zeros })
        };
        let tensors = buckets.iter().flat_map(|bucket| &bucket.tensors).map(sum).collect();
        Self { tensors, wide: Vec::new() }
    }

    /// Adds a bucket: the mean that was exchanged, and the gradients of all ranks.
    pub(crate) fn add(
        &mut self,
        bucket: &Bucket,
        mut exchanged: &[f32],
        gradients: &[&[Floats<'_>]],
    ) {
        let Self { tensors, wide } = self;
        for at in &bucket.tensors {
            let sum = tensors.get_mut(at).expect("every tensor has its sums");
            let sent;
            (sent, exchanged) = exchanged.split_at(sum.error.len());
            sum.error.iter_mut().zip(sent).for_each(|(error, sent)| *error += sent);
            for gradient in gradients {
                sum.add_true(as_f32(gradient[*at], wide), 1.0 / gradients.len() as f32);
            }
        }
    }

    /// For each tensor, its place in the model, ‖error‖² and ‖truth‖².
    pub(crate) fn squares(&self) -> Vec<(usize, [f64; 2])> {
        let square = |values: &[f32]| values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        let of = |(&at, sum): (&usize, &Sum)| (at, [square(&sum.error), square(&sum.truth)]);
        self.tensors.iter().map(of).collect()
    }
}

impl Sum {
    fn add_true(&mut self, values: &[f32], scale: f32) {
        let sums = self.error.iter_mut().zip(&mut self.truth);
        for ((error, truth), value) in sums.zip(values) {
            *error -= scale * value;
            *truth += scale * value;
        }
    }
}

/// The values as `f32`; not copied if they already have this type.
fn as_f32<'a>(values: Floats<'a>, wide: &'a mut Vec<f32>) -> &'a [f32] {
    if let Floats::F32(values) = values {
        return values;
    }
    wide.clear();
    values.append_to(wide);
    wide
}

/// ‖error‖ / ‖truth‖ from their squares.
pub(crate) fn relative([error, truth]: [f64; 2]) -> f64 {
    if error == 0.0 { 0.0 } else { (error / truth).sqrt() }
}
