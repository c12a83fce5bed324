//! The plain deep networks of Simonyan and Zisserman 2015 ("Very deep convolutional networks for
//! large-scale image recognition", Table 1, configurations D and E).
//!
//! Five stages of 3×3 convolutions with 64, 128, 256, 512 and 512 channels, each convolution
//! padded, with bias and relu, and max-pool 2 at the end of each stage; then fully connected layers
//! with relu, the last without. There is no batch norm, and the paper's dropout between the fully
//! connected layers is left out.
//!
//! | model | convolutions | hidden units | images | classes | parameters | tensors |
//! |---|---|---|---|---|---|---|
//! | `vgg16` | 2, 2, 3, 3, 3 | 512 | 32×32×3 | 10 | 14 982 474 | 30 |
//! | `vgg19` | 2, 2, 4, 4, 4 | 4096, 4096 | 224×224×3 | 1000 | 143 667 240 | 38 |
//!
//! `vgg16` is the network in CIFAR-10's size, with one hidden layer of 512 units instead of two of
//! 4096: 14 714 688 + 262 656 + 5 130. The survey of Xu et al. 2020 (its Table 3) counts 14 982 987
//! in 30 and 143 671 337 in 38 tensors, because of one more class, "background", with 513 and 4 097
//! parameters. Images must be at least 32×32. All initial weights before a rectifier have He's
//! variance, even if pooling follows.

use super::layout::Next;
use super::network::Builder;
use super::window::Window;

/// Channels of the five stages, as multiples of the first stage's.
const WIDTHS: [usize; 5] = [1, 2, 4, 8, 8];

/// The sizes of such a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct VggConfig {
    /// Convolutions of each stage.
    pub(super) convs: [usize; 5],
    /// Channels of the first stage.
    pub(super) width: usize,
    /// Units of each hidden fully connected layer.
    pub(super) hidden: &'static [usize],
}

/// Configuration D for CIFAR-10.
pub(super) const VGG16: VggConfig = VggConfig { convs: [2, 2, 3, 3, 3], width: 64, hidden: &[512] };
/// Configuration E.
pub(super) const VGG19: VggConfig =
    VggConfig { convs: [2, 2, 4, 4, 4], width: 64, hidden: &[4096, 4096] };

/// Declares such a network.
pub(super) fn vgg(net: &mut Builder, config: VggConfig) {
    for (stage, (convs, width)) in (1..).zip(config.convs.into_iter().zip(WIDTHS)) {
        for conv in 1..=convs {
            let name = format!("stage{stage}.conv{conv}");
            net.conv(&name, width * config.width, Window::same(3), Next::Relu).relu();
        }
        net.max_pool(Window::square(2));
    }
    for (at, &units) in (1..).zip(config.hidden) {
        net.linear(&format!("fc{at}"), units, Next::Relu).relu();
    }
    net.classifier(&format!("fc{}", config.hidden.len() + 1));
}
