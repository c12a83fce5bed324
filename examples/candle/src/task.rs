//! What gradwire's trainer needs: an entry, its task, and the replica of a worker.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{D, Result, Var};
use gradwire::Tensor;
use gradwire::parameters::{Parameters, Value, whole};
use gradwire_exchange::GradientSink;
use gradwire_models::ModelEntry;
use gradwire_models::data::Dataset;
use gradwire_models::models::{ModelError, Score, Statistics};
use gradwire_models::tasks::{Metric, Replica, Sampler, Task, TaskConfig};

use crate::network::Network;
use crate::points::Points;

/// The entry that gradwire's table of models takes.
pub static MLP: ModelEntry = ModelEntry {
    id: "spirals/mlp",
    summary: "a perceptron of candle with two hidden layers",
    parameters: Sizes::PARAMETERS,
    defaults: &[("learning_rate", "cosine:from=0.2,to=0.002"), ("weight_decay", "0")],
    task,
};

gradwire::parameters! {
    /// The sizes of the network.
    struct Sizes {
        /// units of both hidden layers
        hidden: usize = whole(64, 1..=4096),
    }
}

fn task<'a>(
    values: &[Value],
    data: &'a Dataset,
) -> std::result::Result<Box<dyn Task<'a> + 'a>, String> {
    let points = data.other().ok_or("it learns points of a plane; give --data spirals/points")?;
    let Sizes { hidden } = Sizes::new(values);
    Ok(Box::new(Arms { network: Network { hidden }, points }))
}

/// Telling apart the arms of a spiral.
struct Arms<'a> {
    network: Network,
    points: &'a Points,
}

impl<'a> Task<'a> for Arms<'a> {
    fn metric(&self) -> Metric {
        Metric::Accuracy
    }

    fn examples(&self) -> usize {
        self.points.train.len()
    }

    fn check(&self, config: &TaskConfig) -> std::result::Result<(), String> {
        match config.augment {
            true => Err("points are not augmented; give --augment off".to_owned()),
            false => Ok(()),
        }
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> std::result::Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(Box::new(Mlp {
            network: self.network,
            tensors: self.network.tensors(),
            sampler: Sampler::new(config, rank, shard, self.examples()),
            data: self.points,
            points: Vec::new(),
            arms: Vec::new(),
        }))
    }
}

/// The network of a worker, and its batch.
struct Mlp<'a> {
    network: Network,
    tensors: Vec<Tensor>,
    sampler: Sampler,
    data: &'a Points,
    points: Vec<[f32; 2]>,
    arms: Vec<u32>,
}

impl Mlp<'_> {
    /// The mean loss of some points of the batch; adds its gradient.
    fn back(
        &self,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> Result<f32> {
        let variables = self.network.variables(parameters)?;
        let scores = self.network.scores(&variables, &self.points[parts.clone()])?;
        let loss = self.network.loss(&scores, &self.arms[parts])?;
        let found = loss.backward()?;
        for (sum, variable) in gradients.iter_mut().zip(&variables) {
            let Some(gradient) = found.get(variable) else { continue };
            let values = gradient.flatten_all()?.to_vec1::<f32>()?;
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        loss.to_scalar()
    }

    /// The sums of an evaluation of some test points.
    fn test(&self, parameters: &[Vec<f32>], examples: Range<usize>) -> Result<Score> {
        let (points, arms): (Vec<_>, Vec<_>) = self.data.test[examples].iter().copied().unzip();
        let variables: Vec<Var> = self.network.variables(parameters)?;
        let scores = self.network.scores(&variables, &points)?;
        let loss = self.network.loss(&scores, &arms)?.to_scalar::<f32>()?;
        let found = scores.argmax(D::Minus1)?.to_vec1::<u32>()?;
        Ok(Score {
            correct: found.iter().zip(&arms).filter(|(found, arm)| found == arm).count(),
            loss: f64::from(loss) * arms.len() as f64,
            examples: arms.len(),
            ..Score::default()
        })
    }
}

/// Shapes fit by construction, so candle has no reason for an error.
const FITS: &str = "the shapes fit";

impl Replica for Mlp<'_> {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.network.initial_parameters(seed)
    }

    fn load_batch(&mut self, step: u64) {
        let examples = self.sampler.visits(step).map(|visit| visit.example as usize);
        (self.points, self.arms) = examples.map(|at| self.data.train[at]).unzip();
    }

    fn parts(&self) -> usize {
        self.points.len()
    }

    fn add_gradients(
        &mut self,
        _: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        _: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        self.back(parts, parameters, gradients).expect(FITS).into()
    }

    fn test_examples(&self) -> usize {
        self.data.test.len()
    }

    fn test_parts(&self, _: usize) -> usize {
        1
    }

    fn score(&self, parameters: &[Vec<f32>], _: &[Statistics], examples: usize, _: usize) -> Score {
        self.test(parameters, 0..examples).expect(FITS)
    }
}
