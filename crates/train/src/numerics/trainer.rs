//! The mark of everything else: a run of a small network with the settings of another run.

use std::sync::Arc;

use gradwire_exchange::CompressionSchedule;
use gradwire_models::data::Dataset;

use super::cache::cached;
use super::data::images;
use super::exchange::{WORKERS, smaller};
use super::mark::Mark;
use crate::config::RunConfig;
use crate::launch::run;
use crate::options::RunOptions;
use crate::settings::{SETTINGS, TrainingSettings};

const STEPS: u64 = 6;
/// The most steps of a round, and between snapshots of variance reduction.
const ROUND: u64 = 3;

pub(super) fn mark(
    settings: &TrainingSettings,
    compressor: &CompressionSchedule,
) -> Option<String> {
    let first = compressor.first();
    let compressor: CompressionSchedule =
        first.clone().with_every(first.every().min(ROUND)).to_string().parse().ok()?;
    let settings = small(settings)?;
    let texts = SETTINGS.iter().map(|setting| setting.text(&settings));
    cached(format!("trainer {compressor} {}", texts.collect::<Vec<_>>().join(" ")), || {
        let content = images([1, 8, 8], false);
        let data = Dataset { name: "marks".to_owned(), checksum: String::new(), content };
        let config = RunConfig::new(settings, Arc::new(data), compressor);
        let record = run(&config, &(), &RunOptions::default()).ok()?;
        let mut mark = Mark::default();
        mark.bytes(record.digest.as_bytes());
        record.trace.iter().for_each(|step| mark.number(step.loss));
        Some(mark.text())
    })
}

/// The settings with a small network, few workers and few steps. `None` if their runs do not repeat
/// their bits.
fn small(settings: &TrainingSettings) -> Option<TrainingSettings> {
    let text = "mlp:12";
    Some(TrainingSettings {
        model: text.parse().ok()?,
        exchange: smaller(settings.exchange)?,
        workers: settings.workers.min(WORKERS),
        steps: STEPS,
        batch: settings.batch.min(4),
        svrg: settings.svrg.min(ROUND),
        augment: Some(false),
        straggler: None,
        min_workers: None,
        overlap: false,
        rules: Vec::new(),
        raw_names: Vec::new(),
        evaluate_at_most: 1,
        deadline_s: TrainingSettings::default().deadline_s,
        ..settings.clone()
    })
}
