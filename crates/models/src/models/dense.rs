//! Fully connected layers.

use super::layout::{Init, Layout};
use super::pointwise::add;
use crate::matmul::{Matrix, multiply};

/// A fully connected layer on rows: `y = x·W + b` with `W` of shape `[from, to]`, or `y = x·W`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dense {
    weight: usize,
    bias: Option<usize>,
    from: usize,
    to: usize,
}

impl Dense {
    /// Declares a layer from `from` to `to` features.
    pub(super) fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2], init: Init) -> Self {
        let layer = Self::unbiased(layout, name, [from, to], init);
        Self { bias: Some(layout.bias(name, to)), ..layer }
    }

    /// Declares a layer without bias.
    pub(super) fn unbiased(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        init: Init,
    ) -> Self {
        let weight = layout.parameter(name, "weight", &[from, to], init);
        Self { weight, bias: None, from, to }
    }

    /// The number of features of its output.
    pub(super) fn outputs(&self) -> usize {
        self.to
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = usize> + use<> {
        [self.weight].into_iter().chain(self.bias)
    }

    /// `[rows, from]` in, `[rows, to]` out.
    pub(super) fn forward(&self, parameters: &[Vec<f32>], x: &[f32]) -> Vec<f32> {
        let rows = x.len() / self.from;
        let mut y = match self.bias {
            Some(bias) => parameters[bias].repeat(rows),
            None => vec![0.0; rows * self.to],
        };
        let weight = Matrix::new(&parameters[self.weight], self.to);
        multiply(Matrix::new(x, self.from), weight, true, &mut y);
        y
    }

    /// Adds the gradients of weights and bias.
    pub(super) fn add_gradients(&self, x: &[f32], y_gradient: &[f32], gradients: &mut [Vec<f32>]) {
        let transposed = Matrix::new(x, self.from).transposed();
        let outputs = Matrix::new(y_gradient, self.to);
        multiply(transposed, outputs, true, &mut gradients[self.weight]);
        if let Some(bias) = self.bias {
            y_gradient.chunks_exact(self.to).for_each(|row| add(&mut gradients[bias], row));
        }
    }

    /// The gradient of `x`.
    pub(super) fn x_gradient(&self, parameters: &[Vec<f32>], y_gradient: &[f32]) -> Vec<f32> {
        let mut x_gradient = vec![0.0; y_gradient.len() / self.to * self.from];
        let weight = Matrix::new(&parameters[self.weight], self.to).transposed();
        multiply(Matrix::new(y_gradient, self.to), weight, false, &mut x_gradient);
        x_gradient
    }

    /// Adds the gradients of weights and bias, and returns the gradient of `x`.
    pub(super) fn backward(
        &self,
        parameters: &[Vec<f32>],
        x: &[f32],
        y_gradient: &[f32],
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        self.add_gradients(x, y_gradient, gradients);
        self.x_gradient(parameters, y_gradient)
    }
}
