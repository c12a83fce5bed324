//! A multi-layer perceptron with hidden layers of 300 and 100 units (LeCun et al. 1998, "Gradient-based
//! learning applied to document recognition", LeNet-300-100), rectified.
//!
//! 266 610 parameters in 6 tensors on 28×28×1 images and 10 classes: 784·300 + 300, 300·100 + 100,
//! 100·10 + 10.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{Layout, Linear, Next, Pass};
use super::{ImageShape, Network};

/// Three fully connected layers.
#[derive(Debug)]
pub(crate) struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Mlp {
    /// Declares the network in `layout`.
    pub(crate) fn new(layout: &mut Layout, shape: ImageShape) -> Self {
        Self {
            fc1: Linear::new(layout, "fc1", [shape.elements(), 300], Next::Relu),
            fc2: Linear::new(layout, "fc2", [300, 100], Next::Relu),
            fc3: Linear::new(layout, "fc3", [100, shape.classes], Next::Linear),
        }
    }
}

impl Network for Mlp {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let x = images.flatten::<2>(1, 3);
        let x = relu(self.fc1.forward(pass, x));
        let x = relu(self.fc2.forward(pass, x));
        self.fc3.forward(pass, x)
    }
}
