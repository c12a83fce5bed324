//! GPT: a decoder-only transformer that predicts the next token (Radford et al. 2018 and 2019,
//! "Language models are unsupervised multitask learners").
//!
//! ```text
//! x = tokens[token] + positions[t]
//! x = x + attention(norm1(x));  x = x + mlp(norm2(x))      for each block
//! scores = norm(x) · tokensᵀ
//! ```
//!
//! As in GPT-2, each normalisation is before its layer, the MLP has four times the width and GELU
//! in its tanh form, all layers have biases, and the last layer shares the weights of the tokens'
//! embedding. There is no dropout. With V symbols, context T, width C and L blocks the parameters
//! are V·C + T·C + L·(12·C² + 13·C) + 2·C: 809 856 for the defaults (four blocks, four heads, width
//! 128, context 64) and 65 symbols.
//!
//! Initial weights have GPT-2's variances: 0.02², or 0.02² / 2L if the layer's output is added to
//! x. They are uniform instead of normal.

mod attention;
mod block;
mod norm;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gradwire_exchange::GradientSink;

use super::architecture::Architecture;
use super::layout::{Init, Layout};
use super::pass::Gradients;
use super::pointwise::{add, cross_entropy, highest};
use super::{ModelError, Score};
use crate::matmul::{Matrix, multiply};
use crate::options::{Options, OptionsError, Printer};

use block::{Block, DEVIATION};
use norm::LayerNorm;

/// The sizes of a GPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GptConfig {
    /// The number of blocks, 1 to 256.
    pub layers: usize,
    /// The heads of each block's attention, at least 1; they divide the width.
    pub heads: usize,
    /// The width of embeddings and blocks, 1 to 16 384.
    pub width: usize,
    /// The most tokens that a prediction depends on, 1 to 65 536.
    pub context: usize,
}

impl Default for GptConfig {
    /// The sizes with which nanoGPT trains on a CPU.
    fn default() -> Self {
        Self { layers: 4, heads: 4, width: 128, context: 64 }
    }
}

/// A GPT. Parameters and gradients stay outside.
#[derive(Debug)]
pub struct Gpt {
    config: GptConfig,
    vocabulary: usize,
    tokens: usize,
    positions: usize,
    blocks: Vec<Block>,
    norm: LayerNorm,
    layout: Layout,
}

/// Token sequences of equal length, one after the other, with the token that follows each.
#[derive(Debug, Clone, Copy)]
pub struct Windows<'a> {
    /// The tokens seen.
    pub inputs: &'a [u32],
    /// The tokens to predict from them: the next ones.
    pub targets: &'a [u32],
    /// The length of a sequence, 1 to the context.
    pub length: usize,
}

impl Architecture for Gpt {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn gradient_order(&self) -> Vec<Vec<usize>> {
        let blocks = self.blocks.iter().rev().map(Block::parameters);
        let norm = self.norm.parameters().to_vec();
        [norm].into_iter().chain(blocks).chain([vec![self.tokens, self.positions]]).collect()
    }
}

impl Gpt {
    /// A model for a vocabulary of this size.
    ///
    /// # Errors
    /// If there are fewer than two symbols.
    pub fn new(config: GptConfig, vocabulary: usize) -> Result<Self, ModelError> {
        if vocabulary < 2 {
            return Err(ModelError::Vocabulary { symbols: vocabulary });
        }
        let GptConfig { layers, heads, width, context } = config;
        let init = Init::Uniform { variance: DEVIATION * DEVIATION };
        let mut layout = Layout::default();
        let tokens = layout.parameter("tokens", "weight", &[vocabulary, width], init);
        let positions = layout.parameter("positions", "weight", &[context, width], init);
        let block = |at| Block::new(&mut layout, &format!("block{at}"), [layers, heads, width]);
        let blocks = (1..=layers).map(block).collect();
        let norm = LayerNorm::new(&mut layout, "norm", width);
        // In a block: two normalised inputs; queries, keys and values; the joined heads; the MLP
        // before and after its activation.
        layout.activations = layers * (2 + 3 + 1 + 4 + 4) * width + vocabulary;
        layout.check_size()?;
        Ok(Self { config, vocabulary, tokens, positions, blocks, norm, layout })
    }

    /// Adds the gradient of the mean cross-entropy over all tokens to `gradients` and returns that
    /// mean, in nats. Passes each gradient to `sink` as soon as it is final.
    ///
    /// # Panics
    /// If lengths do not fit, or a token is not in the vocabulary.
    pub fn add_gradients(
        &self,
        parameters: &[Vec<f32>],
        windows: Windows<'_>,
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let width = self.config.width;
        let gradients = Gradients { all: gradients, sink };
        let mut x = self.embed(parameters, windows);
        let mut traces = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            let (output, trace) = block.forward(parameters, x, windows.length);
            x = output;
            traces.push(trace);
        }
        let last = self.norm.forward(parameters, &x);
        let mut scores = self.scores(parameters, &last.output);
        let loss = self.differentiate(&mut scores, windows.targets);

