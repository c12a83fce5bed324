//! The forward and the backward passes.
//!
//! Images lie in [`Stack`]s. In a stack, the pixel under an element of the kernel has a fixed
//! offset from the kernel's position. An output map is then a sum of shifted planes. The gradient
//! of a weight is the inner product of a map's gradient and a shifted plane.

use super::super::window::Window;
use super::kernels::{ROWS, Weights, add_products, correlate};
use super::shapes::Shapes;
use super::stack::{Line, Stack, lines};

/// Each output value is the sum of `weight · pixel` over the kernel.
pub(super) fn forward(shapes: &Shapes, images: &[f32], weight: &[f32]) -> Vec<f32> {
    let stack = Stack::new(shapes.window, shapes.height, shapes.width);
    let terms = shapes.from * shapes.window.kernel * shapes.window.kernel;
    let weights = Weights::new(shapes.to, terms, |map, term| weight[map * terms + term]);
    let map = shapes.places().iter().product::<usize>() * shapes.to;
    let mut maps = vec![0.0; shapes.batch * map];
    let mut stacks = maps.chunks_mut(stack.images * map);
    for_each_stack(&stack, images, shapes.from, &weights, |positions| {
        let maps = stacks.next().expect("as many stacks of maps as of images");
        stack.collect(positions, shapes.to, maps);
    });
    maps
}

/// The gradient of a phase's pixels is a convolution of the output's gradient with the kernel
/// elements that meet this phase, rotated by 180°.
pub(super) fn images_gradient(shapes: &Shapes, gradient: &[f32], weight: &[f32]) -> Vec<f32> {
    let Window { kernel, stride, padding } = shapes.window;
    let phases = stride * stride;
    let turned = kernel.div_ceil(stride);
    let [rows, columns] = shapes.places();
    // The first computed element of a phase. Earlier elements are padding in all phases. Starts
    // earlier if the last pixels would not be reached.
    let first = [(shapes.height, rows), (shapes.width, columns)].into_iter().fold(
        padding / stride,
        |first, (length, places)| {
            let last = (length + padding - 1) / stride;
            first.min((places + turned - 2).saturating_sub(last))
        },
    );
    let window = Window { kernel: turned, stride: 1, padding: turned - 1 - first };
    let stack = Stack::new(window, rows, columns);
    let weights = Weights::new(shapes.from * phases, shapes.to * turned * turned, |plane, term| {
        let (plane, phase) = (plane / phases, plane % phases);
        let (map, place) = (term / (turned * turned), term % (turned * turned));
        let y = phase / stride + stride * (turned - 1 - place / turned);
        let x = phase % stride + stride * (turned - 1 - place % turned);
        let inside = y < kernel && x < kernel;
        let element = ((map * shapes.from + plane) * kernel + y) * kernel + x;
        if inside { weight[element] } else { 0.0 }
    });
    let lines = lines(shapes.window, shapes.height, shapes.width);
    let plane = shapes.height * shapes.width;
    let mut found = vec![0.0; shapes.batch * shapes.from * plane];
    let mut stacks = found.chunks_mut(stack.images * shapes.from * plane);
    for_each_stack(&stack, gradient, shapes.to, &weights, |positions| {
        let images = stacks.next().expect("as many stacks of images as of gradients");
        for (at, pixels) in images.chunks_exact_mut(plane).enumerate() {
            let (image, planes) = (at / shapes.from, at % shapes.from * phases);
            for line in &lines {
                let (row, column) = (line.row - first, line.column - first);
                let line = Line { row, column, ..*line };
                stack.copy_line(positions, image, planes, line, pixels);
            }
        }
    });
    found
}

/// Adds ∂W = Σ ∂map · shifted plane, over positions and images.
pub(super) fn add_weight_gradient(
    shapes: &Shapes,
    gradient: &[f32],
    images: &[f32],
    of_weight: &mut [f32],
) {
    let stack = Stack::new(shapes.window, shapes.height, shapes.width);
    let (offsets, used) = (stack.offsets(shapes.from), stack.used());
    let mut planes = vec![0.0; stack.elements(shapes.from)];
    let mut maps = vec![0.0; shapes.to.next_multiple_of(ROWS) * stack.positions];
    let image = stack.images * shapes.from * stack.pixels();
    let map = stack.images * shapes.to * shapes.places().iter().product::<usize>();
    for (images, gradient) in images.chunks(image).zip(gradient.chunks(map)) {
        if gradient.len() < map {
            // Fewer images than in the previous stack; its values are cleared.
            maps.fill(0.0);
        }
        stack.pad(images, shapes.from, &mut planes);
        stack.spread(gradient, shapes.to, &mut maps);
        add_products(&used, &maps, stack.positions, &planes, &offsets, of_weight);
    }
}

/// Convolves all images, stack by stack, and passes the sums at the positions of each stack to
/// `take`.
fn for_each_stack(
    stack: &Stack,
    images: &[f32],
    planes: usize,
    weights: &Weights,
    mut take: impl FnMut(&[f32]),
) {
    let (offsets, used) = (stack.offsets(planes), stack.used());
    let mut padded = vec![0.0; stack.elements(planes)];
    let mut positions = vec![0.0; weights.padded_planes() * stack.positions];
    for images in images.chunks(stack.images * planes * stack.pixels()) {
        stack.pad(images, planes, &mut padded);
        correlate(&used, &padded, &offsets, weights, stack.positions, &mut positions);
        take(&positions);
    }
}
