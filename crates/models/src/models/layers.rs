//! Layers as the networks declare and run them.
//!
//! A network declares its parameters once, in a [`Layout`], and each layer keeps the positions of
//! its own. A [`Pass`] carries one batch through: it holds the parameters as tensors and collects
//! what batch normalisation sees.

use burn::tensor::Tensor;
use burn::tensor::module::{avg_pool2d, batch_norm, batch_norm_train, linear, max_pool2d};
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use super::conv::conv;
use super::tap::Watch;

/// Added to a variance before its square root is taken.
const EPSILON: f64 = 1e-5;
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

    /// Glorot and Bengio 2010 as Caffe has it: variance 1 / fan-in, for a layer without rectifier.
    fn xavier(fan_in: usize) -> Self {
        Init::Uniform { variance: 1.0 / fan_in as f32 }
    }
}

/// One parameter tensor of a network.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    /// The tensor's name and shape.
    pub(crate) tensor: gradwire::Tensor,
    /// Its initial values.
    pub(crate) init: Init,
}

/// The parameters and batch normalisations of a network, in order.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// The parameters.
    pub(crate) parameters: Vec<Parameter>,
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
        let tensor = gradwire::Tensor::new(format!("{layer}.{name}"), shape);
        self.parameters.push(Parameter { tensor, init });
        self.parameters.len() - 1
    }
}

/// One forward pass of a batch.
pub(crate) struct Pass<'a> {
    /// The parameters, flat, in the layout's order.
    pub(crate) parameters: &'a [Tensor<1>],
    /// Their shapes.
    pub(crate) layout: &'a Layout,
    /// What batch normalisation does.
    pub(crate) norm: Norm<'a>,
    /// What it records.
    pub(crate) watch: Watch,
}

/// Where batch normalisation takes its statistics from.
pub(crate) enum Norm<'a> {
    /// From the batch, which also moves the running statistics.
    Batch(&'a mut [Statistics]),
    /// From the running statistics.
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

    fn observe(&mut self, mean: Tensor<1>, variance: Tensor<1>) {
        follow(&mut self.mean, mean);
        follow(&mut self.variance, variance);
    }
}

/// running ← (1 − momentum)·running + momentum·observed
fn follow(running: &mut [f32], observed: Tensor<1>) {
    let observed = observed.into_data();
    for (running, &observed) in running.iter_mut().zip(floats(&observed)) {
        *running += MOMENTUM * (observed - *running);
    }
}

/// The elements of a tensor's data.
pub(crate) fn floats(data: &burn::tensor::TensorData) -> &[f32] {
    data.as_slice().expect("the tensors of a model are f32")
}

impl Pass<'_> {
    /// A parameter, for the operation that takes it.
    pub(crate) fn take<const D: usize>(&self, at: usize) -> Tensor<D> {
        let shape: [usize; D] = self.layout.parameters[at]
            .tensor
            .shape()
            .try_into()
            .expect("a layer takes its parameters in the rank it declared them in");
        self.take_as(at, shape)
    }

    /// The same in another shape, where the operation takes it so.
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
        self.layout.parameters[at].tensor.elements()
    }
}

/// What follows a layer, which decides how its weights are initialised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Next {
    /// A rectifier.
    Relu,
    /// Anything else.
    Linear,
}

/// A two-dimensional convolution with square kernels.
#[derive(Debug)]
pub(crate) struct Conv {
    weight: usize,
    bias: Option<usize>,
    stride: usize,
    padding: usize,
}

impl Conv {
    /// A convolution without padding, with bias.
    pub(crate) fn valid(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        kernel: usize,
        next: Next,
    ) -> Self {
        let weight = kernels(layout, name, [from, to], kernel, next);
        let bias = layout.parameter(name, "bias", &[to], Init::Constant(0.0));
        Self { weight, bias: Some(bias), stride: 1, padding: 0 }
    }

    /// A convolution padded by zeros to outputs of its input's size, with bias.
    pub(crate) fn padded(
        layout: &mut Layout,
        name: &str,
        widths: [usize; 2],
        kernel: usize,
        next: Next,
    ) -> Self {
        Self { padding: kernel / 2, ..Self::valid(layout, name, widths, kernel, next) }
    }

    /// A convolution padded by zeros so that stride alone shrinks its output; no bias.
    pub(crate) fn same(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        kernel: usize,
        stride: usize,
    ) -> Self {
        let weight = kernels(layout, name, [from, to], kernel, Next::Relu);
        Self { weight, bias: None, stride, padding: kernel / 2 }
    }

    /// The same convolution with another stride and padding.
    pub(crate) fn spaced(self, stride: usize, padding: usize) -> Self {
        Self { stride, padding, ..self }
    }

    /// Images in, feature maps out: `[batch, channels, height, width]`.
    pub(crate) fn forward(&self, pass: &Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let maps = conv(x, pass.take(self.weight), self.stride, self.padding);
        match self.bias {
            Some(bias) => maps + pass.take_as(bias, [1, pass.elements(bias), 1, 1]),
            None => maps,
        }
    }
}

fn kernels(
    layout: &mut Layout,
    name: &str,
    [from, to]: [usize; 2],
    kernel: usize,
    next: Next,
) -> usize {
    let init = weights(from * kernel * kernel, next);
    layout.parameter(name, "weight", &[to, from, kernel, kernel], init)
}

fn weights(fan_in: usize, next: Next) -> Init {
    match next {
        Next::Relu => Init::he(fan_in),
        Next::Linear => Init::xavier(fan_in),
    }
}

/// A fully connected layer: `y = x·W + b` with `W` of shape `[from, to]`, or `y = x·W`.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: usize,
    bias: Option<usize>,
}

impl Linear {
    /// A layer from `from` to `to` features.
    pub(crate) fn new(layout: &mut Layout, name: &str, [from, to]: [usize; 2], next: Next) -> Self {
        let layer = Self::unbiased(layout, name, [from, to], next);
        Self { bias: Some(layout.parameter(name, "bias", &[to], Init::Constant(0.0))), ..layer }
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
                let result = batch_norm_train(x, scale, shift, EPSILON);
                statistics[self.statistics].observe(result.mean, result.variance);
                result.output
            }
            Norm::Running(statistics) => {
                let running = &statistics[self.statistics];
                let device = x.device();
                let mean = Tensor::from_floats(running.mean.as_slice(), &device);
                let variance = Tensor::from_floats(running.variance.as_slice(), &device);
                batch_norm(x, scale, shift, mean, variance, EPSILON)
            }
        }
    }
}

/// The largest of each `kernel` × `kernel` window, every `stride` positions.
pub(crate) fn max_pool(x: Tensor<4>, kernel: usize, stride: usize) -> Tensor<4> {
    max_pool_padded(x, kernel, stride, 0)
}

/// The same with `padding` places around the maps that are never the largest.
pub(crate) fn max_pool_padded(
    x: Tensor<4>,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Tensor<4> {
    let options = MaxPoolOptions::new([kernel; 2]).with_stride([stride; 2]);
    max_pool2d(x, options.with_padding([padding; 2]))
}

/// The mean of each `kernel` × `kernel` square.
pub(crate) fn mean_pool(x: Tensor<4>, kernel: usize) -> Tensor<4> {
    avg_pool2d(x, AvgPoolOptions::new([kernel; 2]).with_stride([kernel; 2]))
}

/// The mean of each feature map: `[batch, channels]`.
pub(crate) fn global_mean(x: Tensor<4>) -> Tensor<2> {
    let [batch, channels, height, width] = x.dims();
    x.reshape([batch, channels, height * width]).mean_dim(2).flatten::<2>(1, 2)
}
