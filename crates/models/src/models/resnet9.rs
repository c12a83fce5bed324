//! The nine-layer residual network of Page ("How to train your ResNet", 2018) for CIFAR-10 in the
//! DAWNBench competition, the "custom ResNet-9" of the survey of Xu et al. 2020.
//!
//! conv 64 → conv 128, max-pool 2 → residual of two convs 128 → conv 256, max-pool 2 → conv 512,
//! max-pool 2 → residual of two convs 512 → largest of each channel → fc classes without bias,
//! whose scores are divided by 8. Convolutions are 3×3, padded, without bias, each followed by
//! batch norm and relu; a residual adds its input to its output.
//!
//! 6 573 120 parameters in 25 tensors on 3-channel images and 10 classes, the numbers of the
//! survey's Table 3: 6 563 520 in convolutions, 4 480 in batch norms, 5 120 in the classifier.
//! Images must be at least 8×8.

use super::network::Builder;
use super::operations::{eighth, global_max};
use super::window::Window;

/// Channels of the first convolution.
pub(super) const WIDTH: usize = 64;

/// Declares a network whose first convolution has `width` channels.
pub(super) fn resnet9(net: &mut Builder, width: usize) {
    unit(net, "first", width);
    unit(net, "layer1", 2 * width).max_pool(Window::square(2));
    around(net, "residual1");
    unit(net, "layer2", 4 * width).max_pool(Window::square(2));
    unit(net, "layer3", 8 * width).max_pool(Window::square(2));
    around(net, "residual3");
    net.global(global_max).unbiased_classifier("fc").apply(eighth);
}

/// Convolution, batch norm, relu.
fn unit<'a>(net: &'a mut Builder, name: &str, to: usize) -> &'a mut Builder {
    let names = [&*format!("{name}.conv"), &*format!("{name}.norm")];
    net.conv_norm(names, to, Window::same(3)).relu()
}

/// The input plus the output of two units.
fn around<'a>(net: &'a mut Builder, name: &str) -> &'a mut Builder {
    let width = net.channels();
    let body = |net: &mut Builder| {
        unit(net, &format!("{name}.a"), width);
        unit(net, &format!("{name}.b"), width);
    };
    net.residual(body, |_| {})
}
