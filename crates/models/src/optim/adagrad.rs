//! AdaGrad (Duchi, Hazan and Singer 2011, "Adaptive subgradient methods for online learning and
//! stochastic optimization", in its diagonal form):
//!
//! s ← s + g², p ← p − lr·g / (√s + ε)
//!
//! with s = 0 at first, so the first step of every element is lr·sign(g).

use super::per_tensor::{Rule, Step};

/// The settings of AdaGrad.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaGradConfig {
    /// Keeps the denominator from 0, positive.
    pub epsilon: f32,
}

impl Rule for AdaGradConfig {
    const STATE: &[&str] = &["squares"];

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        for ((parameter, gradient), squares) in
            parameters.iter_mut().zip(gradient).zip(&mut state[0])
        {
            let gradient = gradient + step.decay * *parameter;
            *squares += gradient * gradient;
            *parameter -= step.learning_rate * gradient / (squares.sqrt() + self.epsilon);
        }
    }
}
