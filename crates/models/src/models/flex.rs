//! The values of the engine's tensors.

use crate::burn::tensor::TensorData;
use burn_flex::FlexTensor;

/// The values of a contiguous tensor of f32.
pub(super) fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("a contiguous tensor of f32")
}

/// A tensor of f32.
pub(super) fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}
