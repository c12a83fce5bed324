//! The sums of an evaluation.

use serde::{Deserialize, Serialize};

/// The sums of an evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The number of images, pixels or tokens whose correct class had the highest score; on a tie,
    /// the lowest class counts. Or the number of users whose held-out item was among the ten
    /// highest scores; on a tie, the other items rank higher.
    pub correct: usize,
    /// Sum of the losses: cross-entropies in nats (for a user, the mean over the ranked items) or
    /// squared errors.
    pub loss: f64,
    /// The number of images, pixels, tokens or users.
    pub examples: usize,
    /// Intersection: images or pixels of the second class, predicted as such.
    pub both: usize,
    /// Union: images or pixels of the second class, or predicted as such.
    pub either: usize,
}

impl Score {
    /// Adds another score.
    pub fn add(&mut self, other: Score) {
        self.correct += other.correct;
        self.loss += other.loss;
        self.examples += other.examples;
        self.both += other.both;
        self.either += other.either;
    }
}
