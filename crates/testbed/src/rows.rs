//! One flat row per run, for programs that read the results.

use gradwire_train::{Metric, RunRecord};
use serde::Serialize;

use crate::TestbedError;
use crate::summary::summarize;

/// The figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The compressor's spec.
    pub compressor: String,
    /// The seed.
    pub seed: u64,
    /// Training steps.
    pub steps: u64,
    /// The metric of the quality, such as `accuracy` (0 to 1) or `perplexity`.
    pub metric: Metric,
    /// Final quality.
    pub quality: f64,
    /// Bits per parameter and step, averaged over both directions.
    pub bits_per_parameter: f64,
    /// Bytes of the baseline over bytes of this run, both directions. The baseline is `none` if it
    /// was run, else 32 bits a parameter.
    pub ratio: f64,
    /// The same for bytes that a worker sent.
    pub ratio_up: f64,
    /// The same for bytes that a worker received.
    pub ratio_down: f64,
    /// Bytes a worker sent over the run, averaged over workers.
    pub bytes_up: f64,
    /// Bytes a worker received over the run, averaged over workers.
    pub bytes_down: f64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// The model.
    pub model: String,
    /// The data set.
    pub data: String,
    /// The exchange.
    pub exchange: String,
    /// Number of workers.
    pub workers: usize,
    /// Examples per worker and step.
    pub batch: usize,
    /// Digest of the final parameters.
    pub digest: String,
}

/// A row for each run, in their order. The runs differ in compressor and seed only.
pub fn rows(runs: &[RunRecord]) -> Result<Vec<Row>, TestbedError> {
    let summary = summarize(runs, &[])?;
    let none = summary.baseline();
    Ok(runs
        .iter()
        .map(|run| {
            let computed = 4.0 * run.parameters as f64 * run.steps as f64;
            let (up, down) = none.map_or((computed, computed), |n| (n.bytes_up, n.bytes_down));
            Row {
                compressor: run.compressor.clone(),
                seed: run.seed,
                steps: run.steps,
                metric: run.metric,
                quality: run.quality,
                bits_per_parameter: run.bits_per_parameter(),
                ratio: (up + down) / (run.bytes_up + run.bytes_down),
                ratio_up: up / run.bytes_up,
                ratio_down: down / run.bytes_down,
                bytes_up: run.bytes_up,
                bytes_down: run.bytes_down,
                seconds: run.seconds,
                model: run.model.to_string(),
                data: run.data.clone(),
                exchange: run.exchange.to_string(),
                workers: run.workers,
                batch: run.batch,
                digest: run.digest.clone(),
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn ratios_are_to_none_or_else_to_32_bits() {
        let runs = [synthetic::run("3lc", 1), synthetic::run("none", 1)];
        let both = rows(&runs).unwrap();
        assert_eq!((both[0].ratio_up, both[0].ratio_down, both[1].ratio), (40.0, 20.0, 1.0));
        assert_eq!(rows(&runs[..1]).unwrap()[0].ratio_up, 40.0);
    }
}
