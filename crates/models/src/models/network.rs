//! Networks of images: layers one after another, with residual and concatenated branches.
//!
//! A [`Builder`] declares the parameters of each layer as the layer is added, and tracks the shape of the feature maps,
//! so that a network states only the output size of each layer.

use std::fmt;

use crate::burn::tensor::Tensor;
use crate::burn::tensor::activation::relu;

use super::ImageShape;
use super::layers::{BatchNorm, Conv, Doubling, Layout, Linear, Next, Pass, Window, mean_pool};
use super::max_pool::max_pool;

/// A network of images. Computes one score for each class and image, or class and pixel.
pub(super) trait Network: Send + Sync + fmt::Debug {
    /// `[batch, channels, height, width]` in, `[batch, classes]` or `[batch · height · width, classes]`
    /// out.
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2>;
}

/// A layer, or an operation between layers, on `[batch, channels, height, width]`.
#[derive(Debug)]
enum Layer {
    Conv(Conv),
    Doubling(Doubling),
    Norm(BatchNorm),
    /// Height and width become 1.
    Linear(Linear),
    /// An operation without parameters.
    Apply(fn(Tensor<4>) -> Tensor<4>),
    MaxPool(Window),
    /// See [`Pass::tap`].
    Tap,
    /// The sum of the body's and the shortcut's output.
    Residual {
        body: Vec<Layer>,
        shortcut: Vec<Layer>,
    },
    /// The channels of the input, then those of the body's output; the reverse where `last`.
    Concat {
        body: Vec<Layer>,
        last: bool,
    },
}

impl Layer {
    fn forward(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        match self {
            Layer::Conv(conv) => conv.forward(pass, x),
            Layer::Doubling(doubling) => doubling.forward(pass, x),
            Layer::Norm(norm) => norm.forward(pass, x),
            Layer::Linear(linear) => {
                let y = linear.forward(pass, x.flatten(1, 3));
                let [batch, features] = y.dims();
                y.reshape([batch, features, 1, 1])
            }
            Layer::Apply(operation) => operation(x),
            Layer::MaxPool(window) => max_pool(x, *window),
            Layer::Tap => pass.tap(x),
            Layer::Residual { body, shortcut } => {
                let y = run(body, pass, x.clone());
                y + run(shortcut, pass, x)
            }
            Layer::Concat { body, last } => {
                let y = run(body, pass, x.clone());
                Tensor::cat(if *last { vec![y, x] } else { vec![x, y] }, 1)
            }
        }
    }
}

/// The layers of a network, in order.
#[derive(Debug)]
pub(super) struct Sequential(Vec<Layer>);

impl Network for Sequential {
    fn forward(&self, pass: &mut Pass<'_>, images: Tensor<4>) -> Tensor<2> {
        run(&self.0, pass, images).flatten(1, 3)
    }
}

fn run(layers: &[Layer], pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
    layers.iter().fold(x, |x, layer| layer.forward(pass, x))
}

/// Adds layers to a network, and their parameters to its layout.
pub(super) struct Builder {
    layout: Layout,
    layers: Vec<Layer>,
    /// Channels, height and width of the last layer's output.
    shape: [usize; 3],
    classes: usize,
}

impl Builder {
    /// A network without layers for such images.
    pub(super) fn new(shape: ImageShape) -> Self {
        let ImageShape { channels, height, width, classes } = shape;
        Self {
            layout: Layout::default(),
            layers: Vec::new(),
            shape: [channels, height, width],
            classes,
        }
    }

    /// The parameters, and the network that uses them.
    pub(super) fn finish(self) -> (Layout, Sequential) {
        (self.layout, Sequential(self.layers))
    }

    /// Channels of the last layer's output.
    pub(super) fn channels(&self) -> usize {
        self.shape[0]
    }

    fn add(&mut self, layer: Layer) -> &mut Self {
        self.layers.push(layer);
        self
    }

    /// The output shape of a window moved over the last layer's maps.
    fn moved(&self, to: usize, window: Window) -> [usize; 3] {
        let [_, height, width] = self.shape;
        [to, window.places(height), window.places(width)]
    }

    /// A convolution to `to` channels, with bias.
    pub(super) fn conv(&mut self, name: &str, to: usize, window: Window, next: Next) -> &mut Self {
        let conv = Conv::new(&mut self.layout, name, [self.shape[0], to], window, next);
        self.shape = self.moved(to, window);
        self.add(Layer::Conv(conv))
    }

