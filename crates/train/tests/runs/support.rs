//! Small configurations, and observers that stop a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradwire_models::Split;
use gradwire_models::data::{Dataset, embedded_sized};
use gradwire_train::{Observer, Payload, RunConfig, RunOptions, RunRecord, run};

/// A few digits, the same for all tests.
pub(crate) fn digits() -> Arc<Dataset> {
    static DIGITS: Mutex<Option<Arc<Dataset>>> = Mutex::new(None);
    let mut digits = DIGITS.lock().unwrap();
    Arc::clone(digits.get_or_insert_with(|| Arc::new(embedded_sized(1, 600, 150))))
}

pub(crate) fn config(compressor: &str, exchange: &str) -> RunConfig {
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

pub(crate) fn train(config: &RunConfig) -> RunRecord {
    run(config, &(), &RunOptions::default()).unwrap()
}

/// Stops a run before step `steps` of the first worker, however late the records of steps arrive.
pub(crate) struct StopAfter {
    pub(crate) steps: u64,
    pub(crate) asked: AtomicU64,
}

impl Observer for StopAfter {
    fn stop(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst) >= self.steps
    }
}
