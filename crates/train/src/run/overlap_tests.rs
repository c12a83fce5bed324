//! Gradients that leave early: the bits of a run in which they do not, and what happens when something fails.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use gradwire::{State, Tensor};
use gradwire_exchange::{DistributedOptimizer, ExchangeError, GradientSink, StepReport, Traffic};

use super::tests::StopAfter;
use super::*;
use gradwire_models::data::embedded_sized;

/// A small run of this model, with overlap or without.
fn config(model: &str, compressor: &str, exchange: &str, overlap: bool) -> RunConfig {
    tests::config(compressor, exchange).with(|c| {
        c.model = model.parse().unwrap();
        c.data = Arc::new(embedded_sized(3, 60, 30));
        c.batch = 4;
        c.steps = 6;
        c.overlap = overlap;
        c.evaluate_every = 3;
        c.evaluate_at_most = 30;
    })
}

fn train(config: &RunConfig) -> RunRecord {
    run(config, &(), &RunOptions::default()).unwrap()
}

#[test]
fn digests_are_those_of_runs_without() {
    for model in ["lenet5", "resnet8"] {
        for (compressor, exchange) in [
            ("none", "all-gather"),
            ("3lc", "all-gather"),
            ("topk:ratio=0.05", "all-gather"),
            ("none", "all-reduce"),
            ("fp16:ef=on", "all-reduce"),
            ("powersgd", "all-reduce"),
        ] {
            let plain = train(&config(model, compressor, exchange, false));
            let early = train(&config(model, compressor, exchange, true));
            assert_eq!(early.digest, plain.digest, "{model}, {compressor}, {exchange}");
            assert_eq!(early.evaluations, plain.evaluations);
            assert_eq!(early.sent, plain.sent);
            // Of headers every group has its own.
            assert!(early.bytes_up > plain.bytes_up && early.bytes_up < plain.bytes_up + 2000.0);
            assert!(plain.hidden().is_none() && early.hidden().is_some());
            assert!(early.trace.iter().all(|step| step.background > 0.0));
        }
    }
}

#[test]
fn weights_of_shards_and_plans_are_kept() {
    let plain =
        config("lenet5", "topk:ratio=0.1 until 0.5 then topk:ratio=0.01", "all-gather", false)
            .with(|c| c.split = "shards:sizes=3+1".parse().unwrap());
    let early = plain.clone().with(|c| c.overlap = true);
    assert_eq!(train(&early).digest, train(&plain).digest);
}

#[test]
fn slices_of_each_tensor_are_a_run_of_their_own() {
    let early = config("lenet5", "3lc", "scatter-reduce", true);
    let first = train(&early);
    assert_eq!(first.digest, train(&early).digest);
    let losses = |run: &RunRecord| run.trace.iter().map(|step| step.loss).sum::<f64>();
    let plain = train(&early.with(|c| c.overlap = false));
    assert!((losses(&first) / losses(&plain) - 1.0).abs() < 0.05);
}

#[test]
fn processes_have_the_bits_of_threads() {
    for exchange in ["all-gather", "scatter-reduce"] {
        let config = config("lenet5", "3lc", exchange, true);
        let here = train(&config);
        let apart = remote_tests::together(&config);
        assert!(apart.hidden().is_some());
        assert_eq!((apart.digest, apart.bytes_up), (here.digest, here.bytes_up), "{exchange}");
    }
}

#[test]
fn a_stopped_run_goes_on_bit_for_bit_with_overlap_or_without() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (compressor, exchange)) in
        [("3lc", "all-gather"), ("powersgd", "all-reduce"), ("topk:ratio=0.1", "scatter-reduce")]
            .into_iter()
            .enumerate()
    {
        let path = folder.path().join(format!("{at}.state"));
        let config = config("lenet5", compressor, exchange, true);
        let whole = train(&config);
        let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
        let options = RunOptions { save, ..RunOptions::default() };
        let observer = StopAfter { steps: 3, asked: AtomicU64::new(0) };
        let error = run(&config, &observer, &options).unwrap_err();
        assert!(matches!(error, TrainError::Stopped { .. }), "{error}");

        let options = RunOptions { resume: Some(path), ..RunOptions::default() };
        assert_eq!(run(&config, &(), &options).unwrap().digest, whole.digest, "{exchange}");
        let plain = run(&config.clone().with(|c| c.overlap = false), &(), &options);
        if exchange == "scatter-reduce" {
            let message = plain.unwrap_err().to_string();
            assert!(message.contains("of each tensor with 2 workers"), "{message}");
        } else {
            assert_eq!(plain.unwrap().digest, whole.digest, "{exchange}");
        }
        // Another number of workers takes over what these have left.
        let three = config.with(|c| c.workers = 3);
        assert_eq!(run(&three, &(), &options).unwrap().trace.len(), 6, "{exchange}");
    }
}

/// What a worker's exchange is asked for, in order.
#[derive(Debug, Clone, PartialEq)]
enum Asked {
    GradientSink(u64),
    HandedOver(usize),
    Step(u64),
}

/// An exchange that is listened to, and may be broken or bring strange parameters about.
struct Followed {
    inner: Box<dyn DistributedOptimizer>,
    log: Arc<Mutex<Vec<Asked>>>,
    change: fn(u64, &mut [Vec<f32>]),
}

#[derive(Debug)]
struct FollowedEarly {
    inner: Arc<dyn GradientSink>,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl GradientSink for FollowedEarly {
    fn ready(&self, index: usize, gradient: &[f32]) {
        self.log.lock().unwrap().push(Asked::HandedOver(index));
        self.inner.ready(index, gradient);
    }
}

impl DistributedOptimizer for Followed {
    fn tensors(&self) -> &[Tensor] {
        self.inner.tensors()
    }

