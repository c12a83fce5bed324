//! AlexNet (Krizhevsky, Sutskever and Hinton 2012, "ImageNet classification with deep convolutional
//! neural networks", section 3.5), one of the models in AdaComp's measurements (Chen et al. 2018).
//!
//! conv 96@11×11 stride 4 → max-pool 3 stride 2 → conv 256@5×5 → max-pool 3 stride 2 → conv 384@3×3
//! → conv 384@3×3 → conv 256@3×3 → max-pool 3 stride 2 → fc 4096 → fc 4096 → fc classes, with relu
//! after all but the last. The first convolution is padded by 2, which gives 55×55 outputs for
//! 224×224 images; the others keep their input's size.
//!
//! 62 378 344 parameters in 16 tensors on 224×224×3 images and 1000 classes. The paper splits the
//! second, fourth and fifth convolution in two halves, one for each of its processors. Here, as
//! usual on one processor, they are whole, which adds 1 413 120 parameters. Response normalisation
//! and dropout are left out. AdaComp's 288 MB match neither: 62 378 344 floats are 250 MB. Images
//! must be at least 63×63. All initial weights before a rectifier have He's variance, even if
//! pooling follows.

use super::layout::Next;
use super::network::Builder;
use super::window::Window;

/// The unit of the widths of all layers.
pub(super) const WIDTH: usize = 32;

/// Declares a network of that `width`.
pub(super) fn alexnet(net: &mut Builder, width: usize) {
    let first = Window { kernel: 11, stride: 4, padding: 2 };
    let pool = Window { kernel: 3, stride: 2, padding: 0 };
    net.conv("conv1", 3 * width, first, Next::Relu).relu().max_pool(pool);
    net.conv("conv2", 8 * width, Window::same(5), Next::Relu).relu().max_pool(pool);
    net.conv("conv3", 12 * width, Window::same(3), Next::Relu).relu();
    net.conv("conv4", 12 * width, Window::same(3), Next::Relu).relu();
    net.conv("conv5", 8 * width, Window::same(3), Next::Relu).relu().max_pool(pool);
    net.linear("fc1", 128 * width, Next::Relu).relu();
    net.linear("fc2", 128 * width, Next::Relu).relu();
    net.classifier("fc3");
}
