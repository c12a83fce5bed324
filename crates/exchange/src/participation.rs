//! Which workers take part in a step, and the weight of each in the mean.

use gradwire::Rng;

/// The stream of random words for the draw of participants.
const STREAM: u32 = 0x726f_756e;

/// The weights of the workers' messages, round by round.
///
/// Every rank computes them for itself: they depend only on the configuration, the seed and the
/// step. In a round the weights of the workers that take part are divided by their sum. Absent
/// workers send nothing, and receive the same result.
#[derive(Debug, Clone, PartialEq)]
pub struct Participation {
    weights: Vec<f64>,
    participants: usize,
    dropout: f64,
    seed: u64,
}

impl Participation {
    /// All workers in every round, with equal weights.
    pub fn equal(workers: usize) -> Self {
        Self::weighted(vec![1.0; workers])
    }

    /// All workers in every round, each with a weight, such as the size of its shard.
    ///
    /// # Panics
    /// If a weight is not positive and finite, or less than a billionth of their sum.
    pub fn weighted(weights: Vec<f64>) -> Self {
        let sum: f64 = weights.iter().sum();
        let fits = |weight: &f64| sum.is_finite() && *weight > 0.0 && *weight >= 1e-9 * sum;
        assert!(weights.iter().all(fits), "weights are positive, and of comparable size");
        Self { participants: weights.len(), weights, dropout: 0.0, seed: 0 }
    }

    /// Only `participants` workers a step, drawn without replacement from the seed and the step.
    /// Each of them then fails to deliver with probability `dropout`. If all of them fail, the
    /// first one drawn takes part.
    ///
    /// # Panics
    /// If `participants` is 0 or more than the number of workers, or `dropout` is not in \[0, 1).
    pub fn with_participants(mut self, participants: usize, dropout: f64, seed: u64) -> Self {
        assert!(
            (1..=self.weights.len()).contains(&participants),
            "participants is from 1 to the number of workers"
        );
        assert!((0.0..1.0).contains(&dropout), "a probability below 1");
        (self.participants, self.dropout, self.seed) = (participants, dropout, seed);
        self
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.weights.len()
    }

    /// Whether every worker takes part in every round.
    pub fn everyone(&self) -> bool {
        self.participants == self.weights.len() && self.dropout == 0.0
    }

    /// Whether the mean is over all workers, with equal weights.
    pub fn plain(&self) -> bool {
        self.everyone() && self.weights.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Each worker's weight in the mean of the round that ends with `step`; 0 for absent workers.
    /// The weights add up to 1, up to rounding.
    pub fn weights_at(&self, step: u64, weights: &mut Vec<f32>) {
        weights.clear();
        if self.plain() {
            weights.resize(self.weights.len(), 1.0 / self.weights.len() as f32);
            return;
        }
        let present = self.present(step);
        let taking = |(&weight, present): (&f64, &bool)| if *present { weight } else { 0.0 };
        let taken = self.weights.iter().zip(&present).map(taking);
        let sum: f64 = taken.clone().sum();
        weights.extend(taken.map(|weight| (weight / sum) as f32));
    }

    /// Whether a worker takes part in the round that ends with `step`.
    pub fn takes_part(&self, worker: usize, step: u64) -> bool {
        self.everyone() || self.present(step)[worker]
    }

    /// Which workers take part: the first of a shuffle, except workers that drop out.
    fn present(&self, step: u64) -> Vec<bool> {
        let workers = self.weights.len();
        let mut present = vec![true; workers];
        if self.everyone() {
            return present;
        }
        let mut rng = Rng::new(self.seed, 0, 0, step, STREAM);
        let mut order: Vec<usize> = (0..workers).collect();
        for at in 0..self.participants {
            order.swap(at, at + rng.below((workers - at) as u64) as usize);
        }
        present.fill(false);
        for &worker in &order[..self.participants] {
            present[worker] = f64::from(rng.uniform()) >= self.dropout;
        }
        if !present.contains(&true) {
            present[order[0]] = true;
        }
        present
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(participation: &Participation, step: u64) -> Vec<f32> {
        let mut weights = Vec::new();
        participation.weights_at(step, &mut weights);
        weights
    }

    #[test]
    fn weights_add_up_to_one() {
        assert_eq!(weights(&Participation::equal(4), 9), [0.25; 4]);
        assert_eq!(weights(&Participation::weighted(vec![1.0, 2.0, 5.0]), 0), [0.125, 0.25, 0.625]);
        assert!(
            Participation::equal(3).plain() && !Participation::weighted(vec![1.0, 2.0]).plain()
        );
    }

    #[test]
    fn two_of_four_take_part_in_each_round_and_all_over_time() {
        let participation =
            Participation::weighted(vec![1.0, 1.0, 2.0, 4.0]).with_participants(2, 0.0, 7);
        let mut rounds = [0; 4];
        for step in 0..4000 {
            let weights = weights(&participation, step);
            let present: Vec<usize> = (0..4).filter(|&worker| weights[worker] > 0.0).collect();
            assert_eq!(present.len(), 2);
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            for worker in 0..4 {
                assert_eq!(participation.takes_part(worker, step), present.contains(&worker));
                rounds[worker] += usize::from(weights[worker] > 0.0);
            }
            if present == [2, 3] {
                assert_eq!(weights[3], 2.0 * weights[2]);
            }
        }
        // A half each: 2000, give or take five deviations of 32.
        assert!(rounds.iter().all(|count| (1840..2160).contains(count)), "{rounds:?}");
    }

    #[test]
    fn some_drop_out_but_never_all() {
        let participation = Participation::equal(2).with_participants(2, 0.75, 1);
        let mut counts = [0; 3];
        for step in 0..4000 {
            counts[weights(&participation, step).iter().filter(|&&weight| weight > 0.0).count()] +=
                1;
        }
        // Both deliver once in 16: 250, give or take five deviations of 15.
        assert_eq!(counts[0], 0);
        assert!((170..330).contains(&counts[2]), "{counts:?}");
    }
}
