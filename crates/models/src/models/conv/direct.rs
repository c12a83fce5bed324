//! Convolution of stride 1 on padded images, without a matrix of patches.
//!
//! Images lie in [`Stack`]s, where the pixel under an element of the kernel is at a fixed offset from the kernel's
//! position. An output plane is then a sum of shifted planes, and the gradient of a weight is the inner product of an
//! output plane's gradient with a shifted plane.

use super::Shapes;
use super::kernels::{ROWS, Weights, correlate, weight_gradient as add_weight_gradient};
use super::stack::Stack;

/// Each output value is the sum of `weight · pixel` over the kernel.
pub(super) fn forward(shapes: &Shapes, images: &[f32], weight: &[f32]) -> Vec<f32> {
    let terms = shapes.terms();
    let weights = Weights::new(shapes.to, terms, |plane, term| weight[plane * terms + term]);
    correlate_all(&stack(shapes), images, shapes.from, shapes.to, &weights)
}

/// The gradient of a pixel is a convolution of the output's gradient with the kernel turned by half a circle.
pub(super) fn images_gradient(shapes: &Shapes, gradient: &[f32], weight: &[f32]) -> Vec<f32> {
    let patches = shapes.patches;
    let [rows, columns] = patches.places();
    let stack = Stack::new(patches.kernel, patches.kernel - 1 - patches.padding, rows, columns);
    let elements = patches.kernel * patches.kernel;
    let turned = |plane: usize, term: usize| {
        let (map, element) = (term / elements, elements - 1 - term % elements);
        weight[(map * shapes.from + plane) * elements + element]
    };
    let weights = Weights::new(shapes.from, shapes.to * elements, turned);
    correlate_all(&stack, gradient, shapes.to, shapes.from, &weights)
}

/// ∂W = Σ ∂map · shifted plane, over positions and images.
pub(super) fn weight_gradient(shapes: &Shapes, gradient: &[f32], images: &[f32]) -> Vec<f32> {
    let stack = stack(shapes);
    let offsets = stack.offsets(shapes.from);
    let mut planes = vec![0.0; shapes.from * stack.plane];
    let mut maps = vec![0.0; shapes.to.next_multiple_of(ROWS) * stack.positions];
    let mut found = vec![0.0; shapes.to * shapes.terms()];
    let stacks = images.chunks(stack.images * shapes.image());
    for (images, gradient) in stacks.zip(gradient.chunks(stack.images * shapes.maps())) {
        if gradient.len() < stack.images * shapes.maps() {
            // Fewer images than before, and nothing of those.
            maps.fill(0.0);
        }
        stack.pad(images, shapes.from, &mut planes);
        stack.spread(gradient, shapes.to, &mut maps);
        add_weight_gradient(&stack, &maps, &planes, &offsets, &mut found);
    }
    found
}

fn stack(shapes: &Shapes) -> Stack {
    let patches = shapes.patches;
    Stack::new(patches.kernel, patches.padding, patches.height, patches.width)
}

/// Convolves all images, stack by stack.
fn correlate_all(
    stack: &Stack,
    images: &[f32],
    from: usize,
    to: usize,
    weights: &Weights,
) -> Vec<f32> {
    let offsets = stack.offsets(from);
    let mut planes = vec![0.0; from * stack.plane];
    let mut positions = vec![0.0; weights.planes() * stack.positions];
    let image = from * stack.pixels();
    let map = to * stack.places().iter().product::<usize>();
    let mut maps = vec![0.0; images.len() / image * map];
    let stacks = images.chunks(stack.images * image);
    for (images, maps) in stacks.zip(maps.chunks_mut(stack.images * map)) {
        stack.pad(images, from, &mut planes);
        correlate(stack, &planes, &offsets, weights, &mut positions);
        stack.collect(&positions, to, maps);
    }
    maps
}
