//! Networks of images: layers one after another, with residual and concatenated branches.
//!
//! A [`Builder`] declares the parameters of each added layer, and tracks the shape of the feature
//! maps, so a network states only the output size of each layer.

use super::ImageShape;
use super::batch_norm::BatchNorm;
use super::conv::Conv;
use super::dense::Dense;
use super::doubling::Doubling;
use super::layout::{Layout, Next};
use super::maps::Maps;
use super::max_pool::max_pool;
use super::operations;
use super::pass::Pass;
use super::window::Window;

/// An operation without parameters.
pub(super) type Operation = fn(&mut Pass<'_>, Maps) -> Maps;

/// A layer, or an operation between layers.
#[derive(Debug)]
enum Layer {
    Conv(Conv),
    Doubling(Doubling),
    Norm(BatchNorm),
    /// Height and width become 1.
    Dense(Dense),
    Apply(Operation),
    MaxPool(Window),
    /// The sum of the body's and the shortcut's output.
    Residual {
        body: Network,
        shortcut: Network,
    },
    /// The channels of the input, then the channels of the body's output; the reverse if `last`.
    Concat {
        body: Network,
        last: bool,
    },
}

impl Layer {
    fn forward(&self, pass: &mut Pass<'_>, x: Maps) -> Maps {
        match self {
            Layer::Conv(conv) => conv.forward(pass, x),
            Layer::Doubling(doubling) => doubling.forward(pass, x),
            Layer::Norm(norm) => norm.forward(pass, x),
            Layer::Dense(dense) => connect(*dense, pass, x),
            Layer::Apply(operation) => operation(pass, x),
            Layer::MaxPool(window) => max_pool(pass, *window, x),
            Layer::Residual { body, shortcut } => add_branches(body, shortcut, pass, x),
            Layer::Concat { body, last } => concat(body, *last, pass, x),
        }
    }

    /// Groups of parameters whose gradients become final together, in the order of
    /// back-propagation.
    fn gradient_order(&self) -> Vec<Vec<usize>> {
        match self {
            Layer::Conv(conv) => vec![conv.parameters().collect()],
            Layer::Doubling(doubling) => vec![doubling.parameters().to_vec()],
            Layer::Norm(norm) => vec![norm.parameters().to_vec()],
            Layer::Dense(dense) => vec![dense.parameters().collect()],
            Layer::Apply(_) | Layer::MaxPool(_) => Vec::new(),
            Layer::Residual { body, shortcut } => {
                [body.gradient_order(), shortcut.gradient_order()].concat()
            }
            Layer::Concat { body, .. } => body.gradient_order(),
        }
    }
}

/// A fully connected layer, from all values of an image.
fn connect(dense: Dense, pass: &mut Pass<'_>, x: Maps) -> Maps {
    let parameters = pass.parameters;
    let y = dense.forward(parameters, x.values());
    pass.record(move |gradient, gradients| {
        dense.add_gradients(x.values(), gradient.values(), gradients.all);
        gradients.ready(dense.parameters());
        x.outline().gradient(|| dense.x_gradient(parameters, gradient.values()))
    });
    Maps::new(y, [dense.outputs(), 1, 1])
}

fn add_branches(body: &Network, shortcut: &Network, pass: &mut Pass<'_>, x: Maps) -> Maps {
    let (y, of_body) = pass.apart(|pass| body.forward(pass, x.clone()));
    let (z, of_shortcut) = pass.apart(|pass| shortcut.forward(pass, x));
    pass.record(move |gradient, gradients| {
        let found = of_body.back(gradient.clone(), gradients);
        let other = of_shortcut.back(gradient, gradients);
        Some(found?.plus(&other?))
    });
    y.plus(&z)
}

fn concat(body: &Network, last: bool, pass: &mut Pass<'_>, x: Maps) -> Maps {
    let (y, of_body) = pass.apart(|pass| body.forward(pass, x.clone()));
    let (x_shape, y_shape) = (x.shape, y.shape);
    let joined = if last { y.beside(&x) } else { x.beside(&y) };
    pass.record(move |gradient, gradients| {
        let (of_x, of_y) = if last {
            let (of_y, of_x) = gradient.split(y_shape[0]);
            (of_x, of_y)
        } else {
            gradient.split(x_shape[0])
        };
        Some(of_body.back(of_y, gradients)?.plus(&of_x))
    });
    joined
}

/// The layers of a network, in order.
#[derive(Debug)]
pub(super) struct Network(Vec<Layer>);

impl Network {
    /// Computes a row of class scores for each image, or for each pixel. The rows are maps of the
    /// shape `[classes, 1, 1]`.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, images: Maps) -> Maps {
        self.0.iter().fold(images, |x, layer| layer.forward(pass, x))
    }

    /// Groups of parameters whose gradients become final together, in the order of
    /// back-propagation.
    pub(super) fn gradient_order(&self) -> Vec<Vec<usize>> {
        self.0.iter().rev().flat_map(Layer::gradient_order).collect()
    }
}

