//! The sums of an evaluation.

use serde::{Deserialize, Serialize};

/// What an evaluation adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Images or pixels whose class, or tokens that, had the highest score; a tie goes to the lowest. Users whose item
    /// kept back was among the ten that scored highest; a tie goes to the others.
    pub correct: usize,
    /// Sum of the cross-entropies, in nats; of a user, the mean over the items ranked.
    pub loss: f64,
    /// Images, pixels, tokens or users looked at.
    pub examples: usize,
    /// Images or pixels of the second class for which that had the highest score.
    pub both: usize,
    /// Images or pixels of the second class, or for which that had the highest score.
    pub either: usize,
}

impl Score {
    /// Adds another's sums.
    pub fn add(&mut self, other: Score) {
        self.correct += other.correct;
        self.loss += other.loss;
        self.examples += other.examples;
        self.both += other.both;
        self.either += other.either;
    }
}
