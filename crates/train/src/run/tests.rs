//! Whole runs on small generated data.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradwire::{State, Tensor};
use gradwire_exchange::{Exchange, ExchangeError, StepReport};

use super::*;
use crate::checkpoint::Checkpoint;
use crate::data::{Content, Dataset, ImageSet, Images, embedded_sized};

/// A few digits, the same for all tests.
fn digits() -> Arc<Dataset> {
    static DIGITS: Mutex<Option<Arc<Dataset>>> = Mutex::new(None);
    let mut digits = DIGITS.lock().unwrap();
    Arc::clone(digits.get_or_insert_with(|| Arc::new(embedded_sized(1, 600, 150))))
}

fn config(compressor: &str, exchange: &str) -> RunConfig {
    RunConfig {
        model: "mlp".parse().unwrap(),
        data: digits(),
        compressor: compressor.parse().unwrap(),
        send: Payload::Gradients,
        split: Split::Shared,
        participation: 1.0,
        dropout: 0.0,
        mask: true,
        strategy: exchange.parse().unwrap(),
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
        raw_below: 256,
        raw_names: Vec::new(),
        rules: Vec::new(),
        evaluate_every: 0,
        evaluate_at_most: 100,
        deadline: Duration::from_secs(60),
        check_every: 4,
        diagnose_every: 0,
    }
}

fn train(config: &RunConfig) -> RunRecord {
    run(config, &(), &RunOptions::default()).unwrap()
}

fn losses(record: &RunRecord) -> Vec<f64> {
    record.trace.iter().map(|step| step.loss).collect()
}

#[test]
fn the_loss_falls_and_the_record_tells_all() {
    let config = RunConfig { steps: 60, evaluate_every: 25, ..config("3lc", "server") };
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
    // fc1's and fc2's weights, fc1's bias and fc3's weights have 256 elements or more.
    assert_eq!(record.compressed_parameters, 235_200 + 30_000 + 300 + 1_000);
    assert!(record.bits_up() < 1.8 && record.bits_down() < 1.8, "{}", record.bits_up());
    assert_eq!(record.trace[0].learning_rate, 0.05);
    assert!(record.trace.iter().all(|step| step.compute > 0.0 && step.bytes_up > 0.0));
}

#[test]
fn the_same_configuration_gives_the_same_bits() {
    for (compressor, exchange) in [("terngrad", "all-gather"), ("topk", "server:servers=2")] {
        let config = RunConfig { workers: 3, augment: true, ..config(compressor, exchange) };
        let (once, again) = (train(&config), train(&config));
        assert_eq!(once.digest, again.digest);
        assert_eq!(losses(&once), losses(&again));
        assert_eq!(once.evaluations, again.evaluations);
        let other = train(&RunConfig { seed: 6, ..config });
        assert_ne!(once.digest, other.digest);
    }
}

#[test]
fn uncompressed_runs_agree_whatever_the_exchange() {
    let expected = losses(&train(&config("none", "all-reduce")));
    for exchange in ["all-gather", "scatter-reduce", "server", "server:servers=3"] {
        let found = losses(&train(&config("none", exchange)));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-3, "{exchange}: {found} is not {expected}");
        }
    }
}

#[test]
fn workers_share_the_batch_of_one() {
    // Four quarters of a batch have the mean gradient of the whole.
    let one = RunConfig { workers: 1, batch: 32, ..config("none", "all-reduce") };
    let four = RunConfig { workers: 4, batch: 8, ..config("none", "all-reduce") };
    for (one, four) in losses(&train(&one)).iter().zip(losses(&train(&four))) {
        assert!((one - four).abs() < 1e-3, "{one} is not {four}");
    }
}

#[test]
fn local_steps_send_the_sum() {
    let record = train(&RunConfig { steps: 5, ..config("none:every=2", "all-reduce") });
    let sent: Vec<bool> = record.trace.iter().map(|step| step.bytes_up > 0.0).collect();
    // The last step always exchanges.
    assert_eq!(sent, [false, true, false, true, true]);

    // The sum of two gradients at the same parameters is twice the mean gradient of their batches
    // together: plain descent takes the step of the wide batch at twice the rate.
    let plain = |every: &str, workers: usize, steps, rate: &str| RunConfig {
        steps,
        workers,
        optimizer: "sgd".parse().unwrap(),
        weight_decay: 0.0,
        learning_rate: rate.parse().unwrap(),
        ..config(every, "all-reduce")
    };
    let local = train(&plain("none:every=2", 1, 8, "0.05"));
    let wide = train(&plain("none", 2, 4, "0.1"));
    for (step, wide) in wide.trace.iter().enumerate() {
        let local = (local.trace[2 * step].loss + local.trace[2 * step + 1].loss) / 2.0;
        assert!((local - wide.loss).abs() < 1e-4, "{local} is not {}", wide.loss);
    }
}

