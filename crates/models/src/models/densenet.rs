//! DenseNet-40 with growth rate 12 (Huang et al. 2017, "Densely connected convolutional networks",
//! section 3) for CIFAR-10, in the size of the survey of Xu et al. 2020.
//!
//! A 3×3 convolution to 16 channels, three blocks of twelve layers, a transition between blocks,
//! batch norm, relu, global average pooling, a fully connected layer. A layer is batch norm, relu,
//! conv 3×3 to 12 channels; its output is concatenated with its input. A transition is batch norm,
//! relu, conv 1×1, mean of each 2×2.
//!
//! In the paper a transition keeps all its channels, for 1.0 million parameters. The survey (its
//! Table 3) counts 357 491 in 158 tensors. This network has as many on 3-channel images and 11
//! classes, one of them "background", if transitions leave 24 = 2·12 channels and convolutions have
//! biases: 448 for the first, 108·3 144 + 36·12 for the layers, 160·24 + 24 and 168·24 + 24 for the
//! transitions, 2·3 640 for 39 batch norms, 168·11 + 11 for the classifier. With 10 classes that is
//! 357 322. Images must be at least 4×4.

use super::layout::Next;
use super::network::Builder;
use super::operations::global_mean;
use super::window::Window;

/// Blocks of densely connected layers.
const BLOCKS: usize = 3;

/// Declares a network whose blocks have `layers` layers of `growth` channels each.
pub(super) fn densenet(net: &mut Builder, [layers, growth]: [usize; 2]) {
    net.conv("conv", 16, Window::same(3), Next::Relu);
    for block in 1..=BLOCKS {
        for layer in 1..=layers {
            let name = format!("block{block}.layer{layer}");
            net.concat(false, |net| unit(net, &name, growth, 3));
        }
        if block < BLOCKS {
            unit(net, &format!("transition{block}"), 2 * growth, 1);
            net.halve();
        }
    }
    net.norm("norm").relu().global(global_mean).classifier("fc");
}

/// Batch norm, relu, convolution.
fn unit(net: &mut Builder, name: &str, to: usize, kernel: usize) {
    let window = Window::same(kernel);
    net.norm(&format!("{name}.norm")).relu();
    net.conv(&format!("{name}.conv"), to, window, Next::Relu);
}