/// Adds layers to a network, and their parameters to its layout.
pub(super) struct Builder {
    layout: Layout,
    layers: Vec<Layer>,
    /// Channels, height and width of the last layer's output.
    shape: [usize; 3],
    /// The values of the largest output.
    largest: usize,
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
            largest: 0,
            classes,
        }
    }

    /// The parameters, and the network that uses them.
    pub(super) fn finish(mut self) -> (Layout, Network) {
        // The largest output exists at the same time as the values for the backward pass.
        self.layout.activations += self.largest;
        (self.layout, Network(self.layers))
    }

    /// Channels of the last layer's output.
    pub(super) fn channels(&self) -> usize {
        self.shape[0]
    }

    fn add(&mut self, layer: Layer) -> &mut Self {
        self.largest = self.largest.max(self.shape.iter().product());
        self.layers.push(layer);
        self
    }

    /// Counts the last layer's output, which the backward pass of the next layer needs.
    fn keep_output(&mut self) {
        self.layout.activations += self.shape.iter().product::<usize>();
    }

    /// The output shape of a window moved over the last layer's maps.
    fn moved(&self, to: usize, window: Window) -> [usize; 3] {
        let [_, height, width] = self.shape;
        [to, window.places(height), window.places(width)]
    }

    /// A convolution to `to` channels, with bias.
    pub(super) fn conv(&mut self, name: &str, to: usize, window: Window, next: Next) -> &mut Self {
        self.keep_output();
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
        self.keep_output();
        let channels = [self.shape[0], to];
        let conv = Conv::unbiased(&mut self.layout, conv, channels, window, Next::Relu);
        self.shape = self.moved(to, window);
        self.add(Layer::Conv(conv)).norm(norm)
    }

    /// Batch normalisation.
    pub(super) fn norm(&mut self, name: &str) -> &mut Self {
        self.keep_output();
        let norm = BatchNorm::new(&mut self.layout, name, self.shape[0]);
        self.add(Layer::Norm(norm))
    }

    /// A transposed convolution to `to` channels that doubles height and width.
    pub(super) fn doubling(&mut self, name: &str, to: usize) -> &mut Self {
        self.keep_output();
        let doubling = Doubling::new(&mut self.layout, name, [self.shape[0], to]);
        let [_, height, width] = self.shape;
        self.shape = [to, 2 * height, 2 * width];
        self.add(Layer::Doubling(doubling))
    }

    /// A fully connected layer with bias, from all values of the last layer.
    pub(super) fn linear(&mut self, name: &str, to: usize, next: Next) -> &mut Self {
        let from = self.shape.iter().product();
        let dense = Dense::new(&mut self.layout, name, [from, to], next.init(from));
        self.add_dense(dense)
    }

    /// The last layer, fully connected: a score for each class.
    pub(super) fn classifier(&mut self, name: &str) -> &mut Self {
        self.linear(name, self.classes, Next::Linear)
    }

    /// The last layer without bias.
    pub(super) fn unbiased_classifier(&mut self, name: &str) -> &mut Self {
        let from = self.shape.iter().product();
        let init = Next::Linear.init(from);
        let dense = Dense::unbiased(&mut self.layout, name, [from, self.classes], init);
        self.add_dense(dense)
    }

    fn add_dense(&mut self, dense: Dense) -> &mut Self {
        self.keep_output();
        self.shape = [dense.outputs(), 1, 1];
        self.add(Layer::Dense(dense))
    }

    /// An operation that keeps the shape.
    pub(super) fn apply(&mut self, operation: Operation) -> &mut Self {
        self.add(Layer::Apply(operation))
    }

    /// An operation that leaves one value of each channel.
    pub(super) fn global(&mut self, operation: Operation) -> &mut Self {
        self.shape = [self.channels(), 1, 1];
        self.apply(operation)
    }

    /// A rectifier.
    pub(super) fn relu(&mut self) -> &mut Self {
        self.apply(operations::relu)
    }

    /// The largest value of each window.
    pub(super) fn max_pool(&mut self, window: Window) -> &mut Self {
        self.shape = self.moved(self.channels(), window);
        self.add(Layer::MaxPool(window))
    }

    /// The mean of each 2×2 square.
    pub(super) fn halve(&mut self) -> &mut Self {
        self.shape = self.moved(self.channels(), Window::square(2));
        self.apply(operations::halve)
    }

    /// The layers that `declare` adds, as a separate branch.
    fn branch(&mut self, declare: impl FnOnce(&mut Self)) -> Network {
        let before = std::mem::take(&mut self.layers);
        declare(self);
        Network(std::mem::replace(&mut self.layers, before))
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

    /// Concatenates the last layer's output and the output of a body as channels; with `last`, the
    /// body's output comes first.
    pub(super) fn concat(&mut self, last: bool, body: impl FnOnce(&mut Self)) -> &mut Self {
        let channels = self.channels();
        let body = self.branch(body);
        self.shape[0] += channels;
        self.add(Layer::Concat { body, last })
    }
}
