//! Three convolutions and one fully connected layer for CIFAR-10, the model that AdaComp (Chen et al.
//! 2018) is measured on beside larger ones, after Krizhevsky's cuda-convnet.
//!
//! conv 32@5×5 → relu → max-pool 2 → conv 32@5×5 → relu → max-pool 2 → conv 64@5×5 → relu → max-pool 2 →
//! fc classes; convolutions are padded, pooling of odd sizes drops the last row and column. The paper
//! gives the layers and 0.3 MB; cuda-convnet's widths make 89 578 parameters in 8 tensors (0.36 MB) of
//! 32×32×3 images and 10 classes: 2 432 + 25 632 + 51 264 + 10 250. Cuda-convnet pools 3×3 windows and
//! normalises responses, which neither paper takes up. Images must be at least 8×8.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{Conv, Layout, Linear, Next, Pass, max_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

const KERNEL: usize = 5;
const WIDTHS: [usize; 3] = [32, 32, 64];

/// Three convolutions, one fully connected layer.
#[derive(Debug)]
pub(crate) struct CifarCnn {
    convs: [Conv; 3],
    fc: Linear,
}

impl CifarCnn {
    /// Declares the network in `layout`.
    pub(crate) fn new(layout: &mut Layout, shape: ImageShape) -> Result<Self, ModelError> {
        let (height, width) = (shape.height / 8, shape.width / 8);
        if height == 0 || width == 0 {
            return Err(ModelError::TooSmall { model: "cifar-cnn", shape, least: 8 });
        }
        let mut from = shape.channels;
        let convs = [0, 1, 2].map(|at| {
            let name = format!("conv{}", at + 1);
            let conv = Conv::padded(layout, &name, [from, WIDTHS[at]], KERNEL, Next::Relu);
            from = WIDTHS[at];
            conv
        });
        let features = from * height * width;
        Ok(Self { convs, fc: Linear::new(layout, "fc", [features, shape.classes], Next::Linear) })
    }
}

impl Network for CifarCnn {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        // A rectifier behind the pooling is the same, on a quarter of the values.
        let layer = |x, conv: &Conv| pass.tap(relu(max_pool(conv.forward(pass, x), 2, 2)));
        let x = self.convs.iter().fold(images, layer);
        self.fc.forward(pass, x.flatten::<2>(1, 3))
    }
}
