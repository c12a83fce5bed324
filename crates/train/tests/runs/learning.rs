//! That runs learn, alike from the same seed.

use gradwire::State;

use super::*;

#[test]
fn the_loss_falls_and_the_record_tells_all() {
    let config = config("3lc", "server").with(|c| (c.steps, c.evaluate_every) = (60, 25));
    let record = train(&config);
    let losses = losses(&record);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    assert!((losses[0] - f64::ln(10.0)).abs() < 0.8, "{}", losses[0]);
    assert!(mean(&losses[50..]) < 0.7 * mean(&losses[..5]), "{losses:?}");

    let steps: Vec<_> = record.trace.iter().map(|step| step.step).collect();
    assert_eq!(steps, (0..60).collect::<Vec<_>>());
    let evaluations: Vec<_> = record.evaluations.iter().map(|e| (e.step, e.examples)).collect();
    assert_eq!(evaluations, [(25, 100), (50, 100), (60, 150)]);
    assert_eq!(record.quality, record.evaluations[2].quality);
    assert!(record.quality > 0.25, "{}", record.quality);
    assert_eq!((record.parameters, record.tensors, record.largest_tensor), (266_610, 6, 235_200));
    // The weights have 256 elements or more; fc1's bias of 300 is a vector.
    assert_eq!(record.compressed_parameters, 235_200 + 30_000 + 1_000);
    assert!(record.bits_up() < 1.8 && record.bits_down() < 1.8, "{}", record.bits_up());
    assert_eq!(record.trace[0].learning_rate, 0.05);
    assert!(record.trace.iter().all(|step| step.compute > 0.0 && step.bytes_up > 0.0));
}

#[test]
fn the_same_configuration_gives_the_same_bits() {
    for (compressor, exchange) in [("terngrad", "all-gather"), ("topk", "server:servers=2")] {
        let config =
            config(compressor, exchange).with(|c| (c.workers, c.augment) = (3, Some(true)));
        let (once, again) = (train(&config), train(&config));
        assert_eq!(once.digest, again.digest);
        assert_eq!(losses(&once), losses(&again));
        assert_eq!(once.evaluations, again.evaluations);
        let other = train(&config.with(|c| c.seed = 6));
        assert_ne!(once.digest, other.digest);
    }
}

#[test]
fn workers_share_the_batch_of_one() {
    // Four quarters of a batch have the mean gradient of the whole.
    let one = config("none", "all-reduce").with(|c| (c.workers, c.batch) = (1, 32));
    let four = config("none", "all-reduce").with(|c| (c.workers, c.batch) = (4, 8));
    for (one, four) in losses(&train(&one)).iter().zip(losses(&train(&four))) {
        assert!((one - four).abs() < 1e-3, "{one} is not {four}");
    }
}

#[test]
fn many_learners_share_a_few_cores() {
    let config = config("adacomp", "all-gather")
        .with(|c| (c.model, c.workers, c.batch, c.steps) = ("mlp:8".parse().unwrap(), 128, 1, 3));
    let record = train(&config);
    assert_eq!((record.workers, record.trace.len()), (128, 3));
    assert_eq!(record.digest, train(&config).digest);
}

#[test]
fn residual_networks_train_with_the_first_workers_statistics() {
    let config = config("3lc:s=1.75", "server").with(|c| {
        c.model = "resnet8".parse().unwrap();
        c.steps = 3;
        c.batch = 4;
        c.augment = Some(true);
    });
    let (once, again) = (train(&config), train(&config));
    assert_eq!(once.digest, again.digest);
    assert_eq!(once.evaluations, again.evaluations);
}

#[test]
fn a_penalty_shrinks_weights() {
    let norm = |l1| {
        let config = config("none", "all-reduce").with(|c| (c.l1, c.weight_decay) = (l1, 0.0));
        let (_folder, path) = checkpoint();
        run(&config, &(), &saving(&path, 0, 1)).unwrap();
        let state = State::read(&path).unwrap();
        let weights = state.floats("parameters/fc1.weight").unwrap();
        weights.iter().map(|x| f64::from(x.abs())).sum::<f64>()
    };
    assert!(norm(0.01) < 0.95 * norm(0.0));
}

/// 1-bit Adam, after a warm-up of four steps.
fn one_bit_adam(compressor: &str, exchange: &str) -> gradwire_train::RunConfig {
    config(compressor, exchange).with(|c| {
        c.optimizer = "adam:freeze=4,exchange=momentum".parse().unwrap();
        c.learning_rate = "0.002".parse().unwrap();
    })
}

#[test]
fn momentum_that_nothing_compresses_is_as_good_as_gradients() {
    for exchange in ["all-reduce", "all-gather", "scatter-reduce"] {
        let momentum = one_bit_adam("none", exchange);
        let gradients = momentum.clone().with(|c| c.optimizer = "adam:freeze=4".parse().unwrap());
        let all = losses(&train(&gradients)).into_iter().zip(losses(&train(&momentum)));
        for (gradient, momentum) in all {
            assert!((gradient - momentum).abs() < 1e-3, "{exchange}: {gradient}, not {momentum}");
        }
    }
}

#[test]
fn one_bit_adam_resumes_with_the_same_bits() {
    let config = one_bit_adam("none until 4 then onebit", "scatter-reduce");
    let (_folder, path) = checkpoint();
    let whole = train(&config);
    stop(&config, 7, &path);
    assert_eq!(resume(&config, &path).unwrap().digest, whole.digest);
    let gradients = config.with(|c| c.optimizer = "adam:freeze=4".parse().unwrap());
    assert_ne!(train(&gradients).digest, whole.digest);
}

#[test]
fn momentum_is_refused_where_ranks_do_not_have_it() {
    for (exchange, need) in
        [("server", "an exchange without servers"), ("all-gather", "give --send gradients")]
    {
        let config = one_bit_adam("onebit", exchange);
        let send = if exchange == "server" { config.send } else { Payload::Updates };
        refused(&config.with(|c| c.send = send), &["exchange=momentum", need]);
    }
    let overlapped = one_bit_adam("onebit", "all-gather").with(|c| c.overlap = true);
    refused(&overlapped, &["exchange=momentum", "give --overlap off"]);
}

#[test]
fn images_too_small_to_be_moved_are_not_augmented() {
    // Frames of 39 features are images of one row.
    let frames = config("none", "all-reduce").with(|c| {
        c.data = Arc::new(gradwire_models::data::frames_sized(7, 20, 10));
        c.model = "mlp".parse().unwrap();
    });
    refused(&frames.clone().with(|c| c.augment = Some(true)), &["1 by", "--augment off"]);
}
