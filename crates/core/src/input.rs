//! The input of an encoder.

use crate::Floats;

/// The gradient of a tensor in one step, with statistics of its micro-batches. A gradient alone
/// converts into it.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The gradient, one number per element.
    pub gradient: Floats<'a>,
    /// If the gradient is a sum of parts (micro-batches): the sum of the squares of the parts, one
    /// number per element. `None` counts the gradient as a single part. Only `variance` uses them.
    pub squares: Option<&'a [f32]>,
}

impl<'a> From<&'a [f32]> for Input<'a> {
    fn from(gradient: &'a [f32]) -> Self {
        Floats::F32(gradient).into()
    }
}

impl<'a> From<Floats<'a>> for Input<'a> {
    fn from(gradient: Floats<'a>) -> Self {
        Self { gradient, squares: None }
    }
}
