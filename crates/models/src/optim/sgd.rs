//! Stochastic gradient descent: `p ← p − lr·g`.

use super::per_tensor::{Rule, Step};

/// Plain gradient descent; it has neither configuration nor state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sgd;

impl Rule for Sgd {
    const STATE: &[&str] = &[];

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], _: &mut [Vec<f32>]) {
        for (parameter, gradient) in parameters.iter_mut().zip(gradient) {
            *parameter -= step.learning_rate * (gradient + step.decay * *parameter);
        }
    }
}
