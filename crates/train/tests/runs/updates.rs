//! Local steps: workers that send updates or weights.

use super::*;

/// A configuration in which workers take local steps and send updates.
fn updates(compressor: &str, exchange: &str) -> RunConfig {
    config(compressor, exchange).with(|c| c.send = Payload::Updates)
}

#[test]
fn the_mean_update_of_plain_descent_is_the_update_of_the_mean_gradient() {
    let plain = |send| {
        config("none", "all-gather")
            .with(|c| (c.send, c.optimizer, c.weight_decay) = (send, "sgd".parse().unwrap(), 0.0))
    };
    let (gradients, updates) = (train(&plain(Payload::Gradients)), train(&plain(Payload::Updates)));
    for (a, b) in losses(&gradients).into_iter().zip(losses(&updates)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    assert_eq!(gradients.rounds, 12);
}

#[test]
fn a_single_worker_trains_alike_whatever_the_length_of_rounds() {
    // After each exchange it continues from its own parameters, with its momentum.
    for optimizer in ["momentum", "adam"] {
        let alone = |compressor: &str| {
            let config = updates(compressor, "all-gather").with(|c| {
                c.workers = 1;
                c.optimizer = optimizer.parse().unwrap();
                c.learning_rate = "0.01".parse().unwrap();
            });
            train(&config)
        };
        let (often, rarely) = (alone("none"), alone("none:every=5"));
        for (a, b) in losses(&often).into_iter().zip(losses(&rarely)) {
            assert!((a - b).abs() < 1e-3, "{optimizer}: {a} {b}");
        }
        assert_eq!((often.rounds, rarely.rounds), (12, 3));
        assert!(
            often.bytes_up == 0.0 && rarely.bytes_up == 0.0,
            "there is no other worker to send to"
        );
    }
}

#[test]
fn masking_forgets_the_momentum_of_what_was_sent() {
    let masked = |mask, compressor: &str| {
        train(&updates(compressor, "all-gather").with(|c| c.mask = mask)).digest
    };
    assert_ne!(masked(true, "topk:ratio=0.1"), masked(false, "topk:ratio=0.1"));
    assert_eq!(masked(true, "none"), masked(false, "none"), "without sparsity nothing is masked");
}

#[test]
fn an_outer_step_of_plain_descent_adds_the_mean_update() {
    let outer = |outer: Option<&str>, rate| {
        let config = updates("3lc:every=3", "all-gather").with(|c| {
            (c.outer, c.outer_rate) = (outer.map(|name| name.parse().unwrap()), rate);
        });
        train(&config).digest
    };
    let added = outer(None, 1.0);
    assert_eq!(outer(Some("sgd"), 1.0), added);
    assert_ne!(outer(Some("sgd"), 0.5), added);
    assert_ne!(outer(Some("nesterov"), 1.0), added);
    refused(
        &config("none", "all-gather").with(|c| c.outer = Some("sgd".parse().unwrap())),
        &["outer", "--send updates"],
    );
    refused(
        &updates("none", "all-gather").with(|c| c.outer_rate = 0.0),
        &["outer_rate", "positive"],
    );
}

#[test]
fn clipping_to_the_median_changes_runs_with_unequal_updates_and_resumes() {
    let (_folder, path) = checkpoint();
    let of = |median_clip| {
        updates("topk:every=3", "all-gather").with(|c| {
            c.median_clip = median_clip;
            c.split = "classes:per=2".parse().unwrap();
        })
    };
    let whole = train(&of(true));
    assert_ne!(whole.digest, train(&of(false)).digest);
    stop(&of(true), 7, &path);
    assert_eq!(resume(&of(true), &path).unwrap().digest, whole.digest);
    refused(&of(true).with(|c| c.send = Payload::Gradients), &["median", "--send updates"]);
    refused(&of(true).with(|c| c.dropout = 0.5), &["median", "every worker"]);
    refused(&of(true).with(|c| c.exchange = "server".parse().unwrap()), &["median", "servers"]);
}

#[test]
fn outer_optimizers_are_the_same_on_workers_and_servers_and_resume_bit_for_bit() {
    let (_folder, path) = checkpoint();
    let of = |exchange| {
        updates("none:every=3", exchange).with(|c| {
            (c.outer, c.outer_rate) = (Some("nesterov".parse().unwrap()), 0.7);
        })
    };
    let gathered = of("all-gather");
    let whole = train(&gathered);
    assert_eq!(stop(&gathered, 7, &path), 9, "stops wait for the end of a round");
    assert_eq!(resume(&gathered, &path).unwrap().digest, whole.digest);
    for (server, gathered) in train(&of("server")).trace.iter().zip(&whole.trace) {
        assert!((server.loss - gathered.loss).abs() < 1e-4, "{} {}", server.loss, gathered.loss);
    }
}

#[test]
fn federated_runs_resume_bit_for_bit_on_every_exchange() {
    let (_folder, path) = checkpoint();
    for exchange in ["all-gather", "scatter-reduce", "server:servers=2"] {
        for compressor in ["topk:ratio=0.05,every=3", "topk:every=2 until 0.5 then topk:ratio=0.1"]
        {
            let whole = updates(compressor, exchange).with(|c| {
                c.workers = 4;
                c.split = "dirichlet:alpha=1".parse().unwrap();
                c.participation = 0.5;
                c.dropout = 0.2;
                c.optimizer = "adam".parse().unwrap();
                c.learning_rate = "0.001".parse().unwrap();
                c.raw_vectors = false;
                c.raw_below = 0;
            });
            let expected = train(&whole);
            stop(&whole, 6, &path);
            let resumed = resume(&whole, &path).unwrap();
            assert_eq!(resumed.digest, expected.digest, "{exchange}, {compressor}");
            assert_eq!(losses(&resumed), losses(&expected), "{exchange}, {compressor}");
        }
    }
}

#[test]
fn workers_with_more_examples_count_for_more() {
    let sizes = |sizes: &str| {
        updates("none", "all-gather")
            .with(|c| c.split = format!("shards:sizes={sizes}").parse().unwrap())
    };
    // The same parts of different sizes are different shards, and other weights.
    assert_ne!(train(&sizes("1+1")).digest, train(&sizes("1+5")).digest);
    refused(&sizes("1+2+3"), &["3 sizes for 2 workers"]);
}

#[test]
fn weights_are_averaged_as_updates_are() {
    // Without compression the mean of weights is the common ones and the mean change.
    let plain = |send| {
        config("none:every=3", "all-gather").with(|c| {
            c.send = send;
            c.weight_decay = 0.0;
            c.learning_rate = "0.05".parse().unwrap();
        })
    };
    let (updates, weights) = (train(&plain(Payload::Updates)), train(&plain(Payload::Weights)));
    for (updates, weights) in losses(&updates).iter().zip(losses(&weights)) {
        assert!((updates - weights).abs() < 1e-4, "{updates} is not {weights}");
    }
    for exchange in ["server", "scatter-reduce"] {
        let config = plain(Payload::Weights).with(|c| c.steps = 9);
        let config = config.with(|c| {
            c.exchange = exchange.parse().unwrap();
            c.compressor = "entropy-bits:every=3".parse().unwrap();
        });
        let record = train(&config);
        assert!(record.bits_up() < 4.0, "{}", record.bits_up());
        assert!(record.trace[8].loss < record.trace[0].loss, "{exchange}");
    }
    let sparse = plain(Payload::Weights).with(|c| c.compressor = "topk".parse().unwrap());
    refused(&sparse, &["topk", "weights are sent whole"]);
    let later = "none until 0.5 then topk".parse().unwrap();
    refused(&plain(Payload::Weights).with(|c| c.compressor = later), &["weights are sent whole"]);
    let rules = vec!["matrices -> topk".parse().unwrap()];
    refused(&plain(Payload::Weights).with(|c| c.rules = rules), &["weights are sent whole"]);
}

#[test]
fn estimates_and_momentum_before_compression_resume_bit_for_bit() {
    let (_folder, path) = checkpoint();
    for exchange in ["all-gather", "scatter-reduce", "server", "hierarchical:node=2"] {
        for compressor in ["topk:ratio=0.1,ef=ef21,momentum=0.5,every=2", "3lc:momentum=0.9"] {
            let whole =
                updates(compressor, exchange).with(|c| c.optimizer = "sgd".parse().unwrap());
            let expected = train(&whole);
            stop(&whole, 6, &path);
            assert_eq!(resume(&whole, &path).unwrap().digest, expected.digest, "{exchange}");
        }
    }
    let weights = config("3lc:momentum=0.9", "all-gather").with(|c| c.send = Payload::Weights);
    refused(&weights, &["has a memory for gradients", "leave out momentum"]);
    let unequal = config("topk:ef=ef21", "all-gather")
        .with(|c| c.split = "shards:sizes=3+1".parse().unwrap());
    refused(&unequal, &["topk:ef=ef21", "equal weights"]);
}

#[test]
fn statistics_are_estimated_anew_after_local_steps() {
    // So small a rate leaves the parameters where they begin.
    let means = |compressor: &str, send| {
        let config = config(compressor, "all-gather").with(|c| {
            (c.model, c.send, c.steps, c.batch) = ("resnet8".parse().unwrap(), send, 20, 4);
            c.learning_rate = "1e-12".parse().unwrap();
        });
        let (_folder, path) = checkpoint();
        run(&config, &(), &saving(&path, 0, 1)).unwrap();
        let state = gradwire::State::read(&path).unwrap();
        let all = state.floats_under("statistics0/").filter(|(name, _)| name.ends_with("mean"));
        all.flat_map(|(_, means)| means).map(|mean| f64::from(mean.abs())).sum::<f64>()
    };
    let estimated = means("none:every=20", Payload::Updates);
    let running = means("none", Payload::Gradients);
    // After twenty steps the mean of 0 before the first still has a weight of 0.9²⁰ in running
    // statistics.
    let ratio = running / estimated / (1.0 - 0.9f64.powi(20));
    assert!((ratio - 1.0).abs() < 0.04, "{ratio}");
}
