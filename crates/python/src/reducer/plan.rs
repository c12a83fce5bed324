//! The compressors of tensors, and the expected sizes of their messages.

use gradwire::{Encoder, Floats, Rng, Spec, Tensor};
use gradwire_exchange::Result;

/// A tensor's name, number of elements and compressor, the expected bytes of a message, and the
/// bytes of its last messages.
pub(super) type Plan = (String, usize, String, f64, usize);

/// The bytes of a message for normally distributed values in a tensor's shape, with a standard
/// deviation of one. For a large tensor, only some rows are encoded.
pub(super) fn expected_bytes(spec: &Spec, tensor: &Tensor) -> Result<f64> {
    expected_bytes_of(spec, tensor, 1.0)
}

/// The bytes of a message for normally distributed values, large or small, whichever takes fewer. A
/// compressor with a threshold may send everything or nothing, depending on the size of the values,
/// which is unknown.
pub(super) fn fewest_bytes(spec: &Spec, tensor: &Tensor) -> Result<f64> {
    Ok(expected_bytes(spec, tensor)?.min(expected_bytes_of(spec, tensor, 1e-6)?))
}

fn expected_bytes_of(spec: &Spec, tensor: &Tensor, deviation: f32) -> Result<f64> {
    const SAMPLE: usize = 1 << 16;
    let (elements, mut shape) = (tensor.elements(), tensor.shape().to_vec());
    if let Some(rows) = shape.first_mut() {
        let row = elements / (*rows).max(1);
        *rows = (*rows).min((SAMPLE / row.max(1)).max(1));
    }
    let sample = Tensor::new(tensor.name(), &shape);
    let mut rng = Rng::new(0, sample.id(), 0, 0, 0);
    let values: Vec<f32> = (0..sample.elements()).map(|_| deviation * rng.normal()).collect();
    let mut message = Vec::new();
    Encoder::new(spec, 0, 0).encode(&sample, 0, Floats::F32(&values), &mut message)?;
    Ok(message.len() as f64 * elements as f64 / sample.elements().max(1) as f64)
}
