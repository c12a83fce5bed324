//! Models of images: initial parameters, gradients, evaluation.

use std::sync::Arc;

use crate::burn::tensor::{Device, Tensor, TensorData};
use gradwire::{State, StateError};
use gradwire_exchange::GradientSink;

use super::layers::{Layout, Norm, Pass, Statistics, floats};
use super::loss::Loss;
use super::network::Network;
use super::tap::Watch;
use super::{ImageShape, ModelError, ModelKind, Score};

/// One replica of a model, with its own batch-norm statistics.
#[derive(Debug)]
pub struct Model {
    shape: ImageShape,
    layout: Layout,
    network: Box<dyn Network>,
    loss: Loss,
    statistics: Vec<Statistics>,
    device: Device,
}

impl Model {
    /// A model for images and classes of the given shape.
    pub fn new(kind: ModelKind, shape: ImageShape) -> Result<Self, ModelError> {
        let (layout, network) = kind.build(shape)?.finish();
        let model = Self::with_network(shape, layout, Box::new(network));
        Ok(Self { loss: kind.loss(), ..model })
    }

    /// A model with this network, trained on cross-entropy.
    pub(super) fn with_network(
        shape: ImageShape,
        layout: Layout,
        network: Box<dyn Network>,
    ) -> Self {
        Self {
            shape,
            statistics: layout.norms.iter().map(|&(_, n)| Statistics::new(n)).collect(),
            layout,
            network,
            loss: Loss::CrossEntropy,
            device: Device::flex(),
        }
    }

    /// The images and classes the model is for.
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// The names and shapes of the parameters.
    pub fn tensors(&self) -> &[gradwire::Tensor] {
        &self.layout.tensors
    }

