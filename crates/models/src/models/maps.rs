//! Batches of feature maps.

use std::rc::Rc;

use super::pointwise::add;

/// A batch of feature maps: image after image, channel after channel, row after row. A copy shares
/// the values until one of them changes.
#[derive(Debug, Clone)]
pub(super) struct Maps {
    values: Rc<Vec<f32>>,
    /// Channels, height and width of an image's maps, none of them 0.
    pub(super) shape: [usize; 3],
    /// Whether no gradient is needed, as for the network's input.
    constant: bool,
}

/// The facts about maps that their gradient needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outline {
    /// The number of values.
    pub(super) len: usize,
    /// As [`Maps::shape`].
    pub(super) shape: [usize; 3],
    constant: bool,
}

impl Outline {
    /// The gradient of the maps; empty if none is needed.
    pub(super) fn gradient(self, find: impl FnOnce() -> Vec<f32>) -> Option<Maps> {
        (!self.constant).then(|| Maps::new(find(), self.shape))
    }
}

impl Maps {
    /// The output of an operation.
    ///
    /// # Panics
    /// If the number of values is not a multiple of an image's size.
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

    /// The number of values of an image.
    pub(super) fn image_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The number of values of a map.
    pub(super) fn map_len(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    /// The facts about the maps that remain needed without their values.
    pub(super) fn outline(&self) -> Outline {
        Outline { len: self.values.len(), shape: self.shape, constant: self.constant }
    }

    /// The number of images.
    pub(super) fn batch(&self) -> usize {
        self.values.len() / self.image_len()
    }

    /// The sum with maps of the same shape.
    ///
    /// # Panics
    /// If they have another shape.
    pub(super) fn plus(mut self, other: &Maps) -> Self {
        assert_eq!(self.shape, other.shape, "maps of one shape are added");
        add(self.values_mut(), other.values());
        Self { constant: self.constant && other.constant, ..self }
    }

    /// These maps, with the channels of another batch after the channels of each image.
    pub(super) fn beside(&self, other: &Maps) -> Self {
        let images = self.values.chunks_exact(self.image_len());
        let others = other.values.chunks_exact(other.image_len());
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
        let mut first = Vec::with_capacity(self.batch() * at);
        let mut rest = Vec::with_capacity(self.values.len() - self.batch() * at);
        for image in self.values.chunks_exact(self.image_len()) {
            first.extend_from_slice(&image[..at]);
            rest.extend_from_slice(&image[at..]);
        }
        let shape = |channels| [channels, height, width];
        (Self::new(first, shape(channels)), Self::new(rest, shape(all - channels)))
    }
}
