//! Convolution as an operation of the engine. The engine's own convolution spends most of its time on copying patches;
//! here, kernels are moved over padded images where they lie.

mod kernels;
mod passes;
mod stack;

use crate::burn;
use crate::burn::backend::autodiff::checkpoint::base::Checkpointer;
use crate::burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use crate::burn::backend::autodiff::grads::Gradients;
use crate::burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crate::burn::backend::tensor::FloatTensor;
use crate::burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use crate::burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::flex::{slice, tensor};
use super::layers::Window;

/// Images `[batch, from, height, width]` convolved with `[to, from, kernel, kernel]`, without bias:
/// `[batch, to, rows, columns]`.
pub(super) fn conv(images: Tensor<4>, weight: Tensor<4>, window: Window) -> Tensor<4> {
    let (images, weight) = (images.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Convolve>::convolve(images, weight, window))
}

#[backend_extension(Flex, Autodiff)]
trait Convolve: Backend {
    fn convolve(
        images: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self>;
}

impl Convolve for Flex {
    fn convolve(images: FlexTensor, weight: FlexTensor, window: Window) -> FlexTensor {
        Shapes::new(&images, &weight, window).forward(images, weight)
    }
}

impl<C: CheckpointStrategy> Convolve for Autodiff<Flex, C> {
    fn convolve(
        images: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        let shapes = Shapes::new(images.primitive(), weight.primitive(), window);
        let nodes = [images.node(), weight.node()];
        match Convolution.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let inputs = (images.primitive().clone(), weight.primitive().clone());
                let output = shapes.forward(images.into_primitive(), weight.into_primitive());
                prepared.finish((inputs.0, inputs.1, shapes), output)
            }
            OpsKind::UnTracked(prepared) => {
                prepared.finish(shapes.forward(images.into_primitive(), weight.into_primitive()))
            }
        }
    }
}

#[derive(Debug)]
struct Convolution;

impl Backward<Flex, 2> for Convolution {
    type State = (FlexTensor, FlexTensor, Shapes);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [images_node, weight_node] = ops.parents;
        let gradient = gradients.consume::<Flex>(&ops.node);
        let (images, weight, shapes) = ops.state;
        if let Some(node) = images_node {
            let found = shapes.images_gradient(gradient.clone(), weight);
            gradients.register::<Flex>(node.id, found);
        }
        if let Some(node) = weight_node {
            let found = shapes.weight_gradient(gradient, images);
            gradients.register::<Flex>(node.id, found);
        }
    }
}

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy)]
struct Shapes {
    batch: usize,
    from: usize,
    to: usize,
    window: Window,
    height: usize,
    width: usize,
}

impl Shapes {
    fn new(images: &FlexTensor, weight: &FlexTensor, window: Window) -> Self {
        let (images, weight) = (images.layout().shape().dims(), weight.layout().shape().dims());
        let [batch, from, height, width]: [usize; 4] = images;
        assert!(window.padding < window.kernel, "a kernel lies on a pixel at each of its places");
        let [to, inputs, rows, columns]: [usize; 4] = weight;
        let found = [inputs, rows, columns];
        assert_eq!(found, [from, window.kernel, window.kernel], "a square kernel for each channel");
        Self { batch, from, to, window, height, width }
    }

    /// Rows and columns of an output map.
    fn places(&self) -> [usize; 2] {
        [self.height, self.width].map(|length| self.window.places(length))
    }

    fn forward(&self, images: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (images, weight) = (images.to_contiguous(), weight.to_contiguous());
        let maps = passes::forward(self, slice(&images), slice(&weight));
        let [rows, columns] = self.places();
        tensor(maps, [self.batch, self.to, rows, columns])
    }

    fn images_gradient(&self, gradient: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (gradient, weight) = (gradient.to_contiguous(), weight.to_contiguous());
        let found = passes::images_gradient(self, slice(&gradient), slice(&weight));
        tensor(found, [self.batch, self.from, self.height, self.width])
    }

    fn weight_gradient(&self, gradient: FlexTensor, images: FlexTensor) -> FlexTensor {
        let (gradient, images) = (gradient.to_contiguous(), images.to_contiguous());
        let found = passes::weight_gradient(self, slice(&gradient), slice(&images));
        let Window { kernel, .. } = self.window;
        tensor(found, [self.to, self.from, kernel, kernel])
    }
}

#[cfg(test)]
mod tests;
