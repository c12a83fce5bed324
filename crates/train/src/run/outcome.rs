//! What a run comes to: its evaluations and its record.

use gradwire::Tensor;
use gradwire_exchange::{Rule, digest};

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
            model: config.model.to_string(),
            parameters: tensors.iter().map(Tensor::elements).sum(),
            tensors: tensors.len(),
            largest_tensor: tensors.iter().map(Tensor::elements).max().unwrap_or(0),
            compressed_parameters: compressed.map(Tensor::elements).sum(),
            data: config.data.name.clone(),
            data_checksum: config.data.checksum.clone(),
            compressor: config.compressor.to_string(),
            exchange: config.exchange.to_string(),
            send: config.send.to_string(),
            split: config.split.to_string(),
            participation: config.participation,
            dropout: config.dropout,
            mask: config.mask,
            overlap: config.overlap,
            rounds: rounds.count(),
            workers: config.workers,
            steps: config.steps,
            batch: config.batch,
            optimizer: config.optimizer.to_string(),
            weight_decay: decimal(config.weight_decay),
            l1: decimal(config.l1),
            svrg: config.svrg,
            straggler: config.straggler.map(|straggler| straggler.to_string()),
            rules: config.rules.iter().map(Rule::to_string).collect(),
            raw_vectors: config.raw_vectors,
            raw_below: Some(config.raw_below),
            raw_names: Some(config.raw_names.clone()),
            learning_rate: config.learning_rate.to_string(),
            augment: config.augment,
            seed: config.seed,
            clip: config.clip.map(decimal),
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

/// The `f64` that prints as the `f32` does: 0.0001 and not 0.00009999999747378752.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
