//! Whole runs on ratings.

use super::*;
use gradwire_models::data::{embedded_sized, load};

/// Forty users in two halves, each of which takes items of one half of two hundred.
fn data() -> Arc<Dataset> {
    let mut rng = gradwire::Rng::new(1, 0, 0, 0, 0);
    let mut text = String::new();
    for user in 0..40u64 {
        for time in 0..20 {
            let item = (user % 2) * 100 + rng.below(100);
            text += &format!("{}\t{}\t4\t{time}\n", user + 1, item + 1);
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("u.data");
    std::fs::write(&path, text).unwrap();
    Arc::new(load(&path).unwrap())
}

fn config(model: &str, data: Arc<Dataset>) -> RunConfig {
    super::text::config("none").with(|c| {
        c.model = model.parse().unwrap();
        c.data = data;
        c.batch = 16;
        c.steps = 200;
        c.optimizer = "adam".parse().unwrap();
        c.learning_rate = "0.005".parse().unwrap();
        c.clip = None;
        c.evaluate_every = 0;
    })
}

#[test]
fn a_model_of_ratings_learns() {
    let record = train(&config("ncf", data()));
    assert_eq!(record.metric, Metric::HitRate);
    assert_eq!(record.evaluations.last().unwrap().examples, 40);
    // By chance 10 of 100; a model that knows the halves finds 10 of about 50.
    assert!(record.quality >= 0.2, "hit rate {}", record.quality);
    // From ln 2 on; one in five is taken, which alone gives 0.5.
    let losses: Vec<f64> = record.trace.iter().map(|step| step.loss).collect();
    assert!((losses[0] - 2f64.ln()).abs() < 0.05, "{}", losses[0]);
    assert!(losses[199] < 0.2, "{}", losses[199]);
}

#[test]
fn two_workers_learn_what_one_does() {
    let mut alone = config("ncf", data());
    alone.compressor = "none".parse().unwrap();
    alone.optimizer = "sgd".parse().unwrap();
    alone.workers = 1;
    alone.batch = 16;
    alone.steps = 5;
    let two = alone.clone().with(|c| {
        c.workers = 2;
        c.batch = 8;
    });
    let [one, two] = [alone, two].map(|config| train(&config));
    for (a, b) in one.trace.iter().zip(&two.trace) {
        assert!((a.loss - b.loss).abs() < 1e-4, "{} and {}", a.loss, b.loss);
    }
}

#[test]
fn models_and_splits_that_do_not_fit_ratings_are_refused() {
    let refused = |config: RunConfig, word: &str| refused(&config, &[word]);
    refused(config("lenet5", data()), "choose ncf");
    refused(config("ncf", Arc::new(embedded_sized(0, 20, 10))), "choose mlp");
    let by_classes = config("ncf", data()).with(|c| c.split = "classes".parse().unwrap());
    refused(by_classes, "use shared or shards");
    refused(config("ncf", data()).with(|c| c.augment = Some(true)), "give --augment off");
}
