//! Layer normalisation (Ba, Kiros and Hinton 2016): each row gets mean 0 and variance 1, then a
//! scale and a shift for each column.

use super::super::layout::{Init, Layout};
use super::super::pointwise::{dot, sum};

/// Added to a variance before its square root is taken.
const EPSILON: f32 = 1e-5;

/// A layer normalisation.
#[derive(Debug)]
pub(super) struct LayerNorm {
    scale: usize,
    shift: usize,
    width: usize,
}

/// The output of a normalisation, and the values for its backward pass.
#[derive(Debug)]
pub(super) struct Normalised {
    pub(super) output: Vec<f32>,
    /// The rows before scale and shift.
    rows: Vec<f32>,
    /// 1 / standard deviation of each row.
    inverses: Vec<f32>,
}

impl LayerNorm {
    /// Declares a normalisation with scale 1 and shift 0.
    pub(super) fn new(layout: &mut Layout, name: &str, width: usize) -> Self {
        let scale = layout.parameter(name, "scale", &[width], Init::Constant(1.0));
        let shift = layout.parameter(name, "shift", &[width], Init::Constant(0.0));
        Self { scale, shift, width }
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> [usize; 2] {
        [self.scale, self.shift]
    }

    /// Normalises the rows of `x`.
    pub(super) fn forward(&self, parameters: &[Vec<f32>], x: &[f32]) -> Normalised {
        let (scale, shift) = (&parameters[self.scale], &parameters[self.shift]);
        let count = self.width as f32;
        let (mut output, mut rows) = (vec![0.0; x.len()], x.to_vec());
        let mut inverses = Vec::with_capacity(x.len() / self.width);
        for (row, out) in rows.chunks_exact_mut(self.width).zip(output.chunks_exact_mut(self.width))
        {
            let mean = sum(row) / count;
            row.iter_mut().for_each(|value| *value -= mean);
            let inverse = 1.0 / (dot(row, row) / count + EPSILON).sqrt();
            inverses.push(inverse);
            for ((value, out), (scale, shift)) in
                row.iter_mut().zip(out).zip(scale.iter().zip(shift))
            {
                *value *= inverse;
                *out = *value * scale + shift;
            }
        }
        Normalised { output, rows, inverses }
    }

    /// Adds the gradients of scale and shift, and returns the gradient of `x`.
    pub(super) fn backward(
        &self,
        parameters: &[Vec<f32>],
        normalised: &Normalised,
        output_gradient: &[f32],
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        let scale = &parameters[self.scale];
        let count = self.width as f32;
        let mut gradient = output_gradient.to_vec();
        let rows = normalised.rows.chunks_exact(self.width).zip(&normalised.inverses);
        for (gradient, (row, inverse)) in gradient.chunks_exact_mut(self.width).zip(rows) {
            for ((sum, gradient), value) in
                gradients[self.scale].iter_mut().zip(&*gradient).zip(row)
            {
                *sum += gradient * value;
            }
            for ((sum, gradient), scale) in
                gradients[self.shift].iter_mut().zip(&mut *gradient).zip(scale)
            {
                *sum += *gradient;
                *gradient *= scale;
            }
            let (mean, slope) = (sum(gradient) / count, dot(gradient, row) / count);
            for (gradient, value) in gradient.iter_mut().zip(row) {
                *gradient = inverse * (*gradient - mean - value * slope);
            }
        }
        gradient
    }
}