    /// The initial parameters of a run, a pure function of the seed: biases and shifts are 0, scales 1,
    /// weights uniform with variance 2 / fan-in before a rectifier (0.65 / fan-in if it is pooled) and 1 / fan-in
    /// elsewhere.
    pub fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.layout.initial_parameters(seed)
    }

    /// Adds the gradient of the batch's mean loss, as a rule cross-entropy, to `gradients` and returns that mean.
    /// Updates the batch-norm statistics.
    ///
    /// `images` are normalised values, image after image, each channel by channel; `labels` has one label per image, or
    /// one per pixel if the model scores pixels.
    ///
    /// Passes each gradient to `sink` as soon as it is final, except those that are final only at the end. `sink` gets
    /// the same bits, except possibly the sign of zeros.
    ///
    /// # Panics
    /// If lengths do not fit, or a label is not a class.
    pub fn add_gradients(
        &mut self,
        parameters: &[Vec<f32>],
        images: &[f32],
        labels: &[u16],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let device = self.device.clone().autodiff();
        let leaves: Vec<Tensor<1>> = parameters
            .iter()
            .map(|values| Tensor::from_floats(values.as_slice(), &device).require_grad())
            .collect();
        let mut pass = Pass {
            parameters: &leaves,
            layout: &self.layout,
            norm: Norm::Batch(&mut self.statistics),
            watch: sink.map_or(Watch::Nothing, |sink| Watch::sink(sink, leaves.len())),
        };
        let images = batch(self.shape, images, &device);
        let scores = self.network.forward(&mut pass, images);
        let targets = targets(labels, self.shape.classes, self.loss.targets(), &device);
        let loss = self.loss.mean(scores, targets);

        let mut backward = loss.backward();
        for (leaf, gradient) in leaves.iter().zip(gradients) {
            if let Some(found) = leaf.grad_remove(&mut backward) {
                add(gradient, floats(&found.into_data()));
            }
        }
        f64::from(floats(&loss.into_data())[0])
    }

    /// Scores a batch with these batch-norm statistics.
    ///
    /// # Panics
    /// If lengths do not fit, or a label is not a class.
    pub fn evaluate(
        &self,
        parameters: &[Vec<f32>],
        statistics: &[Statistics],
        images: &[f32],
        labels: &[u16],
    ) -> Score {
        let parameters: Vec<Tensor<1>> = parameters
            .iter()
            .map(|values| Tensor::from_floats(values.as_slice(), &self.device))
            .collect();
        let mut pass = self.scoring(&parameters, statistics);
        let images = batch(self.shape, images, &self.device);
        let scores = self.loss.values(self.network.forward(&mut pass, images)).into_data();
        let mut score = Score::default();
        for (row, &label) in floats(&scores).chunks_exact(self.shape.classes).zip(labels) {
            score.examples += 1;
            let (found, label) = (highest(row), usize::from(label));
            score.correct += usize::from(found == label);
            score.both += usize::from(found == 1 && label == 1);
            score.either += usize::from(found == 1 || label == 1);
            score.loss += self.loss.of(row, label);
        }
        score
    }

    /// A pass without gradients, with these statistics.
    fn scoring<'a>(
        &'a self,
        parameters: &'a [Tensor<1>],
        statistics: &'a [Statistics],
    ) -> Pass<'a> {
        let norm = Norm::Running(statistics);
        Pass { parameters, layout: &self.layout, norm, watch: Watch::Nothing }
    }

    /// Groups of parameters whose gradients become final together, in the order of back-propagation: from the loss to
    /// the images. Costs as much as scoring one image.
    pub fn gradient_order(&self) -> Vec<Vec<usize>> {
        let zeros = |tensor: &gradwire::Tensor| vec![0.0; tensor.elements()];
        let flat = |values: Vec<f32>| Tensor::from_floats(values.as_slice(), &self.device);
        let parameters: Vec<Tensor<1>> = self.tensors().iter().map(zeros).map(flat).collect();
        let mut pass = self.scoring(&parameters, &self.statistics);
        pass.watch = Watch::order();
        let image = batch(self.shape, &vec![0.0; self.shape.elements()], &self.device);
        self.network.forward(&mut pass, image);
        let Watch::Order(parts) = pass.watch else { return Vec::new() };
        let mut parts: Vec<Vec<usize>> = parts.into_inner();
        parts.reverse();
        // The gradient of a parameter that is used twice is final after the use nearest to the images; that of an
        // unused one, at the end.
        let mut seen = vec![false; self.tensors().len()];
        for part in parts.iter_mut().rev() {
            part.retain(|&at| !std::mem::replace(&mut seen[at], true));
        }
        parts.push((0..seen.len()).filter(|&at| !seen[at]).collect());
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// The running statistics of batch normalisation.
    pub fn statistics(&self) -> &[Statistics] {
        &self.statistics
    }

    /// Replaces the running statistics of batch normalisation.
    pub fn set_statistics(&mut self, statistics: Vec<Statistics>) {
        self.statistics = statistics;
    }

    /// Adds the batch-norm statistics to `state`, under keys that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        for ((name, _), statistics) in self.layout.norms.iter().zip(&self.statistics) {
            state.set_floats(&format!("{prefix}{name}.mean"), statistics.mean.clone());
            state.set_floats(&format!("{prefix}{name}.variance"), statistics.variance.clone());
        }
    }

    /// Restores what [`save`](Self::save) wrote under the same prefix.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        let mut restored = Vec::with_capacity(self.statistics.len());
        for (name, channels) in &self.layout.norms {
            restored.push(Statistics {
                mean: state.floats_of(&format!("{prefix}{name}.mean"), *channels)?.to_vec(),
                variance: state.floats_of(&format!("{prefix}{name}.variance"), *channels)?.to_vec(),
            });
        }
        self.statistics = restored;
        Ok(())
    }
}

fn batch(shape: ImageShape, images: &[f32], device: &Device) -> Tensor<4> {
    let count = images.len() / shape.elements();
    let dims = [count, shape.channels, shape.height, shape.width];
    Tensor::from_data(TensorData::new(images.to_vec(), dims), device)
}

fn targets(labels: &[u16], classes: usize, values: [f32; 2], device: &Device) -> Tensor<2> {
    let [of_label, of_others] = values;
    let mut rows = vec![of_others; labels.len() * classes];
    for (row, &label) in rows.chunks_exact_mut(classes).zip(labels) {
        row[usize::from(label)] = of_label;
    }
    Tensor::from_data(TensorData::new(rows, [labels.len(), classes]), device)
}

fn add(sum: &mut [f32], terms: &[f32]) {
    assert_eq!(sum.len(), terms.len(), "a gradient has its parameter's size");
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += term;
    }
}

pub(super) fn highest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
}
