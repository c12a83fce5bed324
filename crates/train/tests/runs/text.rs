//! Whole runs of language models on small texts.

use super::*;
use gradwire_models::ModelSpec;
use gradwire_models::data::{Text, Unit, embedded_sized};
use gradwire_models::tasks::TaskConfig;

/// A text in which each symbol follows from the one before, mostly.
fn chain(tokens: usize, seed: u64) -> Vec<u32> {
    let mut rng = gradwire::Rng::new(seed, 0, 0, 0, 0);
    let mut last = 0;
    (0..tokens)
        .map(|_| {
            last = if rng.below(8) == 0 { rng.below(6) as u32 } else { (last * 5 + 1) % 6 };
            last
        })
        .collect()
}

fn text(train: usize, test: usize) -> Arc<Dataset> {
    let vocabulary = ["a", "b", "c", "d", "e", "f"].map(str::to_owned).to_vec();
    let (train, test) = (chain(train, 1), chain(test, 2));
    Arc::new(Dataset {
        name: "chain".to_owned(),
        checksum: "of a chain".to_owned(),
        content: Content::Text(Text { unit: Unit::Characters, vocabulary, train, test }),
    })
}

pub(super) fn config(compressor: &str) -> RunConfig {
    let settings = TrainingSettings {
        model: "charlstm:hidden=12".parse().unwrap(),
        workers: 2,
        steps: 10,
        batch: 3,
        optimizer: "sgd".parse().unwrap(),
        weight_decay: 0.0,
        clip: Some(5.0),
        learning_rate: "0.5".parse().unwrap(),
        raw_below: 64,
        evaluate_at_most: 100,
        deadline_s: 60.0,
        ..TrainingSettings::default()
    };
    // Two workers, three streams each, of 167 tokens: four chunks an epoch.
    let data = text(1000, 200);
    RunConfig::new(settings, data, compressor.parse().unwrap())
        .with(|c| (c.seed, c.evaluate_every, c.check_every) = (5, 4, 4))
}

#[test]
fn perplexity_begins_with_the_vocabulary_and_falls() {
    let first = train(&config("none").with(|c| c.learning_rate = "1e-9".parse().unwrap()));
    assert!((first.quality - 6.0).abs() < 0.1, "{}", first.quality);
    assert_eq!(first.metric, Metric::Perplexity);
    let evaluated: Vec<_> = first.evaluations.iter().map(|e| (e.step, e.examples)).collect();
    assert_eq!(evaluated, [(4, 100), (8, 100), (10, 199)]);

    let record = train(&config("none").with(|c| {
        c.model = "charlstm:hidden=32".parse().unwrap();
        c.steps = 300;
        c.learning_rate = "1".parse().unwrap();
        c.evaluate_every = 0;
    }));
    let last = record.evaluations.last().unwrap();
    assert!((last.quality - last.loss.exp()).abs() < 1e-9);
    // The likeliest symbol has a probability of 7/8 + 1/48, the other five 1/48 each: an entropy of
    // 0.502, a perplexity of 1.65. Of 199 test symbols the mean has a deviation of 0.08, so three
    // deviations less are 1.3.
    assert!((1.3..3.0).contains(&record.quality), "{}", record.quality);
    assert_eq!(record.clip, Some(5.0));
}

#[test]
fn the_same_configuration_gives_the_same_bits() {
    let config = config("terngrad").with(|c| c.workers = 3);
    let (once, again) = (train(&config), train(&config));
    assert_eq!((&once.digest, &once.evaluations), (&again.digest, &again.evaluations));
    assert_ne!(once.digest, train(&config.clone().with(|c| c.seed = 6)).digest);
    assert_ne!(once.digest, train(&config.clone().with(|c| c.clip = None)).digest);
}

#[test]
fn evaluations_do_not_depend_on_the_number_of_workers() {
    // One worker and two compute the same first parameters' perplexity, bit for bit.
    let still = |workers| {
        config("none").with(|c| {
            c.workers = workers;
            c.steps = 1;
            c.learning_rate = "1e-30".parse().unwrap();
        })
    };
    assert_eq!(train(&still(1)).evaluations, train(&still(2)).evaluations);
}

