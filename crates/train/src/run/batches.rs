//! Batches as a model takes them: normalised floats and labels.

use super::order::Order;
use gradwire_models::data::{ImageSet, Images, augment, normalise, shift};

/// The training batches of one worker.
pub(super) struct Batches<'a> {
    data: &'a ImageSet,
    order: Order,
    seed: u64,
    augment: bool,
    slice: Slice,
    images: Vec<f32>,
    labels: Vec<u16>,
}

/// A worker's part of every step.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    /// The worker.
    pub(super) rank: usize,
    /// Of how many.
    pub(super) workers: usize,
    /// Examples per worker and step.
    pub(super) batch: usize,
    /// The worker's own examples; `None` where all share all.
    pub(super) shard: Option<Vec<u32>>,
}

impl Slice {
    /// The worker's sequence of examples, of so many there are.
    pub(super) fn order(&self, seed: u64, examples: usize) -> Order {
        match &self.shard {
            Some(shard) => Order::own(seed, self.rank, shard.clone()),
            None => Order::common(seed, examples),
        }
    }

    /// Where in its sequence of examples the worker's batch of a step begins.
    pub(super) fn start(&self, step: u64) -> u64 {
        let before = match self.shard {
            Some(_) => step,
            None => step * self.workers as u64 + self.rank as u64,
        };
        before * self.batch as u64
    }
}

impl<'a> Batches<'a> {
    /// The batches of a worker, augmented or not.
    pub(super) fn new(data: &'a ImageSet, seed: u64, augment: bool, slice: Slice) -> Self {
        let order = slice.order(seed, data.train.len());
        Self { data, order, seed, augment, slice, images: Vec::new(), labels: Vec::new() }
    }

    /// Lays out the images and labels of a step.
    pub(super) fn prepare(&mut self, step: u64) {
        let ImageSet { train, mean, std, .. } = self.data;
        let size = train.channels * train.height * train.width;
        self.images.resize(self.slice.batch * size, 0.0);
        self.labels.clear();
        let start = self.slice.start(step);
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

    /// The examples that this worker looks at where all look at each once: its own, or each so many-th of all.
    pub(super) fn part(&self) -> Vec<u32> {
        let Slice { rank, workers, shard, .. } = &self.slice;
        let all = || (0..self.data.train.len() as u32).skip(*rank).step_by(*workers);
        shard.clone().unwrap_or_else(|| all().collect())
    }

    /// What an example counts in a mean over workers that is the mean over all examples.
    pub(super) fn weight(&self) -> f32 {
        self.slice.workers as f32 / self.data.train.len() as f32
    }

    /// How many images are laid out at a time.
    pub(super) fn len(&self) -> usize {
        self.slice.batch
    }

    /// The images and labels laid out last.
    pub(super) fn batch(&self) -> (&[f32], &[u16]) {
        (&self.images, &self.labels)
    }
}

/// These images, normalised and as they are, and their labels. `images` is a part of `data`.
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
