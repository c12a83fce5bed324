//! Whole runs on small generated data.

mod checkpoints;
mod exchanges;
mod failures;
mod learning;
mod observation;
mod updates;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::settings::TrainingSettings;
use gradwire_models::data::{Dataset, embedded_sized};

/// A few digits, the same for all tests.
fn digits() -> Arc<Dataset> {
    static DIGITS: Mutex<Option<Arc<Dataset>>> = Mutex::new(None);
    let mut digits = DIGITS.lock().unwrap();
    Arc::clone(digits.get_or_insert_with(|| Arc::new(embedded_sized(1, 600, 150))))
}

pub(super) fn config(compressor: &str, exchange: &str) -> RunConfig {
    let settings = TrainingSettings {
        model: "mlp".parse().unwrap(),
        exchange: exchange.parse().unwrap(),
        workers: 2,
        steps: 12,
        batch: 16,
        learning_rate: "cosine:from=0.05".parse().unwrap(),
        evaluate_at_most: 100,
        deadline_s: 60.0,
        ..TrainingSettings::default()
    };
    RunConfig::new(settings, digits(), compressor.parse().unwrap())
        .with(|c| (c.seed, c.check_every) = (5, 4))
}

/// A configuration in which workers train on their own.
fn updates(compressor: &str, exchange: &str) -> RunConfig {
    config(compressor, exchange).with(|c| c.send = Payload::Updates)
}

fn train(config: &RunConfig) -> RunRecord {
    run(config, &(), &RunOptions::default()).unwrap()
}

fn losses(record: &RunRecord) -> Vec<f64> {
    record.trace.iter().map(|step| step.loss).collect()
}

/// Stops a run before the first worker's step of this number, however late records of steps come in.
pub(super) struct StopAfter {
    pub(super) steps: u64,
    pub(super) asked: AtomicU64,
}

impl Observer for StopAfter {
    fn stop(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst) >= self.steps
    }
}

/// Stops a run at the round after so many steps.
struct AtStep(u64, AtomicU64);

impl Observer for AtStep {
    fn step(&self, record: &StepRecord, _: u64) {
        self.1.store(record.step + 1, Ordering::SeqCst);
    }

    fn stop(&self) -> bool {
        self.1.load(Ordering::SeqCst) >= self.0
    }
}