#[test]
fn resumed_runs_give_the_bits_of_one_never_stopped() {
    let (_folder, path) = checkpoint();
    for compressor in ["3lc", "topk:ratio=0.1,every=2"] {
        // An epoch is four steps, so that memory is carried over all stops but those at 4 and 8.
        let config = config(compressor);
        let whole = train(&config);
        for steps in [1, 2, 4, 5] {
            stop(&config, steps, &path);
            let resumed = resume(&config, &path).unwrap();
            assert_eq!(resumed.digest, whole.digest, "{compressor}, stopped after {steps}");
            assert_eq!(resumed.quality, whole.quality);
            // A bound on gradients is part of the configuration.
            let other = config.clone().with(|c| c.clip = None);
            let message = resume(&other, &path).unwrap_err().to_string();
            assert!(message.contains("clip = 5") && message.contains("off"), "{message}");
        }
    }
}

/// A transformer on the same text.
fn gpt(compressor: &str) -> RunConfig {
    config(compressor).with(|c| {
        c.model = "gpt:layers=1,heads=2,width=16,context=8".parse().unwrap();
        c.optimizer = "adamw".parse().unwrap();
        c.learning_rate = "0.01".parse().unwrap();
        (c.weight_decay, c.clip) = (0.1, Some(1.0));
    })
}

#[test]
fn a_transformer_learns_resumes_and_overlaps() {
    let learned = train(&gpt("none").with(|c| (c.steps, c.evaluate_every) = (300, 0)));
    // 43 of 48 symbols can be known: an entropy of 0.50, a perplexity of 1.65, give or take what
    // 199 symbols allow.
    assert!((1.4..2.0).contains(&learned.quality), "{}", learned.quality);

    let (_folder, path) = checkpoint();
    let config = gpt("3lc").with(|c| (c.exchange, c.clip) = ("all-gather".parse().unwrap(), None));
    let whole = train(&config);
    stop(&config, 4, &path);
    assert_eq!(resume(&config, &path).unwrap().digest, whole.digest);
    let overlapped = train(&config.clone().with(|c| c.overlap = true));
    assert_eq!(overlapped.digest, whole.digest);
    // Shards are parts of the text.
    assert_ne!(train(&config.with(|c| c.split = "shards".parse().unwrap())).digest, whole.digest);
}

#[test]
fn data_and_model_must_fit_each_other() {
    let base = || config("none");
    let images = || Arc::new(embedded_sized(1, 40, 10));
    for (config, parts) in [
        (base().with(|c| c.model = "lenet5".parse().unwrap()), ["chain", "text", "lenet5"]),
        (base().with(|c| c.data = images()), ["digits", "images", "charlstm:hidden=12"]),
        (base().with(|c| c.data = text(215, 20)), ["215 characters", "2 workers", "36"]),
        (base().with(|c| c.data = text(1000, 1)), ["test text", "two", "characters"]),
        (gpt("none").with(|c| c.data = text(17, 20)), ["17 characters", "context of 8", "9 each"]),
        (base().with(|c| c.augment = Some(true)), ["crops", "images", "text"]),
        (base().with(|c| c.clip = Some(0.0)), ["clip", "positive", "number"]),
        (base().with(|c| c.clip = Some(f32::NAN)), ["clip", "positive", "number"]),
    ] {
        refused(&config, &parts);
    }
    train(&base().with(|c| (c.data, c.steps) = (text(216, 20), 2)));
}

#[test]
fn an_epoch_is_as_many_steps_as_streams_have_chunks() {
    let steps = |data: &Dataset, model: &str, batch| {
        let config = TaskConfig { workers: 2, batch, augment: false, seed: 0 };
        model.parse::<ModelSpec>().unwrap().task(data).unwrap().steps_per_epoch(&config)
    };
    assert_eq!(steps(&text(1000, 20), "charlstm", 3), 4.0);
    // A window is as long as the context.
    assert_eq!(steps(&text(1000, 20), "gpt:context=25", 2), 10.0);
    assert_eq!(steps(&embedded_sized(1, 40, 10), "mlp", 8), 2.5);
}

#[test]
fn qualities_read_as_their_metric() {
    assert_eq!(Metric::Accuracy.show(0.9105), "91.05 %");
    assert_eq!(Metric::Perplexity.show(3.6354), "3.635");
    assert_eq!(Metric::Perplexity.show(89.157), "89.16");
    let text = r#"{"step": 3, "metric": "accuracy", "quality": 0.5, "loss": 1.0, "examples": 10}"#;
    let evaluation: Evaluation = serde_json::from_str(text).unwrap();
    assert_eq!(evaluation.metric, Metric::Accuracy);
    let text = serde_json::to_string(&Evaluation { metric: Metric::Perplexity, ..evaluation });
    assert!(text.unwrap().contains("\"metric\":\"perplexity\""));
}
