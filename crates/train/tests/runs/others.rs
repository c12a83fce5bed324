//! Models and data of other crates train as gradwire's own do.

use std::ops::Range;

use gradwire::parameters::{Parameters, Value, whole};
use gradwire::{Tensor, registry::RegistryError};
use gradwire_exchange::GradientSink;
use gradwire_models::data::{self, Known};
use gradwire_models::models::{ModelError, Score, Statistics};
use gradwire_models::tasks::{Replica, Sampler, Task, TaskConfig};
use gradwire_models::{ModelEntry, ModelSpec, TaskKind};

use super::processes::connected;
use super::*;

/// Pairs of a number and its image under a line.
struct Points(Vec<[f32; 2]>);

fn points() -> Dataset {
    let points: Vec<_> = (0..4).map(|x| [x as f32, 3.0 - 0.5 * x as f32]).collect();
    let bytes: Vec<u8> = points.as_flattened().iter().flat_map(|x| x.to_le_bytes()).collect();
    Dataset::of_crate("runs-test/points", &bytes, Points(points))
}

gradwire::parameters! {
    /// A line, or one with tensors that differ between workers.
    struct Line {
        /// elements that are added on each further worker
        uneven: usize = whole(0, 0..=3),
        /// training points; the others test
        points: usize = whole(2, 0..=4),
    }
}

static LINE: ModelEntry = ModelEntry {
    id: "runs-test/line",
    summary: "a line through points",
    parameters: Line::PARAMETERS,
    defaults: &[("batch", "1")],
    task: line,
};

fn line<'a>(values: &[Value], data: &'a Dataset) -> Result<Box<dyn Task<'a> + 'a>, String> {
    let points: Option<&Points> = data.other();
    let points = points.ok_or("it learns from points; give --data runs-test/points")?;
    Ok(Box::new(Fit(Line::new(values), points)))
}

struct Fit<'a>(Line, &'a Points);

impl<'a> Task<'a> for Fit<'a> {
    fn metric(&self) -> Metric {
        Metric::Perplexity
    }

    fn examples(&self) -> usize {
        self.0.points
    }

    fn check(&self, _: &TaskConfig) -> Result<(), String> {
        Ok(())
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        let size = 2 + rank * self.0.uneven;
        let (train, test) = self.1.0.split_at(self.0.points);
        Ok(Box::new(LineReplica {
            tensors: vec![Tensor::new("line", &[size])],
            sampler: Sampler::new(config, rank, shard, train.len()),
            batch: Vec::new(),
            train,
            test,
        }))
    }
}

struct LineReplica<'a> {
    tensors: Vec<Tensor>,
    sampler: Sampler,
    batch: Vec<[f32; 2]>,
    train: &'a [[f32; 2]],
    test: &'a [[f32; 2]],
}

impl Replica for LineReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn initial_parameters(&self, _: u64) -> Vec<Vec<f32>> {
        vec![vec![0.0; self.tensors[0].elements()]]
    }

    fn load_batch(&mut self, step: u64) {
        let train = self.train;
        self.batch = self.sampler.visits(step).map(|visit| train[visit.example as usize]).collect();
    }

    fn parts(&self) -> usize {
        self.batch.len()
    }

    fn add_gradients(
        &mut self,
        _: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        _: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let (weight, mut loss) = (1.0 / parts.len() as f32, 0.0);
        for [x, y] in &self.batch[parts] {
            let error = parameters[0][0] * x + parameters[0][1] - y;
            gradients[0][0] += weight * 2.0 * error * x;
            gradients[0][1] += weight * 2.0 * error;
            loss += f64::from(weight * error * error);
        }
        loss
    }

    fn test_examples(&self) -> usize {
        self.test.len()
    }

    fn test_parts(&self, _: usize) -> usize {
        1
    }

    fn score(&self, parameters: &[Vec<f32>], _: &[Statistics], examples: usize, _: usize) -> Score {
        let error = |[x, y]: &[f32; 2]| f64::from(parameters[0][0] * x + parameters[0][1] - y);
        let loss = self.test[..examples].iter().map(|point| error(point).powi(2)).sum();
        Score { loss, examples, ..Score::default() }
    }
}

/// A run of the line on its points.
fn config_of(parameters: &str) -> RunConfig {
    config("none", "all-gather").with(|c| {
        c.model = ModelSpec::of(&LINE, parameters).unwrap();
        c.data = Arc::new(points());
        (c.batch, c.steps, c.weight_decay) = (1, 10, 0.0);
        c.optimizer = "sgd".parse().unwrap();
        c.learning_rate = "0.1".parse().unwrap();
    })
}

