//! Language models: an embedding, two layers of long short-term memory, a softmax over the
//! vocabulary.
//!
//! The models come from the paper on sparse binary compression (Sattler et al., arXiv:1805.08768,
//! section IV.A and supplement C): `wordlstm` with 650 hidden units for words, `charlstm` with 200
//! for characters. Both follow the "medium" configuration of TensorFlow's tutorial on the Penn
//! Treebank (after Zaremba, Sutskever and Vinyals, arXiv:1409.2329), with
//!
//! - an embedding as wide as the hidden layers, and gates in the order i, j, f, o without a
//!   constant added to the forget gate;
//! - dropout with probability one half, or another, on the outputs of the embedding, the first and
//!   the second layer, but not on the recurrent connections;
//! - back-propagation through 35 steps, or another number, with outputs and cells carried on from
//!   one such chunk to the next;
//! - initial parameters uniform in ±0.05, the gates' biases 0;
//! - as the training loss, the *sum* over these steps of the mean over the streams of a batch. The
//!   learning rate of 1 and the clipping norm of 5 are for this sum. The reported loss is the mean
//!   over all tokens.
//!
//! Parameters: V·H + 2·(2H·4H + 4H) + H·V + V. With V = 80 characters and H = 200 these are
//! 673 680; with V = 10 000 words and H = 650 they are 19 775 200.
//!
//! Without an embedding, the first layer reads one-hot vectors, as in Karpathy's char-rnn. The
//! AdaComp paper trains that with 512 hidden units and without dropout (Chen et al.,
//! arXiv:1712.02679, Table 2): `charlstm:hidden=512,dropout=0,embedding=off`.

mod config;
mod layer;

#[cfg(test)]
mod tests;

use gradwire::{Rng, State, StateError};

use super::architecture::Architecture;
use super::layout::Layout;
use super::pointwise::{cross_entropy, highest};
use super::{ModelError, ModelKind, Score};
use crate::TaskKind;
use crate::matmul::{Matrix, multiply};

use layer::{INIT, Layer, LayerState, add};

pub use config::LstmConfig;

/// The random stream of dropout.
const STREAM: u32 = 0x6472_6f70;

/// A language model. It predicts each token of a sequence from the previous ones.
#[derive(Debug)]
pub struct LanguageModel {
    vocabulary: usize,
    config: LstmConfig,
    /// The position of the embedding's weights, if there is one.
    embedding: Option<usize>,
    layers: Vec<Layer>,
    weight: usize,
    bias: usize,
    layout: Layout,
}

/// A piece of several streams of text, time by time: position t·streams + s is stream s at time t.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// The tokens seen.
    pub inputs: &'a [u32],
    /// The tokens to predict from them: the next ones.
    pub targets: &'a [u32],
    /// Number of streams.
    pub streams: usize,
}

/// The hidden state of a model after reading several streams: outputs and cells of its layers.
#[derive(Debug, Clone, PartialEq)]
pub struct HiddenState {
    layers: Vec<LayerState>,
}

/// The key of dropout's random draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropout {
    /// The run's seed.
    pub seed: u64,
    /// The worker.
    pub rank: u32,
    /// The step.
    pub step: u64,
}

/// The values of a forward pass that the backward pass needs.
struct Pass {
    /// The inputs of each layer, after dropout, and last the inputs of the softmax.
    inputs: Vec<Vec<f32>>,
    /// The dropout factors of the inputs; each is empty if nothing is dropped.
    masks: Vec<Vec<f32>>,
    traces: Vec<layer::Trace>,
    /// `[positions, vocabulary]`
    scores: Vec<f32>,
}

