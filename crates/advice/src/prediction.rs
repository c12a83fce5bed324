//! The prediction of a candidate's steps.

use serde::Serialize;

use crate::crossover::Crossover;

/// The prediction of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The candidate as given: the compressor, and perhaps an exchange.
    pub candidate: String,
    /// The compressor alone.
    pub spec: String,
    /// The exchange.
    pub exchange: String,
    /// Steps from one exchange to the next.
    pub every: u64,
    /// The compression ratio: bytes of the gradients in their type divided by bytes of the
    /// messages, per step.
    pub ratio: f64,
    /// Bytes that a rank sends in a step, headers included.
    pub bytes_up: f64,
    /// Processor seconds of compressing and decompressing in a step.
    pub codec: f64,
    /// The relative error that remains after error feedback. `None` for local steps: sums of
    /// gradients over several steps are not recorded.
    pub error: Option<f64>,
    /// Why the trained model may suffer.
    pub doubt: Option<String>,
    /// The figures on each link.
    pub on_links: Vec<OnLink>,
    /// The bandwidth in bits per second up to which the candidate is faster than no compression, at
    /// the latency of the first link and at most 10 Tbit/s. `None` if it never is.
    pub crossover: Option<f64>,
    /// The least and the greatest crossover if measured times are off by
    /// [`Cluster::noise`](crate::Cluster::noise).
    pub crossover_range: [Option<f64>; 2],
}

/// A prediction on one link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OnLink {
    /// Seconds of a step; with local steps the mean of steps with and without an exchange.
    pub seconds: f64,
    /// Seconds of a step without compression, divided by `seconds`.
    pub speedup: f64,
}

/// The recommendation for a tensor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorAdvice {
    /// Its name.
    pub name: String,
    /// Its elements.
    pub elements: usize,
    /// The bytes of its message.
    pub bytes: f64,
    /// The error that remains after error feedback.
    pub error: f64,
    /// Seconds saved on the link, minus the seconds that compression takes.
    pub gain: f64,
    /// The recommended compressor: `none` if compression gains nothing.
    pub send: String,
}

impl Prediction {
    /// The crossover with its range.
    pub fn crossovers(&self) -> Crossover {
        let [least, most] = self.crossover_range;
        Crossover { least, likely: self.crossover, most }
    }
}
