//! A block: attention and an MLP, each after a normalisation and added to its input.

use super::super::dense::Dense;
use super::super::layout::{Init, Layout};
use super::super::pointwise::{add, gelu, gelu_backward};
use super::attention::{self, Attention};
use super::norm::{LayerNorm, Normalised};

/// The standard deviation of weights.
pub(super) const DEVIATION: f32 = 0.02;

/// A block.
#[derive(Debug)]
pub(super) struct Block {
    heads: usize,
    width: usize,
    norm1: LayerNorm,
    /// To queries, keys and values.
    qkv: Dense,
    /// From the heads back.
    out: Dense,
    norm2: LayerNorm,
    fc1: Dense,
    fc2: Dense,
}

/// The values inside the block, in order, which the backward pass needs.
#[derive(Debug)]
pub(super) struct Trace {
    attention: Attention,
    first: Normalised,
    attended: attention::Trace,
    joined: Vec<f32>,
    second: Normalised,
    hidden: Vec<f32>,
    activated: Vec<f32>,
}

impl Block {
    /// Declares one of `layers` blocks.
    pub(super) fn new(layout: &mut Layout, name: &str, [layers, heads, width]: [usize; 3]) -> Self {
        let variance = DEVIATION * DEVIATION;
        let inner = Init::Uniform { variance };
        // The variances of 2·layers outputs add up.
        let added = Init::Uniform { variance: variance / (2 * layers) as f32 };
        let called = |layer: &str| format!("{name}.{layer}");
        Self {
            heads,
            width,
            norm1: LayerNorm::new(layout, &called("norm1"), width),
            qkv: Dense::new(layout, &called("attention.qkv"), [width, 3 * width], inner),
            out: Dense::new(layout, &called("attention.out"), [width, width], added),
            norm2: LayerNorm::new(layout, &called("norm2"), width),
            fc1: Dense::new(layout, &called("mlp.fc1"), [width, 4 * width], inner),
            fc2: Dense::new(layout, &called("mlp.fc2"), [4 * width, width], added),
        }
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> Vec<usize> {
        let Self { norm1, qkv, out, norm2, fc1, fc2, .. } = self;
        let norms = [norm1, norm2].into_iter().flat_map(LayerNorm::parameters);
        norms.chain([qkv, out, fc1, fc2].into_iter().flat_map(Dense::parameters)).collect()
    }

    /// `[tokens, width]` in and out, in windows of `length` tokens.
    pub(super) fn forward(
        &self,
        parameters: &[Vec<f32>],
        mut x: Vec<f32>,
        length: usize,
    ) -> (Vec<f32>, Trace) {
        let attention = Attention { length, heads: self.heads, width: self.width };
        let first = self.norm1.forward(parameters, &x);
        let (joined, attended) = attention.forward(&self.qkv.forward(parameters, &first.output));
        add(&mut x, &self.out.forward(parameters, &joined));
        let second = self.norm2.forward(parameters, &x);
        let hidden = self.fc1.forward(parameters, &second.output);
        let activated = gelu(&hidden);
        add(&mut x, &self.fc2.forward(parameters, &activated));
        (x, Trace { attention, first, attended, joined, second, hidden, activated })
    }

    /// Adds the parameters' gradients, and turns the gradient of the output into the gradient of
    /// the input.
    pub(super) fn backward(
        &self,
        parameters: &[Vec<f32>],
        trace: Trace,
        gradient: &mut [f32],
        gradients: &mut [Vec<f32>],
    ) {
        let Trace { attention, first, attended, joined, second, hidden, activated } = trace;
        let mut inner = self.fc2.backward(parameters, &activated, gradient, gradients);
        gelu_backward(&hidden, &mut inner);
        let inner = self.fc1.backward(parameters, &second.output, &inner, gradients);
        add(gradient, &self.norm2.backward(parameters, &second, &inner, gradients));
        let inner = self.out.backward(parameters, &joined, gradient, gradients);
        let inner = attention.backward(attended, &inner);
        let inner = self.qkv.backward(parameters, &first.output, &inner, gradients);
        add(gradient, &self.norm1.backward(parameters, &first, &inner, gradients));
    }
}
