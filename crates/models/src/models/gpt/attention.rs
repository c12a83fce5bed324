//! Causal self-attention with several heads (Vaswani et al. 2017).
//!
//! Each row of the input has the queries, keys and values of all heads. For each window and head,
//! with Q, K and V of shape `[length, size]`, it computes `softmax(Q·Kᵀ / √size)·V`, and a token
//! sees itself and earlier tokens.

use super::super::pointwise::{dot, softmax};
use crate::matmul::{Matrix, multiply};

/// The sizes of an attention.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attention {
    /// Tokens of a window.
    pub(super) length: usize,
    pub(super) heads: usize,
    pub(super) width: usize,
}

/// The values that the backward pass needs.
#[derive(Debug)]
pub(super) struct Trace {
    /// Queries, keys and values, `[window, head, 3, length, size]`.
    heads: Vec<f32>,
    /// The weights of the values, `[window, head, length, length]`.
    weights: Vec<f32>,
}

impl Attention {
    /// `[tokens, 3 · width]` in, `[tokens, width]` out.
    pub(super) fn forward(self, x: &[f32]) -> (Vec<f32>, Trace) {
        let length = self.length;
        let size = self.size();
        let heads = self.by_head::<3>(x);
        let mut weights = vec![0.0; heads.len() / (3 * size) * length];
        let mut outputs = vec![0.0; heads.len() / 3];
        let each =
            heads.chunks_exact(3 * length * size).zip(weights.chunks_exact_mut(length * length));
        for ((head, weights), out) in each.zip(outputs.chunks_exact_mut(length * size)) {
            let [queries, keys, values] = self.parts(head);
            multiply(queries, keys.transposed(), false, weights);
            for (time, row) in weights.chunks_exact_mut(length).enumerate() {
                let (seen, later) = row.split_at_mut(time + 1);
                softmax(seen, self.scale());
                later.fill(0.0);
            }
            multiply(Matrix::new(weights, length), values, false, out);
        }
        let mut y = vec![0.0; x.len() / 3];
        self.by_token::<1>(&outputs, &mut y);
        (y, Trace { heads, weights })
    }

    /// The gradient of the input.
    pub(super) fn backward(self, trace: Trace, y_gradient: &[f32]) -> Vec<f32> {
        let (length, size) = (self.length, self.size());
        let outputs = self.by_head::<1>(y_gradient);
        let Trace { heads, weights } = trace;
        let mut gradients = vec![0.0; heads.len()];
        let mut scores = vec![0.0; length * length];
        let each = heads
            .chunks_exact(3 * length * size)
            .zip(gradients.chunks_exact_mut(3 * length * size));
        let each = each.zip(weights.chunks_exact(length * length));
        for (((head, gradient), weights), out) in each.zip(outputs.chunks_exact(length * size)) {
            let [queries, keys, values] = self.parts(head);
            let out = Matrix::new(out, size);
            let (of_queries, rest) = gradient.split_at_mut(length * size);
            let (of_keys, of_values) = rest.split_at_mut(length * size);
            multiply(Matrix::new(weights, length).transposed(), out, false, of_values);
            multiply(out, values.transposed(), false, &mut scores);
            for (score, weight) in scores.chunks_exact_mut(length).zip(weights.chunks_exact(length))
            {
                // The gradient of the softmax.
                let mean = dot(score, weight);
                for (score, weight) in score.iter_mut().zip(weight) {
                    *score = weight * (*score - mean) * self.scale();
                }
            }
            let scores = Matrix::new(&scores, length);
            multiply(scores, keys, false, of_queries);
            multiply(scores.transposed(), queries, false, of_keys);
        }
        let mut x_gradient = vec![0.0; heads.len()];
        self.by_token::<3>(&gradients, &mut x_gradient);
        x_gradient
    }

    /// The width of a head.
    fn size(self) -> usize {
        self.width / self.heads
    }

    /// 1 / √size.
    fn scale(self) -> f32 {
        1.0 / (self.size() as f32).sqrt()
    }

    /// Queries, keys and values of one head.
    fn parts(self, head: &[f32]) -> [Matrix<'_>; 3] {
        let of = self.length * self.size();
        [0, 1, 2].map(|part| Matrix::new(&head[part * of..][..of], self.size()))
    }

    /// `[window, length, PARTS, head, size]` as `[window, head, PARTS, length, size]`.
    fn by_head<const PARTS: usize>(self, rows: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; rows.len()];
        self.pieces::<PARTS>(rows.len(), |token, head| {
            out[head..][..self.size()].copy_from_slice(&rows[token..][..self.size()]);
        });
        out
    }

    /// The reverse.
    fn by_token<const PARTS: usize>(self, heads: &[f32], rows: &mut [f32]) {
        self.pieces::<PARTS>(heads.len(), |token, head| {
            rows[token..][..self.size()].copy_from_slice(&heads[head..][..self.size()]);
        });
    }

    /// Calls `each` with the offset of each piece of `size` values among tokens and among heads.
    fn pieces<const PARTS: usize>(self, elements: usize, mut each: impl FnMut(usize, usize)) {
        let Self { length, heads, width } = self;
        let size = self.size();
        for window in (0..elements).step_by(length * PARTS * width) {
            for (time, row) in (window..).step_by(PARTS * width).take(length).enumerate() {
                for part in 0..PARTS {
                    for head in 0..heads {
                        let among_heads = ((head * PARTS + part) * length + time) * size;
                        each(row + part * width + head * size, window + among_heads);
                    }
                }
            }
        }
    }
}