impl Architecture for LanguageModel {
    fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl LanguageModel {
    /// A model for a vocabulary of this size.
    ///
    /// # Errors
    /// If `kind` is not a language model, or there are fewer than two symbols.
    pub fn new(kind: ModelKind, vocabulary: usize) -> Result<Self, ModelError> {
        let (ModelKind::CharLstm(config) | ModelKind::WordLstm(config)) = kind else {
            return Err(kind.not_for(TaskKind::Text));
        };
        let hidden = config.hidden;
        if vocabulary < 2 {
            return Err(ModelError::Vocabulary { symbols: vocabulary });
        }
        assert!(hidden > 0 && config.unroll > 0, "a model has hidden units and is unrolled");
        let mut layout = Layout::default();
        let shape = [vocabulary, hidden];
        let embedding =
            config.embedding.then(|| layout.parameter("embedding", "weight", &shape, INIT));
        let inputs = if config.embedding { hidden } else { vocabulary };
        let layers: Vec<_> = [("lstm1", inputs), ("lstm2", hidden)]
            .map(|(name, inputs)| Layer::new(&mut layout, name, inputs, hidden))
            .into_iter()
            .collect();
        let weight = layout.parameter("softmax", "weight", &[hidden, vocabulary], INIT);
        let bias = layout.parameter("softmax", "bias", &[vocabulary], INIT);
        // In a layer: four gates, the cells and the outputs.
        layout.activations = layers.len() * (4 + 1 + 1) * hidden + vocabulary;
        layout.check_size()?;
        Ok(Self { vocabulary, config, embedding, layers, weight, bias, layout })
    }

    /// The hidden state before the first token of `streams` streams: zeros.
    pub fn blank(&self, streams: usize) -> HiddenState {
        let zeros = |_: &Layer| LayerState::zeros(streams, self.config.hidden);
        HiddenState { layers: self.layers.iter().map(zeros).collect() }
    }

    /// Reads a chunk, starting from `hidden`, adds the gradient of its loss to `gradients` and
    /// returns the mean cross-entropy over all its tokens, in nats. The loss is the sum over time
    /// of the mean over streams.
    ///
    /// # Panics
    /// If lengths do not fit, or a token is not in the vocabulary.
    pub fn add_gradients(
        &self,
        parameters: &[Vec<f32>],
        chunk: Chunk<'_>,
        dropout: Option<Dropout>,
        hidden: &mut HiddenState,
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        let Pass { mut inputs, masks, mut traces, mut scores } =
            self.forward(parameters, chunk, dropout, hidden);
        let mut loss = 0.0;
        let scale = 1.0 / chunk.streams as f32;
        for (row, &target) in scores.chunks_exact_mut(self.vocabulary).zip(chunk.targets) {
            loss += cross_entropy(row, target as usize);
            row[target as usize] -= 1.0;
            row.iter_mut().for_each(|value| *value *= scale);
            add(&mut gradients[self.bias], row);
        }
        let scores_gradient = Matrix::new(&scores, self.vocabulary);
        let x = inputs.pop().expect("the softmax has inputs");
        let hidden_units = self.config.hidden;
        let transposed = Matrix::new(&x, hidden_units).transposed();
        multiply(transposed, scores_gradient, true, &mut gradients[self.weight]);
        let weight = Matrix::new(&parameters[self.weight], self.vocabulary);
        let mut gradient = vec![0.0; x.len()];
        multiply(scores_gradient, weight.transposed(), false, &mut gradient);

        for (at, layer) in self.layers.iter().enumerate().rev() {
            drop_out(&mut gradient, masks.get(at + 1));
            let (x, trace) = inputs.pop().zip(traces.pop()).expect("each layer has left a trace");
            gradient = layer.backward(parameters, &x, trace, &gradient, gradients);
        }
        if let Some(embedding) = self.embedding {
            drop_out(&mut gradient, masks.first());
            let embedding = &mut gradients[embedding];
            for (row, &token) in gradient.chunks_exact(hidden_units).zip(chunk.inputs) {
                add(&mut embedding[token as usize * hidden_units..][..hidden_units], row);
            }
        }
        loss / chunk.targets.len() as f64
    }

    /// Reads a chunk, starting from `hidden`, without dropout, and scores the predictions of the
    /// tokens whose entry in `counts` is true.
    ///
    /// # Panics
    /// If lengths do not fit, or a token is not in the vocabulary.
    pub fn evaluate(
        &self,
        parameters: &[Vec<f32>],
        chunk: Chunk<'_>,
        counts: &[bool],
        hidden: &mut HiddenState,
    ) -> Score {
        let mut scores = self.forward(parameters, chunk, None, hidden).scores;
        let mut total = Score::default();
        let rows = scores.chunks_exact_mut(self.vocabulary).zip(chunk.targets).zip(counts);
        for ((row, &target), _) in rows.filter(|&(_, &counts)| counts) {
            total.examples += 1;
            total.correct += usize::from(highest(row) == target as usize);
            total.loss += cross_entropy(row, target as usize);
        }
        total
    }

    fn forward(
        &self,
        parameters: &[Vec<f32>],
        chunk: Chunk<'_>,
        dropout: Option<Dropout>,
        hidden: &mut HiddenState,
    ) -> Pass {
        assert_eq!(chunk.inputs.len(), chunk.targets.len(), "a target for each input");
        assert_eq!(chunk.inputs.len() % chunk.streams, 0, "all streams at each time");
        let LstmConfig { hidden: units, dropout: percentage, .. } = self.config;
        // One-hot vectors have no dropout.
        let drops = |place| percentage > 0 && (place > 0 || self.embedding.is_some());
        let size = chunk.inputs.len() * units;
        let mask = |place| match dropout {
            Some(dropout) if drops(place) => dropout.mask(place, size, percentage),
            _ => Vec::new(),
        };
        let mut pass =
            Pass { inputs: Vec::new(), masks: Vec::new(), traces: Vec::new(), scores: Vec::new() };
        let keep = |pass: &mut Pass, mut x: Vec<f32>| {
            pass.masks.push(mask(pass.inputs.len()));
            drop_out(&mut x, pass.masks.last());
            pass.inputs.push(x);
        };

        keep(&mut pass, self.embed(parameters, chunk.inputs));
        for (at, (layer, state)) in self.layers.iter().zip(&mut hidden.layers).enumerate() {
            let trace = layer.forward(parameters, &pass.inputs[at], state);
            keep(&mut pass, trace.outputs(units).to_vec());
            pass.traces.push(trace);
        }
        pass.scores = parameters[self.bias].repeat(chunk.inputs.len());
        let x = Matrix::new(&pass.inputs[self.layers.len()], units);
        let weight = Matrix::new(&parameters[self.weight], self.vocabulary);
        multiply(x, weight, true, &mut pass.scores);
        pass
    }

    /// The input of the first layer.
    fn embed(&self, parameters: &[Vec<f32>], tokens: &[u32]) -> Vec<f32> {
        let Some(embedding) = self.embedding else {
            let mut one_hot = vec![0.0; tokens.len() * self.vocabulary];
            for (row, &token) in one_hot.chunks_exact_mut(self.vocabulary).zip(tokens) {
                row[token as usize] = 1.0;
            }
            return one_hot;
        };
        let rows: Vec<&[f32]> = parameters[embedding].chunks_exact(self.config.hidden).collect();
        tokens.iter().flat_map(|&token| rows[token as usize]).copied().collect()
    }
}

impl HiddenState {
    /// Sets the hidden state to zeros.
    pub fn clear(&mut self) {
        for state in &mut self.layers {
            state.hidden.fill(0.0);
            state.cell.fill(0.0);
        }
    }

