//! Trains a perceptron on generated digits with four workers, uncompressed and with 3LC, and prints
//! what each exchanged and reached.
//!
//! `cargo run --release -p gradwire-train --example train_mlp`

use std::sync::Arc;
use std::time::Duration;

use gradwire_models::Split;
use gradwire_models::data::embedded;
use gradwire_train::run::{Evaluation, Observer, Payload, RunConfig, RunOptions, run};

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
        let config = RunConfig {
            model: "mlp".parse()?,
            data: Arc::clone(&data),
            compressor: compressor.parse()?,
            send: Payload::Gradients,
            split: Split::Shared,
            participation: 1.0,
            dropout: 0.0,
            mask: false,
            overlap: false,
            exchange: "server".parse()?,
            workers: 4,
            steps: 400,
            batch: 32,
            optimizer: "momentum:m=0.9".parse()?,
            weight_decay: 1e-4,
            l1: 0.0,
            svrg: 0,
            clip: None,
            learning_rate: "cosine:from=0.05,to=0.0005".parse()?,
            augment: false,
            seed: 1,
            raw_vectors: true,
            raw_below: 256,
            raw_names: Vec::new(),
            rules: Vec::new(),
            evaluate_every: 200,
            evaluate_at_most: 1000,
            deadline: Duration::from_secs(60),
            check_every: 100,
            straggler: None,
            diagnose_every: 0,
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
