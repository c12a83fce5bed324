//! Trains a perceptron on generated digits with four workers, uncompressed and with 3LC, and prints
//! what each exchanged and reached.
//!
//! `cargo run --release -p gradwire-train --example train_mlp`

use std::sync::Arc;

use gradwire_models::data::embedded;
use gradwire_train::settings::TrainingSettings;
use gradwire_train::{Evaluation, Observer, RunConfig, RunOptions, run};

/// Prints evaluations as they come.
struct Progress;

impl Observer for Progress {
    fn evaluated(&self, evaluation: &Evaluation) {
        println!("  after {:4} steps: {:.1} %", evaluation.step, 100.0 * evaluation.quality);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = Arc::new(embedded(0));
    for compressor in ["none", "3lc", "3lc:s=1.75"] {
        let settings = TrainingSettings {
            model: "mlp".parse()?,
            steps: 400,
            learning_rate: "cosine:from=0.05,to=0.0005".parse()?,
            deadline_s: 60.0,
            ..TrainingSettings::default()
        };
        let config = RunConfig {
            seed: 1,
            evaluate_every: 200,
            ..RunConfig::new(settings, Arc::clone(&data), compressor.parse()?)
        };
        println!("{compressor}");
        let record = run(&config, &Progress, &RunOptions::default())?;
        let examples = (record.steps * record.workers as u64) as f64 * record.batch as f64;
        println!(
            "  {:.2} bits per parameter and step, {:.0} images per second",
            record.bits_per_parameter(),
            examples / record.seconds
        );
    }
    Ok(())
}
