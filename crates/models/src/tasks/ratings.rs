//! Recommendation: which items a user takes, from which users have taken which items.

use std::ops::Range;

use gradwire::Tensor;

use super::rating_batches::{PAIRS, RatingBatches};
use super::sampler::Sampler;
use super::{Metric, Replica, Task, TaskConfig};
use crate::data::Ratings;
use crate::models::{ModelError, Pairs, Recommender, Score, Statistics, cross_entropy};

/// Users evaluated at a time.
const TEST_BATCH: usize = 100;
/// Items in a user's list of recommendations.
const RECOMMENDED: usize = 10;

/// The recommendation of items by these ratings.
pub(super) struct Recommendation<'a>(pub(super) &'a Ratings);

impl<'a> Task<'a> for Recommendation<'a> {
    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        match config.augment {
            true => Err("crops and flips are for images; leave them off for ratings".to_owned()),
            false => Ok(()),
        }
    }

    fn metric(&self) -> Metric {
        Metric::HitRate
    }

    fn examples(&self) -> usize {
        self.0.train.len()
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        let model = Recommender::new(config.model, self.0.users, self.0.items)?;
        let sampler = Sampler::new(config, rank, shard);
        let batches = RatingBatches::new(self.0, config.seed, sampler);
        Ok(Box::new(RatingReplica { model, batches, data: self.0 }))
    }
}

/// A model of which users take which items.
struct RatingReplica<'a> {
    model: Recommender,
    batches: RatingBatches<'a>,
    data: &'a Ratings,
}

impl Replica for RatingReplica<'_> {
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
        self.batches.len()
    }

    fn add_gradients_of(
        &mut self,
        _: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        let (Pairs { users, items }, taken) = self.batches.batch();
        let range = parts.start * PAIRS..parts.end * PAIRS;
        let pairs = Pairs { users: &users[range.clone()], items: &items[range.clone()] };
        self.model.add_gradients(parameters, pairs, &taken[range], gradients)
    }

    fn test_examples(&self) -> usize {
        self.data.test.len()
    }

    fn test_parts(&self, examples: usize) -> usize {
        examples.div_ceil(TEST_BATCH)
    }

    /// Counts the users whose item kept back is among the [`RECOMMENDED`] that score highest.
    fn score(
        &self,
        parameters: &[Vec<f32>],
        _: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score {
        let end = ((part + 1) * TEST_BATCH).min(examples);
        let mut total = Score::default();
        for question in &self.data.test[part * TEST_BATCH..end] {
            let users = vec![question.user; question.items.len()];
            let pairs = Pairs { users: &users, items: &question.items };
            let scores = self.model.scores(parameters, pairs);
            let (kept, others) = (scores[0], &scores[1..]);
            let before = others.iter().filter(|&&score| score >= kept).count();
            let losses =
                scores.iter().enumerate().map(|(at, &score)| cross_entropy(score, at == 0));
            total.examples += 1;
            total.correct += usize::from(before < RECOMMENDED);
            total.loss += losses.sum::<f64>() / scores.len() as f64;
        }
        total
    }
}
