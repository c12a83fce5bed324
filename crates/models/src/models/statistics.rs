//! The statistics of batch normalisation.

use super::maps::Maps;
use super::pointwise::sum;
use crate::lanes::LANES;

/// Added to a variance before its square root is taken.
pub(super) const EPSILON: f32 = 1e-5;
/// Weight of a new batch in the running statistics.
pub(super) const MOMENTUM: f32 = 0.1;

/// The running mean and variance of one batch normalisation, by channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Running mean.
    pub mean: Vec<f32>,
    /// Running (population) variance.
    pub variance: Vec<f32>,
}

impl Statistics {
    /// Statistics before the first batch: mean 0, variance 1.
    pub fn new(channels: usize) -> Self {
        Self { mean: vec![0.0; channels], variance: vec![1.0; channels] }
    }

    /// The statistics of a batch.
    pub(super) fn of(maps: &Maps) -> Self {
        let mean = means(maps, |_, values| sum(values));
        let variance = means(maps, |channel, values| {
            let mean = mean[channel];
            sum_of_squares(values, mean)
        });
        Self { mean, variance }
    }

    /// Moves the running statistics towards the statistics of a batch, with this weight.
    pub(super) fn observe(&mut self, batch: &Self, weight: f32) {
        follow(&mut self.mean, &batch.mean, weight);
        follow(&mut self.variance, &batch.variance, weight);
    }

    /// One over each channel's standard deviation.
    pub(super) fn inverses(&self) -> Vec<f32> {
        self.variance.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect()
    }
}

/// running ← (1 − weight)·running + weight·observed
fn follow(running: &mut [f32], observed: &[f32], weight: f32) {
    for (running, &observed) in running.iter_mut().zip(observed) {
        *running += weight * (observed - *running);
    }
}

/// For each channel, the mean of the results of `sum` over its maps.
fn means(maps: &Maps, sum: impl Fn(usize, &[f32]) -> f32) -> Vec<f32> {
    let channels = maps.shape[0];
    let mut sums = vec![0.0; channels];
    for (at, values) in maps.values().chunks_exact(maps.map_len()).enumerate() {
        sums[at % channels] += f64::from(sum(at % channels, values));
    }
    let count = (maps.batch() * maps.map_len()) as f64;
    sums.into_iter().map(|sum| (sum / count) as f32).collect()
}

/// Σ (value − centre)².
fn sum_of_squares(values: &[f32], centre: f32) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let square = |value: f32| (value - centre) * (value - centre);
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += square(value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&value| square(value)).sum::<f32>()
}
