//! Runs with variance-reduced gradients.

use super::*;
use gradwire_models::data::embedded_sized;

fn config(compressor: &str, svrg: u64) -> RunConfig {
    super::text::config("none").with(|c| {
        c.model = "mlp:16,tanh".parse().unwrap();
        c.data = Arc::new(embedded_sized(1, 64, 20));
        c.compressor = compressor.parse().unwrap();
        c.batch = 8;
        c.steps = 16;
        c.optimizer = "sgd".parse().unwrap();
        c.learning_rate = "0.05".parse().unwrap();
        c.clip = None;
        c.exchange = "all-gather".parse().unwrap();
        c.raw_vectors = false;
        c.raw_below = 0;
        c.svrg = svrg;
        c.evaluate_every = 0;
    })
}

#[test]
fn a_snapshot_at_every_step_descends_by_the_whole_gradient() {
    // Where x is x̃ the difference is nothing, and what is followed is the gradient over all 64
    // images: that of one worker with a batch of all of them. Whatever the compressor, as it has
    // nothing to compress.
    let mut whole = config("none", 0);
    whole.workers = 1;
    whole.batch = 64;
    let whole = train(&whole);
    let loss = |record: &RunRecord| record.evaluations.last().unwrap().loss;
    for compressor in ["terngrad", "lpc-svrg:w=2"] {
        let reduced = loss(&train(&config(compressor, 1)));
        assert!((reduced - loss(&whole)).abs() < 1e-5, "{compressor}: {reduced} {}", loss(&whole));
    }
}

#[test]
fn a_snapshot_costs_one_exact_exchange() {
    let plain = train(&config("onebit", 0));
    let reduced = train(&config("onebit", 4));
    let parameters = plain.parameters as f64;
    for (at, (plain, reduced)) in plain.trace.iter().zip(&reduced.trace).enumerate() {
        let more = reduced.bytes_up - plain.bytes_up;
        // Of two workers each sends half the model to the other, twice.
        let exact = 4.0 * parameters + 24.0;
        let expected = if at % 4 == 0 { exact } else { 0.0 };
        assert!((more - expected).abs() <= 2.0, "step {at}: {more}, not {expected}");
    }
}

#[test]
fn away_from_the_snapshot_differences_and_its_mean_make_up_the_gradient() {
    // With batches that are the whole set together, what is sent and the mean at the snapshot add
    // up to the plain gradient, wherever the parameters have gone since.
    let plain = config("none", 0).with(|c| c.batch = 32);
    let reduced = plain.clone().with(|c| c.svrg = 6);
    let [plain, reduced] = [train(&plain), train(&reduced)];
    for (plain, reduced) in plain.trace.iter().zip(&reduced.trace) {
        assert!((plain.loss - reduced.loss).abs() < 1e-5, "{} {}", plain.loss, reduced.loss);
    }
    assert!(plain.trace[15].loss < plain.trace[0].loss - 0.05, "the parameters have moved");
}

#[test]
fn a_resumed_run_is_the_same() {
    let whole = config("lpc-svrg:w=4", 4);
    let (_folder, path) = checkpoint();
    stop(&whole, 5, &path);
    assert_eq!(resume(&whole, &path).unwrap().digest, train(&whole).digest);
}

#[test]
fn settings_that_variance_reduction_does_not_work_with_are_refused() {
    let refused = |config: RunConfig, word: &str| refused(&config, &["svrg", word]);
    let base = || config("lpc-svrg", 4);
    refused(base().with(|c| c.augment = Some(true)), "augmentation");
    refused(base().with(|c| c.exchange = "server".parse().unwrap()), "servers");
    refused(base().with(|c| c.compressor = "topk:every=2".parse().unwrap()), "every=");
    let later = "lpc-svrg until 0.5 then lpc-svrg:every=4";
    refused(base().with(|c| c.compressor = later.parse().unwrap()), "every=");
    refused(base().with(|c| c.compressor = "variance".parse().unwrap()), "variance");
    let rule = ["matrices -> variance".parse().unwrap()];
    refused(base().with(|c| c.rules = rule.to_vec()), "variance");
    refused(base().with(|c| c.model = "resnet8".parse().unwrap()), "batch normalisation");
    refused(base().with(|c| c.send = Payload::Updates), "gradients");
    refused(base().with(|c| c.participation = 0.5), "every worker");
    let text = super::text::config("none").with(|c| {
        (c.exchange, c.clip) = ("all-gather".parse().unwrap(), None);
        c.svrg = 3;
    });
    refused(text, "training images");
}
