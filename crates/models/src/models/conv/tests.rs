//! The operation against its definition.

use super::{Conv, Layout, Next};
use crate::models::pass::Pass;
use crate::models::testing::{Trial, close, wave, wide};
use crate::models::window::Window;

/// Calls `take` with the index of an output value and the indices of the pixel and the weight of
/// each of its products.
fn for_each_product(
    (batch, [from, height, width]): (usize, [usize; 3]),
    to: usize,
    window: Window,
    mut take: impl FnMut(usize, usize, usize),
) {
    let Window { kernel, stride, padding } = window;
    let [rows, columns] = [height, width].map(|length| window.places(length));
    let elements = from * kernel * kernel;
    for value in 0..batch * to * rows * columns {
        let (row, column) = (value / columns % rows, value % columns);
        let (image, map) = (value / (rows * columns) / to, value / (rows * columns) % to);
        for element in 0..elements {
            let channel = element / (kernel * kernel);
            let y = (row * stride + element / kernel % kernel).checked_sub(padding);
            let x = (column * stride + element % kernel).checked_sub(padding);
            if let (Some(y), Some(x)) = (y, x)
                && y < height
                && x < width
            {
                let pixel = ((image * from + channel) * height + y) * width + x;
                take(value, pixel, map * elements + element);
            }
        }
    }
}

/// Kernel, stride, height, width and padding.
const CASES: [[usize; 5]; 16] = [
    [1, 1, 4, 5, 0],
    [3, 1, 6, 6, 1],
    [3, 2, 8, 7, 1],
    [3, 2, 7, 8, 1],
    [5, 1, 9, 7, 0],
    [5, 1, 6, 40, 2],
    [1, 2, 5, 5, 0],
    [1, 3, 6, 7, 0],
    [2, 2, 5, 4, 0],
    [4, 3, 11, 9, 2],
    [7, 2, 12, 10, 3],
    [11, 4, 20, 23, 2],
    [2, 3, 8, 9, 1],
    [4, 2, 5, 5, 2],
    [5, 3, 7, 4, 3],
    [6, 2, 4, 9, 4],
];

#[test]
fn values_and_gradients_are_those_of_the_definition() {
    let (from, to) = (5, 9);
    for [kernel, stride, height, width, padding] in CASES {
        let window = Window { kernel, stride, padding };
        let conv = Conv::new(&mut Layout::default(), "conv", [from, to], window, Next::Relu);
        let parameters = vec![wave(to * from * kernel * kernel, 1.3), wave(to, 0.9)];
        // 34 images are not a whole number of stacks.
        for batch in [1, 34] {
            let shape = (batch, [from, height, width]);
            let run = |pass: &mut Pass<'_>, x| conv.forward(pass, x);
            let trial = Trial::run(shape, parameters.clone(), run);
            let (x, y_gradient) = (wide(&trial.x), wide(&trial.y_gradient));
            let (weight, bias) = (wide(&parameters[0]), wide(&parameters[1]));
            let places = trial.y.len() / batch / to;
            let map = |value: usize| value / places % to;
            let mut y: Vec<f64> = (0..trial.y.len()).map(|value| bias[map(value)]).collect();
            let [mut of_x, mut of_weight, mut of_bias] =
                [&x, &weight, &bias].map(|values| vec![0.0; values.len()]);
            for (value, y_gradient) in y_gradient.iter().enumerate() {
                of_bias[map(value)] += y_gradient;
            }
            for_each_product(shape, to, window, |value, pixel, element| {
                y[value] += x[pixel] * weight[element];
                of_x[pixel] += y_gradient[value] * weight[element];
                of_weight[element] += y_gradient[value] * x[pixel];
            });
            close(&trial.y, &y);
            for (found, expected) in trial.gradients.iter().zip([of_x, of_weight, of_bias]) {
                close(found, &expected);
            }
        }
    }
}
