//! The residual networks that He et al. 2015 ("Deep residual learning for image recognition", Table 1)
//! train on ImageNet.
//!
//! A 7×7 convolution of stride 2 to 64 channels, batch norm, relu, max-pool 3 of stride 2, four stages
//! of blocks, global average pooling, a fully connected layer. `resnet18` has two blocks a stage, each
//! of two 3×3 convolutions of 64, 128, 256 or 512 channels; `resnet50` has 3, 4, 6 and 3 blocks, each a
//! bottleneck: 1×1 to as many channels, 3×3, and 1×1 to four times as many. Behind each convolution is
//! batch norm, and behind that relu, at the end of a block after its input is added. The first block of
//! the second to fourth stage has stride 2, in its first convolution. Where a block changes channels,
//! its input goes through a 1×1 convolution and batch norm (the paper's option B).
//!
//! | model | parameters | tensors |
//! |---|---|---|
//! | `resnet18` | 11 689 512 | 62 |
//! | `resnet50` | 25 557 032 | 161 |
//!
//! on 3-channel images of any size and 1000 classes, batch norm's scales and shifts included. The
//! survey of Xu et al. 2020 (its Table 3) counts 25 559 081 in 161 tensors for ResNet-50, which is one
//! class more, "background": 2 049 parameters. AdaComp (Chen et al. 2018) gives both networks in MiB of
//! floats, 44.6 and 98.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::ImageShape;
use super::layers::{BatchNorm, Conv, Layout, Linear, Next, Pass, global_mean, max_pool_padded};
use super::network::Network;

/// The sizes of such a network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResNetConfig {
    /// Blocks of each stage.
    pub(crate) blocks: [usize; 4],
    /// Channels of the first stage's inner convolutions.
    pub(crate) width: usize,
    /// Whether blocks are bottlenecks.
    pub(crate) bottleneck: bool,
}

/// 18 layers.
pub(crate) const RESNET18: ResNetConfig =
    ResNetConfig { blocks: [2, 2, 2, 2], width: 64, bottleneck: false };
/// 50 layers.
pub(crate) const RESNET50: ResNetConfig =
    ResNetConfig { blocks: [3, 4, 6, 3], width: 64, bottleneck: true };

/// How many times the channels of a bottleneck's inside its output has.
const EXPANSION: usize = 4;

/// A residual network in four stages.
#[derive(Debug)]
pub(crate) struct ImageNetResNet {
    first: Unit,
    blocks: Vec<Block>,
    fc: Linear,
}

impl ImageNetResNet {
    /// Declares the network in `layout`.
    pub(crate) fn new(layout: &mut Layout, config: ResNetConfig, shape: ImageShape) -> Self {
        let first = Unit::new(layout, "first", [shape.channels, config.width], [7, 2]);
        let mut blocks = Vec::new();
        let mut from = config.width;
        for (stage, count) in config.blocks.into_iter().enumerate() {
            let inner = config.width << stage;
            for block in 0..count {
                let name = format!("stage{}.block{}", stage + 1, block + 1);
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let (block, to) = if config.bottleneck {
                    Block::bottleneck(layout, &name, [from, inner], stride)
                } else {
                    Block::basic(layout, &name, [from, inner], stride)
                };
                blocks.push(block);
                from = to;
            }
        }
        Self { first, blocks, fc: Linear::new(layout, "fc", [from, shape.classes], Next::Linear) }
    }
}

impl Network for ImageNetResNet {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.first.forward(pass, images));
        let mut x = pass.tap(max_pool_padded(x, 3, 2, 1));
        for block in &self.blocks {
            x = block.forward(pass, x);
            x = pass.tap(x);
        }
        self.fc.forward(pass, global_mean(x))
    }
}

/// Convolutions around which the input is carried.
#[derive(Debug)]
struct Block {
    units: Vec<Unit>,
    shortcut: Option<Unit>,
}

impl Block {
    /// Two 3×3 convolutions, and the channels that come out.
    fn basic(
        layout: &mut Layout,
        name: &str,
        [from, inner]: [usize; 2],
        stride: usize,
    ) -> (Self, usize) {
        let units = vec![
            Unit::new(layout, &format!("{name}.a"), [from, inner], [3, stride]),
            Unit::new(layout, &format!("{name}.b"), [inner, inner], [3, 1]),
        ];
        (Self { units, shortcut: shortcut(layout, name, [from, inner], stride) }, inner)
    }

    /// Convolutions of 1×1, 3×3 and 1×1, and the channels that come out.
    fn bottleneck(
        layout: &mut Layout,
        name: &str,
        [from, inner]: [usize; 2],
        stride: usize,
    ) -> (Self, usize) {
        let to = EXPANSION * inner;
        let units = vec![
            Unit::new(layout, &format!("{name}.a"), [from, inner], [1, stride]),
            Unit::new(layout, &format!("{name}.b"), [inner, inner], [3, 1]),
            Unit::new(layout, &format!("{name}.c"), [inner, to], [1, 1]),
        ];
        (Self { units, shortcut: shortcut(layout, name, [from, to], stride) }, to)
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let mut y = x.clone();
        for (at, unit) in self.units.iter().enumerate() {
            y = unit.forward(pass, if at == 0 { y } else { relu(y) });
        }
        let carried = match &self.shortcut {
            Some(unit) => unit.forward(pass, x),
            None => x,
        };
        relu(y + carried)
    }
}

/// What the input goes through where the channels change.
fn shortcut(layout: &mut Layout, name: &str, widths: [usize; 2], stride: usize) -> Option<Unit> {
    let [from, to] = widths;
    (from != to).then(|| Unit::new(layout, &format!("{name}.shortcut"), widths, [1, stride]))
}

/// Convolution and batch norm.
#[derive(Debug)]
struct Unit {
    conv: Conv,
    norm: BatchNorm,
}

impl Unit {
    fn new(
        layout: &mut Layout,
        name: &str,
        widths: [usize; 2],
        [kernel, stride]: [usize; 2],
    ) -> Self {
        Self {
            conv: Conv::same(layout, &format!("{name}.conv"), widths, kernel, stride),
            norm: BatchNorm::new(layout, &format!("{name}.norm"), widths[1]),
        }
    }

    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let x = self.conv.forward(pass, x);
        self.norm.forward(pass, x)
    }
}
