//! Classification: images, each of one class.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::GradientSink;

use super::image_batches::{ImageBatches, plain_batch};
use super::sampler::Sampler;
use super::{Metric, Replica, Task, TaskConfig};
use crate::data::ImageSet;
use crate::models::{ImageShape, Model, ModelError, Score, Statistics};

/// Images evaluated at a time.
const TEST_BATCH: usize = 100;

/// The classification of these images.
pub(super) struct Classification<'a>(pub(super) &'a ImageSet);

impl<'a> Task<'a> for Classification<'a> {
    fn check(&self, _: &TaskConfig) -> Result<(), String> {
        check_images(self.0)
    }

    fn metric(&self) -> Metric {
        Metric::Accuracy
    }

    fn examples(&self) -> usize {
        self.0.train.len()
    }

    fn labels(&self) -> Option<&[u16]> {
        Some(&self.0.train.labels)
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(Box::new(ImageReplica::new(self.0, config, rank, shard)?))
    }
}

/// Refuses a set without training or test images.
pub(super) fn check_images(images: &ImageSet) -> Result<(), String> {
    if images.train.is_empty() || images.test.is_empty() {
        return Err("the data set needs at least one training and one test image".to_owned());
    }
    Ok(())
}

/// A model of images, which classifies them as wholes or pixel by pixel.
pub(super) struct ImageReplica<'a> {
    model: Model,
    rank: usize,
    batches: ImageBatches<'a>,
    data: &'a ImageSet,
}

impl<'a> ImageReplica<'a> {
    pub(super) fn new(
        data: &'a ImageSet,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Self, ModelError> {
        let shape = ImageShape {
            channels: data.train.channels,
            height: data.train.height,
            width: data.train.width,
            classes: data.train.classes,
        };
        let model = Model::new(config.model, shape)?;
        let sampler = Sampler::new(config, rank, shard);
        let batches = ImageBatches::new(data, config.seed, config.augment, sampler);
        Ok(Self { model, rank, batches, data })
    }

    fn add(
        &mut self,
        examples: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let (images, labels) = self.batches.batch();
        // An image has one label, or one for each pixel.
        let [size, each] = [images.len(), labels.len()].map(|all| all / self.batches.len());
        let images = &images[examples.start * size..examples.end * size];
        let labels = &labels[examples.start * each..examples.end * each];
        self.model.add_gradients_to_sink(parameters, images, labels, gradients, sink)
    }
}

impl Replica for ImageReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.model.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.model.initial_parameters(seed)
    }

    fn load_batch(&mut self, step: u64) {
        self.batches.load(step);
    }

    fn parts(&self) -> usize {
        self.batches.len()
    }

    fn add_gradients_of(
        &mut self,
        _: u64,
        parts: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        self.add(parts, parameters, gradients, None)
    }

    fn add_gradients(
        &mut self,
        _: u64,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        self.add(0..self.parts(), parameters, gradients, sink)
    }

    fn gradient_order(&self) -> Vec<Vec<usize>> {
        self.model.gradient_order()
    }

    fn add_full_gradient(
        &mut self,
        parameters: &[Vec<f32>],
        scratch: &mut [Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) {
        let statistics = self.model.statistics().to_vec();
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for examples in self.batches.own_examples().chunks(TEST_BATCH) {
            plain_batch(self.data, &self.data.train, examples, &mut images, &mut labels);
            scratch.iter_mut().for_each(|values| values.fill(0.0));
            self.model.add_gradients(parameters, &images, &labels, scratch);
            let weight = self.batches.weight() * examples.len() as f32;
            for (sum, term) in gradients.iter_mut().flatten().zip(scratch.iter().flatten()) {
                *sum += weight * term;
            }
        }
        self.model.set_statistics(statistics);
    }

    fn statistics(&self) -> &[Statistics] {
        self.model.statistics()
    }

    fn set_statistics(&mut self, statistics: Vec<Statistics>) {
        self.model.set_statistics(statistics);
    }

    fn test_examples(&self) -> usize {
        self.data.test.len()
    }

    fn test_parts(&self, examples: usize) -> usize {
        examples.div_ceil(TEST_BATCH)
    }

    fn score(
        &self,
        parameters: &[Vec<f32>],
        statistics: &[Statistics],
        examples: usize,
        part: usize,
    ) -> Score {
        let end = ((part + 1) * TEST_BATCH).min(examples);
        let part: Vec<u32> = (part * TEST_BATCH..end).map(|at| at as u32).collect();
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        plain_batch(self.data, &self.data.test, &part, &mut images, &mut labels);
        self.model.evaluate_with(parameters, statistics, &images, &labels)
    }

    fn save(&self, state: &mut State) {
        self.model.save(&format!("statistics{}/", self.rank), state);
    }

    fn restore(&mut self, state: &State, saved_by: usize, _: usize) -> Result<(), StateError> {
        self.model.restore(&format!("statistics{}/", self.rank % saved_by), state)
    }
}
