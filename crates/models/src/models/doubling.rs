//! Transposed convolution that doubles height and width.

use super::layout::{Init, Layout};
use super::maps::Maps;
use super::pass::Pass;
use super::pointwise::add_map_sums;
use crate::matmul::{Matrix, multiply};

/// The output values of one input value.
const SQUARE: usize = 4;

/// A transposed convolution of 2×2 and stride 2, with bias: each value becomes a square of four.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doubling {
    weight: usize,
    bias: usize,
    from: usize,
    to: usize,
}

impl Doubling {
    /// Declares a layer from `from` to `to` channels.
    pub(super) fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2]) -> Self {
        // Squares do not overlap: a value of the output is a sum over one value of each channel.
        let weight = layout.parameter(name, "weight", &[from, to, 2, 2], Init::he(from));
        Self { weight, bias: layout.bias(name, to), from, to }
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> [usize; 2] {
        [self.weight, self.bias]
    }

    /// Feature maps of twice the height and width.
    pub(super) fn forward<'a>(&self, pass: &mut Pass<'a>, x: Maps) -> Maps {
        let Self { weight, bias, from, to } = *self;
        let (parameters, [_, height, width], plane) = (pass.parameters, x.shape, x.map_len());
        let weights = Matrix::new(&parameters[weight], to * SQUARE);
        let mut squares = vec![0.0; to * SQUARE * plane];
        let mut y = vec![0.0; x.batch() * squares.len()];
        for (x, y) in x.values().chunks_exact(x.image_len()).zip(y.chunks_exact_mut(squares.len()))
        {
            multiply(weights.transposed(), Matrix::new(x, plane), false, &mut squares);
            for (start, row) in rows(to, height, width).zip(squares.chunks_exact(width)) {
                let places = y[start..].iter_mut().step_by(2);
                places.zip(row).for_each(|(y, value)| *y = *value);
            }
            for (map, bias) in y.chunks_exact_mut(SQUARE * plane).zip(&parameters[bias]) {
                map.iter_mut().for_each(|y| *y += bias);
            }
        }
        pass.record(move |gradient, gradients| {
            let mut found = vec![0.0; x.values().len()];
            let images =
                found.chunks_exact_mut(from * plane).zip(x.values().chunks_exact(from * plane));
            let of_images = gradient.values().chunks_exact(squares.len());
            for ((found, x), gradient) in images.zip(of_images) {
                add_map_sums(&mut gradients.all[bias], gradient);
                for (start, row) in rows(to, height, width).zip(squares.chunks_exact_mut(width)) {
                    let places = gradient[start..].iter().step_by(2);
                    places.zip(row).for_each(|(gradient, value)| *value = *gradient);
                }
                let squares = Matrix::new(&squares, plane);
                let of_weight = &mut gradients.all[weight];
                multiply(Matrix::new(x, plane), squares.transposed(), true, of_weight);
                multiply(weights, squares, false, found);
            }
            gradients.ready([weight, bias]);
            x.outline().gradient(|| found)
        });
        Maps::new(y, [to, 2 * height, 2 * width])
    }
}

/// The start of each row in the output of an image: map by map, place in the square by place, row
/// by row. Values of a row are two apart.
fn rows(maps: usize, height: usize, width: usize) -> impl Iterator<Item = usize> {
    let places = (0..maps).flat_map(|map| [[0, 0], [0, 1], [1, 0], [1, 1]].map(|at| (map, at)));
    places.flat_map(move |(map, [y, x])| {
        (0..height).map(move |row| ((map * height + row) * 2 + y) * 2 * width + x)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::testing::{Trial, wave};

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        let (from, to, [height, width]) = (3, 2, [4, 5]);
        let mut layout = Layout::default();
        let doubling = Doubling::new(&mut layout, "doubling", [from, to]);
        let parameters = vec![wave(from * to * SQUARE, 1.3), wave(to, 0.9)];
        let run = |pass: &mut Pass<'_>, x| doubling.forward(pass, x);
        Trial::run((2, [from, height, width]), parameters, run).check(|x, parameters| {
            let value = |at: usize| {
                let (column, row) = (at % (2 * width), at / (2 * width) % (2 * height));
                let maps = at / (SQUARE * height * width);
                let (map, image) = (maps % to, maps / to);
                let product = |channel: usize| {
                    let pixel = ((image * from + channel) * height + row / 2) * width + column / 2;
                    let weight = (channel * to + map) * SQUARE + row % 2 * 2 + column % 2;
                    x[pixel] * parameters[0][weight]
                };
                parameters[1][map] + (0..from).map(product).sum::<f64>()
            };
            (0..2 * to * SQUARE * height * width).map(value).collect()
        });
    }
}
