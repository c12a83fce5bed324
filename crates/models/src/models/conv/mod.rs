//! Convolution as an operation of the engine: image by image, patches are copied to a scratch matrix that stays in
//! cache (im2col), and multiplied by the kernels.
//!
//! Networks with few channels, like CIFAR's ResNets, train about twice as fast as with the engine's convolution, which
//! spends most of its time on copying patches.

mod patches;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Tensor, TensorData};
use burn_flex::FlexTensor;

use super::matmul::{Matrix, multiply};
use patches::Patches;

/// Images `[batch, from, height, width]` convolved with `[to, from, kernel, kernel]`, without bias:
/// `[batch, to, rows, columns]`.
pub(super) fn conv(
    images: Tensor<4>,
    weight: Tensor<4>,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    let (images, weight) = (images.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Convolve>::convolve(images, weight, stride, padding))
}

#[backend_extension(Flex, Autodiff)]
trait Convolve: Backend {
    fn convolve(
        images: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self>;
}

impl Convolve for Flex {
    fn convolve(
        images: FlexTensor,
        weight: FlexTensor,
        stride: usize,
        padding: usize,
    ) -> FlexTensor {
        Shapes::new(&images, &weight, stride, padding).forward(images, weight)
    }
}

impl<C: CheckpointStrategy> Convolve for Autodiff<Flex, C> {
    fn convolve(
        images: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        stride: usize,
        padding: usize,
    ) -> FloatTensor<Self> {
        let shapes = Shapes::new(images.primitive(), weight.primitive(), stride, padding);
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
    patches: Patches,
}

impl Shapes {
    fn new(images: &FlexTensor, weight: &FlexTensor, stride: usize, padding: usize) -> Self {
        let (images, weight) = (images.layout().shape().dims(), weight.layout().shape().dims());
        let [batch, from, height, width]: [usize; 4] = images;
        let [to, inputs, kernel, columns]: [usize; 4] = weight;
        assert_eq!((inputs, columns), (from, kernel), "kernels are square, one for each channel");
        Self { batch, from, to, patches: Patches { kernel, stride, padding, height, width } }
    }

    /// Values of one image.
    fn image(&self) -> usize {
        self.from * self.patches.height * self.patches.width
    }

    /// The number of terms in each value of the output.
    fn inner(&self) -> usize {
        self.from * self.patches.kernel * self.patches.kernel
    }

    fn places(&self) -> usize {
        self.patches.places().iter().product()
    }

    /// maps = W · patches, for each image.
    fn forward(&self, images: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (images, weight) = (images.to_contiguous(), weight.to_contiguous());
        let kernels = Matrix::new(slice(&weight), self.inner());
        let [rows, columns] = self.patches.places();
        let mut maps = vec![0.0; self.batch * self.to * self.places()];
        let mut laid_out = vec![0.0; self.inner() * self.places()];
        let per_image = maps.chunks_exact_mut(self.to * self.places());
        for (image, maps) in slice(&images).chunks_exact(self.image()).zip(per_image) {
            self.patches.lay_out(image, &mut laid_out);
            multiply(kernels, Matrix::new(&laid_out, self.places()), false, maps);
        }
        tensor(maps, [self.batch, self.to, rows, columns])
    }

    /// ∂patches = Wᵀ · ∂maps, added back to the image (col2im).
    fn images_gradient(&self, gradient: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (gradient, weight) = (gradient.to_contiguous(), weight.to_contiguous());
        let kernels = Matrix::new(slice(&weight), self.inner()).transposed();
        let mut found = vec![0.0; self.batch * self.image()];
        let mut laid_out = vec![0.0; self.inner() * self.places()];
        let per_image = slice(&gradient).chunks_exact(self.to * self.places());
        for (maps, image) in per_image.zip(found.chunks_exact_mut(self.image())) {
            multiply(kernels, Matrix::new(maps, self.places()), false, &mut laid_out);
            self.patches.add_back(&laid_out, image);
        }
        tensor(found, [self.batch, self.from, self.patches.height, self.patches.width])
    }

    /// ∂W = Σ ∂maps · patchesᵀ over the images.
    fn weight_gradient(&self, gradient: FlexTensor, images: FlexTensor) -> FlexTensor {
        let (gradient, images) = (gradient.to_contiguous(), images.to_contiguous());
        let mut found = vec![0.0; self.to * self.inner()];
        let mut laid_out = vec![0.0; self.inner() * self.places()];
        let per_image = slice(&gradient).chunks_exact(self.to * self.places());
        for (maps, image) in per_image.zip(slice(&images).chunks_exact(self.image())) {
            self.patches.lay_out(image, &mut laid_out);
            let laid_out = Matrix::new(&laid_out, self.places()).transposed();
            multiply(Matrix::new(maps, self.places()), laid_out, true, &mut found);
        }
        tensor(found, [self.to, self.from, self.patches.kernel, self.patches.kernel])
    }
}

fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("a contiguous tensor of f32")
}

fn tensor(values: Vec<f32>, shape: [usize; 4]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

#[cfg(test)]
mod tests;
