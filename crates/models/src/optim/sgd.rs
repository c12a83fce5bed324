//! Stochastic gradient descent: `p ← p − lr·g`.

use gradwire::{State, StateError};

use super::Rule;

/// Plain gradient descent; it has neither configuration nor state.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sgd;

impl Rule for Sgd {
    fn update(&mut self, learning_rate: f32, decay: f32, gradient: &[f32], parameters: &mut [f32]) {
        for (parameter, gradient) in parameters.iter_mut().zip(gradient) {
            *parameter -= learning_rate * (gradient + decay * *parameter);
        }
    }

    fn save(&self, _: &str, _: &mut State) {}

    fn restore(&mut self, _: &str, _: &State) -> Result<(), StateError> {
        Ok(())
    }
}
