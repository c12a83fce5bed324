//! Ratings: predicting which items a user takes.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{Rng, Tensor};
use gradwire_exchange::GradientSink;

use super::replica::part_of;
use super::sampler::Sampler;
use super::task::refuse_augmentation;
use super::{BatchBytes, Metric, Replica, Task, TaskConfig};
use crate::data::Ratings;
use crate::models::{
    Architecture, ModelError, ModelKind, Pairs, Recommender, Score, Statistics, cross_entropy,
};

/// Negative samples per rating: pairs with items not taken (He et al., "Neural collaborative
/// filtering", section 4.1).
const UNTAKEN: usize = 4;
/// Pairs for each rating: the rating itself, and the same user with items not taken.
const PAIRS: usize = 1 + UNTAKEN;
/// The random stream of items not taken.
const STREAM: u32 = 0x6e65_6761;
/// Users evaluated at a time.
const TEST_BATCH: usize = 100;
/// Items in a user's list of recommendations.
const RECOMMENDED: usize = 10;

/// The task of predicting which items a user takes.
pub(super) struct Recommendation<'a> {
    pub(super) model: ModelKind,
    pub(super) ratings: &'a Ratings,
}

impl<'a> Task<'a> for Recommendation<'a> {
    fn metric(&self) -> Metric {
        Metric::HitRate
    }

    fn examples(&self) -> usize {
        self.ratings.train.len()
    }

    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        refuse_augmentation(
            config,
            "crops and flips are for images, not for ratings; give --augment off",
        )
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(Box::new(RatingReplica::new(self.model, self.ratings, config, rank, shard)?))
    }
}

/// A model that predicts which items users take.
pub(super) struct RatingReplica<'a> {
    model: Recommender,
    data: &'a Ratings,
    sampler: Sampler,
    /// The users and items of the pairs loaded last, and whether each pair is a rating.
    users: Vec<u32>,
    items: Vec<u32>,
    taken: Vec<bool>,
}

impl<'a> RatingReplica<'a> {
    pub(super) fn new(
        model: ModelKind,
        data: &'a Ratings,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Self, ModelError> {
        let model = Recommender::new(model, data.users, data.items)?;
        let sampler = Sampler::new(config, rank, shard, data.train.len());
        let (users, items, taken) = Default::default();
        Ok(Self { model, data, sampler, users, items, taken })
    }
}

impl Replica for RatingReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.model.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.model.initial_parameters(seed)
    }

    fn batch_bytes(&self) -> BatchBytes {
        BatchBytes::new(PAIRS * self.sampler.batch, 9, self.model.activations())
    }

    /// The draws depend on seed, visit and user alone, so runs with different compressors learn
    /// from the same pairs.
    fn load_batch(&mut self, step: u64) {
        self.users.clear();
        self.items.clear();
        self.taken.clear();
        let seed = self.sampler.seed;
        for visit in self.sampler.visits(step) {
            let (user, item) = self.data.train[visit.example as usize];
            let mut rng = Rng::new(seed, u64::from(visit.example), 0, visit.epoch, STREAM);
            self.users.extend([user; PAIRS]);
            self.items.push(item);
            self.items.extend((0..UNTAKEN).map(|_| self.data.untaken(user, &mut rng)));
            self.taken.extend((0..PAIRS).map(|at| at == 0));
        }
    }

    fn parts(&self) -> usize {
        self.sampler.batch
    }

    fn add_gradients(
        &mut self,
        _: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        _: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let range = parts.start * PAIRS..parts.end * PAIRS;
        let (users, items) = (&self.users[range.clone()], &self.items[range.clone()]);
        self.model.add_gradients(parameters, Pairs { users, items }, &self.taken[range], gradients)
    }

    fn test_examples(&self) -> usize {
        self.data.test.len()
    }

    fn test_parts(&self, examples: usize) -> usize {
        examples.div_ceil(TEST_BATCH)
    }

    /// Counts the users whose held-out item is among the [`RECOMMENDED`] highest scores.
    fn score(
        &self,
        parameters: &[Vec<f32>],
        _: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score {
        let mut total = Score::default();
        for question in &self.data.test[part_of(examples, part, TEST_BATCH)] {
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