    /// A convolution to `to` channels, without bias, and batch normalisation, each with its name.
    pub(super) fn conv_norm(
        &mut self,
        [conv, norm]: [&str; 2],
        to: usize,
        window: Window,
    ) -> &mut Self {
        let conv = Conv::unbiased(&mut self.layout, conv, [self.shape[0], to], window);
        self.shape = self.moved(to, window);
        self.add(Layer::Conv(conv)).norm(norm)
    }

    /// Batch normalisation.
    pub(super) fn norm(&mut self, name: &str) -> &mut Self {
        let norm = BatchNorm::new(&mut self.layout, name, self.shape[0]);
        self.add(Layer::Norm(norm))
    }

    /// A transposed convolution to `to` channels that doubles height and width.
    pub(super) fn doubling(&mut self, name: &str, to: usize) -> &mut Self {
        let doubling = Doubling::new(&mut self.layout, name, [self.shape[0], to]);
        let [_, height, width] = self.shape;
        self.shape = [to, 2 * height, 2 * width];
        self.add(Layer::Doubling(doubling))
    }

    /// A fully connected layer with bias, from all values of the last layer.
    pub(super) fn linear(&mut self, name: &str, to: usize, next: Next) -> &mut Self {
        let from = self.shape.iter().product();
        let linear = Linear::new(&mut self.layout, name, [from, to], next);
        self.add_linear(linear, to)
    }

    /// The last layer, fully connected: a score for each class.
    pub(super) fn classifier(&mut self, name: &str) -> &mut Self {
        self.linear(name, self.classes, Next::Linear)
    }

    /// The last layer without bias.
    pub(super) fn unbiased_classifier(&mut self, name: &str) -> &mut Self {
        let widths = [self.shape.iter().product(), self.classes];
        let linear = Linear::unbiased(&mut self.layout, name, widths, Next::Linear);
        self.add_linear(linear, self.classes)
    }

    fn add_linear(&mut self, linear: Linear, to: usize) -> &mut Self {
        self.shape = [to, 1, 1];
        self.add(Layer::Linear(linear))
    }

    /// An operation that keeps the shape.
    pub(super) fn apply(&mut self, operation: fn(Tensor<4>) -> Tensor<4>) -> &mut Self {
        self.add(Layer::Apply(operation))
    }

    /// An operation that leaves one value of each channel.
    pub(super) fn global(&mut self, operation: fn(Tensor<4>) -> Tensor<4>) -> &mut Self {
        self.shape = [self.channels(), 1, 1];
        self.apply(operation)
    }

    /// A rectifier.
    pub(super) fn relu(&mut self) -> &mut Self {
        self.apply(relu)
    }

    /// The largest value of each window.
    pub(super) fn max_pool(&mut self, window: Window) -> &mut Self {
        self.shape = self.moved(self.channels(), window);
        self.add(Layer::MaxPool(window))
    }

    /// The mean of each 2×2 square.
    pub(super) fn halve(&mut self) -> &mut Self {
        self.shape = self.moved(self.channels(), Window::square(2));
        self.apply(|x| mean_pool(x, 2))
    }

    /// A [tap](Pass::tap): all later layers depend on the tensor at this point.
    pub(super) fn tap(&mut self) -> &mut Self {
        self.add(Layer::Tap)
    }

    /// The layers that `declare` adds, apart from the others.
    fn branch(&mut self, declare: impl FnOnce(&mut Self)) -> Vec<Layer> {
        let before = std::mem::take(&mut self.layers);
        declare(self);
        std::mem::replace(&mut self.layers, before)
    }

    /// The sum of the outputs of a body and a shortcut, both applied to the last layer's output.
    pub(super) fn residual(
        &mut self,
        body: impl FnOnce(&mut Self),
        shortcut: impl FnOnce(&mut Self),
    ) -> &mut Self {
        let before = self.shape;
        let body = self.branch(body);
        let after = std::mem::replace(&mut self.shape, before);
        let shortcut = self.branch(shortcut);
        self.shape = after;
        self.add(Layer::Residual { body, shortcut })
    }

    /// Concatenates the last layer's output and the output of a body as channels; the body's output first if `last`.
    pub(super) fn concat(&mut self, last: bool, body: impl FnOnce(&mut Self)) -> &mut Self {
        let channels = self.channels();
        let body = self.branch(body);
        self.shape[0] += channels;
        self.add(Layer::Concat { body, last })
    }
}
