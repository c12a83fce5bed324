//! Synthetic runs for tests, with round numbers that can be checked by hand.

use std::collections::BTreeMap;

use gradwire_train::settings::TrainingSettings;
use gradwire_train::{Evaluation, Metric, RunRecord, SentCounts, StepRecord};

use crate::DivergedRun;
use crate::experiment::{Experiment, known};
use crate::summary::{Summary, summarize};

/// A run of 10 steps with a server, 4 workers and 1000 parameters, 500 of them in one tensor and
/// 900 in compressed tensors. `none` moves 4000 bytes each way a step; anything else 100 up and 200
/// down.
pub(crate) fn run(compressor: &str, seed: u64) -> RunRecord {
    let (up, down) = if compressor == "none" { (4000.0, 4000.0) } else { (100.0, 200.0) };
    let steps = 10;
    let trace = (0..steps)
        .map(|step| StepRecord {
            step,
            loss: 2.0 / (step + 1) as f64,
            learning_rate: 0.1,
            bytes_up: up,
            bytes_down: down,
            compute: 0.010,
            compress: 0.001,
            decompress: 0.002,
            update: 0.0005,
            wire: 0.003,
            wall: 0.02,
            ..StepRecord::default()
        })
        .collect();
    let evaluation = |step: u64, quality: f64| Evaluation {
        step,
        quality,
        loss: 1.0,
        examples: 100,
        metric: Metric::Accuracy,
    };
    let quality = 0.9 + 0.01 * seed as f64;
    RunRecord {
        version: "0.0.0".to_owned(),
        processor: String::new(),
        instruction_set: String::new(),
        threads: 0,
        numerics: BTreeMap::new(),
        parameters: 1000,
        tensors: 4,
        largest_tensor: 500,
        compressed_parameters: 900,
        data: "digits".to_owned(),
        data_checksum: "abc".to_owned(),
        compressor: compressor.to_owned(),
        compressor_facts: None,
        seed,
        settings: TrainingSettings {
            steps,
            learning_rate: known("cosine:from=0.1,to=0.001"),
            augment: Some(false),
            ..TrainingSettings::default()
        },
        rounds: steps,
        sent: SentCounts::default(),
        metric: Metric::Accuracy,
        quality,
        bytes_up: up * steps as f64,
        bytes_down: down * steps as f64,
        digest: "0".to_owned(),
        digest_at: BTreeMap::new(),
        seconds: 1.0,
        server: None,
        changes: Vec::new(),
        trace,
        evaluations: vec![evaluation(5, quality - 0.2), evaluation(10, quality)],
        layers: Vec::new(),
        diagnoses: Vec::new(),
    }
}

/// A run like [`run`] that diverged.
pub(crate) fn diverged(compressor: &str, seed: u64) -> DivergedRun {
    let RunRecord { version, data, data_checksum, compressor, seed, settings, .. } =
        run(compressor, seed);
    let diverged = "the loss of worker 0 at step 3 is NaN".to_owned();
    DivergedRun { version, data, data_checksum, compressor, seed, settings, diverged }
}

/// The summary of runs over the default links of tables.
pub(crate) fn summary(runs: &[RunRecord]) -> Summary {
    summarize(runs, &Experiment::default().links).unwrap()
}

/// A run of a language model, with a perplexity.
pub(crate) fn text_run(compressor: &str, perplexity: f64) -> RunRecord {
    let mut run = run(compressor, 1);
    run.metric = Metric::Perplexity;
    run.quality = perplexity;
    for evaluation in &mut run.evaluations {
        evaluation.metric = Metric::Perplexity;
        evaluation.quality = perplexity;
    }
    run
}
