//! Batch normalisation over all but the channel dimension (Ioffe and Szegedy 2015).

use super::layout::{Init, Layout};
use super::maps::Maps;
use super::pass::{Pass, StatisticsSource};
use super::pointwise::{add, sum};
use super::statistics::Statistics;
use crate::lanes::LANES;

/// A batch normalisation: each channel gets mean 0 and variance 1, then is scaled and shifted.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchNorm {
    scale: usize,
    shift: usize,
    statistics: usize,
}

impl BatchNorm {
    /// Declares a normalisation of `channels` channels with scale 1 and shift 0.
    pub(super) fn new(layout: &mut Layout, name: &str, channels: usize) -> Self {
        layout.norms.push((name.to_owned(), channels));
        Self {
            scale: layout.parameter(name, "scale", &[channels], Init::Constant(1.0)),
            shift: layout.parameter(name, "shift", &[channels], Init::Constant(0.0)),
            statistics: layout.norms.len() - 1,
        }
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> [usize; 2] {
        [self.scale, self.shift]
    }

    /// Feature maps of any height and width.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, x: Maps) -> Maps {
        let Self { scale, shift, statistics } = *self;
        let [scales, shifts] = [scale, shift].map(|at| &*pass.parameters[at]);
        let (running, weight) = match &mut pass.statistics {
            StatisticsSource::Running(running) => {
                return normalise(&x, &running[statistics], scales, shifts);
            }
            StatisticsSource::Batch(running, weight) => (&mut running[statistics], *weight),
        };
        let batch = Statistics::of(&x);
        running.observe(&batch, weight);
        let y = normalise(&x, &batch, scales, shifts);
        pass.record(move |gradient, gradients| {
            let [of_maps, of_scale, of_shift] = backward(&x, &batch, scales, gradient.values());
            add(&mut gradients.all[scale], &of_scale);
            add(&mut gradients.all[shift], &of_shift);
            gradients.ready([scale, shift]);
            x.outline().gradient(|| of_maps)
        });
        y
    }
}

/// Maps normalised by these statistics, then scaled and shifted.
fn normalise(maps: &Maps, statistics: &Statistics, scale: &[f32], shift: &[f32]) -> Maps {
    let (mean, inverse) = (&statistics.mean, statistics.inverses());
    let mut out = vec![0.0; maps.values().len()];
    for (channel, values, out) in planes_to(maps, &mut out) {
        let factor = scale[channel] * inverse[channel];
        let (mean, shift) = (mean[channel], shift[channel]);
        for (out, value) in out.iter_mut().zip(values) {
            *out = (value - mean) * factor + shift;
        }
    }
    Maps::new(out, maps.shape)
}

/// The gradients of the maps, the scale and the shift. With n values a channel, x̂ the normalised
/// maps and g the gradient: ∂x = scale / σ · (g − mean(g) − x̂·mean(g·x̂)), ∂scale = Σ g·x̂,
/// ∂shift = Σ g.
fn backward(maps: &Maps, batch: &Statistics, scale: &[f32], gradient: &[f32]) -> [Vec<f32>; 3] {
    let (count, inverse) = ((maps.batch() * maps.map_len()) as f64, batch.inverses());
    let channels = maps.shape[0];
    let (mut totals, mut products) = (vec![0.0; channels], vec![0.0; channels]);
    let planes =
        maps.values().chunks_exact(maps.map_len()).zip(gradient.chunks_exact(maps.map_len()));
    for (at, (values, gradient)) in planes.enumerate() {
        let channel = at % channels;
        totals[channel] += f64::from(sum(gradient));
        let centre = batch.mean[channel];
        products[channel] += f64::from(sum_of_products(values, gradient, centre));
    }
    let mean: Vec<f32> = totals.iter().map(|total| (total / count) as f32).collect();
    // mean(g·x̂), channel by channel.
    let projected: Vec<f32> = (products.iter().zip(&inverse))
        .map(|(sum, inverse)| (sum / count) as f32 * inverse)
        .collect();
    let mut out = vec![0.0; maps.values().len()];
    let each = planes_to(maps, &mut out).zip(gradient.chunks_exact(maps.map_len()));
    for ((channel, values, out), gradient) in each {
        let factor = scale[channel] * inverse[channel];
        let along = projected[channel] * inverse[channel];
        let (centre, mean) = (batch.mean[channel], mean[channel]);
        for ((out, value), gradient) in out.iter_mut().zip(values).zip(gradient) {
            *out = factor * (gradient - mean - (value - centre) * along);
        }
    }
    let of_scale = products.iter().zip(&inverse).map(|(sum, inverse)| *sum as f32 * inverse);
    let of_shift = totals.iter().map(|total| *total as f32);
    [out, of_scale.collect(), of_shift.collect()]
}

