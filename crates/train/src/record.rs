//! The report of a training run.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use gradwire_exchange::StepReport;
use serde::{Deserialize, Serialize};

use crate::diagnosis::{Diagnosis, Layer};
use crate::facts::CompressorFacts;
use crate::settings::TrainingSettings;
use gradwire_exchange::schedule::position_bits;
use gradwire_models::tasks::Metric;

/// One step, averaged over workers. Times in seconds, bytes as the transport counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step, from 0.
    pub step: u64,
    /// Mean training loss over the workers' batches.
    pub loss: f64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Bytes a worker sent.
    pub bytes_up: f64,
    /// Bytes a worker received.
    pub bytes_down: f64,
    /// Bytes that the busiest worker sent or received, whichever are more; 0 if they were not
    /// recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_busiest: f64,
    /// The elements that a worker sent.
    #[serde(default, skip_serializing_if = "SentCounts::is_nothing")]
    pub sent: SentCounts,
    /// Forward and backward passes, in CPU time.
    pub compute: f64,
    /// Encoding.
    pub compress: f64,
    /// Decoding and adding.
    pub decompress: f64,
    /// Optimizer.
    pub update: f64,
    /// Sending and waiting.
    pub wire: f64,
    /// Wall-clock time of the step; 0 if it was not recorded. If workers wait for each other at
    /// every step, all have the same time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wall: f64,
    /// Time that the reducer's thread spent encoding, sending, waiting and decoding; 0 without
    /// overlap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub background: f64,
    /// The part of `background` that the worker waited for after its backward pass; the rest was
    /// hidden.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited: f64,
}

impl StepRecord {
    /// Counts the cost of an exchange.
    pub(crate) fn count(&mut self, report: &StepReport) {
        self.bytes_up += report.traffic.bytes_up as f64;
        self.bytes_down += report.traffic.bytes_down as f64;
        self.compress = report.compress.as_secs_f64();
        self.decompress = report.decompress.as_secs_f64();
        self.update += report.update.as_secs_f64();
        self.wire = report.wire.as_secs_f64();
        self.background = report.background.as_secs_f64();
        self.waited = report.waited.as_secs_f64();
    }
}

/// The measurements of one worker in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) record: StepRecord,
    /// Whether the worker took part in the round; else there is no loss.
    pub(crate) took_part: bool,
}

/// How many elements a worker sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SentCounts {
    /// Elements with their positions.
    pub sparse: f64,
    /// Elements without positions: all of a tensor.
    pub dense: f64,
    /// Elements of tensors that travel uncompressed.
    pub raw: f64,
    /// Bits that the positions would take by equation 5 of the SBC paper.
    pub position_bits: f64,
}

impl SentCounts {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Counts the elements of a tensor that were sent, and the bits of their positions by equation
    /// 5 of the SBC paper. If all were sent, there are no positions.
    pub(crate) fn count(&mut self, sent: Option<&[u32]>, elements: usize, raw: bool) {
        match sent {
            Some([]) => {}
            Some(sent) => {
                let count = sent.len() as f64;
                self.sparse += count;
                self.position_bits += count * position_bits(count / elements as f64);
            }
            None if raw => self.raw += elements as f64,
            None => self.dense += elements as f64,
        }
    }
}

impl std::ops::AddAssign for SentCounts {
    fn add_assign(&mut self, other: Self) {
        self.sparse += other.sparse;
        self.dense += other.dense;
        self.raw += other.raw;
        self.position_bits += other.position_bits;
    }
}

impl std::iter::Sum for SentCounts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        let mut sum = Self::default();
        all.for_each(|one| sum += one);
        sum
    }
}

/// One evaluation of the global model on the test set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps done.
    pub step: u64,
    /// The measure of the quality.
    pub metric: Metric,
    /// Quality on the test set.
    pub quality: f64,
    /// Mean loss: cross-entropy, unless the model minimises another.
    pub loss: f64,
    /// Images, tokens, pixels (with masks) or users (of ratings) evaluated.
    pub examples: usize,
}

/// A change of the number of workers during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersChanged {
    /// Steps done before the change.
    pub step: u64,
    /// Workers from then on.
    pub workers: usize,
    /// The rank that was lost; `None` if the number was changed on request.
    pub lost: Option<usize>,
}

