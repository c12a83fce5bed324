//! The nine-layer residual network that Page ("How to train your ResNet", 2018) trains on CIFAR-10 for
//! the DAWNBench competition, the "custom ResNet-9" of the survey of Xu et al. 2020.
//!
//! conv 64 → conv 128, max-pool 2 → residual of two convs 128 → conv 256, max-pool 2 → conv 512,
//! max-pool 2 → residual of two convs 512 → largest of each channel → fc classes without bias, whose
//! scores are divided by 8. Convolutions are 3×3, padded, without bias, each with batch norm and relu
//! behind it; a residual adds its input to what comes out.
//!
//! 6 573 120 parameters in 25 tensors on 3-channel images and 10 classes, the numbers of the survey's
//! Table 3: 6 563 520 in convolutions, 4 480 in batch norms, 5 120 in the classifier. Images must be at
//! least 8×8.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{BatchNorm, Conv, Layout, Linear, Next, Pass, max_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

/// What the scores are multiplied by.
const SCALE: f32 = 0.125;

/// Four convolutions with two residuals between them.
#[derive(Debug)]
pub(crate) struct ResNet9 {
    first: Unit,
    layers: [Unit; 3],
    residuals: [[Unit; 2]; 2],
    fc: Linear,
}

/// Convolution, batch norm, relu.
#[derive(Debug)]
struct Unit {
    conv: Conv,
    norm: BatchNorm,
}

impl ResNet9 {
    /// Channels behind the first convolution.
    pub(crate) const WIDTH: usize = 64;

    /// Declares a network with `width` channels behind the first convolution in `layout`.
    pub(crate) fn new(
        layout: &mut Layout,
        width: usize,
        shape: ImageShape,
    ) -> Result<Self, ModelError> {
        if shape.height < 8 || shape.width < 8 {
            return Err(ModelError::TooSmall { model: "resnet9", shape, least: 8 });
        }
        let mut unit = |name: &str, from, to| Unit::new(layout, name, [from, to]);
        let first = unit("first", shape.channels, width);
        let layer1 = unit("layer1", width, 2 * width);
        let residual1 = ["residual1.a", "residual1.b"].map(|name| unit(name, 2 * width, 2 * width));
        let layer2 = unit("layer2", 2 * width, 4 * width);
        let layer3 = unit("layer3", 4 * width, 8 * width);
        let residual3 = ["residual3.a", "residual3.b"].map(|name| unit(name, 8 * width, 8 * width));
        Ok(Self {
            first,
            layers: [layer1, layer2, layer3],
            residuals: [residual1, residual3],
            fc: Linear::unbiased(layout, "fc", [8 * width, shape.classes], Next::Linear),
        })
    }
}

impl Network for ResNet9 {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let [layer1, layer2, layer3] = &self.layers;
        let [residual1, residual3] = &self.residuals;
        let x = self.first.forward(pass, images);
        let x = layer1.forward(pass, pass.tap(x));
        let x = around(residual1, pass, pass.tap(max_pool(x, 2, 2)));
        let x = layer2.forward(pass, pass.tap(x));
        let x = layer3.forward(pass, pass.tap(max_pool(x, 2, 2)));
        let x = around(residual3, pass, pass.tap(max_pool(x, 2, 2)));
        let x = pass.tap(x);
        let [batch, channels, height, width] = x.dims();
        let x = x.reshape([batch, channels, height * width]).max_dim(2).flatten::<2>(1, 2);
        self.fc.forward(pass, x) * SCALE
    }
}

/// The input plus what two units make of it.
fn around([first, second]: &[Unit; 2], pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
    let y = first.forward(pass, x.clone());
    x + second.forward(pass, y)
}

impl Unit {
    fn new(layout: &mut Layout, name: &str, widths: [usize; 2]) -> Self {
        Self {
            conv: Conv::same(layout, &format!("{name}.conv"), widths, 3, 1),
            norm: BatchNorm::new(layout, &format!("{name}.norm"), widths[1]),
        }
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let x = self.conv.forward(pass, x);
        relu(self.norm.forward(pass, x))
    }
}