/// The channel of each map, the map, and another of the same size.
fn planes_to<'a>(
    maps: &'a Maps,
    out: &'a mut [f32],
) -> impl Iterator<Item = (usize, &'a [f32], &'a mut [f32])> {
    let (map_len, channels) = (maps.map_len(), maps.shape[0]);
    let each = maps.values().chunks_exact(map_len).zip(out.chunks_exact_mut(map_len)).enumerate();
    each.map(move |(at, (values, out))| (at % channels, values, out))
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
    use super::*;
    use crate::models::statistics::EPSILON;
    use crate::models::testing::{Trial, wave};

    /// Normalised maps in f64, by the definition, image after image.
    fn naive(
        maps: &[f64],
        scale: &[f64],
        shift: &[f64],
        [channels, plane]: [usize; 2],
    ) -> Vec<f64> {
        let channel = |at: usize| at / plane % channels;
        let of = |wanted: usize| {
            (0..maps.len()).filter(move |&at| channel(at) == wanted).map(|at| maps[at])
        };
        let mean = |wanted| of(wanted).sum::<f64>() / of(wanted).count() as f64;
        let normalise = |(at, x): (usize, &f64)| {
            let (at, mean) = (channel(at), mean(channel(at)));
            let variance =
                of(at).map(|x| (x - mean) * (x - mean)).sum::<f64>() / of(at).count() as f64;
            scale[at] * (x - mean) / (variance + f64::from(EPSILON)).sqrt() + shift[at]
        };
        maps.iter().enumerate().map(normalise).collect()
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        let (channels, plane) = (3, 20);
        let mut layout = Layout::default();
        let norm = BatchNorm::new(&mut layout, "norm", channels);
        let parameters = vec![wave(channels, 1.1), wave(channels, 0.9)];
        let run = |pass: &mut Pass<'_>, x| norm.forward(pass, x);
        Trial::run((2, [channels, 4, 5]), parameters, run)
            .check(|x, parameters| naive(x, &parameters[0], &parameters[1], [channels, plane]));
    }

    #[test]
    fn scoring_uses_the_running_statistics() {
        let norm = BatchNorm::new(&mut Layout::default(), "norm", 2);
        let running = [Statistics { mean: vec![1.0, -2.0], variance: vec![4.0, 0.25] }];
        let parameters = [vec![3.0, 1.0], vec![0.5, -1.0]];
        let maps = Maps::new(vec![5.0, 1.0, -1.5, -2.0], [2, 1, 2]);
        let y = norm.forward(&mut Pass::scoring(&parameters, &running), maps);
        // 3·(x − 1)/2 + 0.5, and (x + 2)/0.5 − 1.
        for (found, expected) in y.values().iter().zip([6.5, 0.5, 0.0, -1.0]) {
            assert!((found - expected).abs() < 1e-4, "{found} for {expected}");
        }
    }

    #[test]
    fn statistics_are_those_of_the_batch() {
        // Two images of two channels.
        let maps = Maps::new(vec![1.0, 3.0, 0.0, 0.0, 5.0, 7.0, 0.0, 4.0], [2, 1, 2]);
        let found = Statistics::of(&maps);
        assert_eq!((found.mean, found.variance), (vec![4.0, 1.0], vec![5.0, 3.0]));
    }
}
