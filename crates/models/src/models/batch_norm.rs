//! Batch normalisation as an operation of the engine. Forward it reads the maps three times and writes them once; the
//! engine's own transposes and copies them several times.

use crate::burn;
use crate::burn::backend::autodiff::checkpoint::base::Checkpointer;
use crate::burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use crate::burn::backend::autodiff::grads::Gradients;
use crate::burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use crate::burn::backend::tensor::FloatTensor;
use crate::burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, Flex, backend_extension};
use crate::burn::tensor::Tensor;
use burn_flex::FlexTensor;

use super::flex::{slice, tensor};

/// Added to a variance before its square root is taken.
pub(super) const EPSILON: f32 = 1e-5;

/// Maps `[batch, channels, height, width]`, normalised by the mean and the variance of each channel in this batch, then
/// scaled and shifted. Also returns the means and the (population) variances, `[2, channels]`.
pub(super) fn batch_norm(
    maps: Tensor<4>,
    scale: Tensor<1>,
    shift: Tensor<1>,
) -> (Tensor<4>, Tensor<2>) {
    let [maps, scale, shift] = [maps.into_dispatch(), scale.into_dispatch(), shift.into_dispatch()];
    let moments = <Dispatch as BatchNorm>::moments(maps.clone());
    let normalised = <Dispatch as BatchNorm>::normalise(maps, moments.clone(), scale, shift);
    (Tensor::from_dispatch(normalised), Tensor::from_dispatch(moments))
}

#[backend_extension(Flex, Autodiff)]
trait BatchNorm: Backend {
    fn moments(maps: FloatTensor<Self>) -> FloatTensor<Self>;

