//! The examples of a worker at a step.
//!
//! Unless the training set is split, all workers share one endless sequence of examples: epoch
//! after epoch, each a fresh permutation of the training set. Step t takes the next n·b examples,
//! and worker r the r-th slice of b of them. The sequence depends on the seed alone, so with equal
//! seeds every compressor sees the same data, and n workers with batches of b together see the same
//! examples as one worker with batches of n·b. A worker with its own shard has its own sequence:
//! step t takes the t-th slice of b.

use gradwire::Rng;

/// The random stream of permutations.
const STREAM: u32 = 0x6f72_6465;
/// The random stream of crops and flips.
const AUGMENTATION: u32 = 0x6372_6f70;

/// One visit to a training example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// The index of the pass over the training set.
    pub epoch: u64,
    /// The index of the example.
    pub example: u32,
}

impl Visit {
    /// The random words that augment this visit's image.
    pub(super) fn draws(self, seed: u64) -> [u32; 2] {
        let mut words = [0; 2];
        Rng::new(seed, u64::from(self.example), 0, self.epoch, AUGMENTATION).fill(&mut words);
        words
    }
}

/// The sequence of examples, with the permutation of the last epoch used.
#[derive(Debug)]
pub(super) struct Order {
    seed: u64,
    rank: u32,
    members: Vec<u32>,
    epoch: Option<u64>,
    permutation: Vec<u32>,
}

impl Order {
    /// The common sequence over a training set of at least one example.
    pub(super) fn common(seed: u64, examples: usize) -> Self {
        Self::own(seed, 0, (0..examples as u32).collect())
    }

    /// The sequence of a worker over its own examples, at least one.
    pub(super) fn own(seed: u64, rank: usize, members: Vec<u32>) -> Self {
        Self { seed, rank: rank as u32, permutation: members.clone(), members, epoch: None }
    }

    /// The visit at a position of the sequence. Positions within one epoch cost nothing; each
    /// change of epoch draws a permutation.
    pub(super) fn at(&mut self, position: u64) -> Visit {
        let examples = self.permutation.len() as u64;
        let epoch = position / examples;
        if self.epoch != Some(epoch) {
            self.shuffle(epoch);
        }
        Visit { epoch, example: self.permutation[(position % examples) as usize] }
    }

    /// Fisher and Yates' shuffle.
    fn shuffle(&mut self, epoch: u64) {
        self.permutation.copy_from_slice(&self.members);
        let mut rng = Rng::new(self.seed, 0, self.rank, epoch, STREAM);
        for last in (1..self.permutation.len()).rev() {
            self.permutation.swap(last, rng.below(last as u64 + 1) as usize);
        }
        self.epoch = Some(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(order: &mut Order, positions: std::ops::Range<u64>) -> Vec<Visit> {
        positions.map(|position| order.at(position)).collect()
    }

    #[test]
    fn every_epoch_sees_every_example_once_in_another_order() {
        let mut order = Order::common(3, 50);
        let epochs: Vec<Vec<u32>> = (0..3)
            .map(|epoch| {
                let visits = visits(&mut order, epoch * 50..(epoch + 1) * 50);
                assert!(visits.iter().all(|visit| visit.epoch == epoch));
                visits.iter().map(|visit| visit.example).collect()
            })
            .collect();
        for epoch in &epochs {
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        }
        assert_ne!(epochs[0], epochs[1]);
        assert_ne!(epochs[1], epochs[2]);
    }

    #[test]
    fn the_order_is_the_seeds_and_can_be_entered_anywhere() {
        let whole = visits(&mut Order::common(3, 7), 0..40);
        assert_eq!(visits(&mut Order::common(3, 7), 20..40), whole[20..]);
        assert_ne!(visits(&mut Order::common(4, 7), 0..40), whole);
    }

    #[test]
    fn a_shard_is_visited_like_a_training_set() {
        let mut order = Order::own(3, 1, vec![5, 7, 9, 11]);
        let mut epochs: Vec<Vec<u32>> = (0..2)
            .map(|e| visits(&mut order, e * 4..e * 4 + 4).iter().map(|v| v.example).collect())
            .collect();
        epochs.iter_mut().for_each(|epoch| epoch.sort_unstable());
        assert_eq!(epochs, [[5, 7, 9, 11], [5, 7, 9, 11]]);
    }

    #[test]
    fn places_of_an_example_are_uniform() {
        // Example 0 over 4 places and 4000 epochs: 1000 each, give or take 5 deviations of 27.
        let mut order = Order::common(0, 4);
        let mut counts = [0; 4];
        for position in 0..16_000 {
            if order.at(position).example == 0 {
                counts[(position % 4) as usize] += 1;
            }
        }
        assert!(counts.iter().all(|count| (865..1135).contains(count)), "{counts:?}");
    }
}