/// A finished run: enough to repeat it, and its measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`VERSION`](crate::VERSION) of the gradwire that ended the run.
    pub version: String,
    /// The name of the processor of worker 0; empty if it was not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub processor: String,
    /// The instruction set that worker 0 used, such as `avx512+fma`: the instruction set of the
    /// kernels, and `+fma` if products of matrices are fused. Empty if it was not recorded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instruction_set: String,
    /// The number of threads that computed at the same time in the process of worker 0; 0 if it was
    /// not recorded. No bit depends on it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub threads: usize,
    /// The [mark](crate::marks) of each part of gradwire that decides the bits of this run. Empty
    /// until [`marked`](crate::marked) adds the marks, and if they were not recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numerics: BTreeMap<String, String>,
    /// Parameters of the model.
    pub parameters: usize,
    /// Its tensors.
    pub tensors: usize,
    /// Parameters in its largest tensor.
    pub largest_tensor: usize,
    /// Parameters in tensors that travel compressed.
    pub compressed_parameters: usize,
    /// The data set.
    pub data: String,
    /// SHA-256 of the data set.
    pub data_checksum: String,
    /// The compressor's spec.
    pub compressor: String,
    /// What figures need to know of the compressor; `None` if it was not recorded.
    /// [`facts`](Self::facts) then reads the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compressor_facts: Option<CompressorFacts>,
    /// The seed.
    pub seed: u64,
    /// The settings; the record dereferences to them: `record.workers`.
    #[serde(flatten, serialize_with = "TrainingSettings::write")]
    pub settings: TrainingSettings,
    /// Exchanges.
    pub rounds: u64,
    /// The measure of the quality.
    pub metric: Metric,
    /// Quality at the end.
    pub quality: f64,
    /// Bytes a worker sent over the whole run.
    pub bytes_up: f64,
    /// Bytes a worker received over the whole run.
    pub bytes_down: f64,
    /// Elements a worker sent over the whole run; 0 if they were not recorded.
    #[serde(default, skip_serializing_if = "SentCounts::is_nothing")]
    pub sent: SentCounts,
    /// Digest of the final parameters.
    pub digest: String,
    /// Digests of the parameters of worker 0 on the way, by steps done: at the first exchange after
    /// 10, 100 and 1000 steps. Empty in shorter runs, in runs with asynchronous workers, and if
    /// they were not recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digest_at: BTreeMap<u64, String>,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Processor seconds per step of the busiest server, for decoding, the optimizer and encoding,
    /// since the run was last resumed. `None` without servers, and if they are separate processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<f64>,
    /// The changes of the number of workers; `settings` has the number at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<WorkersChanged>,
    /// Every step.
    pub trace: Vec<StepRecord>,
    /// Every evaluation.
    pub evaluations: Vec<Evaluation>,
    /// The layers of the diagnoses; empty without diagnoses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<Layer>,
    /// Every diagnosis of the first worker's gradients and residuals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diagnoses: Vec<Diagnosis>,
}

/// An estimate of the bytes that a worker sent, from the factors of a run: iterations × frequency ×
/// non-zeros × (position bits + value bits) × receivers. This is equation 1 of Sattler, Wiedemann,
/// Müller and Samek ("Sparse binary compression", 2018). It leaves out means, lengths and headers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficEstimate {
    /// Training steps.
    pub iterations: f64,
    /// Exchanges per step.
    pub frequency: f64,
    /// Elements a worker sent in an exchange.
    pub nonzeros: f64,
    /// Position bits per element, by equation 5.
    pub position_bits: f64,
    /// Value bits per element.
    pub value_bits: f64,
    /// Times a worker sent each compressed message: the number of receivers.
    pub receivers: f64,
}

impl TrafficEstimate {
    /// The product, in bytes.
    pub fn bytes(&self) -> f64 {
        let a_round = self.nonzeros * (self.position_bits + self.value_bits);
        self.iterations * self.frequency * a_round * self.receivers / 8.0
    }
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

impl Deref for RunRecord {
    type Target = TrainingSettings;

    fn deref(&self) -> &TrainingSettings {
        &self.settings
    }
}

impl DerefMut for RunRecord {
    fn deref_mut(&mut self) -> &mut TrainingSettings {
        &mut self.settings
    }
}

impl RunRecord {
    /// Facts about the compressor: the recorded ones, or else those of the compressor that the spec
    /// names, if this program has it.
    pub fn facts(&self) -> CompressorFacts {
        self.compressor_facts.unwrap_or_else(|| CompressorFacts::of_text(&self.compressor))
    }

    /// The traffic by equation 1 of the SBC paper. `None` if the compressor's elements take
    /// different numbers of bits, if the record has no counts of elements, with rules or several
    /// compressors, and if the number of receivers varies: absent owners in a scatter-reduce still
    /// send means.
    pub fn traffic_estimate(&self) -> Option<TrafficEstimate> {
        let facts = self.facts();
        let bits = f64::from(facts.value_bits.filter(|_| self.rules.is_empty())?);
        let everyone = self.participation == 1.0 && self.dropout == 0.0;
        let exchange = self.exchange.facts();
        if !exchange.sends_own_messages || (exchange.absent_ranks_send && !everyone) {
            return None;
        }
        let SentCounts { sparse, dense, raw, position_bits } = self.sent;
        let position_bits = if facts.draws_positions { 0.0 } else { position_bits };
        let all = sparse + dense + raw;
        (self.rounds > 0 && all > 0.0).then(|| TrafficEstimate {
            iterations: self.steps as f64,
            frequency: self.rounds as f64 / self.steps as f64,
            nonzeros: all / self.rounds as f64,
            position_bits: position_bits / all,
            value_bits: ((sparse + dense) * bits + raw * 32.0) / all,
            receivers: self.exchange.receivers(self.workers),
        })
    }

    /// The fraction of the exchange time during which workers computed, 0 to 1; `None` without
    /// overlap.
    pub fn hidden(&self) -> Option<f64> {
        let sum = |time: fn(&StepRecord) -> f64| self.trace.iter().map(time).sum::<f64>();
        let (background, waited) = (sum(|step| step.background), sum(|step| step.waited));
        (background > 0.0).then(|| (1.0 - waited / background).max(0.0))
    }

    /// Bits per parameter and step that a worker sent and received, averaged over both directions
    /// (32 for uncompressed float exchange with a parameter server).
    pub fn bits_per_parameter(&self) -> f64 {
        (self.bits_up() + self.bits_down()) / 2.0
    }

    /// Bits per parameter and step that a worker sent.
    pub fn bits_up(&self) -> f64 {
        self.bytes_up * 8.0 / (self.parameters as f64 * self.steps as f64)
    }

    /// Bits per parameter and step that a worker received.
    pub fn bits_down(&self) -> f64 {
        self.bytes_down * 8.0 / (self.parameters as f64 * self.steps as f64)
    }
}
