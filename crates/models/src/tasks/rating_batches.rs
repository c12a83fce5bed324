//! Batches of ratings: for each rating, the pair itself and four pairs of the same user with items not taken.

use gradwire::Rng;

use super::order::Order;
use super::sampler::Sampler;
use crate::data::Ratings;
use crate::models::Pairs;

/// Pairs with items not taken, for each rating (He et al., "Neural collaborative filtering", section 4.1).
const UNTAKEN: usize = 4;
/// Pairs for each rating.
pub(super) const PAIRS: usize = 1 + UNTAKEN;
/// The stream of random words that items not taken are drawn from.
const STREAM: u32 = 0x6e65_6761;

/// The training batches of one worker.
pub(super) struct RatingBatches<'a> {
    data: &'a Ratings,
    order: Order,
    seed: u64,
    sampler: Sampler,
    users: Vec<u32>,
    items: Vec<u32>,
    taken: Vec<bool>,
}

impl<'a> RatingBatches<'a> {
    /// The batches of a worker.
    pub(super) fn new(data: &'a Ratings, seed: u64, sampler: Sampler) -> Self {
        let order = sampler.order(seed, data.train.len());
        let (users, items, taken) = Default::default();
        Self { data, order, seed, sampler, users, items, taken }
    }

    /// Loads the pairs of a step. The draws depend on seed, visit and user alone, so that runs with
    /// different compressors learn from the same pairs.
    pub(super) fn load(&mut self, step: u64) {
        self.users.clear();
        self.items.clear();
        self.taken.clear();
        let start = self.sampler.start(step);
        for position in start..start + self.sampler.batch as u64 {
            let visit = self.order.at(position);
            let (user, item) = self.data.train[visit.example as usize];
            let mut rng = Rng::new(self.seed, u64::from(visit.example), 0, visit.epoch, STREAM);
            self.users.extend([user; PAIRS]);
            self.items.push(item);
            self.items.extend((0..UNTAKEN).map(|_| self.data.untaken(user, &mut rng)));
            self.taken.extend((0..PAIRS).map(|at| at == 0));
        }
    }

    /// The number of ratings in a batch.
    pub(super) fn len(&self) -> usize {
        self.sampler.batch
    }

    /// The pairs loaded last, and which of them are ratings.
    pub(super) fn batch(&self) -> (Pairs<'_>, &[bool]) {
        (Pairs { users: &self.users, items: &self.items }, &self.taken)
    }
}
