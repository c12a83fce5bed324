//! LeNet-5 as Caffe's MNIST example has it, the model that sparse binary compression (Sattler et al.
//! 2018) is measured on.
//!
//! conv 20@5×5 → max-pool 2 → conv 50@5×5 → max-pool 2 → fc 500 → relu → fc classes; convolutions
//! without padding, pooling of odd sizes drops the last row and column. 431 080 parameters in 8
//! tensors on 28×28×1 images and 10 classes: 520 + 25 050 + 400 500 + 5 010. Images must be at least
//! 16×16. `lenet5:relu` has rectifiers behind the convolutions, too, as many who name Caffe's network
//! have them; with them it is also what AdaComp's MNIST-CNN is said to be (Chen et al. 2018: two
//! convolutions of 5×5 with rectifiers, two fully connected layers, 1.7 MB).

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{Conv, Layout, Linear, Next, Pass, max_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

/// Two convolutions, two fully connected layers.
#[derive(Debug)]
pub(crate) struct LeNet5 {
    conv1: Conv,
    conv2: Conv,
    fc1: Linear,
    fc2: Linear,
    rectified: bool,
}

impl LeNet5 {
    /// Declares the network in `layout`.
    pub(crate) fn new(
        layout: &mut Layout,
        rectified: bool,
        shape: ImageShape,
    ) -> Result<Self, ModelError> {
        let next = if rectified { Next::Relu } else { Next::Linear };
        let (height, width) = (after_both(shape.height), after_both(shape.width));
        if height == 0 || width == 0 {
            return Err(ModelError::TooSmall { model: "lenet5", shape, least: 16 });
        }
        Ok(Self {
            conv1: Conv::valid(layout, "conv1", [shape.channels, 20], 5, next),
            conv2: Conv::valid(layout, "conv2", [20, 50], 5, next),
            fc1: Linear::new(layout, "fc1", [50 * height * width, 500], Next::Relu),
            fc2: Linear::new(layout, "fc2", [500, shape.classes], Next::Linear),
            rectified,
        })
    }
}

/// What two rounds of convolution and pooling leave of a length.
fn after_both(length: usize) -> usize {
    let once = |length: usize| length.saturating_sub(4) / 2;
    once(once(length))
}

impl Network for LeNet5 {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        // A rectifier behind the pooling is the same, on a quarter of the values.
        let next = |x| if self.rectified { relu(x) } else { x };
        let x = pass.tap(next(max_pool(self.conv1.forward(pass, images), 2, 2)));
        let x = pass.tap(next(max_pool(self.conv2.forward(pass, x), 2, 2)));
        let x = pass.tap(relu(self.fc1.forward(pass, x.flatten::<2>(1, 3))));
        self.fc2.forward(pass, x)
    }
}
