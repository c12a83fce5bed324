//! LeNet-5 from Caffe's MNIST example, a model in the paper on sparse binary compression (Sattler
//! et al. 2018).
//!
//! conv 20@5×5 → max-pool 2 → conv 50@5×5 → max-pool 2 → fc 500 → relu → fc classes; convolutions
//! without padding, pooling of odd sizes drops the last row and column. 431 080 parameters in 8
//! tensors on 28×28×1 images and 10 classes: 520 + 25 050 + 400 500 + 5 010. Images must be at
//! least 16×16. `lenet5:relu` also has relu after the convolutions, as in many descriptions of
//! Caffe's network; it then also matches the description of AdaComp's MNIST-CNN (Chen et al. 2018:
//! two convolutions of 5×5 with rectifiers, two fully connected layers, 1.7 MB).

use super::layout::Next;
use super::network::Builder;
use super::window::Window;

/// Declares the network, with or without relu after the convolutions.
pub(super) fn lenet5(net: &mut Builder, rectified: bool) {
    let next = if rectified { Next::PooledRelu } else { Next::Linear };
    for (name, channels) in [("conv1", 20), ("conv2", 50)] {
        net.conv(name, channels, Window::of(5), next).max_pool(Window::square(2));
        if rectified {
            // Relu commutes with max-pooling, and a quarter of the values remain after pooling.
            net.relu();
        }
    }
    net.linear("fc1", 500, Next::Relu).relu();
    net.classifier("fc2");
}