#[test]
fn statistics_are_of_a_worker_who_took_part_also_after_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    let config = RunConfig {
        model: "resnet8".parse().unwrap(),
        workers: 3,
        steps: 6,
        batch: 2,
        participation: 0.4,
        evaluate_every: 1,
        ..config("topk", "all-gather")
    };
    let stop = AtStep(4, AtomicU64::new(0));
    let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
    let stopped = run(&config, &stop, &RunOptions { save, ..RunOptions::default() });
    assert!(matches!(stopped, Err(TrainError::Stopped { .. })));
    let options = RunOptions { resume: Some(path), ..RunOptions::default() };
    let resumed = run(&config, &(), &options).unwrap();
    assert_eq!(resumed.evaluations, train(&config).evaluations);
}

#[test]
fn residual_networks_train_with_the_first_workers_statistics() {
    let config = RunConfig {
        model: "resnet8".parse().unwrap(),
        steps: 3,
        batch: 4,
        augment: true,
        ..config("3lc:s=1.75", "server")
    };
    let (once, again) = (train(&config), train(&config));
    assert_eq!(once.digest, again.digest);
    assert_eq!(once.evaluations, again.evaluations);
}

/// Stops a run before the first worker's step of this number, however late records of steps come in.
pub(super) struct StopAfter {
    pub(super) steps: u64,
    pub(super) asked: AtomicU64,
}

impl Observer for StopAfter {
    fn stop(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst) >= self.steps
    }
}

#[test]
fn resumed_runs_give_the_bits_of_one_never_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (compressor, exchange, optimizer)) in [
        ("3lc", "server", "momentum"),
        ("topk:ratio=0.05", "all-gather", "adam"),
        ("terngrad", "scatter-reduce", "nesterov"),
        ("3lc:s=1.5", "server:servers=2", "adam"),
        ("randomk:every=2", "all-reduce", "momentum"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{at}.state"));
        let mut config = RunConfig {
            optimizer: optimizer.parse().unwrap(),
            evaluate_every: 4,
            ..config(compressor, exchange)
        };
        if at == 0 {
            config.model = "lenet5".parse().unwrap();
        }
        let whole = train(&config);

        let save = Save { path: path.clone(), every: 0, keep: 1 };
        let observer = StopAfter { steps: 5, asked: AtomicU64::new(0) };
        let options = RunOptions { save: Some(save), ..RunOptions::default() };
        let error = run(&config, &observer, &options).unwrap_err();
        let TrainError::Stopped { step, saved } = error else { panic!("{error}") };
        assert!((5..12).contains(&step), "{step}");
        assert_eq!(saved.as_ref(), Some(&path));

        let options = RunOptions { resume: Some(path), ..RunOptions::default() };
        let resumed = run(&config, &(), &options).unwrap();
        assert_eq!(resumed.digest, whole.digest, "{compressor} over {exchange}");
        // What was on record has been printed and read, which may cost the last bit.
        for (resumed, whole) in resumed.trace.iter().zip(&whole.trace) {
            assert!((resumed.loss - whole.loss).abs() < 1e-12);
            assert!((resumed.bytes_up - whole.bytes_up).abs() < 1e-6);
        }
        assert_eq!(resumed.trace.len(), whole.trace.len());
        assert_eq!(resumed.quality, whole.quality);
        assert_eq!(resumed.evaluations.len(), whole.evaluations.len());
    }
}

