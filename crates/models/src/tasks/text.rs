//! Text: predicting each token from the previous ones.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::GradientSink;

use super::task::refuse_augmentation;
use super::text_batches::{self, TEST_PARTS, TestPart, TextBatches};
use super::windows::{self, WindowReplica};
use super::{BatchBytes, Metric, Replica, Task, TaskConfig};
use crate::Split;
use crate::data::Text;
use crate::models::{
    Architecture, Dropout, HiddenState, LanguageModel, ModelError, ModelKind, Score, Statistics,
};

/// The task of predicting the next token of a text.
pub(super) struct Language<'a> {
    pub(super) model: ModelKind,
    /// The data set's name.
    pub(super) name: &'a str,
    pub(super) text: &'a Text,
}

impl<'a> Task<'a> for Language<'a> {
    fn metric(&self) -> Metric {
        Metric::Perplexity
    }

    fn examples(&self) -> usize {
        self.text.train.len()
    }

    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        refuse_augmentation(
            config,
            "crops and flips are for images, not for text; give --augment off",
        )?;
        if self.text.test.len() < 2 {
            return Err(format!("the test text needs at least two {}", self.text.unit));
        }
        match self.model {
            ModelKind::Gpt(gpt) => windows::check(self.name, self.text, config, gpt),
            model => text_batches::check(self.name, self.text, config, unroll(model)),
        }
    }

    fn steps_per_epoch(&self, config: &TaskConfig) -> f64 {
        let &TaskConfig { workers, batch, .. } = config;
        match self.model {
            ModelKind::Gpt(gpt) => self.examples() as f64 / (workers * batch * gpt.context) as f64,
            model => {
                let steps =
                    text_batches::steps_per_epoch(self.examples(), workers, batch, unroll(model));
                steps.max(1) as f64
            }
        }
    }

    /// Consecutive parts of equal size, or `None` if all workers read the whole text. The workers
    /// of an LSTM have such parts in both cases.
    fn shards(
        &self,
        split: &Split,
        workers: usize,
        _: u64,
    ) -> Result<Option<Vec<Vec<u32>>>, String> {
        let size = (self.examples() / workers) as u32;
        match split {
            Split::Shared => Ok(None),
            Split::Shards { sizes: None } => {
                let part = |rank| (rank * size..(rank + 1) * size).collect();
                Ok(Some((0..workers as u32).map(part).collect()))
            }
            _ => Err(format!(
                "the split '{split}' is for images; a text can only be cut into equal consecutive \
                 parts: use shared or shards"
            )),
        }
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(match self.model {
            ModelKind::Gpt(gpt) => {
                Box::new(WindowReplica::new(self.text, config, gpt, rank, shard)?)
            }
            _ => Box::new(TextReplica::new(self.model, self.text, config, rank)?),
        })
    }
}

/// The number of tokens that a recurrent model is unrolled for. Other models are refused when they
/// are built.
fn unroll(model: ModelKind) -> usize {
    match model {
        ModelKind::CharLstm(config) | ModelKind::WordLstm(config) => config.unroll,
        _ => 1,
    }
}

/// A recurrent model that reads several streams.
pub(super) struct TextReplica<'a> {
    model: LanguageModel,
    batches: TextBatches<'a>,
    test: &'a [u32],
    /// The hidden state at the end of the last batch.
    hidden: HiddenState,
    /// The step whose batch continues the text of the last one.
    next: u64,
    seed: u64,
    rank: usize,
}

impl<'a> TextReplica<'a> {
    pub(super) fn new(
        kind: ModelKind,
        text: &'a Text,
        config: &TaskConfig,
        rank: usize,
    ) -> Result<Self, ModelError> {
        let &TaskConfig { workers, batch, seed, .. } = config;
        let model = LanguageModel::new(kind, text.vocabulary.len())?;
        let unroll = unroll(kind);
        Ok(Self {
            hidden: model.blank(batch),
            model,
            batches: TextBatches::new(&text.train, rank, workers, batch, unroll),
            test: &text.test,
            next: 0,
            seed,
            rank,
        })
    }
}

impl Replica for TextReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.model.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.model.initial_parameters(seed)
    }

    fn batch_bytes(&self) -> BatchBytes {
        BatchBytes::new(self.batches.tokens(), 8, self.model.activations())
    }

    fn load_batch(&mut self, step: u64) {
        self.batches.load(step);
    }

    fn parts(&self) -> usize {
        1
    }

    fn add_gradients(
        &mut self,
        step: u64,
        _: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        _: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        // The batch does not continue the last one at the start of an epoch, and after rounds
        // without this worker.
        if self.next != step || self.batches.starts_epoch(step) {
            self.hidden.clear();
        }
        self.next = step + 1;
        let dropout = Some(Dropout { seed: self.seed, rank: self.rank as u32, step });
        let chunk = self.batches.chunk();
        self.model.add_gradients(parameters, chunk, dropout, &mut self.hidden, gradients)
    }

    fn test_examples(&self) -> usize {
        self.test.len() - 1
    }

    fn test_parts(&self, _: usize) -> usize {
        TEST_PARTS
    }

    fn score(
        &self,
        parameters: &[Vec<f32>],
        _: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score {
        let part = TestPart::new(self.test, examples, part, self.batches.unroll());
        let mut hidden = self.model.blank(part.streams());
        let mut total = Score::default();
        part.for_each(|chunk, counts| {
            total.add(self.model.evaluate(parameters, chunk, counts, &mut hidden));
        });
        total
    }

    fn save(&self, state: &mut State) {
        let prefix = format!("streams{}/", self.rank);
        self.hidden.save(&prefix, state);
        state.set_number(&format!("{prefix}next"), self.next);
    }

    fn restore(
        &mut self,
        state: &State,
        saved_by: usize,
        workers: usize,
    ) -> Result<(), StateError> {
        if saved_by != workers {
            return Ok(());
        }
        let prefix = format!("streams{}/", self.rank);
        self.next = state.number(&format!("{prefix}next"))?;
        self.hidden.restore(&prefix, state)
    }
}
