//! A U-Net (Ronneberger, Fischer and Brox 2015, "U-Net: convolutional networks for biomedical image
//! segmentation") in the small size that the survey of Xu et al. 2020 segments industrial surfaces with.
//!
//! Down: four pairs of 3×3 convolutions with 32, 32, 64 and 128 channels, max-pool 2 behind each. Up:
//! four times two 3×3 convolutions and a transposed one of 2×2 that doubles the sides, whose output the
//! pair's of the same size on the way down is put beside: 256, 256 and 128 channels, then 128, 64 and 64,
//! 64, 32 and 32, 32, 16 and 16. At last two 3×3 convolutions with 32 channels and a 1×1 to one. All have
//! biases and, but the last, relu; 3×3 are padded, so that images come out in their own size, where the
//! paper's shrink.
//!
//! The one value of a pixel is the score of the second class, against 0 for the first: a row of the output is a pixel,
//! and the cross-entropy is the logistic loss. 1 850 305 parameters in 46 tensors on grey images, the numbers of the
//! survey's Table 3; `unet:4` has a quarter of all channels. Sides must be multiples of 16.

use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::conv_transpose2d;
use burn::tensor::ops::ConvTransposeOptions;

use super::layers::{Conv, Init, Layout, Next, Pass, max_pool};
use super::network::Network;
use super::{ImageShape, ModelError};

#[cfg(test)]
pub(super) mod tests;

/// Channels of the pairs on the way down, in units of the width.
const DOWN: [usize; 4] = [2, 2, 4, 8];
/// Channels of the three convolutions of each level on the way up.
const UP: [[usize; 3]; 4] = [[16, 16, 8], [8, 4, 4], [4, 2, 2], [2, 1, 1]];
/// What the sides of images must be a multiple of.
const SIDES: usize = 16;

/// Pairs of convolutions on the way down and up.
#[derive(Debug)]
pub(crate) struct UNet {
    down: Vec<Pair>,
    up: Vec<(Pair, Doubling)>,
    out: Pair,
    last: Conv,
}

impl UNet {
    /// What all its channels are multiples of.
    pub(crate) const WIDTH: usize = 16;

    /// Declares a network of that `width` in `layout`.
    pub(crate) fn new(
        layout: &mut Layout,
        width: usize,
        shape: ImageShape,
    ) -> Result<Self, ModelError> {
        let fits = |side: usize| side.is_multiple_of(SIDES);
        if !fits(shape.height) || !fits(shape.width) || shape.classes != 2 {
            return Err(ModelError::Sides { model: "unet", shape, sides: SIDES });
        }
        let mut from = shape.channels;
        let mut down = Vec::with_capacity(DOWN.len());
        for (at, to) in DOWN.into_iter().enumerate() {
            let name = format!("down{}", at + 1);
            down.push(Pair::new(layout, &name, [from, to * width, to * width]));
            from = to * width;
        }
        let mut up = Vec::with_capacity(UP.len());
        for (at, (widths, beside)) in UP.into_iter().zip(DOWN.into_iter().rev()).enumerate() {
            let [first, second, doubled] = widths.map(|to| to * width);
            let name = format!("up{}", at + 1);
            let pair = Pair::new(layout, &name, [from, first, second]);
            up.push((pair, Doubling::new(layout, &format!("{name}.doubling"), [second, doubled])));
            from = doubled + beside * width;
        }
        let out = Pair::new(layout, "out", [from, 2 * width, 2 * width]);
        let last = Conv::padded(layout, "last", [2 * width, 1], 1, Next::Linear);
        Ok(Self { down, up, out, last })
    }
}

impl Network for UNet {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        let mut beside = Vec::with_capacity(DOWN.len());
        let mut x = images;
        for pair in &self.down {
            let maps = pair.forward(pass, x);
            x = pass.tap(max_pool(maps.clone(), 2, 2));
            beside.push(maps);
        }
        for ((pair, doubling), beside) in self.up.iter().zip(beside.into_iter().rev()) {
            x = pair.forward(pass, x);
            x = relu(doubling.forward(pass, x));
            x = pass.tap(Tensor::cat(vec![x, beside], 1));
        }
        x = pass.tap(self.out.forward(pass, x));
        let scores = self.last.forward(pass, x);
        let [batch, _, height, width] = scores.dims();
        let scores = scores.reshape([batch * height * width, 1]);
        Tensor::cat(vec![scores.zeros_like(), scores], 1)
    }
}

/// Two convolutions with rectifiers.
#[derive(Debug)]
struct Pair {
    first: Conv,
    second: Conv,
}

impl Pair {
    fn new(layout: &mut Layout, name: &str, [from, first, second]: [usize; 3]) -> Self {
        let mut conv = |which: &str, widths| {
            Conv::padded(layout, &format!("{name}.{which}"), widths, 3, Next::Relu)
        };
        Self { first: conv("a", [from, first]), second: conv("b", [first, second]) }
    }

    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let x = relu(self.first.forward(pass, x));
        relu(self.second.forward(pass, x))
    }
}

/// A transposed convolution of 2×2 and stride 2, with bias: each value becomes a square of four.
#[derive(Debug)]
struct Doubling {
    weight: usize,
    bias: usize,
}

impl Doubling {
    fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2]) -> Self {
        // Squares do not overlap: a value of the output has one value of each channel behind it.
        let init = Init::he(from);
        Self {
            weight: layout.parameter(name, "weight", &[from, to, 2, 2], init),
            bias: layout.parameter(name, "bias", &[to], Init::Constant(0.0)),
        }
    }

    fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let options = ConvTransposeOptions::new([2, 2], [0, 0], [0, 0], [1, 1], 1);
        conv_transpose2d(x, pass.take(self.weight), Some(pass.take(self.bias)), options)
    }
}
