use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use gradwire::Tensor;
use gradwire_exchange::{GradientSink, Optimizer};
use gradwire_models::ModelSpec;
use gradwire_models::models::{Score, Statistics};
use gradwire_models::tasks::{Replica, TaskConfig};

use super::*;

fn settings(change: impl FnOnce(&mut TrainingSettings)) -> TrainingSettings {
    let mut settings = TrainingSettings { augment: Some(false), ..TrainingSettings::default() };
    settings.model = "mlp:16".parse().unwrap();
    change(&mut settings);
    settings
}

fn found(settings: &TrainingSettings, compressor: &str) -> BTreeMap<String, String> {
    marks(settings, &compressor.parse().unwrap())
}

/// The parts that differ between two runs.
fn changed(one: &TrainingSettings, other: &TrainingSettings, specs: [&str; 2]) -> String {
    let (one, other) = (found(one, specs[0]), found(other, specs[1]));
    assert_eq!((one.len(), other.len()), (6, 6), "{one:?} {other:?}");
    changed_parts(&one, &other).join(", ")
}

#[test]
fn each_setting_changes_the_marks_of_its_part() {
    let base = settings(|_| ());
    let topk = ["topk", "topk"];
    assert_eq!(changed(&base, &settings(|s| s.steps += 1), topk), "");
    assert_eq!(changed(&base, &settings(|s| s.workers = 64), topk), "");
    let model = settings(|s| s.model = "mlp:17".parse().unwrap());
    assert_eq!(changed(&base, &model, topk), "model");
    let adam = settings(|s| s.optimizer = "adam".parse().unwrap());
    assert_eq!(changed(&base, &adam, topk), "optimizer, trainer");
    assert_eq!(changed(&base, &settings(|s| s.clip = Some(0.01)), topk), "trainer");
    let ring = settings(|s| s.exchange = "scatter-reduce".parse().unwrap());
    assert_eq!(changed(&base, &ring, topk), "exchange, trainer");
    let every = "compressor, exchange, trainer, wire format";
    assert_eq!(changed(&base, &base, ["topk", "topk:ratio=0.02"]), every);
    // The second stage of a schedule and a rule count, too.
    let of_messages = "compressor, wire format";
    assert_eq!(changed(&base, &base, ["topk", "topk until 0.5 then topk:ratio=0.02"]), of_messages);
    let rule = settings(|s| s.rules = vec!["*.bias -> fp16".parse().unwrap()]);
    assert_eq!(changed(&base, &rule, topk), of_messages);
}

#[test]
fn what_does_not_repeat_its_bits_has_no_mark() {
    let asynchronous = settings(|s| s.exchange = "server:mode=async".parse().unwrap());
    let parts: Vec<_> = found(&asynchronous, "topk").into_keys().collect();
    assert_eq!(parts, ["compressor", "model", "optimizer", "wire format"]);
}

#[test]
fn every_model_and_every_compressor_has_a_mark_of_its_own() {
    let models = [
        "mlp:9",
        "lenet5",
        "lenet5:relu",
        "cifar-cnn",
        "resnet8",
        "unet:2",
        "ncf",
        "gpt:layers=1,heads=1,width=16,context=16",
        "charlstm:hidden=12,unroll=9",
        "wordlstm:hidden=13,unroll=9",
    ];
    let of_model = |name: &&str| model::mark(&settings(|s| s.model = name.parse().unwrap()));
    let marks: BTreeSet<_> = models.iter().filter_map(of_model).collect();
    assert_eq!(marks.len(), models.len());
    let entries = gradwire::registry::REGISTRY;
    // Some share a format, but decode to different values.
    let of_entry = |entry: &&gradwire::Entry| messages::of_spec(&entry.id.parse().unwrap());
    assert_eq!(entries.iter().filter_map(of_entry).count(), entries.len());
}

/// A replica that adds up the gradients of its batch in another order, or not.
struct Reordered<'a>(Box<dyn Replica + 'a>, bool);

impl Replica for Reordered<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.0.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.0.initial_parameters(seed)
    }

    fn load_batch(&mut self, step: u64) {
        self.0.load_batch(step);
    }

    fn parts(&self) -> usize {
        self.0.parts()
    }

    fn add_gradients(
        &mut self,
        step: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        if !self.1 {
            return self.0.add_gradients(step, parts, parameters, gradients, sink);
        }
        let count = parts.len();
        let loss: f64 = parts
            .rev()
            .map(|at| self.0.add_gradients(step, at..at + 1, parameters, gradients, None))
            .sum();
        gradients.iter_mut().flatten().for_each(|value| *value /= count as f32);
        loss / count as f64
    }

    fn statistics(&self) -> &[Statistics] {
        self.0.statistics()
    }

    fn test_examples(&self) -> usize {
        self.0.test_examples()
    }

    fn test_parts(&self, examples: usize) -> usize {
        self.0.test_parts(examples)
    }

    fn score(
        &self,
        parameters: &[Vec<f32>],
        statistics: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score {
        self.0.score(parameters, statistics, examples, part)
    }
}

#[test]
fn another_order_of_sums_changes_the_mark_of_a_model() {
    let model: ModelSpec = "lenet5".parse().unwrap();
    let config = TaskConfig { workers: 1, batch: 4, augment: false, seed: 0 };
    let data = data::data_for(&model, &config).unwrap();
    let mark = |reordered| {
        let replica = model.task(&data).unwrap().replica(&config, 0, None).unwrap();
        model::of(&mut Reordered(replica, reordered))
    };
    assert_eq!(mark(false), model::mark(&settings(|s| s.model = model.clone())).unwrap());
    assert_ne!(mark(false), mark(true));
}

/// SGD that multiplies before it subtracts, or rounds once.
struct Fused(bool);

impl Optimizer for Fused {
    fn update(&mut self, _: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
        for (parameter, gradient) in parameters.iter_mut().zip(gradient) {
            *parameter = match self.0 {
                true => (-rate).mul_add(*gradient, *parameter),
                false => *parameter - rate * gradient,
            };
        }
    }
}

#[test]
fn the_rounding_of_an_optimizer_changes_its_mark() {
    let mark = |fused| {
        let mut mark = mark::Mark::default();
        optimizer::update(&mut Fused(fused), &[Tensor::new("weight", &[1000])], &mut mark);
        mark.text()
    };
    assert_eq!(mark(false), mark(false));
    assert_ne!(mark(false), mark(true));
}

#[test]
fn every_instruction_set_gives_the_same_marks() {
    use gradwire_bits::kernels::testing::{InstructionSet, limited};

    for entry in gradwire::registry::REGISTRY {
        let spec = entry.id.parse().unwrap();
        let marks = |set| limited(set, || messages::of_spec(&spec));
        let expected = marks(InstructionSet::Plain);
        assert!(expected.is_some(), "{spec}");
        for set in [InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512] {
            assert_eq!(marks(set), expected, "{spec} {set:?}");
        }
    }
}
