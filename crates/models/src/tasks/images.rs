//! Images, each of one class, or with a mask that has the class of every pixel.

use std::ops::Range;
use std::sync::Arc;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::GradientSink;

use super::replica::part_of;
use super::sampler::Sampler;
use super::{BatchBytes, Metric, Replica, Task, TaskConfig};
use crate::Split;
use crate::data::{ImageSet, Images, augment, can_move, normalise, shift};
use crate::models::{Architecture, ImageShape, Model, ModelError, ModelKind, Score, Statistics};

/// Images evaluated at a time.
const TEST_BATCH: usize = 100;

/// The task of classifying images.
pub(super) struct Classification<'a> {
    pub(super) model: ModelKind,
    pub(super) images: &'a ImageSet,
}

impl<'a> Task<'a> for Classification<'a> {
    fn metric(&self) -> Metric {
        Metric::Accuracy
    }

    fn examples(&self) -> usize {
        self.images.train.len()
    }

    fn check(&self, config: &TaskConfig) -> Result<(), String> {
        check_sizes(self.images)?;
        check_augmentation(&self.images.train, config)
    }

    fn shards(
        &self,
        split: &Split,
        workers: usize,
        seed: u64,
    ) -> Result<Option<Vec<Vec<u32>>>, String> {
        split.shards(&self.images.train.labels, workers, seed)
    }

    fn replica(
        &self,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Box<dyn Replica + 'a>, ModelError> {
        Ok(Box::new(ImageReplica::new(self.model, self.images, config, rank, shard)?))
    }
}

/// Refuses data sets without training or test images.
pub(super) fn check_sizes(data: &ImageSet) -> Result<(), String> {
    match data.train.is_empty() || data.test.is_empty() {
        true => Err("the data set needs at least one training and one test image".to_owned()),
        false => Ok(()),
    }
}

/// Refuses augmentation that could move an image out of sight.
fn check_augmentation(images: &Images, config: &TaskConfig) -> Result<(), String> {
    if !config.augment || can_move(images.shape()) {
        return Ok(());
    }
    let [_, height, width] = images.shape();
    Err(format!(
        "images of {height} by {width} pixels are too small for crops and shifts; give --augment off"
    ))
}

/// A model that classifies images or their pixels.
pub(super) struct ImageReplica<'a> {
    model: Model,
    rank: usize,
    data: &'a ImageSet,
    augment: bool,
    sampler: Sampler,
    /// The images loaded last, as normalised floats.
    images: Vec<f32>,
    /// Their labels: one each, or one for each pixel.
    labels: Vec<u16>,
}

impl<'a> ImageReplica<'a> {
    pub(super) fn new(
        model: ModelKind,
        data: &'a ImageSet,
        config: &TaskConfig,
        rank: usize,
        shard: Option<Vec<u32>>,
    ) -> Result<Self, ModelError> {
        let &Images { channels, height, width, classes, .. } = &data.train;
        let model = Model::new(model, ImageShape { channels, height, width, classes })?;
        let sampler = Sampler::new(config, rank, shard, data.train.len());
        let (images, labels) = (Vec::new(), Vec::new());
        Ok(Self { model, rank, data, augment: config.augment, sampler, images, labels })
    }

    /// These training or test images, normalised but not augmented, and their labels.
    fn plain(&self, images: &Images, examples: &[u32]) -> (Vec<f32>, Vec<u16>) {
        let ImageSet { mean, std, .. } = self.data;
        let size = images.shape().iter().product();
        let (mut floats, mut labels) = (vec![0.0; examples.len() * size], Vec::new());
        for (&example, out) in examples.iter().zip(floats.chunks_exact_mut(size)) {
            let example = example as usize;
            normalise(images.image(example), mean, std, out);
            labels.extend_from_slice(images.labels_of(example..example + 1));
        }
        (floats, labels)
    }
}

impl Replica for ImageReplica<'_> {
    fn tensors(&self) -> &[Tensor] {
        self.model.tensors()
    }

    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.model.initial_parameters(seed)
    }

    fn gradient_order(&self) -> Vec<Vec<usize>> {
        self.model.gradient_order()
    }

    fn batch_bytes(&self) -> BatchBytes {
        let size: usize = self.data.train.shape().iter().product();
        BatchBytes::new(self.sampler.batch, 4 * size, self.model.activations())
    }

    fn load_batch(&mut self, step: u64) {
        let ImageSet { train, mean, std, .. } = self.data;
        let size = train.shape().iter().product();
        let seed = self.sampler.seed;
        self.images.resize(self.sampler.batch * size, 0.0);
        self.labels.clear();
        for (visit, out) in self.sampler.visits(step).zip(self.images.chunks_exact_mut(size)) {
            let example = visit.example as usize;
            let image = train.image(example);
            match (self.augment, train.channels) {
                (false, _) => normalise(image, mean, std, out),
                (true, 1) => shift(image, train.shape(), mean, std, visit.draws(seed)[0], out),
                (true, _) => augment(image, train.shape(), mean, std, visit.draws(seed), out),
            }
            self.labels.extend_from_slice(train.labels_of(example..example + 1));
        }
    }

    fn parts(&self) -> usize {
        self.sampler.batch
    }

    fn add_gradients(
        &mut self,
        _: u64,
        examples: Range<usize>,
        parameters: &[Vec<f32>],
        gradients: &mut [Vec<f32>],
        sink: Option<&Arc<dyn GradientSink>>,
    ) -> f64 {
        let [size, each] = [self.images.len(), self.labels.len()].map(|all| all / self.parts());
        let images = &self.images[examples.start * size..examples.end * size];
        let labels = &self.labels[examples.start * each..examples.end * each];
        self.model.add_gradients(parameters, images, labels, gradients, sink)
    }

    fn has_full_gradient(&self) -> bool {
        true
    }

    fn add_full_gradient(
        &mut self,
        parameters: &[Vec<f32>],
        scratch: &mut [Vec<f32>],
        gradients: &mut [Vec<f32>],
    ) {
        for examples in self.sampler.own_examples().chunks(TEST_BATCH) {
            let (images, labels) = self.plain(&self.data.train, examples);
            scratch.iter_mut().for_each(|values| values.fill(0.0));
            self.model.add_gradients(parameters, &images, &labels, scratch, None);
            let weight = self.sampler.weight() * examples.len() as f32;
            for (sum, term) in gradients.iter_mut().flatten().zip(scratch.iter().flatten()) {
                *sum += weight * term;
            }
        }
    }

    fn statistics(&self) -> &[Statistics] {
        self.model.statistics()
    }

    fn estimate_statistics(&mut self, steps: Range<u64>, parameters: &[Vec<f32>]) {
        for (seen, step) in (1u16..).zip(steps) {
            self.load_batch(step);
            // The mean of k batches: the mean of the first k − 1 has the weight (k − 1)/k, the last
            // batch 1/k.
            self.model.observe(parameters, &self.images, 1.0 / f32::from(seen));
        }
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
        let part: Vec<u32> = part_of(examples, part, TEST_BATCH).map(|at| at as u32).collect();
        let (images, labels) = self.plain(&self.data.test, &part);
        self.model.evaluate(parameters, statistics, &images, &labels)
    }

    fn save(&self, state: &mut State) {
        self.model.save(&format!("statistics{}/", self.rank), state);
    }

    fn restore(&mut self, state: &State, saved_by: usize, _: usize) -> Result<(), StateError> {
        self.model.restore(&format!("statistics{}/", self.rank % saved_by), state)
    }
}