        let scores = Matrix::new(&scores, self.vocabulary);
        let outputs = Matrix::new(&last.output, width);
        multiply(scores.transposed(), outputs, true, &mut gradients.all[self.tokens]);
        let mut gradient = vec![0.0; x.len()];
        multiply(scores, Matrix::new(&parameters[self.tokens], width), false, &mut gradient);
        gradient = self.norm.backward(parameters, &last, &gradient, gradients.all);
        gradients.ready(self.norm.parameters());
        for (block, trace) in self.blocks.iter().zip(traces).rev() {
            block.backward(parameters, trace, &mut gradient, gradients.all);
            gradients.ready(block.parameters());
        }
        self.differentiate_embedding(windows, &gradient, gradients.all);
        gradients.ready([self.tokens, self.positions]);
        loss
    }

    /// Scores the predictions of all tokens.
    ///
    /// # Panics
    /// If lengths do not fit, or a token is not in the vocabulary.
    pub fn evaluate(&self, parameters: &[Vec<f32>], windows: Windows<'_>) -> Score {
        let embedded = self.embed(parameters, windows);
        let x = self
            .blocks
            .iter()
            .fold(embedded, |x, block| block.forward(parameters, x, windows.length).0);
        let mut scores = self.scores(parameters, &self.norm.forward(parameters, &x).output);
        let mut total = Score::default();
        for (row, &target) in scores.chunks_exact_mut(self.vocabulary).zip(windows.targets) {
            total.examples += 1;
            total.correct += usize::from(highest(row) == target as usize);
            total.loss += cross_entropy(row, target as usize);
        }
        total
    }

    /// The sum of the embeddings of token and position: `[tokens, width]`.
    fn embed(&self, parameters: &[Vec<f32>], windows: Windows<'_>) -> Vec<f32> {
        let Windows { inputs, targets, length } = windows;
        assert_eq!(inputs.len(), targets.len(), "a target for each input");
        assert!((1..=self.config.context).contains(&length), "windows fit the context");
        assert_eq!(inputs.len() % length, 0, "whole windows");
        let width = self.config.width;
        let mut x = Vec::with_capacity(inputs.len() * width);
        for &token in inputs {
            let row = &parameters[self.tokens][token as usize * width..][..width];
            x.extend_from_slice(row);
        }
        let positions = &parameters[self.positions][..length * width];
        x.chunks_exact_mut(length * width).for_each(|window| add(window, positions));
        x
    }

    /// Scores of each symbol: `[tokens, vocabulary]`.
    fn scores(&self, parameters: &[Vec<f32>], outputs: &[f32]) -> Vec<f32> {
        let width = self.config.width;
        let mut scores = vec![0.0; outputs.len() / width * self.vocabulary];
        let embedding = Matrix::new(&parameters[self.tokens], width).transposed();
        multiply(Matrix::new(outputs, width), embedding, false, &mut scores);
        scores
    }

    /// Turns scores into the gradient of the mean cross-entropy, which it returns.
    fn differentiate(&self, scores: &mut [f32], targets: &[u32]) -> f64 {
        let scale = 1.0 / targets.len() as f32;
        let mut loss = 0.0;
        for (row, &target) in scores.chunks_exact_mut(self.vocabulary).zip(targets) {
            loss += cross_entropy(row, target as usize);
            row[target as usize] -= 1.0;
            row.iter_mut().for_each(|value| *value *= scale);
        }
        loss / targets.len() as f64
    }

    /// Adds the gradients of both embeddings.
    fn differentiate_embedding(
        &self,
        windows: Windows<'_>,
        gradient: &[f32],
        gradients: &mut [Vec<f32>],
    ) {
        let width = self.config.width;
        for (row, &token) in gradient.chunks_exact(width).zip(windows.inputs) {
            add(&mut gradients[self.tokens][token as usize * width..][..width], row);
        }
        let positions = &mut gradients[self.positions][..windows.length * width];
        gradient.chunks_exact(windows.length * width).for_each(|window| add(positions, window));
    }
}

impl FromStr for GptConfig {
    type Err = OptionsError;

    /// Reads `gpt:layers=4,heads=4,width=128,context=64`.
    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::parse(text)?;
        let default = Self::default();
        let mut size = |key, default: usize, most, expected| {
            let read = |value: &str| value.parse().ok().filter(|size| (1..=most).contains(size));
            options.take(key, default, expected, read)
        };
        let layers = size("layers", default.layers, 256, "a number from 1 to 256")?;
        let heads = size("heads", default.heads, 16_384, "a number that divides the width")?;
        let width = size("width", default.width, 16_384, "a number from 1 to 16384")?;
        let context = size("context", default.context, 65_536, "a number from 1 to 65536")?;
        if !width.is_multiple_of(heads) {
            let (key, value, expected) = match heads == default.heads {
                true => (
                    "width",
                    width,
                    "a multiple of 4, the number of heads, or change heads= as well",
                ),
                false => ("heads", heads, "a number that divides the width"),
            };
            let (id, key) = (options.id().to_owned(), key.to_owned());
            return Err(OptionsError::BadValue { id, key, value: value.to_string(), expected });
        }
        options.finish()?;
        Ok(Self { layers, heads, width, context })
    }
}

impl fmt::Display for GptConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        let mut printer = Printer::new(f, "gpt")?;
        printer.unless("layers", self.layers, default.layers)?;
        printer.unless("heads", self.heads, default.heads)?;
        printer.unless("width", self.width, default.width)?;
        printer.unless("context", self.context, default.context)
    }
}
