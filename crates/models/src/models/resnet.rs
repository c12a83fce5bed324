//! The residual networks of He et al. 2015 ("Deep residual learning for image recognition", section
//! 4.2) for CIFAR-10.
//!
//! A 3×3 convolution to 16 channels, three stages of n blocks with 16, 32 and 64 channels, global
//! average pooling, a fully connected layer: 6n + 2 weighted layers. A block is conv 3×3, batch
//! norm, relu, conv 3×3, batch norm, plus its input, relu. The first block of the second and third
//! stage has stride 2. Shortcuts are identities (the paper's option A): at the start of a stage the
//! input is subsampled by 2 and the new channels are zero, so shortcuts have no parameters.
//!
//! | depth | parameters | tensors |
//! |---|---|---|
//! | 20 | 269 722 | 59 |
//! | 32 | 464 154 | 95 |
//! | 56 | 853 018 | 167 |
//! | 110 | 1 727 962 | 329 |
//!
//! on 3-channel images and 10 classes, batch norm's scales and shifts included. Projection
//! shortcuts (option B) would add 2 752 for each depth. The survey of Xu et al. 2020 (its Table 3)
//! counts 269 467 parameters in 51 tensors for ResNet-20, in the pre-activation order of layers:
//! the same 19 convolutions (267 696), ten batch norms with scale and shift after convolutions
//! (2·352), ten with only a shift before blocks and at the end (352), and a classifier of 11
//! classes, one of them "background" (715). Compared with the original's 19 batch norms (1 376) and
//! 10 classes (650), that is 320 fewer and 65 more.

use super::network::Builder;
use super::operations::{global_mean, widen};
use super::window::Window;

/// Declares a network with `n` blocks a stage.
pub(super) fn resnet(net: &mut Builder, n: usize) {
    let kernel = Window::same(3);
    net.conv_norm(["conv", "norm"], 16, kernel).relu();
    for (stage, width) in [(1, 16), (2, 32), (3, 64)] {
        for block in 1..=n {
            let name = |layer: &str| format!("stage{stage}.block{block}.{layer}");
            let widens = net.channels() != width;
            let first = if widens { kernel.by(2) } else { kernel };
            let body = |net: &mut Builder| {
                net.conv_norm([&name("conv1"), &name("norm1")], width, first).relu();
                net.conv_norm([&name("conv2"), &name("norm2")], width, kernel);
            };
            let shortcut = |net: &mut Builder| {
                if widens {
                    net.apply(widen);
                }
            };
            net.residual(body, shortcut).relu();
        }
    }
    net.global(global_mean).classifier("fc");
}