#[test]
fn checkpoints_are_written_at_intervals_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    let config = RunConfig {
        model: "resnet8".parse().unwrap(),
        batch: 2,
        steps: 5,
        ..config("3lc", "server")
    };
    let save = Some(Save { path: path.clone(), every: 2, keep: 1 });
    let whole = run(&config, &(), &RunOptions { save, ..RunOptions::default() }).unwrap();
    let state = State::read(&path).unwrap();
    assert_eq!(state.number("step").unwrap(), 5);
    assert_eq!(state.floats("parameters/conv.weight").unwrap().len(), 144);
    assert_eq!(state.floats("statistics0/norm.mean").unwrap().len(), 16);
    // Nothing is left to do, and the record is whole.
    let options = RunOptions { resume: Some(path), ..RunOptions::default() };
    let resumed = run(&config, &(), &options).unwrap();
    assert_eq!((resumed.digest, resumed.quality), (whole.digest, whole.quality));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_checkpoint_of_another_run_is_refused_by_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    let original = RunConfig { steps: 2, ..config("3lc", "server") };
    let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
    run(&original, &(), &RunOptions { save, ..RunOptions::default() }).unwrap();

    let options = RunOptions { resume: Some(path.clone()), ..RunOptions::default() };
    let refused = |changed: RunConfig| run(&changed, &(), &options).unwrap_err().to_string();
    let base = || original.clone();
    for (changed, parts) in [
        (RunConfig { model: "lenet5".parse().unwrap(), ..base() }, ["model = mlp", "lenet5"]),
        (
            RunConfig { compressor: "onebit".parse().unwrap(), ..base() },
            ["compressor = 3lc", "onebit"],
        ),
        (RunConfig { seed: 9, ..base() }, ["seed = 5", "9"]),
        (RunConfig { steps: 4, ..base() }, ["steps = 2", "4"]),
        (RunConfig { batch: 4, ..base() }, ["batch = 16", "4"]),
        (
            RunConfig { optimizer: "sgd".parse().unwrap(), ..base() },
            ["optimizer = momentum", "sgd"],
        ),
        (
            RunConfig { strategy: "all-gather".parse().unwrap(), ..base() },
            ["exchange = server", "all-gather"],
        ),
        (
            RunConfig { learning_rate: "0.1".parse().unwrap(), ..base() },
            ["learning rate = cosine", "0.1"],
        ),
        (
            RunConfig { data: Arc::new(embedded_sized(2, 20, 10)), ..base() },
            ["data checksum", "run.state"],
        ),
    ] {
        let message = refused(changed);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }

    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(run(&original, &(), &options), Err(TrainError::Resume { .. })));
    std::fs::remove_file(&path).unwrap();
    assert!(refused(base()).contains("run.state"));
}

/// An exchange that breaks at a step.
struct Breaks {
    inner: Box<dyn Exchange>,
    how: fn(u64) -> Option<ExchangeError>,
}

impl Exchange for Breaks {
    fn tensors(&self) -> &[Tensor] {
        self.inner.tensors()
    }

    fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        gradients: &[Vec<f32>],
        parameters: &mut [Vec<f32>],
    ) -> Result<StepReport, ExchangeError> {
        match (self.how)(step) {
            Some(error) => Err(error),
            None => self.inner.step(step, learning_rate, gradients, parameters),
        }
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>, ExchangeError> {
        self.inner.global_model()
    }

    fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        self.inner.collect(own)
    }

    fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError> {
        self.inner.announce(message)
    }

    fn save(&mut self, state: &mut State) -> Result<(), ExchangeError> {
        self.inner.save(state)
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        self.inner.restore(state)
    }

    fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<(), ExchangeError> {
        self.inner.check(step, parameters)
    }
}

/// The error of a run whose worker 1 breaks.
fn broken(exchange: &str, how: fn(u64) -> Option<ExchangeError>) -> TrainError {
    let config = RunConfig { workers: 3, evaluate_every: 2, ..config("3lc", exchange) };
    session::run(&config, &(), &RunOptions::default(), &|rank, inner| {
        if rank == 1 { Box::new(Breaks { inner, how }) } else { inner }
    })
    .unwrap_err()
}

#[test]
fn a_worker_that_dies_ends_the_run_with_its_own_error() {
    for exchange in ["server", "all-gather", "scatter-reduce"] {
        let error = broken(exchange, |step| {
            assert!(step < 3, "the memory of this worker is gone");
            None
        });
        let TrainError::Panicked { rank: 1, message } = &error else { panic!("{error}") };
        assert!(message.contains("memory of this worker"), "{message}");
        let error = broken(exchange, |step| {
            (step == 2).then(|| ExchangeError::Config("a cable is cut".to_owned()))
        });
        assert!(error.to_string().starts_with("worker 1: a cable is cut"), "{error}");
    }
}

