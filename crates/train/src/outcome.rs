//! The record of a finished run.

use gradwire::Tensor;
use gradwire_exchange::digest;

use crate::diagnosis::Layer;
use crate::record::{RunRecord, StepRecord};
use crate::recorder::Recorder;
use crate::resolution::Resolution;
use crate::session::Session;

impl Session<'_> {
    /// The record of a run that has ended with these parameters.
    pub(crate) fn record(
        &self,
        recorder: Recorder,
        resolution: &Resolution<'_>,
        parameters: &[Vec<f32>],
    ) -> RunRecord {
        let config = self.config;
        let Resolution { policy, tensors, rounds, .. } = resolution;
        let compressed = tensors.iter().filter(|tensor| !policy.is_raw(tensor));
        let sum = |value: fn(&StepRecord) -> f64| recorder.trace.iter().map(value).sum();
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
            metric: gradwire_models::tasks::metric(&config.data),
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
