//! Gradient descent with momentum: `v ← m·v + g`, then `p ← p − lr·v`, or, with Nesterov's
//! look-ahead (in the form of Sutskever et al. 2013 that evaluates the gradient at the current
//! parameters), `p ← p − lr·(g + m·v)`. The learning rate is outside `v`, as in TensorFlow and
//! PyTorch.

use super::per_tensor::{Rule, Step};

/// The settings of momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MomentumConfig {
    /// The momentum m, in [0, 1).
    pub momentum: f32,
    /// Whether to use Nesterov's form.
    pub nesterov: bool,
}

impl Rule for MomentumConfig {
    const STATE: &[&str] = &["velocity"];
    const HAS_MOMENTUM: bool = true;

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        let Self { momentum, nesterov } = *self;
        // Without look-ahead the step is v; with it, g + m·v.
        let (of_gradient, of_velocity) = if nesterov { (1.0, momentum) } else { (0.0, 1.0) };
        let elements = parameters.iter_mut().zip(gradient).zip(&mut state[0]);
        for ((parameter, gradient), velocity) in elements {
            let gradient = gradient + step.decay * *parameter;
            *velocity = momentum * *velocity + gradient;
            *parameter -= step.learning_rate * (of_gradient * gradient + of_velocity * *velocity);
        }
    }
}
