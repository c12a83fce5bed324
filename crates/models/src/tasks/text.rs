//! Language modelling: a text, each of whose tokens is predicted from those before.

use std::ops::Range;

use gradwire::{State, StateError, Tensor};

use super::sampler::Sampler;
use super::text_batches::{MIN_STREAM, TEST_PARTS, TestPart, TextBatches, steps_per_epoch};
use super::{Metric, Replica, Task, TaskConfig};
use crate::Split;
use crate::data::Text;
use crate::models::{Dropout, LanguageModel, Memory, ModelError, Score, Statistics};

/// The language of a text.
pub(super) struct Language<'a> {
    /// The name of the data set.
    pub(super) name: &'a str,
    pub(super) text: &'a Text,
}

impl<'a> Task<'a> for Language<'a> {
    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        if config.augment {
            return Err("crops and flips are for images; leave them off for text".to_owned());
        }
        let TaskConfig { workers, batch, .. } = config;
        let (tokens, unit) = (self.text.train.len(), self.text.unit);
        if steps_per_epoch(tokens, *workers, *batch) == 0 {
            return Err(format!(
                "the training text of '{}' has {tokens} {unit}, and {workers} workers with {batch} streams each take \
                 at least {MIN_STREAM} for each stream; use fewer workers, a smaller batch or a longer text",
                self.name
            ));
        }
        if self.text.test.len() < 2 {
            return Err(format!("the test text needs at least two {unit}"));
        }
        Ok(())
    }

    fn metric(&self) -> Metric {
        Metric::Perplexity
    }

    fn examples(&self) -> usize {
        self.text.train.len()
    }

    fn shards(&self, split: &Split, _: usize, _: u64) -> Result<Option<Vec<Vec<u32>>>, String> {
        match split {
            Split::Shared | Split::Shards { sizes: None } => Ok(None),
            _ => Err(format!(
                "the split '{split}' is for images; a text is cut into equal consecutive parts: take shared or shards"
            )),
        }
    }

    fn steps_per_epoch(&self, workers: usize, batch: usize) -> f64 {
        steps_per_epoch(self.examples(), workers, batch).max(1) as f64
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        let model = LanguageModel::new(config.model, self.text.vocabulary.len())?;
        let sampler = Sampler::new(config, rank, shard);
        Ok(Box::new(TextReplica {
            memory: model.blank(config.batch),
            model,
            batches: TextBatches::new(&self.text.train, sampler),
            test: &self.text.test,
            next: 0,
            seed: config.seed,
            rank,
        }))
    }
}

/// A language model that reads several streams.
struct TextReplica<'a> {
    model: LanguageModel,
    batches: TextBatches<'a>,
    test: &'a [u32],
    /// The hidden state at the end of the last batch.
    memory: Memory,
    /// The step whose batch continues the text of the last one.
    next: u64,
    seed: u64,
    rank: usize,
}

impl Replica for TextReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.model.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.model.initial_parameters(seed)
    }

    fn load_batch(&mut self, step: u64) {
        self.batches.load(step);
    }

    fn parts(&self) -> usize {
        1
    }

    fn add_gradients_of(
        &mut self,
        step: u64,
        _: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        // The batch does not continue the last one at the start of an epoch, and after rounds without this worker.
        if self.next != step || self.batches.starts_epoch(step) {
            self.memory.clear();
        }
        self.next = step + 1;
        let dropout = Some(Dropout { seed: self.seed, rank: self.rank as u32, step });
        let chunk = self.batches.chunk();
        self.model.add_gradients(parameters, chunk, dropout, &mut self.memory, gradients)
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
        let part = TestPart::new(self.test, examples, part);
        let mut memory = self.model.blank(part.streams());
        let mut total = Score::default();
        part.for_each(|chunk, counts| {
            total.add(self.model.evaluate(parameters, chunk, counts, &mut memory));
        });
        total
    }

    fn save(&self, state: &mut State) {
        let prefix = format!("streams{}/", self.rank);
        self.memory.save(&prefix, state);
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
        self.memory.restore(&prefix, state)
    }
}
