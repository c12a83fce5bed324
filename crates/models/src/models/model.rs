//! Models of images: initial parameters, gradients, evaluation.

use std::sync::Arc;

use gradwire::{State, StateError};
use gradwire_exchange::GradientSink;

use super::architecture::Architecture;
use super::layout::Layout;
use super::loss::Loss;
use super::maps::Maps;
use super::network::Network;
use super::pass::{Gradients, Pass};
use super::pointwise::highest;
use super::statistics::Statistics;
use super::{ImageShape, ModelError, ModelKind, Score};

/// One replica of a model, with its own batch-norm statistics.
#[derive(Debug)]
pub struct Model {
    shape: ImageShape,
    layout: Layout,
    network: Network,
    loss: Loss,
    statistics: Vec<Statistics>,
}

impl Architecture for Model {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn gradient_order(&self) -> Vec<Vec<usize>> {
        self.network.gradient_order()
    }
}

impl Model {
    /// A model for images and classes of the given shape.
    pub fn new(kind: ModelKind, shape: ImageShape) -> Result<Self, ModelError> {
        let (layout, network) = kind.build(shape)?.finish();
        layout.check_size()?;
        let model = Self::with_network(shape, layout, network);
        Ok(Self { loss: kind.loss(), ..model })
    }

    /// A model with this network, trained on cross-entropy.
    pub(super) fn with_network(shape: ImageShape, layout: Layout, network: Network) -> Self {
        Self {
            shape,
            statistics: layout.norms.iter().map(|&(_, n)| Statistics::new(n)).collect(),
            layout,
            network,
            loss: Loss::CrossEntropy,
        }
    }

    /// The images and classes the model is for.
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// Adds the gradient of the batch's mean loss, usually cross-entropy, to `gradients` and
    /// returns the mean. Updates the batch-norm statistics. Passes each gradient to `sink` as soon
    /// as it is final.
    ///
    /// `images` are normalised values, image after image, each channel by channel; `labels` has one
    /// label per image, or one per pixel if the model scores pixels.
    ///
    /// # Panics
    /// If lengths do not fit, there is no image, or a label is not a class.
    pub fn add_gradients(
        &mut self,
        parameters: &[Vec<f32>],
        images: &[f32],
        labels: &[u16],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        assert!(!images.is_empty(), "a batch has an image");
        let mut pass = Pass::training(parameters, &mut self.statistics);
        let images = Maps::input(images, self.shape.maps());
        let (scores, record) = pass.apart(|pass| self.network.forward(pass, images));
        let (loss, gradient) = self.loss.mean(scores, labels);
        record.back(gradient, &mut Gradients { all: gradients, sink });
        loss
    }

    /// Updates the running statistics of batch normalisation by the statistics of a batch with
    /// these parameters, with this weight, in (0, 1].
    ///
    /// # Panics
    /// If lengths do not fit.
    pub fn observe(&mut self, parameters: &[Vec<f32>], images: &[f32], weight: f32) {
        let images = Maps::input(images, self.shape.maps());
        let mut pass = Pass::observing(parameters, &mut self.statistics, weight);
        self.network.forward(&mut pass, images);
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
        let images = Maps::input(images, self.shape.maps());
        let mut scores = self.network.forward(&mut Pass::scoring(parameters, statistics), images);
        assert_eq!(scores.batch(), labels.len(), "a label for each row of scores");
        let mut score = Score::default();
        let rows = scores.values_mut().chunks_exact_mut(self.shape.classes);
        for (row, &label) in rows.zip(labels) {
            let found = highest(row);
            score.examples += 1;
            score.correct += usize::from(found == usize::from(label));
            score.both += usize::from(found == 1 && label == 1);
            score.either += usize::from(found == 1 || label == 1);
            score.loss += self.loss.loss_and_gradient(row, label);
        }
        score
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

    /// Restores the entries of [`save`](Self::save) under the same prefix.
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
