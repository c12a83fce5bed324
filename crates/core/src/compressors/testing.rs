//! Short ways to a message and back, for the exact tests beside the compressors.

use gradwire_bits::DecodeError;

use crate::{Decoder, Encoder, Error, Floats, Spec, Tensor};

pub(super) fn encode(spec: &str, gradient: &[f32]) -> Vec<u8> {
    encode_and_keep(spec, gradient).0
}

/// What the message leaves out.
pub(super) fn residual(spec: &str, gradient: &[f32]) -> Vec<f32> {
    encode_and_keep(spec, gradient).1
}

pub(super) fn decode(
    spec: &str,
    message: &[u8],
    weight: f32,
    out: &mut [f32],
) -> Result<(), DecodeError> {
    let spec: Spec = spec.parse().unwrap();
    let tensor = Tensor::new("t", &[out.len()]);
    let result = Decoder::new(&spec, 1).decode_add(&tensor, 2, 3, message, weight, out);
    result.map_err(|error| match error {
        Error::Message { source, .. } => source,
        other => panic!("{other}"),
    })
}

/// The decoded message of a gradient.
pub(super) fn round_trip(spec: &str, gradient: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; gradient.len()];
    decode(spec, &encode(spec, gradient), 1.0, &mut out).unwrap();
    out
}

fn encode_and_keep(spec: &str, gradient: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let spec: Spec = spec.parse().unwrap();
    let tensor = Tensor::new("t", &[gradient.len()]);
    let (mut encoder, mut message) = (Encoder::new(&spec, 1, 3), Vec::new());
    encoder.encode(&tensor, 2, Floats::F32(gradient), &mut message).unwrap();
    let residual = encoder.residual("t").unwrap_or(&[]).to_vec();
    (message, residual)
}
