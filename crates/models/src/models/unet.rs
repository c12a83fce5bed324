//! A U-Net (Ronneberger, Fischer and Brox 2015, "U-Net: convolutional networks for biomedical image
//! segmentation") in the small size of the survey of Xu et al. 2020, which segments industrial
//! surfaces.
//!
//! Down: four pairs of 3×3 convolutions with 32, 32, 64 and 128 channels, max-pool 2 after each.
//! Up: four times two 3×3 convolutions and a transposed one of 2×2 that doubles the sides. Its
//! output is concatenated with the output of the pair of the same size on the way down: 256, 256
//! and 128 channels, then 128, 64 and 64, 64, 32 and 32, 32, 16 and 16. Last come two 3×3
//! convolutions with 32 channels and a 1×1 to one. All have biases and, except the last, relu. 3×3
//! convolutions are padded, so images keep their size, unlike in the paper.
//!
//! The single value of a pixel is the score of the second class; the first class has the score 0. A
//! row of the output is a pixel, and the cross-entropy is the logistic loss. 1 850 305 parameters
//! in 46 tensors on grey images, the numbers of the survey's Table 3; `unet:4` has a quarter of all
//! channels. Sides must be multiples of 16. All initial weights before a rectifier have He's
//! variance, even if pooling follows.

use super::layout::Next;
use super::network::Builder;
use super::operations::against_zero;
use super::window::Window;

#[cfg(test)]
pub(super) mod tests;

/// The unit of all channel counts.
pub(super) const WIDTH: usize = 16;
/// Channels of the pairs on the way down, in units of the width.
const DOWN: [usize; 4] = [2, 2, 4, 8];
/// Channels of the three convolutions of each level on the way up.
const UP: [[usize; 3]; 4] = [[16, 16, 8], [8, 4, 4], [4, 2, 2], [2, 1, 1]];
/// The sides of images must be multiples of this number.
pub(super) const SIDES: usize = 16;

/// Declares a network of that `width`.
pub(super) fn unet(net: &mut Builder, width: usize) {
    level(net, 0, width);
    pair(net, "out", [2 * width; 2]);
    net.conv("last", 1, Window::of(1), Next::Linear).apply(against_zero);
}

/// A pair of convolutions on the way down, the levels below it, and the convolutions on the way up.
fn level(net: &mut Builder, at: usize, width: usize) {
    pair(net, &format!("down{}", at + 1), [DOWN[at] * width; 2]);
    let below = |net: &mut Builder| {
        net.max_pool(Window::square(2));
        if at + 1 < DOWN.len() {
            level(net, at + 1, width);
        }
        let up = DOWN.len() - 1 - at;
        let [first, second, doubled] = UP[up].map(|to| to * width);
        let name = format!("up{}", up + 1);
        pair(net, &name, [first, second]);
        net.doubling(&format!("{name}.doubling"), doubled).relu();
    };
    net.concat(true, below);
}

/// Two convolutions with rectifiers.
fn pair(net: &mut Builder, name: &str, [first, second]: [usize; 2]) {
    net.conv(&format!("{name}.a"), first, Window::same(3), Next::Relu).relu();
    net.conv(&format!("{name}.b"), second, Window::same(3), Next::Relu).relu();
}
