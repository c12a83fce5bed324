//! The plain deep networks of Simonyan and Zisserman 2015 ("Very deep convolutional networks for
//! large-scale image recognition", Table 1, configurations D and E).
//!
//! Five stages of 3×3 convolutions with 64, 128, 256, 512 and 512 channels, each convolution padded,
//! with bias and relu, each stage closed by max-pool 2; then fully connected layers with relu, the last
//! without. There is no batch norm, and the paper's dropout between the fully connected layers is left
//! out.
//!
//! | model | convolutions | hidden units | images | classes | parameters | tensors |
//! |---|---|---|---|---|---|---|
//! | `vgg16` | 2, 2, 3, 3, 3 | 512 | 32×32×3 | 10 | 14 982 474 | 30 |
//! | `vgg19` | 2, 2, 4, 4, 4 | 4096, 4096 | 224×224×3 | 1000 | 143 667 240 | 38 |
//!
//! `vgg16` is the network in CIFAR-10's size, with one hidden layer of 512 units in place of two of
//! 4096: 14 714 688 + 262 656 + 5 130. The survey of Xu et al. 2020 (its Table 3) counts 14 982 987 in
//! 30 and 143 671 337 in 38 tensors, which is one class more, "background": 513 and 4 097 parameters.
//! Images must be at least 32×32.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{Conv, Layout, Linear, Next, Pass, max_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

/// Channels of the five stages, in those of the first.
const WIDTHS: [usize; 5] = [1, 2, 4, 8, 8];

/// The sizes of such a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VggConfig {
    /// Its name.
    pub(crate) name: &'static str,
    /// Convolutions of each stage.
    pub(crate) convs: [usize; 5],
    /// Channels of the first stage.
    pub(crate) width: usize,
    /// Units of each hidden fully connected layer.
    pub(crate) hidden: &'static [usize],
}

/// Configuration D for CIFAR-10.
pub(crate) const VGG16: VggConfig =
    VggConfig { name: "vgg16", convs: [2, 2, 3, 3, 3], width: 64, hidden: &[512] };
/// Configuration E.
pub(crate) const VGG19: VggConfig =
    VggConfig { name: "vgg19", convs: [2, 2, 4, 4, 4], width: 64, hidden: &[4096, 4096] };

/// Five stages of convolutions, then fully connected layers.
#[derive(Debug)]
pub(crate) struct Vgg {
    stages: Vec<Vec<Conv>>,
    hidden: Vec<Linear>,
    last: Linear,
}

impl Vgg {
    /// Declares the network in `layout`.
    pub(crate) fn new(
        layout: &mut Layout,
        config: VggConfig,
        shape: ImageShape,
    ) -> Result<Self, ModelError> {
        let (height, width) = (shape.height / 32, shape.width / 32);
        if height == 0 || width == 0 {
            return Err(ModelError::TooSmall { model: config.name, shape, least: 32 });
        }
        let mut from = shape.channels;
        let mut stages = Vec::with_capacity(WIDTHS.len());
        for (stage, (convs, to)) in config.convs.into_iter().zip(WIDTHS).enumerate() {
            let to = to * config.width;
            let conv = |at| {
                let name = format!("stage{}.conv{at}", stage + 1);
                let conv = Conv::padded(layout, &name, [from, to], 3, Next::Relu);
                from = to;
                conv
            };
            stages.push((1..=convs).map(conv).collect());
        }
        from *= height * width;
        let mut hidden = Vec::with_capacity(config.hidden.len());
        for (at, &to) in config.hidden.iter().enumerate() {
            hidden.push(Linear::new(layout, &format!("fc{}", at + 1), [from, to], Next::Relu));
            from = to;
        }
        let name = format!("fc{}", config.hidden.len() + 1);
        let last = Linear::new(layout, &name, [from, shape.classes], Next::Linear);
        Ok(Self { stages, hidden, last })
    }
}

impl Network for Vgg {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let mut x = images;
        for stage in &self.stages {
            for conv in stage {
                x = pass.tap(relu(conv.forward(pass, x)));
            }
            x = max_pool(x, 2, 2);
        }
        let x = x.flatten::<2>(1, 3);
        let x = self.hidden.iter().fold(x, |x, layer| pass.tap(relu(layer.forward(pass, x))));
        self.last.forward(pass, x)
    }
}
