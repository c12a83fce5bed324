//! Text for transformers: a batch is a number of windows as long as the model's context. Their
//! places in the text are drawn from the seed, by worker and step.
//!
//! The test text is cut into consecutive windows; its first token is not predicted. A token is
//! predicted from the earlier tokens of its window, as in training.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{Rng, Tensor};
use gradwire_exchange::GradientSink;

use super::replica::part_of;
use super::{BatchBytes, Replica, TaskConfig};
use crate::data::Text;
use crate::models::{Architecture, Gpt, GptConfig, ModelError, Score, Statistics, Windows};

/// The random stream of places.
const STREAM: u32 = 0x7769_6e64;
/// The windows of one part of an evaluation, scored at once.
const TOGETHER: usize = 16;

/// A transformer that reads windows of a text.
pub(super) struct WindowReplica<'a> {
    model: Gpt,
    batch: usize,
    seed: u64,
    context: usize,
    rank: usize,
    /// The text that this worker draws windows from.
    train: &'a [u32],
    test: &'a [u32],
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

/// Refuses texts without a whole window for each worker.
pub(super) fn check(
    name: &str,
    text: &Text,
    config: &TaskConfig,
    gpt: GptConfig,
) -> Result<(), String> {
    let (tokens, unit, context) = (text.train.len(), text.unit, gpt.context);
    // Even if workers share the text: the split is not known here.
    if tokens / config.workers <= context {
        return Err(format!(
            "the training text of '{name}' has {tokens} {unit}, but {} workers with a context of {context} need at \
             least {} each; use fewer workers, a shorter context or a longer text",
            config.workers,
            context + 1
        ));
    }
    Ok(())
}

impl<'a> WindowReplica<'a> {
    /// The replica of worker `rank`. It reads its consecutive `shard`, or else the whole text.
    pub(super) fn new(
        text: &'a Text,
        config: &TaskConfig,
        gpt: GptConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Self, ModelError> {
        let part = match shard.as_deref() {
            Some([first, .., last]) => *first as usize..*last as usize + 1,
            _ => 0..text.train.len(),
        };
        Ok(Self {
            model: Gpt::new(gpt, text.vocabulary.len())?,
            batch: config.batch,
            seed: config.seed,
            context: gpt.context,
            rank,
            train: &text.train[part],
            test: &text.test,
            inputs: Vec::new(),
            targets: Vec::new(),
        })
    }
}

impl Replica for WindowReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.model.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.model.initial_parameters(seed)
    }

    fn gradient_order(&self) -> Vec<Vec<usize>> {
        self.model.gradient_order()
    }

    fn batch_bytes(&self) -> BatchBytes {
        BatchBytes::new(self.batch.saturating_mul(self.context), 8, self.model.activations())
    }

    fn load_batch(&mut self, step: u64) {
        let mut rng = Rng::new(self.seed, 0, self.rank as u32, step, STREAM);
        self.inputs.clear();
        self.targets.clear();
        for _ in 0..self.batch {
            let start = rng.below((self.train.len() - self.context) as u64) as usize;
            let window = &self.train[start..][..self.context + 1];
            self.inputs.extend_from_slice(&window[..self.context]);
            self.targets.extend_from_slice(&window[1..]);
        }
    }

    fn parts(&self) -> usize {
        self.batch
    }

    fn add_gradients(
        &mut self,
        _: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let tokens = parts.start * self.context..parts.end * self.context;
        let (inputs, targets) = (&self.inputs[tokens.clone()], &self.targets[tokens]);
        let windows = Windows { inputs, targets, length: self.context };
        self.model.add_gradients(parameters, windows, gradients, sink)
    }

    fn test_examples(&self) -> usize {
        self.test.len() - 1
    }

    fn test_parts(&self, examples: usize) -> usize {
        examples.div_ceil(TOGETHER * self.context)
    }

    fn score(
        &self,
        parameters: &[Vec<f32>],
        _: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score {
        let part = part_of(examples, part, TOGETHER * self.context);
        // The last window may be shorter than the others.
        let whole = part.len() / self.context * self.context;
        let [windows, rest] = [part.start..part.start + whole, part.start + whole..part.end];
        let mut total = Score::default();
        for (tokens, length) in [(windows, self.context), (rest.clone(), rest.len())] {
            if !tokens.is_empty() {
                let inputs = &self.test[tokens.clone()];
                let targets = &self.test[tokens.start + 1..=tokens.end];
                let windows = Windows { inputs, targets, length };
                total.add(self.model.evaluate(parameters, windows));
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Unit;

    fn text() -> Text {
        let symbols = ('a'..='j').map(String::from).collect();
        let train = (0..200).map(|at| at % 10).collect();
        let test = (0..85).map(|at| at * 7 % 10).collect();
        Text { unit: Unit::Characters, vocabulary: symbols, train, test }
    }

    fn replica(text: &Text, rank: usize, shard: Option<Vec<u32>>) -> WindowReplica<'_> {
        let gpt = GptConfig { layers: 1, heads: 1, width: 4, context: 4 };
        let config = TaskConfig { workers: 2, batch: 8, augment: false, seed: 3 };
        WindowReplica::new(text, &config, gpt, rank, shard).unwrap()
    }

    #[test]
    fn windows_are_drawn_by_worker_and_step() {
        let text = text();
        let load = |rank, step| {
            let mut replica = replica(&text, rank, None);
            replica.load_batch(step);
            replica.inputs
        };
        let inputs = load(0, 0);
        assert_eq!(inputs.len(), 32);
        assert!(
            inputs
                .chunks(4)
                .all(|window| (1..4).all(|at| window[at] == (window[0] + at as u32) % 10))
        );
        assert_eq!(inputs, load(0, 0));
        assert_ne!(inputs, load(1, 0));
        assert_ne!(inputs, load(0, 1));
    }

    #[test]
    fn a_shard_is_all_that_its_worker_reads() {
        let mut text = text();
        text.train = [[1; 100], [2; 100]].concat();
        let mut replica = replica(&text, 1, Some((100..200).collect()));
        (0..50).for_each(|step| {
            replica.load_batch(step);
            assert!(replica.inputs.iter().chain(&replica.targets).all(|&token| token == 2));
        });
    }

    #[test]
    fn a_test_has_every_token_once_in_windows_of_the_context() {
        let text = text();
        let replica = replica(&text, 0, None);
        let parameters = replica.initial_parameters(1);
        // 64 tokens in the first part; in the second, five windows of four, or three and a window
        // of two.
        for examples in [84, 78, 64, 3] {
            let parts = 0..replica.test_parts(examples);
            let mut found = Score::default();
            parts.for_each(|part| found.add(replica.score(&parameters, &[], examples, part)));
            let mut expected = Score::default();
            for start in (0..examples).step_by(4) {
                let end = (start + 4).min(examples);
                let (inputs, targets) = (&text.test[start..end], &text.test[start + 1..end + 1]);
                let windows = Windows { inputs, targets, length: end - start };
                expected.add(replica.model.evaluate(&parameters, windows));
            }
            assert_eq!((found.examples, found.correct), (examples, expected.correct));
            assert!((found.loss / expected.loss - 1.0).abs() < 1e-6);
        }
    }
}
