//! Fully connected layers.

use super::super::layers::{Init, Layout};
use super::pointwise::add;
use crate::matmul::{Matrix, multiply};

/// A fully connected layer on rows: `y = x·W + b` with `W` of shape `[from, to]`.
#[derive(Debug)]
pub(super) struct Dense {
    weight: usize,
    bias: usize,
    from: usize,
    to: usize,
}

impl Dense {
    /// Declares a layer from `from` to `to` features.
    pub(super) fn new(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        variance: f32,
    ) -> Self {
        let weight = layout.parameter(name, "weight", &[from, to], Init::Uniform { variance });
        Self { weight, bias: layout.bias(name, to), from, to }
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> [usize; 2] {
        [self.weight, self.bias]
    }

    /// `[rows, from]` in, `[rows, to]` out.
    pub(super) fn forward(&self, parameters: &[Vec<f32>], x: &[f32]) -> Vec<f32> {
        let mut y = parameters[self.bias].repeat(x.len() / self.from);
        let weight = Matrix::new(&parameters[self.weight], self.to);
        multiply(Matrix::new(x, self.from), weight, true, &mut y);
        y
    }

    /// Adds the gradients of weights and bias, and returns that of `x`.
    pub(super) fn backward(
        &self,
        parameters: &[Vec<f32>],
        x: &[f32],
        y_gradient: &[f32],
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        let outputs = Matrix::new(y_gradient, self.to);
        let transposed = Matrix::new(x, self.from).transposed();
        multiply(transposed, outputs, true, &mut gradients[self.weight]);
        y_gradient.chunks_exact(self.to).for_each(|row| add(&mut gradients[self.bias], row));
        let mut x_gradient = vec![0.0; x.len()];
        let weight = Matrix::new(&parameters[self.weight], self.to).transposed();
        multiply(outputs, weight, false, &mut x_gradient);
        x_gradient
    }
}
