//! Whole runs on small generated data.

mod checkpoints;
mod exchanges;
mod failures;
mod learning;
mod observation;
mod updates;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use gradwire_models::Split;
use gradwire_models::data::{Dataset, embedded_sized};

/// A few digits, the same for all tests.
fn digits() -> Arc<Dataset> {
    static DIGITS: Mutex<Option<Arc<Dataset>>> = Mutex::new(None);
    let mut digits = DIGITS.lock().unwrap();
    Arc::clone(digits.get_or_insert_with(|| Arc::new(embedded_sized(1, 600, 150))))
}

pub(super) fn config(compressor: &str, exchange: &str) -> RunConfig {
    RunConfig {
        model: "mlp".parse().unwrap(),
        data: digits(),
        compressor: compressor.parse().unwrap(),
        send: Payload::Gradients,
        split: Split::Shared,
        participation: 1.0,
        dropout: 0.0,
        mask: true,
        overlap: false,
        exchange: exchange.parse().unwrap(),
        workers: 2,
        steps: 12,
        batch: 16,
        optimizer: "momentum".parse().unwrap(),
        weight_decay: 1e-4,
        l1: 0.0,
        svrg: 0,
        clip: None,
        learning_rate: "cosine:from=0.05".parse().unwrap(),
        augment: false,
        seed: 5,
        raw_vectors: true,
        raw_below: 256,
        raw_names: Vec::new(),
        rules: Vec::new(),
        evaluate_every: 0,
        evaluate_at_most: 100,
        deadline: Duration::from_secs(60),
        check_every: 4,
        straggler: None,
        diagnose_every: 0,
    }
}

/// A configuration in which workers train on their own.
fn updates(compressor: &str, exchange: &str) -> RunConfig {
    RunConfig { send: Payload::Updates, ..config(compressor, exchange) }
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
