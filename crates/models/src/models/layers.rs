//! Layers, which networks declare and run.
//!
//! A network declares its parameters once, in a [`Layout`], and each layer keeps the positions of
//! its own. A [`Pass`] is one forward pass of a batch: it has the parameters as tensors, and updates the statistics of
//! batch normalisation.

use crate::burn::tensor::Tensor;
use crate::burn::tensor::module::{self, avg_pool2d, conv_transpose2d, linear};
use crate::burn::tensor::ops::{AvgPoolOptions, ConvTransposeOptions};
use gradwire::Rng;

use super::batch_norm::{EPSILON, batch_norm};
use super::conv::conv;
use super::tap::Watch;

/// The random stream of initial parameters.
const STREAM: u32 = 0x696e_6974;
/// Weight of a new batch in the running statistics of batch normalisation.
const MOMENTUM: f32 = 0.1;

/// How a parameter is initialised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Init {
    /// Every element the same.
    Constant(f32),
    /// Uniform in ±√(3·variance).
    Uniform {
        /// The variance of the distribution.
        variance: f32,
    },
}

impl Init {
    /// He et al. 2015: variance 2 / fan-in, for weights in front of a rectifier.
    pub(crate) fn he(fan_in: usize) -> Self {
        Init::Uniform { variance: 2.0 / fan_in as f32 }
    }

    /// Variance 0.65 / fan-in, for weights in front of a rectifier and max-pooling: the square of the largest of four
    /// independent normal values, rectified, is 1/0.65 of their variance on average, where He's half of it is kept
    /// without pooling. With He's variance each such layer would triple the scores' variance.
    pub(crate) fn pooled(fan_in: usize) -> Self {
        Init::Uniform { variance: 0.65 / fan_in as f32 }
    }

    /// Glorot and Bengio 2010 as Caffe has it: variance 1 / fan-in, for a layer without rectifier.
    pub(crate) fn xavier(fan_in: usize) -> Self {
        Init::Uniform { variance: 1.0 / fan_in as f32 }
    }

    fn draw(self, tensor: &gradwire::Tensor, seed: u64) -> Vec<f32> {
        match self {
            Init::Constant(value) => vec![value; tensor.elements()],
            Init::Uniform { variance } => {
                let mut words = vec![0; tensor.elements()];
                Rng::new(seed, tensor.id(), 0, 0, STREAM).fill(&mut words);
                let bound = (3.0 * variance).sqrt();
                // 24 bits, centred on zero.
                let unit = |word: u32| ((word >> 8) as f32 + 0.5) * (1.0 / (1 << 23) as f32) - 1.0;
                words.into_iter().map(|word| bound * unit(word)).collect()
            }
        }
    }
}

/// The parameters and batch normalisations of a network, in order.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// The name and shape of each parameter.
    pub(crate) tensors: Vec<gradwire::Tensor>,
    /// The initialisation of each parameter.
    inits: Vec<Init>,
    /// The name and number of channels of each batch normalisation.
    pub(crate) norms: Vec<(String, usize)>,
}

impl Layout {
    /// Declares a parameter and returns its position.
    pub(crate) fn parameter(
        &mut self,
        layer: &str,
        name: &str,
        shape: &[usize],
        init: Init,
    ) -> usize {
        self.tensors.push(gradwire::Tensor::new(format!("{layer}.{name}"), shape));
        self.inits.push(init);
        self.inits.len() - 1
    }

    /// Declares a bias, of zeros.
    pub(crate) fn bias(&mut self, layer: &str, size: usize) -> usize {
        self.parameter(layer, "bias", &[size], Init::Constant(0.0))
    }

    /// The initial parameters of a run, a pure function of the seed.
    pub(crate) fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.tensors.iter().zip(&self.inits).map(|(tensor, init)| init.draw(tensor, seed)).collect()
    }
}

/// One forward pass of a batch.
pub(crate) struct Pass<'a> {
    /// The parameters, flat, in the layout's order.
    pub(crate) parameters: &'a [Tensor<1>],
    /// Their shapes.
    pub(crate) layout: &'a Layout,
    /// The statistics that batch normalisation uses.
    pub(crate) norm: Norm<'a>,
    /// What the pass records.
    pub(crate) watch: Watch,
}

/// The source of batch normalisation's statistics.
pub(crate) enum Norm<'a> {
    /// The batch; the running statistics are updated.
    Batch(&'a mut [Statistics]),
    /// The running statistics.
    Running(&'a [Statistics]),
}

/// The running mean and variance of one batch normalisation, by channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Running mean.
    pub mean: Vec<f32>,
    /// Running (population) variance.
    pub variance: Vec<f32>,
}

