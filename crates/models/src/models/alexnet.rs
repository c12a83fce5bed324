//! AlexNet (Krizhevsky, Sutskever and Hinton 2012, "ImageNet classification with deep convolutional
//! neural networks", section 3.5), one of the models that AdaComp (Chen et al. 2018) is measured on.
//!
//! conv 96@11×11 stride 4 → max-pool 3 stride 2 → conv 256@5×5 → max-pool 3 stride 2 → conv 384@3×3 →
//! conv 384@3×3 → conv 256@3×3 → max-pool 3 stride 2 → fc 4096 → fc 4096 → fc classes, with relu behind
//! all but the last. The first convolution is padded by 2, which makes 55×55 places of 224×224 images;
//! the others keep their input's size.
//!
//! 62 378 344 parameters in 16 tensors on 224×224×3 images and 1000 classes. The paper splits the
//! second, fourth and fifth convolution in two halves, one for each of its processors; here, as where
//! one processor holds the network, they are whole, which adds 1 413 120 parameters. Response
//! normalisation and dropout are left out. AdaComp's 288 MB are not met by either: 62 378 344 floats
//! are 250 MB. Images must be at least 63×63.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;

use super::layers::{Conv, Layout, Linear, Next, Pass, max_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

/// Channels of the convolutions and units of the hidden layers, in units of [`AlexNet::WIDTH`].
const WIDTHS: [usize; 5] = [3, 8, 12, 12, 8];
const HIDDEN: usize = 128;
/// Kernels of the convolutions.
const KERNELS: [usize; 5] = [11, 5, 3, 3, 3];

/// Five convolutions, three fully connected layers.
#[derive(Debug)]
pub(crate) struct AlexNet {
    convs: [Conv; 5],
    hidden: [Linear; 2],
    last: Linear,
}

impl AlexNet {
    /// What the widths of all layers are multiples of.
    pub(crate) const WIDTH: usize = 32;

    /// Declares a network of that `width` in `layout`.
    pub(crate) fn new(
        layout: &mut Layout,
        width: usize,
        shape: ImageShape,
    ) -> Result<Self, ModelError> {
        let places = after_convolutions(shape.height).zip(after_convolutions(shape.width));
        let Some((rows, columns)) = places else {
            return Err(ModelError::TooSmall { model: "alexnet", shape, least: 63 });
        };
        let mut from = shape.channels;
        let convs = [0, 1, 2, 3, 4].map(|at| {
            let (name, to) = (format!("conv{}", at + 1), WIDTHS[at] * width);
            let conv = Conv::padded(layout, &name, [from, to], KERNELS[at], Next::Relu);
            from = to;
            if at == 0 { conv.spaced(4, 2) } else { conv }
        });
        let (features, units) = (from * rows * columns, HIDDEN * width);
        Ok(Self {
            convs,
            hidden: [
                Linear::new(layout, "fc1", [features, units], Next::Relu),
                Linear::new(layout, "fc2", [units, units], Next::Relu),
            ],
            last: Linear::new(layout, "fc3", [units, shape.classes], Next::Linear),
        })
    }
}

/// What the first convolution and three rounds of pooling leave of a length, if anything.
fn after_convolutions(length: usize) -> Option<usize> {
    let places = |length: usize, kernel, stride| Some(length.checked_sub(kernel)? / stride + 1);
    let pooled = |length| places(length, 3, 2);
    places(length + 4, 11, 4).and_then(pooled).and_then(pooled).and_then(pooled)
}

impl Network for AlexNet {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let mut x = images;
        for (at, conv) in self.convs.iter().enumerate() {
            x = relu(conv.forward(pass, x));
            if [0, 1, 4].contains(&at) {
                x = max_pool(x, 3, 2);
            }
            x = pass.tap(x);
        }
        let x = x.flatten::<2>(1, 3);
        let x = self.hidden.iter().fold(x, |x, layer| pass.tap(relu(layer.forward(pass, x))));
        self.last.forward(pass, x)
    }
}