    fn normalise(
        maps: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl BatchNorm for Flex {
    fn moments(maps: FlexTensor) -> FlexTensor {
        let maps = maps.to_contiguous();
        let shape = Shape::of(&maps);
        let mean = shape.means(slice(&maps), |_, values| sum(values, |value| value));
        let variance = shape.means(slice(&maps), |channel, values| {
            let mean = mean[channel];
            sum(values, |value| (value - mean) * (value - mean))
        });
        tensor([mean, variance].concat(), [2, shape.channels])
    }

    fn normalise(
        maps: FlexTensor,
        moments: FlexTensor,
        scale: FlexTensor,
        shift: FlexTensor,
    ) -> FlexTensor {
        let maps = maps.to_contiguous();
        let shape = Shape::of(&maps);
        let moments = Moments::of(&moments);
        let [scale, shift] = [&scale, &shift].map(|tensor| tensor.to_contiguous());
        let (scale, shift) = (slice(&scale), slice(&shift));
        let mut out = vec![0.0; slice(&maps).len()];
        for (channel, values, out) in shape.planes_to(slice(&maps), &mut out) {
            let factor = scale[channel] * moments.inverse[channel];
            let (mean, shift) = (moments.mean[channel], shift[channel]);
            for (out, value) in out.iter_mut().zip(values) {
                *out = (value - mean) * factor + shift;
            }
        }
        tensor(out, shape.dimensions)
    }
}

impl<C: CheckpointStrategy> BatchNorm for Autodiff<Flex, C> {
    fn moments(maps: FloatTensor<Self>) -> FloatTensor<Self> {
        // Gradients do not flow through the moments; `normalise` accounts for their part.
        Self::from_inner(<Flex as BatchNorm>::moments(maps.into_primitive()))
    }

    fn normalise(
        maps: FloatTensor<Self>,
        moments: FloatTensor<Self>,
        scale: FloatTensor<Self>,
        shift: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let nodes = [maps.node(), scale.node(), shift.node()];
        let [maps, moments, scale, shift] =
            [maps, moments, scale, shift].map(|tensor| tensor.into_primitive());
        let run =
            |maps, moments, scale| <Flex as BatchNorm>::normalise(maps, moments, scale, shift);
        match Normalisation.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let state = (maps.clone(), moments.clone(), scale.clone());
                prepared.finish(state, run(maps, moments, scale))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(run(maps, moments, scale)),
        }
    }
}

#[derive(Debug)]
struct Normalisation;

impl Backward<Flex, 3> for Normalisation {
    type State = (FlexTensor, FlexTensor, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (maps, moments, scale) = ops.state;
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let (maps, scale) = (maps.to_contiguous(), scale.to_contiguous());
        let found = backward(&maps, &Moments::of(&moments), slice(&scale), slice(&gradient));
        for (node, found) in ops.parents.into_iter().zip(found) {
            if let Some(node) = node {
                gradients.register::<Flex>(node.id, found);
            }
        }
    }
}

/// The gradients of the maps, the scale and the shift. With n values a channel, x̂ the normalised maps and g the gradient:
/// ∂x = scale / σ · (g − mean(g) − x̂·mean(g·x̂)), ∂scale = Σ g·x̂, ∂shift = Σ g.
fn backward(
    maps: &FlexTensor,
    moments: &Moments,
    scale: &[f32],
    gradient: &[f32],
) -> [FlexTensor; 3] {
    let shape = Shape::of(maps);
    let maps = slice(maps);
    let mean = shape.means(gradient, |_, values| sum(values, |value| value));
    let mut products = vec![0.0; shape.channels];
    for (at, (maps, gradient)) in shape.planes(maps).zip(shape.planes(gradient)).enumerate() {
        let channel = at % shape.channels;
        let centre = moments.mean[channel];
        products[channel] += f64::from(sum_of_products(maps, gradient, centre));
    }
    let count = shape.values() as f64;
    let inverse = |channel: usize| moments.inverse[channel];
    // mean(g·x̂), channel by channel.
    let projected: Vec<f32> = (products.iter().enumerate())
        .map(|(channel, sum)| (sum / count) as f32 * inverse(channel))
        .collect();
    let mut out = vec![0.0; maps.len()];
    let each = shape.planes_to(maps, &mut out).zip(shape.planes(gradient));
    for ((channel, maps, out), gradient) in each {
        let factor = scale[channel] * inverse(channel);
        let along = projected[channel] * inverse(channel);
        let (centre, mean) = (moments.mean[channel], mean[channel]);
        for ((out, value), gradient) in out.iter_mut().zip(maps).zip(gradient) {
            *out = factor * (gradient - mean - (value - centre) * along);
        }
    }
    let totals = |means: Vec<f32>| {
        let totals = means.into_iter().map(|mean| (f64::from(mean) * count) as f32).collect();
        tensor(totals, [shape.channels])
    };
    [tensor(out, shape.dimensions), totals(projected), totals(mean)]
}

/// The means of the channels and one over their standard deviations.
struct Moments {
    mean: Vec<f32>,
    inverse: Vec<f32>,
}

impl Moments {
    fn of(moments: &FlexTensor) -> Self {
        let moments = moments.to_contiguous();
        let (mean, variance) = slice(&moments).split_at(slice(&moments).len() / 2);
        let inverse = variance.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect();
        Self { mean: mean.to_vec(), inverse }
    }
}

/// The sizes of the maps.
#[derive(Clone, Copy)]
struct Shape {
    dimensions: [usize; 4],
    channels: usize,
}

impl Shape {
    fn of(maps: &FlexTensor) -> Self {
        let dimensions: [usize; 4] = maps.layout().shape().dims();
        Self { dimensions, channels: dimensions[1] }
    }

    /// Values of one channel in all images.
    fn values(&self) -> usize {
        self.dimensions.iter().product::<usize>() / self.channels
    }

