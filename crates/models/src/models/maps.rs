//! Batches of feature maps.

use std::rc::Rc;

use super::pointwise::add;

/// A batch of feature maps: image after image, channel after channel, row after row. A copy shares the values until one of
/// them changes.
#[derive(Debug, Clone)]
pub(super) struct Maps {
    values: Rc<Vec<f32>>,
    /// Channels, height and width of an image's maps, none of which is 0.
    pub(super) shape: [usize; 3],
    constant: bool,
}

impl Maps {
    /// The output of an operation.
    ///
    /// # Panics
    /// If the values are not those of whole images.
    pub(super) fn new(values: Vec<f32>, shape: [usize; 3]) -> Self {
        let image: usize = shape.iter().product();
        assert_eq!(values.len() % image, 0, "whole images of {image} values");
        Self { values: Rc::new(values), shape, constant: false }
    }

    /// The input of a network, whose gradient is not needed.
    pub(super) fn input(images: &[f32], shape: [usize; 3]) -> Self {
        Self { constant: true, ..Self::new(images.to_vec(), shape) }
    }

    /// All values.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, to change them in place; copies them if they are shared.
    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        Rc::<Vec<f32>>::make_mut(&mut self.values)
    }

    /// The values of an image.
    pub(super) fn image(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of a map.
    pub(super) fn plane(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    /// The number of images.
    pub(super) fn batch(&self) -> usize {
        self.values.len() / self.image()
    }

    /// The sum with maps of the same shape.
    pub(super) fn plus(mut self, other: &Maps) -> Self {
        add(self.values_mut(), other.values());
        Self { constant: self.constant && other.constant, ..self }
    }

    /// These maps, and behind each image's channels those of another batch.
    pub(super) fn beside(&self, other: &Maps) -> Self {
        let images = self.values.chunks_exact(self.image());
        let others = other.values.chunks_exact(other.image());
        let mut joined = Vec::with_capacity(self.values.len() + other.values.len());
        for (image, other) in images.zip(others) {
            joined.extend_from_slice(image);
            joined.extend_from_slice(other);
        }
        let [channels, height, width] = self.shape;
        Self::new(joined, [channels + other.shape[0], height, width])
    }

    /// The reverse of [`beside`](Self::beside): the first channels of each image, and the others.
    pub(super) fn split(&self, channels: usize) -> (Self, Self) {
        let [all, height, width] = self.shape;
        let at = channels * height * width;
        let images = || self.values.chunks_exact(self.image()).map(|image| image.split_at(at));
        let first = images().flat_map(|(first, _)| first).copied().collect();
        let rest = images().flat_map(|(_, rest)| rest).copied().collect();
        let shape = |channels| [channels, height, width];
        (Self::new(first, shape(channels)), Self::new(rest, shape(all - channels)))
    }

    /// The gradient of these maps; without values where none is needed.
    pub(super) fn gradient(&self, find: impl FnOnce() -> Vec<f32>) -> Self {
        Self::new(if self.constant { Vec::new() } else { find() }, self.shape)
    }
}
