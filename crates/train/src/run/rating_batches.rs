//! Batches of ratings: of each, the pair itself and four pairs of the same user with items not taken.

use gradwire::Rng;

use super::batches::Slice;
use super::order::Order;
use gradwire_models::data::Ratings;
use gradwire_models::models::Pairs;

/// Pairs with items not taken, for each rating (He et al., "Neural collaborative filtering", section 4.1).
const UNTAKEN: usize = 4;
/// The stream of random words that those are drawn from.
const STREAM: u32 = 0x6e65_6761;

/// The training batches of one worker.
pub(super) struct RatingBatches<'a> {
    data: &'a Ratings,
    order: Order,
    seed: u64,
    slice: Slice,
    users: Vec<u32>,
    items: Vec<u32>,
    taken: Vec<bool>,
}

impl<'a> RatingBatches<'a> {
    /// The batches of a worker.
    pub(super) fn new(data: &'a Ratings, seed: u64, slice: Slice) -> Self {
        let order = slice.order(seed, data.train.len());
        let (users, items, taken) = Default::default();
        Self { data, order, seed, slice, users, items, taken }
    }

    /// Lays out the pairs of a step. What is drawn depends on seed, visit and user alone, so that runs with
    /// different compressors learn from the same pairs.
    pub(super) fn prepare(&mut self, step: u64) {
        self.users.clear();
        self.items.clear();
        self.taken.clear();
        let start = self.slice.start(step);
        for position in start..start + self.slice.batch as u64 {
            let visit = self.order.at(position);
            let (user, item) = self.data.train[visit.example as usize];
            let mut rng = Rng::new(self.seed, u64::from(visit.example), 0, visit.epoch, STREAM);
            self.users.extend([user; 1 + UNTAKEN]);
            self.items.push(item);
            self.items.extend((0..UNTAKEN).map(|_| self.data.untaken(user, &mut rng)));
            self.taken.extend((0..=UNTAKEN).map(|at| at == 0));
        }
    }

    /// How many ratings are laid out at a time.
    pub(super) fn len(&self) -> usize {
        self.slice.batch
    }

    /// Pairs laid out for each rating.
    pub(super) fn each(&self) -> usize {
        1 + UNTAKEN
    }

    /// The pairs laid out last, and which of them are ratings.
    pub(super) fn batch(&self) -> (Pairs<'_>, &[bool]) {
        (Pairs { users: &self.users, items: &self.items }, &self.taken)
    }
}
