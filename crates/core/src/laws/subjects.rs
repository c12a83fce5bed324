//! The configurations and tensors that a law is checked with.

use super::samples;
use crate::{Entry, Spec, Tensor};

/// The configuration of an entry with these parameters.
pub(super) fn parse(entry: &'static Entry, parameters: &str) -> Spec {
    Spec::with_parameters(entry, parameters).unwrap_or_else(|error| panic!("{error}"))
}

/// Checks all sizes, shapes and kinds of tensor.
pub(super) fn over_tensors(check: impl FnMut(&Tensor, &[f32], &str)) {
    over_tensors_of(&samples::SIZES, check);
}

/// Checks all shapes and kinds of tensor of these sizes. For a large size, which takes long, only
/// the first kind has shapes other than a vector.
pub(super) fn over_tensors_of(sizes: &[usize], mut check: impl FnMut(&Tensor, &[f32], &str)) {
    const LARGE: usize = 10_000;
    for &elements in sizes {
        for (number, (kind, values)) in samples::tensors(elements).into_iter().enumerate() {
            let shapes = if elements > LARGE && number > 0 { 1 } else { usize::MAX };
            for shape in samples::shapes(elements).into_iter().take(shapes) {
                check(&Tensor::new("layer.weight", &shape), &values, &format!("{shape:?}, {kind}"));
            }
        }
    }
}
