//! Convolution. Kernels are moved over the padded images in place; matrices of patches would be
//! many times as large as the images.

mod kernels;
mod passes;
mod shapes;
mod stack;
#[cfg(test)]
mod tests;
mod used;

use super::layout::{Layout, Next};
use super::maps::Maps;
use super::pass::Pass;
use super::pointwise::add_map_sums;
use super::window::Window;
use shapes::Shapes;

/// A two-dimensional convolution with square kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conv {
    weight: usize,
    bias: Option<usize>,
    window: Window,
    to: usize,
}

impl Conv {
    /// Declares a convolution with bias.
    pub(super) fn new(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        window: Window,
        next: Next,
    ) -> Self {
        let layer = Self::unbiased(layout, name, [from, to], window, next);
        Self { bias: Some(layout.bias(name, to)), ..layer }
    }

    /// Declares a convolution without bias, before batch normalisation.
    pub(super) fn unbiased(
        layout: &mut Layout,
        name: &str,
        [from, to]: [usize; 2],
        window: Window,
        next: Next,
    ) -> Self {
        let Window { kernel, .. } = window;
        let init = next.init(from * kernel * kernel);
        let weight = layout.parameter(name, "weight", &[to, from, kernel, kernel], init);
        Self { weight, bias: None, window, to }
    }

    /// The positions of its parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = usize> + use<> {
        [self.weight].into_iter().chain(self.bias)
    }

    /// Images in, feature maps out.
    pub(super) fn forward(&self, pass: &mut Pass<'_>, x: Maps) -> Maps {
        let layer = *self;
        let Self { weight, bias, window, to } = layer;
        let shapes = Shapes::new(&x, to, window);
        let (parameters, [rows, columns]) = (pass.parameters, shapes.places());
        let mut y = passes::forward(&shapes, x.values(), &parameters[weight]);
        let image = to * rows * columns;
        if let Some(bias) = bias {
            for (map, at) in y.chunks_exact_mut(rows * columns).zip((0..to).cycle()) {
                map.iter_mut().for_each(|y| *y += parameters[bias][at]);
            }
        }
        pass.record(move |gradient, gradients| {
            let gradient = gradient.values();
            let of_weight = &mut gradients.all[weight];
            passes::add_weight_gradient(&shapes, gradient, x.values(), of_weight);
            if let Some(bias) = bias {
                let images = gradient.chunks_exact(image);
                images.for_each(|maps| add_map_sums(&mut gradients.all[bias], maps));
            }
            gradients.ready(layer.parameters());
            x.outline().gradient(|| passes::images_gradient(&shapes, gradient, &parameters[weight]))
        });
        Maps::new(y, [to, rows, columns])
    }
}