impl Statistics {
    /// Statistics before the first batch: mean 0, variance 1.
    pub fn new(channels: usize) -> Self {
        Self { mean: vec![0.0; channels], variance: vec![1.0; channels] }
    }

    /// Follows the means and variances of a batch, `[2, channels]`.
    fn observe(&mut self, moments: Tensor<2>) {
        let moments = moments.into_data();
        let (mean, variance) = floats(&moments).split_at(self.mean.len());
        follow(&mut self.mean, mean);
        follow(&mut self.variance, variance);
    }
}

/// running ← (1 − momentum)·running + momentum·observed
fn follow(running: &mut [f32], observed: &[f32]) {
    for (running, &observed) in running.iter_mut().zip(observed) {
        *running += MOMENTUM * (observed - *running);
    }
}

/// The elements of a tensor's data.
pub(crate) fn floats(data: &crate::burn::tensor::TensorData) -> &[f32] {
    data.as_slice().expect("the tensors of a model are f32")
}

impl Pass<'_> {
    /// A parameter as a tensor of `D` dimensions, recorded for [taps](Self::tap).
    pub(crate) fn take<const D: usize>(&self, at: usize) -> Tensor<D> {
        let shape: [usize; D] = self.layout.tensors[at]
            .shape()
            .try_into()
            .expect("a layer takes its parameters in the rank it declared them in");
        self.take_as(at, shape)
    }

    /// A parameter in another shape.
    pub(crate) fn take_as<const D: usize>(&self, at: usize, shape: [usize; D]) -> Tensor<D> {
        let taken = self.parameters[at].clone().reshape(shape);
        self.watch.took(at, &taken);
        taken
    }

    /// The same tensor. All operations that take later parameters must depend on it: when back-propagation reaches it,
    /// their gradients are final.
    pub(crate) fn tap<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.watch.tap(x)
    }

    fn elements(&self, at: usize) -> usize {
        self.layout.tensors[at].elements()
    }
}

/// The operation after a layer, which determines the initialisation of its weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Next {
    /// A rectifier.
    Relu,
    /// A rectifier, and pooling of the largest of 2×2 values before or after it.
    PooledRelu,
    /// Anything else.
    Linear,
}

/// A square window that is moved over feature maps: that of a convolution or of pooling.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Its rows and columns.
    pub(crate) kernel: usize,
    /// The stride, in rows and columns.
    pub(crate) stride: usize,
    /// The padding, in rows and columns, less than the kernel: zeros for a convolution, −∞ for max-pooling.
    pub(crate) padding: usize,
}

impl Window {
    /// A window at every place inside the maps.
    pub(crate) fn of(kernel: usize) -> Self {
        Self { kernel, stride: 1, padding: 0 }
    }

    /// A window padded so that the stride alone shrinks the maps.
    pub(crate) fn same(kernel: usize) -> Self {
        Self { padding: kernel / 2, ..Self::of(kernel) }
    }

    /// Windows that do not overlap.
    pub(crate) fn square(kernel: usize) -> Self {
        Self::of(kernel).by(kernel)
    }

    /// The same window with another stride.
    pub(crate) fn by(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// The number of its positions along this length.
    pub(crate) fn places(self, length: usize) -> usize {
        (length + 2 * self.padding - self.kernel) / self.stride + 1
    }
}

/// A two-dimensional convolution with square kernels.
#[derive(Debug)]
pub(crate) struct Conv {
    weight: usize,
    bias: Option<usize>,
    window: Window,
}

impl Conv {
    /// A convolution with bias.
    pub(crate) fn new(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        window: Window,
        next: Next,
    ) -> Self {
        let Window { kernel, .. } = window;
        let init = weights(from * kernel * kernel, next);
        let weight = layout.parameter(name, "weight", &[to, from, kernel, kernel], init);
        Self { weight, bias: Some(layout.bias(name, to)), window }
    }

    /// A convolution without bias, in front of batch normalisation.
    pub(crate) fn unbiased(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        window: Window,
    ) -> Self {
        let Window { kernel, .. } = window;
        let init = Init::he(from * kernel * kernel);
        let weight = layout.parameter(name, "weight", &[to, from, kernel, kernel], init);
        Self { weight, bias: None, window }
    }

    /// Images in, feature maps out: `[batch, channels, height, width]`.
    pub(crate) fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let maps = conv(x, pass.take(self.weight), self.window);
        match self.bias {
            Some(bias) => maps + pass.take_as(bias, [1, pass.elements(bias), 1, 1]),
            None => maps,
        }
    }
}