#[test]
fn a_model_of_another_crate_learns_and_resumes() {
    let config = config_of("");
    let record = train(&config);
    // Each of two workers has one of the two training points, so each step takes both.
    let (mut slope, mut shift) = (0.0f64, 0.0f64);
    for step in &record.trace {
        let errors = [(0.0, 3.0), (1.0, 2.5)].map(|(x, y)| (x, slope * x + shift - y));
        let mean = |value: fn((f64, f64)) -> f64| errors.map(value).iter().sum::<f64>() / 2.0;
        let loss = mean(|(_, error)| error * error);
        assert!((step.loss - loss).abs() < 1e-5 * loss.max(1e-3), "{}: {loss}", step.loss);
        let gradients = [mean(|(x, error)| 2.0 * error * x), mean(|(_, error)| 2.0 * error)];
        slope -= 0.1 * gradients[0];
        shift -= 0.1 * gradients[1];
    }
    let [at_2, at_3] = [(2.0, 2.0), (3.0, 1.5)].map(|(x, y)| (slope * x + shift - y).powi(2));
    let quality = ((at_2 + at_3) / 2.0).exp();
    assert!((record.quality / quality - 1.0).abs() < 1e-4, "{}: {quality}", record.quality);
    assert_eq!((record.model.to_string(), &*record.data), (LINE.id.to_owned(), "runs-test/points"));

    let (_folder, path) = checkpoint();
    assert!(stop(&config, 5, &path) < 10);
    let resumed = resume(&config, &path).unwrap();
    assert_eq!(resumed.digest, record.digest);
    assert_eq!(marked(resumed, &config).numerics.get("model"), None);
}

#[test]
fn what_a_model_of_another_crate_cannot_do_is_refused() {
    let on_digits = config_of("").with(|c| c.data = digits());
    refused(&on_digits, &["runs-test/line on data set", "learns from points; give --data"]);
    let own = config_of("").with(|c| c.model = "mlp".parse().unwrap());
    refused(&own, &["data of another crate", "mlp learns images", "choose a model of the crate"]);
    refused(&config_of("points=0"), &["has no training examples"]);
    refused(&config_of("points=4"), &["has no test examples"]);
    refused(&config_of("").with(|c| c.svrg = 3), &["a fixed set of training images"]);
    refused(&config_of("").with(|c| c.overlap = true), &["computes all gradients at once"]);
}

#[test]
fn replicas_of_different_shapes_are_refused_with_both_of_them() {
    let uneven = config_of("uneven=2");
    let says = ["worker 1", "'line' of shape [4]", "worker 0", "of shape [2]", "same tensors"];
    refused(&uneven, &says);
    // Between processes, on all of them.
    let all = connected(2, |transport| run_rank(&uneven, &(), &RunOptions::default(), transport));
    for error in all.into_iter().map(|result| result.unwrap_err().to_string()) {
        for part in ["rank 1", "tensor 'line' [4]", "rank 0", "tensor 'line' [2]", "same tensors"] {
            assert!(error.contains(part), "'{part}' is not in: {error}");
        }
    }
}

#[test]
fn names_of_models_and_data_are_registered_once() {
    static NET: ModelEntry = ModelEntry { id: "registry-test/net", ..LINE };
    static TWIN: ModelEntry = ModelEntry { summary: "another net", ..NET };
    static SHORT: ModelEntry = ModelEntry { id: "mlp", ..LINE };
    let text = "registry-test/net:points=3";
    let before: ModelSpec = text.parse().unwrap();
    // A record of such a run can be shown, but not repeated.
    assert_eq!((before.to_string(), before.learns()), (text.to_owned(), TaskKind::Other));
    let error = before.check().unwrap_err().to_string();
    assert!(error.contains("a model of the crate 'registry-test', which this"), "{error}");
    assert!(TrainingSettings { model: before, ..TrainingSettings::default() }.check().is_err());

    gradwire_models::register(&[&NET]).unwrap();
    gradwire_models::register(&[&NET]).unwrap();
    let model: ModelSpec = "registry-test/net:points=2,uneven=1".parse().unwrap();
    assert!(model.check().is_ok());
    // Defaults are left out.
    assert_eq!(model.to_string(), "registry-test/net:uneven=1");
    let error = |text: &str| text.parse::<ModelSpec>().unwrap().check().unwrap_err().to_string();
    let misspelt = error("registry-test/nett");
    assert!(misspelt.contains("(did you mean 'registry-test/net'?)"), "{misspelt}");
    assert!(misspelt.contains("of other crates registry-test/net:uneven=0,points=2"), "{misspelt}");
    assert!(error("registry-test/net:pionts=1").contains("(did you mean 'points'?)"));
    assert!(error("registry-test/net:points=9").contains("a whole number from 0 to 4"));

    let twice = gradwire_models::register(&[&TWIN]).unwrap_err().to_string();
    for part in ["'registry-test/net'", "model", "'a line through points'", "'another net'"] {
        assert!(twice.contains(part), "{twice}");
    }
    assert!(matches!(gradwire_models::register(&[&SHORT]), Err(RegistryError::Name { .. })));

    static POINTS: Known =
        Known::generated("registry-test/points", "points on a line", || Ok(points()));
    static DIGITS: Known = Known::generated("digits", "other digits", || Ok(points()));
    static FAILS: Known =
        Known::generated("registry-test/fails", "", || Err("no disk; attach one".into()));
    data::register(&[&POINTS, &FAILS]).unwrap();
    assert_eq!(data::find("registry-test/points", None).unwrap().checksum, points().checksum);
    let shadows = data::register(&[&DIGITS]).unwrap_err().to_string();
    assert!(shadows.contains("its own data set 'digits'"), "{shadows}");
    let fails = data::find("registry-test/fails", None).unwrap_err().to_string();
    assert!(fails.contains("'registry-test/fails': no disk; attach one"), "{fails}");
    let misspelt = data::find("registry-test/pionts", None).unwrap_err().to_string();
    assert!(misspelt.contains("(did you mean 'registry-test/points'"), "{misspelt}");
}
