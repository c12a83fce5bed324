//! DenseNet-40 with growth rate 12 (Huang et al. 2017, "Densely connected convolutional networks",
//! section 3) for CIFAR-10, in the size that the survey of Xu et al. 2020 measures.
//!
//! A 3×3 convolution to 16 channels, three blocks of twelve layers, a transition between blocks, batch
//! norm, relu, global average pooling, a fully connected layer. A layer is batch norm, relu, conv 3×3
//! to 12 channels, and its output is put beside its input. A transition is batch norm, relu, conv 1×1,
//! mean of each 2×2.
//!
//! In the paper a transition keeps all its channels, which makes 1.0 million parameters. The survey
//! (its Table 3) counts 357 491 in 158 tensors, which is what this network has on 3-channel images and
//! 11 classes, one of them "background", if transitions leave 2·12 = 24 channels and convolutions have
//! biases: 448 for the first, 108·3 144 + 36·12 for the layers, 160·24 + 24 and 168·24 + 24 for the
//! transitions, 2·3 640 for 39 batch norms, 168·11 + 11 for the classifier. With 10 classes that is
//! 357 322. Images must be at least 4×4.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{BatchNorm, Conv, Layout, Linear, Next, Pass, global_mean, mean_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

/// Blocks of densely connected layers.
const BLOCKS: usize = 3;

/// Three blocks of densely connected layers.
#[derive(Debug)]
pub(crate) struct DenseNet {
    conv: Conv,
    blocks: Vec<Vec<Unit>>,
    transitions: Vec<Unit>,
    norm: BatchNorm,
    fc: Linear,
}

/// Batch norm, relu, convolution.
#[derive(Debug)]
struct Unit {
    norm: BatchNorm,
    conv: Conv,
}

impl DenseNet {
    /// Declares a network whose blocks have `layers` layers of `growth` channels each in `layout`.
    pub(crate) fn new(
        layout: &mut Layout,
        [layers, growth]: [usize; 2],
        shape: ImageShape,
    ) -> Result<Self, ModelError> {
        if shape.height < 4 || shape.width < 4 {
            return Err(ModelError::TooSmall { model: "densenet40", shape, least: 4 });
        }
        let conv = Conv::padded(layout, "conv", [shape.channels, 16], 3, Next::Relu);
        let mut from = 16;
        let (mut blocks, mut transitions) = (Vec::new(), Vec::new());
        for block in 1..=BLOCKS {
            let mut units = Vec::with_capacity(layers);
            for layer in 1..=layers {
                let name = format!("block{block}.layer{layer}");
                units.push(Unit::new(layout, &name, [from, growth], 3));
                from += growth;
            }
            blocks.push(units);
            if block < BLOCKS {
                let name = format!("transition{block}");
                transitions.push(Unit::new(layout, &name, [from, 2 * growth], 1));
                from = 2 * growth;
            }
        }
        Ok(Self {
            conv,
            blocks,
            transitions,
            norm: BatchNorm::new(layout, "norm", from),
            fc: Linear::new(layout, "fc", [from, shape.classes], Next::Linear),
        })
    }
}

impl Network for DenseNet {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let mut x = pass.tap(self.conv.forward(pass, images));
        for (at, block) in self.blocks.iter().enumerate() {
            for layer in block {
                let new = layer.forward(pass, x.clone());
                x = pass.tap(Tensor::cat(vec![x, new], 1));
            }
            if let Some(transition) = self.transitions.get(at) {
                x = mean_pool(transition.forward(pass, x), 2);
                x = pass.tap(x);
            }
        }
        let x = relu(self.norm.forward(pass, x));
        self.fc.forward(pass, global_mean(x))
    }
}

impl Unit {
    fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2], kernel: usize) -> Self {
        Self {
            norm: BatchNorm::new(layout, &format!("{name}.norm"), from),
            conv: Conv::padded(layout, &format!("{name}.conv"), [from, to], kernel, Next::Relu),
        }
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let x = relu(self.norm.forward(pass, x));
        self.conv.forward(pass, x)
    }
}
