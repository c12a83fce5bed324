//! The compressors of tensors, and the expected sizes of their messages.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gradwire::{Dtype, Encoder, Floats, Rng, Spec, Tensor};
use gradwire_exchange::{Reducer, Result};

/// A tensor's name, number of elements and compressor, the expected bytes of a message, and the
/// bytes of its last messages.
pub(super) type Plan = (String, usize, String, f64, usize);

/// How the tensors of a reducer, with gradients of these element types, are sent at a step, in the
/// order of the model.
pub(super) fn plan(reducer: &Reducer, dtypes: &[Dtype], step: u64) -> Result<Vec<Plan>> {
    let tensors = reducer.tensors().iter().zip(dtypes).enumerate();
    let sent = tensors.filter(|(_, (tensor, _))| !tensor.is_empty_part());
    let plans = sent.map(|(at, (tensor, &dtype))| {
        let (spec, elements) = (reducer.spec_at(at, step), tensor.elements());
        let expected = expected_bytes(&spec.for_elements(dtype), tensor, 1.0)?;
        let name = tensor.name().to_owned();
        Ok((name, elements, spec.to_string(), expected, reducer.message_bytes_of(at)))
    });
    plans.collect()
}

/// The fewest bytes that the messages of all tensors are expected to take at a step, for normally
/// distributed values, large or small. A compressor with a threshold may send everything or
/// nothing, depending on the size of the values, which is unknown.
pub(super) fn fewest_bytes(reducer: &Reducer, dtypes: &[Dtype], step: u64) -> Result<f64> {
    let mut known = HashMap::new();
    let tensors = reducer.tensors().iter().zip(dtypes).enumerate();
    tensors
        .map(|(at, (tensor, &dtype))| {
            let spec = &reducer.spec_at(at, step).for_elements(dtype);
            // Models repeat layers of the same shape.
            match known.entry((spec.to_string(), tensor.shape().to_vec())) {
                Entry::Occupied(known) => Ok(*known.get()),
                Entry::Vacant(new) => {
                    let large = expected_bytes(spec, tensor, 1.0)?;
                    Ok(*new.insert(large.min(expected_bytes(spec, tensor, 1e-6)?)))
                }
            }
        })
        .sum()
}

/// The expected bytes of a message for normally distributed values in a tensor's shape, with a
/// standard `deviation`. For a large tensor, only some rows are encoded.
fn expected_bytes(spec: &Spec, tensor: &Tensor, deviation: f32) -> Result<f64> {
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
