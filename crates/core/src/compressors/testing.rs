//! Functions that encode and decode, for the unit tests of compressors.

use gradwire_bits::DecodeError;

use crate::{Decoder, Encoder, Error, Floats, Spec, State, Tensor};

pub(super) fn encode(spec: &str, gradient: &[f32]) -> Vec<u8> {
    encode_and_keep(spec, gradient).0
}

/// The residual after encoding a gradient.
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
    let mut sender = Sender::new(spec, &[gradient.len()]);
    sender.encoder = Encoder::new(&spec.parse().unwrap(), 1, 3);
    let message = sender.encode(2, gradient);
    (message, sender.encoder.residual("t").unwrap_or(&[]).to_vec())
}

/// The decoding error of a message for a tensor of this many elements. Checks that nothing is
/// added.
pub(super) fn refused(spec: &str, elements: usize, message: &[u8]) -> DecodeError {
    let mut out = vec![0.5; elements];
    let error = decode(spec, message, 1.0, &mut out).unwrap_err();
    assert!(out.iter().all(|&x| x == 0.5), "a refused message was added in part");
    error
}

/// Rank 0 in a run with seed 1, which sends the tensor "t".
pub(super) struct Sender {
    pub(super) encoder: Encoder,
    pub(super) tensor: Tensor,
}

impl Sender {
    pub(super) fn new(spec: &str, shape: &[usize]) -> Self {
        let encoder = Encoder::new(&spec.parse().unwrap(), 1, 0);
        Self { encoder, tensor: Tensor::new("t", shape) }
    }

    /// A sender whose method stored these numbers in an earlier step.
    pub(super) fn starting_from(spec: &str, shape: &[usize], kept: &[f32]) -> Self {
        let mut state = State::new();
        state.set_number("encoder", 1);
        state.set_setting("spec/t", spec.to_owned());
        state.set_floats("kept/t", kept.to_vec());
        let mut sender = Self::new(spec, shape);
        sender.encoder.restore("", &state).unwrap();
        sender
    }

    /// The message of a gradient.
    pub(super) fn encode(&mut self, step: u64, gradient: &[f32]) -> Vec<u8> {
        let mut message = Vec::new();
        self.encoder.encode(&self.tensor, step, Floats::F32(gradient), &mut message).unwrap();
        message
    }

    /// The message of a gradient, and the decoded values.
    pub(super) fn send(&mut self, step: u64, gradient: &[f32]) -> (Vec<u8>, Vec<f32>) {
        let (message, mut out) = (self.encode(step, gradient), vec![0.0; gradient.len()]);
        Decoder::new(self.encoder.spec_of("t"), 1)
            .decode_add(&self.tensor, step, 0, &message, 1.0, &mut out)
            .unwrap();
        (message, out)
    }

    pub(super) fn residual(&self) -> &[f32] {
        self.encoder.residual("t").unwrap()
    }

    /// The numbers that the method stores for the tensor.
    pub(super) fn kept(&self) -> Vec<f32> {
        let mut state = State::new();
        self.encoder.save("", &mut state);
        let kept = state.floats_under("kept/t").next();
        kept.map_or(Vec::new(), |(_, values)| values.to_vec())
    }
}

/// The numbers of a message.
pub(super) fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
