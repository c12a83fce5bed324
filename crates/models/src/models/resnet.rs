//! The residual networks that He et al. 2015 ("Deep residual learning for image recognition",
//! section 4.2) train on CIFAR-10.
//!
//! A 3×3 convolution to 16 channels, three stages of n blocks with 16, 32 and 64 channels, global
//! average pooling, a fully connected layer: 6n + 2 weighted layers. A block is conv 3×3, batch norm,
//! relu, conv 3×3, batch norm, plus its input, relu. The first block of the second and third stage
//! has stride 2. Shortcuts are identities throughout (the paper's option A): where a stage begins,
//! the input is subsampled by 2 and the new channels are zero, so shortcuts have no parameters.
//!
//! | depth | parameters | tensors |
//! |---|---|---|
//! | 20 | 269 722 | 59 |
//! | 32 | 464 154 | 95 |
//! | 56 | 853 018 | 167 |
//! | 110 | 1 727 962 | 329 |
//!
//! on 3-channel images and 10 classes, batch norm's scales and shifts included. Projection shortcuts
//! (option B) would add 2 752 for each depth. The survey of Xu et al. 2020 (its Table 3) counts
//! 269 467 parameters in 51 tensors for ResNet-20, which is the pre-activation order of layers: the
//! same 19 convolutions (267 696), ten batch norms with scale and shift behind convolutions (2·352),
//! ten with a shift only in front of blocks and at the end (352), and a classifier of 11 classes, one
//! of them "background" (715); against the original's 19 batch norms (1 376) and 10 classes (650) that
//! is 320 fewer and 65 more.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::ImageShape;
use super::layers::{BatchNorm, Conv, Layout, Linear, Next, Pass, global_mean, max_pool};
use super::network::Network;

/// A residual network of depth 6n + 2.
#[derive(Debug)]
pub(crate) struct ResNet {
    conv: Conv,
    norm: BatchNorm,
    blocks: Vec<Block>,
    fc: Linear,
}

impl ResNet {
    /// Declares a network with `n` blocks a stage in `layout`.
    pub(crate) fn new(layout: &mut Layout, n: usize, shape: ImageShape) -> Self {
        let conv = Conv::same(layout, "conv", [shape.channels, 16], 3, 1);
        let norm = BatchNorm::new(layout, "norm", 16);
        let mut blocks = Vec::with_capacity(3 * n);
        let mut from = 16;
        for (stage, to) in [16, 32, 64].into_iter().enumerate() {
            for block in 0..n {
                let name = format!("stage{}.block{}", stage + 1, block + 1);
                blocks.push(Block::new(layout, &name, [from, to]));
                from = to;
            }
        }
        let fc = Linear::new(layout, "fc", [64, shape.classes], Next::Linear);
        Self { conv, norm, blocks, fc }
    }
}

impl Network for ResNet {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let x = self.conv.forward(pass, images);
        let x = relu(self.norm.forward(pass, x));
        let mut x = pass.tap(x);
        for block in &self.blocks {
            x = block.forward(pass, x);
            x = pass.tap(x);
        }
        self.fc.forward(pass, global_mean(x))
    }
}

/// Two convolutions around which the input is carried unchanged.
#[derive(Debug)]
struct Block {
    conv1: Conv,
    norm1: BatchNorm,
    conv2: Conv,
    norm2: BatchNorm,
    widens: bool,
}

impl Block {
    fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2]) -> Self {
        let widens = from != to;
        let stride = if widens { 2 } else { 1 };
        Self {
            conv1: Conv::same(layout, &format!("{name}.conv1"), [from, to], 3, stride),
            norm1: BatchNorm::new(layout, &format!("{name}.norm1"), to),
            conv2: Conv::same(layout, &format!("{name}.conv2"), [to, to], 3, 1),
            norm2: BatchNorm::new(layout, &format!("{name}.norm2"), to),
            widens,
        }
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let y = self.conv1.forward(pass, x.clone());
        let y = relu(self.norm1.forward(pass, y));
        let y = self.conv2.forward(pass, y);
        let y = self.norm2.forward(pass, y);
        relu(y + if self.widens { widen(x) } else { x })
    }
}

/// Every second row and column, and as many zero channels again.
fn widen(x: Tensor<4>) -> Tensor<4> {
    // Pooling windows of one element take each second one and let the gradient back to it alone.
    let x = max_pool(x, 1, 2);
    let zeros = x.zeros_like();
    Tensor::cat(vec![x, zeros], 1)
}
