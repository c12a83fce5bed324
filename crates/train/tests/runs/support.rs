//! Small configurations, and observers that stop a run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gradwire_models::data::{Dataset, embedded_sized};
use gradwire_train::{Observer, RunConfig, RunOptions, RunRecord, TrainingSettings, run};

/// A few digits, the same for all tests.
pub(crate) fn digits() -> Arc<Dataset> {
    static DIGITS: Mutex<Option<Arc<Dataset>>> = Mutex::new(None);
    let mut digits = DIGITS.lock().unwrap();
    Arc::clone(digits.get_or_insert_with(|| Arc::new(embedded_sized(1, 600, 150))))
}

pub(crate) fn config(compressor: &str, exchange: &str) -> RunConfig {
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
