//! The residual networks of He et al. 2015 ("Deep residual learning for image recognition", Table
//! 1) for ImageNet.
//!
//! A 7×7 convolution of stride 2 to 64 channels, batch norm, relu, max-pool 3 of stride 2, four
//! stages of blocks, global average pooling, a fully connected layer. `resnet18` has two blocks a
//! stage, each of two 3×3 convolutions of 64, 128, 256 or 512 channels; `resnet50` has 3, 4, 6 and
//! 3 blocks, each a bottleneck: 1×1 to this number of channels, 3×3, and 1×1 to four times the
//! number. Each convolution is followed by batch norm and relu; at the end of a block the input is
//! added before relu. The first block of the second to fourth stage has stride 2, in its first
//! convolution. If a block changes the channels, its input goes through a 1×1 convolution and batch
//! norm (the paper's option B).
//!
//! | model | parameters | tensors |
//! |---|---|---|
//! | `resnet18` | 11 689 512 | 62 |
//! | `resnet50` | 25 557 032 | 161 |
//!
//! on 3-channel images of any size and 1000 classes, batch norm's scales and shifts included. The
//! survey of Xu et al. 2020 (its Table 3) counts 25 559 081 in 161 tensors for ResNet-50, because
//! of one more class, "background", with 2 049 parameters. AdaComp (Chen et al. 2018) gives both
//! networks in MiB of floats, 44.6 and 98.

use super::network::Builder;
use super::operations::global_mean;
use super::window::Window;

/// The sizes of such a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResNetConfig {
    /// Blocks of each stage.
    pub(super) blocks: [usize; 4],
    /// Channels of the first stage's inner convolutions.
    pub(super) width: usize,
    /// Whether blocks are bottlenecks.
    pub(super) bottleneck: bool,
}

/// 18 layers.
pub(super) const RESNET18: ResNetConfig =
    ResNetConfig { blocks: [2, 2, 2, 2], width: 64, bottleneck: false };
/// 50 layers.
pub(super) const RESNET50: ResNetConfig =
    ResNetConfig { blocks: [3, 4, 6, 3], width: 64, bottleneck: true };
/// The ratio of a bottleneck's output channels to its inner channels.
const EXPANSION: usize = 4;

/// Declares such a network.
pub(super) fn imagenet_resnet(net: &mut Builder, config: ResNetConfig) {
    unit(net, "first", config.width, Window::same(7).by(2)).relu();
    net.max_pool(Window { kernel: 3, stride: 2, padding: 1 });
    for (stage, count) in config.blocks.into_iter().enumerate() {
        let inner = config.width << stage;
        for block in 0..count {
            let name = format!("stage{}.block{}", stage + 1, block + 1);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let to = if config.bottleneck { EXPANSION * inner } else { inner };
            let (kernels, widths): (&[usize], &[usize]) = match config.bottleneck {
                true => (&[1, 3, 1], &[inner, inner, to]),
                false => (&[3, 3], &[inner, to]),
            };
            let body = |net: &mut Builder| {
                for (at, (&kernel, &width)) in kernels.iter().zip(widths).enumerate() {
                    let (letter, stride) = (["a", "b", "c"][at], if at == 0 { stride } else { 1 });
                    if at > 0 {
                        net.relu();
                    }
                    unit(net, &format!("{name}.{letter}"), width, Window::same(kernel).by(stride));
                }
            };
            let widens = net.channels() != to;
            let shortcut = |net: &mut Builder| {
                if widens {
                    unit(net, &format!("{name}.shortcut"), to, Window::of(1).by(stride));
                }
            };
            net.residual(body, shortcut).relu();
        }
    }
    net.global(global_mean).classifier("fc");
}

/// Convolution and batch norm.
fn unit<'a>(net: &'a mut Builder, name: &str, to: usize, window: Window) -> &'a mut Builder {
    net.conv_norm([&*format!("{name}.conv"), &*format!("{name}.norm")], to, window)
}