    /// The maps, one after the other.
    fn planes<'a>(&self, values: &'a [f32]) -> impl Iterator<Item = &'a [f32]> {
        values.chunks_exact(self.dimensions[2] * self.dimensions[3])
    }

    /// The channel of each map, the map, and another of the same size.
    fn planes_to<'a>(
        &self,
        values: &'a [f32],
        out: &'a mut [f32],
    ) -> impl Iterator<Item = (usize, &'a [f32], &'a mut [f32])> {
        let channels = self.channels;
        let out = out.chunks_exact_mut(self.dimensions[2] * self.dimensions[3]);
        let each = self.planes(values).zip(out).enumerate();
        each.map(move |(at, (values, out))| (at % channels, values, out))
    }

    /// The mean of each channel of what `sum` finds in each map.
    fn means(&self, values: &[f32], sum: impl Fn(usize, &[f32]) -> f32) -> Vec<f32> {
        let mut sums = vec![0.0; self.channels];
        for (at, values) in self.planes(values).enumerate() {
            let channel = at % self.channels;
            sums[channel] += f64::from(sum(channel, values));
        }
        sums.into_iter().map(|sum| (sum / self.values() as f64) as f32).collect()
    }
}

/// Lanes of a sum, in an order that does not depend on the processor.
const LANES: usize = 16;

/// The sum of a function of each value, in lanes.
#[inline(always)]
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += of(value);
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|&value| of(value)).sum::<f32>()
}

/// Σ gradient · (value − centre).
fn sum_of_products(values: &[f32], gradient: &[f32], centre: f32) -> f32 {
    let (values, rest) = values.as_chunks::<LANES>();
    let (gradient, others) = gradient.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (values, gradient) in values.iter().zip(gradient) {
        for lane in 0..LANES {
            lanes[lane] += gradient[lane] * (values[lane] - centre);
        }
    }
    let rest = rest.iter().zip(others).map(|(value, gradient)| gradient * (value - centre));
    lanes.iter().sum::<f32>() + rest.sum::<f32>()
}

#[cfg(test)]
mod tests {
    use crate::burn::tensor::{Device, TensorData, module, s};

    use super::*;
    use crate::models::layers::floats;

    fn close<const D: usize>(found: Tensor<D>, expected: Tensor<D>) {
        assert_eq!(found.dims(), expected.dims());
        let (found, expected) = (found.into_data(), expected.into_data());
        for (found, expected) in floats(&found).iter().zip(floats(&expected)) {
            assert!((found - expected).abs() < 1e-4, "{found} for {expected}");
        }
    }

    #[test]
    fn values_and_gradients_are_those_of_the_engine() {
        let device = Device::flex().autodiff();
        let shape = [3, 4, 5, 7];
        let values = |step: f32, count: usize| -> TensorData {
            let values = (0..count).map(|at| (at as f32 * step).sin() * 2.0 + 0.5).collect();
            TensorData::new::<f32, _>(values, [count])
        };
        let of = |step, count| Tensor::<1>::from_data(values(step, count), &device);
        let maps = of(0.7, 420).reshape(shape).require_grad();
        let (scale, shift) = (of(1.1, 4).require_grad(), of(0.9, 4).require_grad());
        let run = |own: bool| {
            let (x, scale_of, shift_of) = (maps.clone(), scale.clone(), shift.clone());
            let (output, mean, variance) = if own {
                let (output, moments) = batch_norm(x, scale_of, shift_of);
                let [mean, variance] =
                    [0, 1].map(|row| moments.clone().slice(s![row..row + 1, ..]).reshape([4]));
                (output, mean, variance)
            } else {
                let epsilon = f64::from(EPSILON);
                let result = module::batch_norm_train(x, scale_of, shift_of, epsilon);
                (result.output, result.mean, result.variance)
            };
            let gradients = (output.clone() * of(0.3, 420).reshape(shape)).sum().backward();
            let maps = maps.grad(&gradients).expect("it was tracked");
            let vectors = [&scale, &shift].map(|of| of.grad(&gradients).expect("it was tracked"));
            (output, maps, [mean, variance].into_iter().chain(vectors))
        };
        let (found, expected) = (run(true), run(false));
        close(found.0, expected.0);
        close(found.1, expected.1);
        found.2.zip(expected.2).for_each(|(found, expected)| close(found, expected));
    }
}
