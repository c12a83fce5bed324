//! Batches of images as models take them: normalised floats and labels.

use super::order::Order;
use super::sampler::Sampler;
use crate::data::{ImageSet, Images, augment, normalise, shift};

/// The training batches of one worker.
pub(super) struct ImageBatches<'a> {
    data: &'a ImageSet,
    order: Order,
    seed: u64,
    augment: bool,
    sampler: Sampler,
    images: Vec<f32>,
    labels: Vec<u16>,
}

impl<'a> ImageBatches<'a> {
    /// The batches of a worker, augmented or not.
    pub(super) fn new(data: &'a ImageSet, seed: u64, augment: bool, sampler: Sampler) -> Self {
        let order = sampler.order(seed, data.train.len());
        Self { data, order, seed, augment, sampler, images: Vec::new(), labels: Vec::new() }
    }

    /// Loads the images and labels of a step.
    pub(super) fn load(&mut self, step: u64) {
        let ImageSet { train, mean, std, .. } = self.data;
        let size = train.channels * train.height * train.width;
        self.images.resize(self.sampler.batch * size, 0.0);
        self.labels.clear();
        let start = self.sampler.start(step);
        for (position, out) in (start..).zip(self.images.chunks_exact_mut(size)) {
            let visit = self.order.at(position);
            let image = train.image(visit.example as usize);
            if self.augment && train.channels == 1 {
                let [draw, _] = visit.draws(self.seed);
                shift(image, train.shape(), mean, std, draw, out);
            } else if self.augment {
                augment(image, train.shape(), mean, std, visit.draws(self.seed), out);
            } else {
                normalise(image, mean, std, out);
            }
            let example = visit.example as usize;
            self.labels.extend_from_slice(train.labels_of(example..example + 1));
        }
    }

    /// The examples of this worker where each example belongs to one: those of its shard, or every n-th of all, for n
    /// workers.
    pub(super) fn own_examples(&self) -> Vec<u32> {
        let Sampler { rank, workers, shard, .. } = &self.sampler;
        let all = || (0..self.data.train.len() as u32).skip(*rank).step_by(*workers);
        shard.clone().unwrap_or_else(|| all().collect())
    }

    /// The weight of an example in its worker's sum, so that the mean over workers is the mean over all examples.
    pub(super) fn weight(&self) -> f32 {
        self.sampler.workers as f32 / self.data.train.len() as f32
    }

    /// The number of images in a batch.
    pub(super) fn len(&self) -> usize {
        self.sampler.batch
    }

    /// The images and labels loaded last.
    pub(super) fn batch(&self) -> (&[f32], &[u16]) {
        (&self.images, &self.labels)
    }
}

/// These images, normalised but not augmented, and their labels. `images` are the training or test images of `data`.
pub(super) fn plain_batch(
    data: &ImageSet,
    images: &Images,
    examples: &[u32],
    out: &mut Vec<f32>,
    labels: &mut Vec<u16>,
) {
    let size = images.channels * images.height * images.width;
    out.resize(examples.len() * size, 0.0);
    labels.clear();
    for (&example, out) in examples.iter().zip(out.chunks_exact_mut(size)) {
        let example = example as usize;
        normalise(images.image(example), &data.mean, &data.std, out);
        labels.extend_from_slice(images.labels_of(example..example + 1));
    }
}
