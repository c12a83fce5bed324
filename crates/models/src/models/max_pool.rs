//! Max-pooling as an operation of the engine. The engine's own visits windows one by one, and takes longer than the
//! convolutions between them.

use crate::burn;
use crate::burn::backend::autodiff::checkpoint::base::Checkpointer;
use crate::burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use crate::burn::backend::autodiff::grads::Gradients;
use crate::burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crate::burn::backend::tensor::FloatTensor;
use crate::burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use crate::burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::flex::{slice, tensor};
use super::layers::Window;

/// The largest value of each window of maps `[batch, channels, height, width]`. Padding is never the largest. Of equal
/// values the first one gets the gradient. NaN is the largest.
pub(super) fn max_pool(maps: Tensor<4>, window: Window) -> Tensor<4> {
    Tensor::from_dispatch(<Dispatch as MaxPool>::pool(maps.into_dispatch(), window))
}

#[backend_extension(Flex, Autodiff)]
trait MaxPool: Backend {
    fn pool(maps: FloatTensor<Self>, window: Window) -> FloatTensor<Self>;
}

impl MaxPool for Flex {
    fn pool(maps: FlexTensor, window: Window) -> FlexTensor {
        pool(&maps, window).0
    }
}

impl<C: CheckpointStrategy> MaxPool for Autodiff<Flex, C> {
    fn pool(maps: FloatTensor<Self>, window: Window) -> FloatTensor<Self> {
        let shape: [usize; 4] = maps.primitive().layout().shape().dims();
        match Pooling.prepare::<C>([maps.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let (largest, sources) = pool(maps.primitive(), window);
                prepared.finish((shape, sources), largest)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(pool(maps.primitive(), window).0),
        }
    }
}

#[derive(Debug)]
struct Pooling;

impl Backward<Flex, 1> for Pooling {
    /// The shape of the maps and the pixel of each largest value within its map.
    type State = ([usize; 4], Vec<u32>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let [node] = ops.parents;
        let (shape, sources) = ops.state;
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let Some(node) = node else { return };
        let mut found = vec![0.0; shape.iter().product()];
        let maps = found.chunks_exact_mut(shape[2] * shape[3]);
        let places = sources.len() / (shape[0] * shape[1]);
        let each = slice(&gradient).chunks_exact(places).zip(sources.chunks_exact(places));
        for (map, (gradient, sources)) in maps.zip(each) {
            for (value, &source) in gradient.iter().zip(sources) {
                map[source as usize] += value;
            }
        }
        gradients.register::<Flex>(node.id, tensor(found, shape));
    }
}

/// No pixel yet.
const NONE: u32 = u32::MAX;

/// The largest value of each window, and its pixel within its map.
fn pool(maps: &FlexTensor, window: Window) -> (FlexTensor, Vec<u32>) {
    assert!(window.padding < window.kernel, "a window lies on a pixel at each of its places");
    let maps = maps.to_contiguous();
    let [batch, channels, height, width]: [usize; 4] = maps.layout().shape().dims();
    let [rows, columns] = [height, width].map(|length| window.places(length));
    let mut largest = vec![f32::NEG_INFINITY; batch * channels * rows * columns];
    let mut sources = vec![NONE; largest.len()];
    let of_maps = largest
        .chunks_exact_mut(rows * columns)
        .zip(sources.chunks_exact_mut(rows * columns))
        .zip(slice(&maps).chunks_exact(height * width));
    for ((largest, sources), map) in of_maps {
        let of_rows = largest.chunks_exact_mut(columns).zip(sources.chunks_exact_mut(columns));
        for (row, (largest, sources)) in of_rows.enumerate() {
            for y in 0..window.kernel {
                let Some(y) = (row * window.stride + y).checked_sub(window.padding) else {
                    continue;
                };
                if y < height {
                    let pixels = &map[y * width..][..width];
                    pool_row(pixels, y * width, window, largest, sources);
                }
            }
        }
    }
    (tensor(largest, [batch, channels, rows, columns]), sources)
}

/// Compares a row of windows with a row of pixels, of which the first is number `first` in its map.
fn pool_row(
    pixels: &[f32],
    first: usize,
    window: Window,
    largest: &mut [f32],
    sources: &mut [u32],
) {
    let Window { kernel, stride, padding } = window;
    for x in 0..kernel {
        // Windows whose element `x` is a pixel of the row.
        let skipped = padding.saturating_sub(x).div_ceil(stride);
        let start = skipped * stride + x - padding;
        let met = pixels.iter().enumerate().skip(start).step_by(stride);
        let windows = largest.iter_mut().zip(&mut *sources).skip(skipped);
        for ((largest, source), (at, &pixel)) in windows.zip(met) {
            if pixel > *largest || *source == NONE || (pixel.is_nan() && !largest.is_nan()) {
                *largest = pixel;
                *source = (first + at) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::burn::tensor::ops::MaxPoolOptions;
    use crate::burn::tensor::{Device, TensorData, module};

    use super::*;
    use crate::models::layers::floats;

    #[test]
    fn values_and_gradients_are_those_of_the_engine() {
        let device = Device::flex().autodiff();
        for (kernel, stride, padding) in
            [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (1, 3, 0), (2, 3, 1)]
        {
            let shape = [2, 3, 8, 9];
            let values = |step: f32, shape: [usize; 4]| -> Tensor<4> {
                let count = shape.iter().product();
                let values = (0..count).map(|at: usize| (at as f32 * step).sin()).collect();
                Tensor::from_data(TensorData::new::<f32, _>(values, shape), &device)
            };
            let maps = values(0.7, shape).require_grad();
            let run = |own: bool| {
                let largest = if own {
                    max_pool(maps.clone(), Window { kernel, stride, padding })
                } else {
                    let options = MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]);
                    module::max_pool2d(maps.clone(), options.with_padding([padding; 2]))
                };
                let down = values(0.3, largest.dims());
                let gradients = (largest.clone() * down).sum().backward();
                [largest, maps.grad(&gradients).expect("it was tracked")].map(Tensor::into_data)
            };
            let (found, expected) = (run(true), run(false));
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.shape(), expected.shape());
                for (found, expected) in floats(found).iter().zip(floats(expected)) {
                    assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
                }
            }
        }
    }

    #[test]
    fn the_first_of_equal_values_and_what_is_not_a_number() {
        let device = Device::flex();
        let values = vec![1.0, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 3.0, f32::NAN];
        let maps: Tensor<4> = Tensor::from_data(TensorData::new(values, [1, 1, 1, 6]), &device);
        let window = Window { kernel: 1, stride: 1, padding: 0 };
        let mut largest = [f32::NEG_INFINITY; 3];
        let mut sources = [NONE; 3];
        let values = max_pool(maps, window).into_data();
        let two = Window { kernel: 2, stride: 2, padding: 0 };
        pool_row(floats(&values), 10, two, &mut largest, &mut sources);
        assert_eq!(largest[..2], [1.0, f32::NEG_INFINITY]);
        assert!(largest[2].is_nan());
        assert_eq!(sources, [10, 12, 15]);
    }
}
