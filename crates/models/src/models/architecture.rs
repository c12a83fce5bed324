//! The common part of all models: named parameters with initial values.

use super::layout::Layout;

/// A model. Its parameters and gradients stay outside.
pub trait Architecture {
    /// The parameters that the model declares.
    fn layout(&self) -> &Layout;

    /// The names and shapes of the parameters.
    fn tensors(&self) -> &[gradwire::Tensor] {
        &self.layout().tensors
    }

    /// A lower estimate of the values that a step keeps for an image, a token or a pair.
    fn activations(&self) -> usize {
        self.layout().activations
    }

    /// The initial parameters of a run, a pure function of the seed. Biases and shifts are 0, and
    /// scales are 1. In models of images, weights are uniform with variance 2 / fan-in before a
    /// rectifier and 1 / fan-in elsewhere; in `lenet5:relu` and `cifar-cnn` the variance is 0.65 /
    /// fan-in before a rectifier that is pooled.
    fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.layout().initial_parameters(seed)
    }

    /// Groups of parameters whose gradients become final together, in the order of
    /// back-propagation.
    fn gradient_order(&self) -> Vec<Vec<usize>> {
        vec![(0..self.tensors().len()).collect()]
    }
}