#[test]
fn a_diverging_run_says_so() {
    let mut config = config("none", "server");
    config.learning_rate = "1e30".parse().unwrap();
    let message = run(&config, &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(message.contains("lower the learning rate"), "{message}");
}

#[test]
fn backup_workers_may_be_late() {
    let config =
        RunConfig { workers: 3, steps: 20, evaluate_every: 8, ..config("3lc", "server:backup=1") };
    let record = session::run(&config, &(), &RunOptions::default(), &|rank, inner| {
        let slow = |_| {
            std::thread::sleep(Duration::from_millis(20));
            None
        };
        if rank == 2 { Box::new(Breaks { inner, how: slow }) } else { inner }
    })
    .unwrap();
    assert_eq!(record.trace.len(), 20);
    let evaluated: Vec<_> = record.evaluations.iter().map(|evaluation| evaluation.step).collect();
    assert_eq!(evaluated, [8, 16, 20]);
}

#[test]
fn impossible_configurations_are_refused_before_anything_runs() {
    let base = || config("3lc", "server");
    let empty = || {
        let data = digits();
        let images = data.images().unwrap().clone();
        let none = Images { pixels: Vec::new(), labels: Vec::new(), ..images.train };
        let content = Content::Images(ImageSet { train: none, ..images });
        Arc::new(Dataset { content, ..(*data).clone() })
    };
    for (config, part) in [
        (RunConfig { workers: 0, ..base() }, "at least one worker"),
        (RunConfig { steps: 0, ..base() }, "at least one step"),
        (RunConfig { batch: 0, ..base() }, "one example"),
        (RunConfig { data: empty(), ..base() }, "one training"),
        (RunConfig { weight_decay: -1.0, ..base() }, "weight decay"),
        (RunConfig { evaluate_every: 1, evaluate_at_most: 0, ..base() }, "at least one image"),
        (config("3lc", "all-reduce"), "scatter-reduce"),
        (config("3lc", "server:servers=7"), "7 servers cannot share 6 tensors"),
    ] {
        let message = run(&config, &(), &RunOptions::default()).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

/// A configuration in which workers train on their own.
fn updates(compressor: &str, exchange: &str) -> RunConfig {
    RunConfig { send: Payload::Updates, ..config(compressor, exchange) }
}

#[test]
fn the_mean_update_of_plain_descent_is_the_update_of_the_mean_gradient() {
    let plain = |send| RunConfig {
        send,
        optimizer: "sgd".parse().unwrap(),
        weight_decay: 0.0,
        ..config("none", "all-gather")
    };
    let (gradients, updates) = (train(&plain(Payload::Gradients)), train(&plain(Payload::Updates)));
    for (a, b) in losses(&gradients).into_iter().zip(losses(&updates)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    assert_eq!(gradients.rounds, 12);
}

#[test]
fn one_worker_on_its_own_is_not_disturbed_by_rounds() {
    // Whenever it reports what it has done, it goes on from where it is, momentum and all.
    for optimizer in ["momentum", "adam"] {
        let alone = |compressor: &str| {
            let config = RunConfig {
                workers: 1,
                optimizer: optimizer.parse().unwrap(),
                learning_rate: "0.01".parse().unwrap(),
                ..updates(compressor, "all-gather")
            };
            train(&config)
        };
        let (often, rarely) = (alone("none"), alone("none:every=5"));
        for (a, b) in losses(&often).into_iter().zip(losses(&rarely)) {
            assert!((a - b).abs() < 1e-3, "{optimizer}: {a} {b}");
        }
        assert_eq!((often.rounds, rarely.rounds), (12, 3));
        assert!(often.bytes_up == 0.0 && rarely.bytes_up == 0.0, "there is nobody to send to");
    }
}

#[test]
fn masking_forgets_the_momentum_of_what_was_sent() {
    let masked = |mask, compressor: &str| {
        train(&RunConfig { mask, ..updates(compressor, "all-gather") }).digest
    };
    assert_ne!(masked(true, "topk:ratio=0.1"), masked(false, "topk:ratio=0.1"));
    assert_eq!(masked(true, "none"), masked(false, "none"), "all travels, nothing is singled out");
}

#[test]
fn federated_rounds_end_alike_on_every_exchange_and_resume() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    for exchange in ["all-gather", "scatter-reduce", "server:servers=2"] {
        for compressor in ["topk:ratio=0.05,every=3", "topk:every=2 until 0.5 then topk:ratio=0.1"]
        {
            let whole = RunConfig {
                workers: 4,
                split: "dirichlet:alpha=1".parse().unwrap(),
                participation: 0.5,
                dropout: 0.2,
                optimizer: "adam".parse().unwrap(),
                learning_rate: "0.001".parse().unwrap(),
                raw_below: 0,
                ..updates(compressor, exchange)
            };
            let expected = train(&whole);
            let stop = AtStep(6, AtomicU64::new(0));
            let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
            let stopped = run(&whole, &stop, &RunOptions { save, ..RunOptions::default() });
            assert!(matches!(stopped, Err(TrainError::Stopped { .. })), "{exchange}");
            let options = RunOptions { resume: Some(path.clone()), ..RunOptions::default() };
            let resumed = run(&whole, &(), &options).unwrap();
            assert_eq!(resumed.digest, expected.digest, "{exchange}, {compressor}");
            assert_eq!(losses(&resumed), losses(&expected), "{exchange}, {compressor}");
        }
    }
}

/// Stops a run at the round after so many steps.
struct AtStep(u64, AtomicU64);

impl Observer for AtStep {
    fn step(&self, record: &StepRecord, _: u64) {
        self.1.store(record.step + 1, Ordering::SeqCst);
    }

    fn stop(&self) -> bool {
        self.1.load(Ordering::SeqCst) >= self.0
    }
}

#[test]
fn equation_1_is_what_the_transport_counted_but_for_framing() {
    for (compressor, exchange) in [
        ("topk:ratio=0.01,every=4", "all-gather"),
        ("topk:ratio=0.05", "server"),
        ("none", "all-gather"),
        ("none:every=3", "server"),
        ("fp16", "all-reduce"),
        ("randomk:ratio=0.1", "all-reduce"),
        ("randomk:ratio=0.1", "all-gather"),
    ] {
        equation_1_holds(compressor, exchange, 0);
    }
    // Of the parameters 30 910 travel raw.
    for compressor in ["fp16", "topk:ratio=0.05"] {
        equation_1_holds(compressor, "server", 100_000);
    }
}

fn equation_1_holds(compressor: &str, exchange: &str, raw_below: usize) {
    let config = RunConfig { workers: 3, raw_below, ..config(compressor, exchange) };
    let record = train(&config);
    let equation = record.equation_1().unwrap();
    let ratio = record.bytes_up / equation.bytes();
    assert!((0.97..1.03).contains(&ratio), "{compressor}, {exchange}: {ratio}, {equation:?}");
}

#[test]
fn workers_with_more_examples_count_for_more() {
    let sizes = |sizes: &str| RunConfig {
        split: format!("shards:sizes={sizes}").parse().unwrap(),
        ..updates("none", "all-gather")
    };
    // The same parts of different sizes are different shards, and other weights.
    assert_ne!(train(&sizes("1+1")).digest, train(&sizes("1+5")).digest);
    let error = run(&sizes("1+2+3"), &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("3 sizes for 2 workers"), "{error}");
}

#[test]
fn a_budget_of_bytes_is_kept_and_used() {
    let rate = "step:from=0.05,factor=0.5,at=0.5";
    for (plan, exchange, part) in [
        ("topk within 60kB", "server", 1.0),
        ("topk within 20kB", "server:servers=2", 1.0),
        ("sbc within 20kB", "all-gather", 1.0),
        ("topk:ratio=0.001 within 100kB", "all-gather", 1.0),
        ("sbc within 40kB", "scatter-reduce", 1.0),
        ("sbc within 30kB", "server", 0.5),
    ] {
        let config = RunConfig {
            workers: 4,
            steps: 24,
            batch: 4,
            participation: part,
            learning_rate: rate.parse().unwrap(),
            ..config(plan, exchange)
        };
        let record = train(&config);
        let budget: f64 =
            plan.split_once("within ").unwrap().1.trim_end_matches("kB").parse().unwrap();
        let used = record.bytes_up / (budget * 1000.0);
        assert!((0.6..=1.0).contains(&used), "{plan}, {exchange}: {used}");
    }
}

#[test]
fn weights_are_averaged_as_updates_are() {
    // Without compression the mean of weights is the common ones and the mean change.
    let plain = |send| RunConfig {
        send,
        weight_decay: 0.0,
        learning_rate: "0.05".parse().unwrap(),
        ..config("none:every=3", "all-gather")
    };
    let (updates, weights) = (train(&plain(Payload::Updates)), train(&plain(Payload::Weights)));
    for (updates, weights) in losses(&updates).iter().zip(losses(&weights)) {
        assert!((updates - weights).abs() < 1e-4, "{updates} is not {weights}");
    }
    for exchange in ["server", "scatter-reduce"] {
        let config = RunConfig { steps: 9, ..plain(Payload::Weights) };
        let config = RunConfig {
            strategy: exchange.parse().unwrap(),
            compressor: "entropy-bits:every=3".parse().unwrap(),
            ..config
        };
        let record = train(&config);
        assert!(record.bits_up() < 4.0, "{}", record.bits_up());
        assert!(record.trace[8].loss < record.trace[0].loss, "{exchange}");
    }
    let sparse = RunConfig { compressor: "topk".parse().unwrap(), ..plain(Payload::Weights) };
    let error = run(&sparse, &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("weights travel whole"), "{error}");
}

#[test]
fn a_penalty_shrinks_weights() {
    let norm = |l1| {
        let config = RunConfig { l1, weight_decay: 0.0, ..config("none", "all-reduce") };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
        run(&config, &(), &RunOptions { save, ..RunOptions::default() }).unwrap();
        let state = State::read(&path).unwrap();
        let weights = state.floats("parameters/fc1.weight").unwrap();
        weights.iter().map(|x| f64::from(x.abs())).sum::<f64>()
    };
    assert!(norm(0.01) < 0.95 * norm(0.0));
}

/// Keeps what it is warned of.
#[derive(Default)]
struct Warned(Mutex<Vec<String>>);

impl Observer for Warned {
    fn warned(&self, warning: &str) {
        self.0.lock().unwrap().push(warning.to_owned());
    }
}

#[test]
fn diagnoses_look_at_every_layer_and_go_on_after_a_resumption() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    let config = RunConfig { diagnose_every: 3, steps: 10, ..config("topk", "server") };
    let whole = train(&config);
    let steps: Vec<u64> = whole.diagnoses.iter().map(|diagnosis| diagnosis.step).collect();
    assert_eq!(steps, [3, 6, 9, 10]);
    assert_eq!((whole.layers.len(), whole.layers[0].name.as_str()), (6, "fc1.weight"));
    // 2352 values of four bytes with their positions, three times.
    let layer = &whole.diagnoses[0].layers[0];
    assert!((3 * 2352 * 5 - 300..3 * 2352 * 6).contains(&layer.bytes), "{}", layer.bytes);
    assert!(layer.residual > 0.0 && layer.gradient > 0.0 && layer.histogram.is_some());
    // The last bias travels raw and keeps nothing.
    let raw = &whole.diagnoses[0].layers[5];
    assert_eq!((raw.residual, raw.bytes, &raw.histogram), (0.0, 3 * 40, &None));
    let stop = AtStep(5, AtomicU64::new(0));
    let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
    run(&config, &stop, &RunOptions { save, ..RunOptions::default() }).unwrap_err();
    let options = RunOptions { resume: Some(path), ..RunOptions::default() };
    assert_eq!(run(&config, &(), &options).unwrap().diagnoses, whole.diagnoses);
}

#[test]
fn momentum_on_momentum_is_warned_of() {
    let warnings = |compressor: &str, optimizer: &str| {
        let config = RunConfig {
            optimizer: optimizer.parse().unwrap(),
            steps: 2,
            ..config(compressor, "server")
        };
        let warned = Warned::default();
        run(&config, &warned, &RunOptions::default()).unwrap();
        warned.0.into_inner().unwrap()
    };
    assert!(warnings("dgc", "momentum")[0].contains("momentum in its memory"));
    for (compressor, optimizer) in
        [("dgc", "sgd"), ("dgc:momentum=0", "momentum"), ("topk", "momentum")]
    {
        assert!(warnings(compressor, optimizer).is_empty(), "{compressor}, {optimizer}");
    }
}

#[test]
fn many_learners_share_a_few_cores() {
    let config = RunConfig {
        model: "mlp:8".parse().unwrap(),
        workers: 128,
        batch: 1,
        steps: 3,
        ..config("adacomp", "all-gather")
    };
    let record = train(&config);
    assert_eq!((record.workers, record.trace.len()), (128, 3));
    assert_eq!(record.digest, train(&config).digest);
}

#[test]
fn tensors_travel_by_rules() {
    let rules = ["*.bias -> none", "matrices -> onebit"].map(|rule| rule.parse().unwrap()).to_vec();
    let config = RunConfig { steps: 4, rules, ..config("none", "all-gather") };
    let ruled = train(&config);
    let plain = train(&RunConfig { rules: Vec::new(), ..config.clone() });
    // All but the biases are matrices.
    assert!(ruled.bytes_up * 20.0 < plain.bytes_up, "{} and {}", ruled.bytes_up, plain.bytes_up);
    assert_eq!(ruled.rules, ["*.bias -> none", "matrices -> onebit"]);
    // The product counts the bits of one compressor.
    assert!(ruled.equation_1().is_none() && plain.equation_1().is_some());
    let budget = RunConfig { compressor: "topk within 1MB".parse().unwrap(), ..config };
    let error = run(&budget, &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("no rules beside it"), "{error}");
}

#[test]
fn workers_at_their_own_pace_learn_and_go_on_from_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    for (exchange, send, compressor) in [
        ("server:mode=async", "gradients", "topk:ratio=0.1"),
        ("server:stale=2", "gradients", "3lc"),
        // Basu et al. 2019, algorithm 2: each synchronises when it likes.
        ("server:mode=async", "updates", "qsparse-local:every=4"),
    ] {
        let config = RunConfig {
            send: send.parse().unwrap(),
            optimizer: "sgd".parse().unwrap(),
            steps: 40,
            ..config(compressor, exchange)
        };
        let save = Some(Save { path: path.clone(), every: 20, keep: 2 });
        let whole = run(&config, &(), &RunOptions { save, ..RunOptions::default() }).unwrap();
        let losses: Vec<f64> = whole.trace.iter().map(|step| step.loss).collect();
        let [first, last] = [&losses[..5], &losses[35..]].map(|part| part.iter().sum::<f64>());
        assert!(last < first, "{compressor} over {exchange}: {first} to {last}");
        let mut earlier = path.clone().into_os_string();
        earlier.push(".1");
        let options = RunOptions { resume: Some(earlier.into()), ..RunOptions::default() };
        let resumed = run(&config, &(), &options).unwrap();
        assert_eq!(resumed.trace.len(), 40);
        assert!(resumed.quality > 0.1, "{}", resumed.quality);
    }
}

#[test]
fn another_number_of_workers_loses_nothing_that_is_still_to_be_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    // Of each tensor, the mean over the workers of the sum of what is left.
    let left = |config: &RunConfig| -> BTreeMap<String, f64> {
        let checkpoint = Checkpoint::read(&path, config, |_, _| {}).unwrap();
        let mut means = BTreeMap::new();
        for rank in 0..config.workers {
            let residuals = checkpoint.worker(rank).extract("push/residual/");
            for (name, values) in residuals.floats_under("") {
                let tensor = name.split('[').next().unwrap_or(name).to_owned();
                let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
                *means.entry(tensor).or_insert(0.0) += sum / config.workers as f64;
            }
        }
        means
    };
    for exchange in ["all-gather", "server", "scatter-reduce"] {
        let config = RunConfig { workers: 4, steps: 20, ..config("topk:ratio=0.01", exchange) };
        let stop = StopAfter { steps: 8, asked: AtomicU64::new(0) };
        let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
        run(&config, &stop, &RunOptions { save, ..RunOptions::default() }).unwrap_err();
        let before = left(&config);
        assert!(before.values().any(|sum| sum.abs() > 1e-3), "{before:?}");
        for workers in [1, 2, 3, 6] {
            let other = RunConfig { workers, ..config.clone() };
            let after = left(&other);
            // What an owner in a scatter-reduce has left of means comes on top.
            if exchange != "scatter-reduce" {
                assert!(before.keys().eq(after.keys()));
                for (tensor, before) in &before {
                    let near = (before - after[tensor]).abs() <= 1e-5 * (1.0 + before.abs());
                    assert!(near, "{exchange} to {workers}, {tensor}: {before}, {}", after[tensor]);
                }
            }
            let options = RunOptions { resume: Some(path.clone()), ..RunOptions::default() };
            let resumed = run(&other, &(), &options).unwrap();
            assert_eq!((resumed.trace.len(), resumed.workers), (20, workers));
        }
    }
}
