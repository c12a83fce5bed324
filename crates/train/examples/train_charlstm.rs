//! Trains a language model on a text and prints how fast it reads and how well it predicts.
//!
//! `cargo run --release -p gradwire-train --example train_charlstm -- TEXT MODEL COMPRESSOR STEPS`;
//! all but the text may be left out.

use std::path::Path;
use std::sync::Arc;

use gradwire_models::data::load;
use gradwire_models::models::ModelKind;
use gradwire_train::settings::TrainingSettings;
use gradwire_train::{Evaluation, Observer, RunConfig, RunOptions, run};

/// Prints evaluations as they come.
struct Progress;

impl Observer for Progress {
    fn evaluated(&self, evaluation: &Evaluation) {
        println!("after {:5} steps: perplexity {:.3}", evaluation.step, evaluation.quality);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let text = arguments.next().ok_or("give a text, or the folder of one")?;
    let model = arguments.next().unwrap_or_else(|| "charlstm".to_owned());
    let compressor = arguments.next().unwrap_or_else(|| "none".to_owned());
    let steps = arguments.next().map_or(Ok(400), |steps| steps.parse())?;
    let kind: ModelKind = model.parse()?;
    let (ModelKind::CharLstm(lstm) | ModelKind::WordLstm(lstm)) = kind else {
        return Err(format!("'{model}' is no LSTM; take charlstm or wordlstm").into());
    };
    let settings = TrainingSettings {
        model: kind.into(),
        workers: 2,
        steps,
        batch: 5,
        optimizer: "sgd".parse()?,
        weight_decay: 0.0,
        clip: Some(5.0),
        learning_rate: "1".parse()?,
        evaluate_at_most: 5000,
        deadline_s: 600.0,
        ..TrainingSettings::default()
    };
    let data = Arc::new(load(Path::new(&text))?);
    let config = RunConfig {
        seed: 1,
        evaluate_every: steps.div_ceil(4),
        ..RunConfig::new(settings, data, compressor.parse()?)
    };
    let record = run(&config, &Progress, &RunOptions::default())?;
    let seconds =
        record.trace.iter().map(|step| step.compute).sum::<f64>() / record.trace.len() as f64;
    println!(
        "{:.2} bits per parameter and step, {:.0} tokens per second and core",
        record.bits_per_parameter(),
        (config.batch * lstm.unroll) as f64 / seconds
    );
    Ok(())
}