    fn early(&mut self, step: u64) -> Option<Arc<dyn GradientSink>> {
        self.log.lock().unwrap().push(Asked::GradientSink(step));
        let inner = self.inner.early(step)?;
        Some(Arc::new(FollowedEarly { inner, log: Arc::clone(&self.log) }))
    }

    fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        gradients: &[Vec<f32>],
        parameters: &mut [Vec<f32>],
    ) -> Result<StepReport, ExchangeError> {
        self.log.lock().unwrap().push(Asked::Step(step));
        let report = self.inner.step(step, learning_rate, gradients, parameters);
        (self.change)(step, parameters);
        report
    }

    fn shift(&mut self, step: u64, values: &[Vec<f32>]) -> Result<Traffic, ExchangeError> {
        self.inner.shift(step, values)
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>, ExchangeError> {
        self.inner.global_model()
    }

    fn save(&mut self, state: &mut State) -> Result<(), ExchangeError> {
        self.inner.save(state)
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        self.inner.restore(state)
    }

    fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        self.inner.collect(own)
    }

    fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError> {
        self.inner.announce(message)
    }

    fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<(), ExchangeError> {
        self.inner.check(step, parameters)
    }
}

/// What came of a run whose exchanges are followed, and what the first worker's was asked for.
fn followed(
    config: &RunConfig,
    change: fn(u64, &mut [Vec<f32>]),
) -> (Result<RunRecord, TrainError>, Vec<Asked>) {
    let logs = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    let result = session::run(config, &(), &RunOptions::default(), &|rank, inner| {
        Box::new(Followed { inner, log: Arc::clone(&logs[rank]), change })
    });
    let log = logs[0].lock().unwrap().clone();
    (result, log)
}

#[test]
fn gradients_are_handed_over_between_the_beginning_of_a_step_and_its_end() {
    let config = config("lenet5", "3lc", "all-gather", true).with(|c| c.steps = 2);
    let (result, log) = followed(&config, |_, _| {});
    result.unwrap();
    let step = |step| {
        let handed = [6, 7, 4, 5, 2, 3].map(Asked::HandedOver);
        [&[Asked::GradientSink(step)], &handed[..], &[Asked::Step(step)]].concat()
    };
    assert_eq!(log, [step(0), step(1)].concat());
}

/// Parameters with which the loss is finite and the gradient of the second layer is not.
fn steep(step: u64, parameters: &mut [Vec<f32>]) {
    if step == 1 {
        parameters.iter_mut().for_each(|values| values.fill(0.0));
        parameters[1].fill(100.0);
        parameters[3].fill(1e-30);
        for (at, weight) in parameters[4].iter_mut().enumerate() {
            *weight = if at % 2 == 0 { 3e38 } else { -3e38 };
        }
    }
}

#[test]
fn a_gradient_that_is_no_number_is_named_though_it_has_left() {
    for overlap in [false, true] {
        let config = config("mlp:100-200", "none", "all-gather", overlap)
            .with(|c| (c.weight_decay, c.check_every) = (0.0, 0));
        let (result, log) = followed(&config, steep);
        let error = result.unwrap_err();
        let TrainError::Gradient { tensor, step: 2, .. } = &error else { panic!("{error}") };
        assert_eq!(tensor, "fc2.weight");
        assert_eq!(log.contains(&Asked::HandedOver(2)), overlap);
    }
}

#[test]
fn a_run_that_diverges_ends() {
    let config = config("lenet5", "none", "all-gather", true)
        .with(|c| c.learning_rate = "1e30".parse().unwrap());
    let message = run(&config, &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(message.contains("lower the learning rate"), "{message}");
}

#[test]
fn a_worker_that_dies_ends_the_others() {
    let config = config("lenet5", "3lc", "all-gather", true);
    let (result, _) = followed(&config, |step, _| assert!(step < 2, "the memory is gone"));
    let error = result.unwrap_err();
    let TrainError::Panicked { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("the memory is gone"), "{message}");
}

#[test]
fn what_does_not_go_with_overlap_is_refused_with_the_remedy() {
    let base = || config("lenet5", "3lc", "all-gather", true);
    let text = super::text_tests::config("3lc");
    for (config, part) in [
        (text.with(|c| (c.overlap, c.exchange) = (true, "all-gather".parse().unwrap())), "images"),
        (base().with(|c| c.exchange = "server".parse().unwrap()), "take all-reduce"),
        (base().with(|c| c.exchange = "hierarchical".parse().unwrap()), "take all-reduce"),
        (base().with(|c| c.send = Payload::Updates), "send gradients"),
        (base().with(|c| c.participation = 0.5), "participation at 1"),
        (base().with(|c| c.dropout = 0.1), "dropout at 0"),
        (config("lenet5", "topk within 1MB", "all-gather", true), "give a compressor"),
        (base().with(|c| c.clip = Some(1.0)), "leave clip off"),
        (base().with(|c| c.l1 = 0.1), "leave l1 at 0"),
        (base().with(|c| c.svrg = 5), "leave svrg at 0"),
        (config("lenet5", "3lc:every=2", "all-gather", true), "every=1"),
        (config("lenet5", "none until 0.5 then none:every=2", "all-gather", true), "every=1"),
        (config("lenet5", "variance", "all-gather", true), "another compressor"),
    ] {
        let message = run(&config, &(), &RunOptions::default()).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("leave overlap off"), "{message}");
    }
}
