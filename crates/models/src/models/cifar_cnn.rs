//! Three convolutions and one fully connected layer for CIFAR-10, one of the models in AdaComp's
//! measurements (Chen et al. 2018), after Krizhevsky's cuda-convnet.
//!
//! conv 32@5×5 → relu → max-pool 2 → conv 32@5×5 → relu → max-pool 2 → conv 64@5×5 → relu →
//! max-pool 2 → fc classes; convolutions are padded, pooling of odd sizes drops the last row and
//! column. The paper gives the layers and 0.3 MB; cuda-convnet's widths make 89 578 parameters in 8
//! tensors (0.36 MB) of 32×32×3 images and 10 classes: 2 432 + 25 632 + 51 264 + 10 250.
//! Cuda-convnet's 3×3 pooling windows and response normalisation are left out. Images must be at
//! least 8×8.

use super::layout::Next;
use super::network::Builder;
use super::window::Window;

/// Declares the network.
pub(super) fn cifar_cnn(net: &mut Builder) {
    for (name, channels) in [("conv1", 32), ("conv2", 32), ("conv3", 64)] {
        // Relu commutes with max-pooling, and a quarter of the values remain after pooling.
        net.conv(name, channels, Window::same(5), Next::PooledRelu);
        net.max_pool(Window::square(2)).relu();
    }
    net.classifier("fc");
}