    /// Adds it to `state`, under keys that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        for (at, layer) in self.layers.iter().enumerate() {
            state.set_floats(&format!("{prefix}{at}.hidden"), layer.hidden.clone());
            state.set_floats(&format!("{prefix}{at}.cell"), layer.cell.clone());
        }
    }

    /// Restores the entries of [`save`](Self::save) under the same prefix.
    ///
    /// # Errors
    /// If an entry is missing, or is from another model or number of streams.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        for (at, layer) in self.layers.iter_mut().enumerate() {
            let size = layer.hidden.len();
            layer.hidden = state.floats_of(&format!("{prefix}{at}.hidden"), size)?.to_vec();
            layer.cell = state.floats_of(&format!("{prefix}{at}.cell"), size)?.to_vec();
        }
        Ok(())
    }
}

impl Dropout {
    /// The factors of the outputs at a place of the model: 0 for this percentage of them, and the
    /// inverse of the kept fraction for the others.
    fn mask(self, place: usize, size: usize, percentage: u8) -> Vec<f32> {
        let keep = 1.0 - f32::from(percentage) / 100.0;
        let mut words = vec![0; size];
        Rng::new(self.seed, place as u64, self.rank, self.step, STREAM).fill(&mut words);
        let limit = (f64::from(keep) * (1u64 << 32) as f64) as u32;
        words.into_iter().map(|word| if word < limit { 1.0 / keep } else { 0.0 }).collect()
    }
}

fn drop_out(values: &mut [f32], mask: Option<&Vec<f32>>) {
    if let Some(mask) = mask.filter(|mask| !mask.is_empty()) {
        values.iter_mut().zip(mask).for_each(|(value, factor)| *value *= factor);
    }
}
