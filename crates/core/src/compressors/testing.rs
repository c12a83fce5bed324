//! Short ways to a message and back, for the exact tests beside the compressors.

use gradwire_bits::DecodeError;

use crate::{Decoder, Encoder, Error, Floats, Spec, State, Tensor};

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

/// An encoder whose method keeps these numbers for the tensor "t" from the step before.
pub(super) fn starting_from(spec: &str, kept: &[f32]) -> Encoder {
    let mut state = State::new();
    state.set_setting("spec/t", spec.to_owned());
    state.set_floats("kept/t", kept.to_vec());
    let mut encoder = Encoder::new(&spec.parse().unwrap(), 1, 0);
    encoder.restore("", &state).unwrap();
    encoder
}

/// What an encoder's method keeps for the tensor "t".
pub(super) fn kept(encoder: &Encoder) -> Vec<f32> {
    let mut state = State::new();
    encoder.save("", &mut state);
    let kept = state.floats_under("kept/t").next();
    kept.map_or(Vec::new(), |(_, values)| values.to_vec())
}

/// The numbers of a matrix's message, and what it decodes to.
pub(super) fn send(
    encoder: &mut Encoder,
    shape: &[usize],
    gradient: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let (tensor, mut message) = (Tensor::new("t", shape), Vec::new());
    encoder.encode(&tensor, 1, Floats::F32(gradient), &mut message).unwrap();
    let mut out = vec![0.0; gradient.len()];
    Decoder::new(encoder.spec_of("t"), 1)
        .decode_add(&tensor, 1, 0, &message, 1.0, &mut out)
        .unwrap();
    (f32s(&message), out)
}

pub(super) fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
