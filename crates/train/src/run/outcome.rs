//! What a run comes to: its evaluations and its record.

use gradwire::Tensor;
use gradwire_exchange::digest;

use super::diagnosis::Layer;
use super::recorder::Recorder;
use super::session::{Parts, Run};
use super::{Evaluation, Metric, RunRecord};
use gradwire_models::models::Score;

impl Run<'_> {
    /// The record of a run that has ended with these parameters.
    pub(super) fn record(
        &self,
        recorder: Recorder,
        parts: &Parts<'_>,
        parameters: &[Vec<f32>],
    ) -> RunRecord {
        let config = self.config;
        let Parts { policy, tensors, rounds, .. } = parts;
        let compressed = tensors.iter().filter(|tensor| !policy.is_raw(tensor));
        let sum = |value: fn(&super::StepRecord) -> f64| recorder.trace.iter().map(value).sum();
        RunRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            parameters: tensors.iter().map(Tensor::elements).sum(),
            tensors: tensors.len(),
            largest_tensor: tensors.iter().map(Tensor::elements).max().unwrap_or(0),
            compressed_parameters: compressed.map(Tensor::elements).sum(),
            data: config.data.name.clone(),
            data_checksum: config.data.checksum.clone(),
            compressor: config.compressor.to_string(),
            seed: config.seed,
            settings: config.resolved(),
            unsaid: Vec::new(),
            rounds: rounds.count(),
            metric: self.metric(),
            quality: recorder.evaluations.last().map_or(0.0, |evaluation| evaluation.quality),
            bytes_up: sum(|record| record.bytes_up),
            bytes_down: sum(|record| record.bytes_down),
            sent: recorder.trace.iter().map(|step| step.sent).sum(),
            digest: format!("{:016x}", digest(parameters)),
            seconds: self.seconds(),
            server: recorder.server,
            trace: recorder.trace,
            evaluations: recorder.evaluations,
            layers: match recorder.diagnoses.is_empty() {
                true => Vec::new(),
                false => tensors.iter().map(Layer::of).collect(),
            },
            diagnoses: recorder.diagnoses,
        }
    }
}

/// What a test comes to.
pub(super) fn evaluation(step: u64, metric: Metric, score: Score) -> Evaluation {
    let examples = score.examples as f64;
    Evaluation {
        step,
        metric,
        quality: match metric {
            Metric::Accuracy | Metric::HitRate => score.correct as f64 / examples,
            Metric::Iou if score.either == 0 => 1.0,
            Metric::Iou => score.both as f64 / score.either as f64,
            // An infinite number could not be written as JSON.
            Metric::Perplexity => (score.loss / examples).exp().min(f64::MAX),
        },
        loss: score.loss / examples,
        examples: score.examples,
    }
}