/// A transposed convolution of 2×2 and stride 2, with bias: each value becomes a square of four.
#[derive(Debug)]
pub(crate) struct Doubling {
    weight: usize,
    bias: usize,
}

impl Doubling {
    /// A layer from `from` to `to` channels.
    pub(crate) fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2]) -> Self {
        // Squares do not overlap: a value of the output is a sum over one value of each channel.
        let weight = layout.parameter(name, "weight", &[from, to, 2, 2], Init::he(from));
        Self { weight, bias: layout.bias(name, to) }
    }

    /// Feature maps of twice the height and width.
    pub(crate) fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let options = ConvTransposeOptions::new([2, 2], [0, 0], [0, 0], [1, 1], 1);
        conv_transpose2d(x, pass.take(self.weight), Some(pass.take(self.bias)), options)
    }
}

fn weights(fan_in: usize, next: Next) -> Init {
    match next {
        Next::Relu => Init::he(fan_in),
        Next::PooledRelu => Init::pooled(fan_in),
        Next::Linear => Init::xavier(fan_in),
    }
}

/// A fully connected layer: `y = x·W + b` with `W` of shape `[from, to]`, or `y = x·W`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    weight: usize,
    bias: Option<usize>,
}

impl Linear {
    /// A layer from `from` to `to` features.
    pub(crate) fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2], next: Next) -> Self {
        let layer = Self::unbiased(layout, name, [from, to], next);
        Self { bias: Some(layout.bias(name, to)), ..layer }
    }

    /// A layer without bias.
    pub(crate) fn unbiased(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        next: Next,
    ) -> Self {
        let weight = layout.parameter(name, "weight", &[from, to], weights(from, next));
        Self { weight, bias: None }
    }

    /// `[batch, from]` in, `[batch, to]` out.
    pub(crate) fn forward(&self, pass: &Pass<'_>, x: Tensor<2>) -> Tensor<2> {
        let products = linear(x, pass.take(self.weight), None);
        match self.bias {
            Some(bias) => products + pass.take_as(bias, [1, pass.elements(bias)]),
            None => products,
        }
    }
}

/// Batch normalisation over all but the channel dimension (Ioffe and Szegedy 2015).
#[derive(Debug)]
pub(crate) struct BatchNorm {
    scale: usize,
    shift: usize,
    statistics: usize,
}

impl BatchNorm {
    /// A normalisation of `channels` channels with scale 1 and shift 0.
    pub(crate) fn new(layout: &mut Layout, name: &str, channels: usize) -> Self {
        layout.norms.push((name.to_owned(), channels));
        Self {
            scale: layout.parameter(name, "scale", &[channels], Init::Constant(1.0)),
            shift: layout.parameter(name, "shift", &[channels], Init::Constant(0.0)),
            statistics: layout.norms.len() - 1,
        }
    }

    /// Feature maps of any spatial size.
    pub(crate) fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let (scale, shift) = (pass.take(self.scale), pass.take(self.shift));
        match &mut pass.norm {
            Norm::Batch(statistics) => {
                let (output, moments) = batch_norm(x, scale, shift);
                statistics[self.statistics].observe(moments);
                output
            }
            Norm::Running(statistics) => {
                let running = &statistics[self.statistics];
                let device = x.device();
                let mean = Tensor::from_floats(running.mean.as_slice(), &device);
                let variance = Tensor::from_floats(running.variance.as_slice(), &device);
                module::batch_norm(x, scale, shift, mean, variance, f64::from(EPSILON))
            }
        }
    }
}

/// The mean of each `kernel` × `kernel` square.
pub(crate) fn mean_pool(x: Tensor<4>, kernel: usize) -> Tensor<4> {
    avg_pool2d(x, AvgPoolOptions::new([kernel; 2]).with_stride([kernel; 2]))
}

/// The mean of each feature map: `[batch, channels, 1, 1]`.
pub(crate) fn global_mean(x: Tensor<4>) -> Tensor<4> {
    let [batch, channels, height, width] = x.dims();
    let means = x.reshape([batch, channels, height * width]).mean_dim(2);
    means.reshape([batch, channels, 1, 1])
}

/// The largest value of each feature map: `[batch, channels, 1, 1]`.
pub(crate) fn global_max(x: Tensor<4>) -> Tensor<4> {
    let [batch, channels, height, width] = x.dims();
    let largest = x.reshape([batch, channels, height * width]).max_dim(2);
    largest.reshape([batch, channels, 1, 1])
}
