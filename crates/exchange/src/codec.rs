//! One sender's encoders and one receiver's decoders, by policy: compressed or raw.

use gradwire::{Decoder, Element, Encoder, Error, Floats, Sent, Spec, State, StateError, Tensor};

use crate::Policy;

/// The compressor of tensors that travel uncompressed.
fn raw() -> Spec {
    "none".parse().expect("the registry has 'none'")
}

/// Compresses what one rank sends, with that rank's residuals.
pub(crate) struct Sender {
    compressed: Encoder,
    raw: Encoder,
    /// What the last message carried.
    sent: Sent,
}

impl Sender {
    /// A sender that the others know as `rank`.
    pub(crate) fn new(spec: &Spec, seed: u64, rank: usize) -> Self {
        let rank = rank as u32;
        Self {
            compressed: Encoder::new(spec, seed, rank),
            raw: Encoder::new(&raw(), seed, rank),
            sent: Sent::All,
        }
    }

    /// Replaces `message` by the message for `values`.
    pub(crate) fn encode(
        &mut self,
        tensor: &Tensor,
        is_raw: bool,
        step: u64,
        values: &[f32],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        let encoder = if is_raw { &mut self.raw } else { &mut self.compressed };
        self.sent = encoder.encode(tensor, step, Floats::F32(values), message)?;
        Ok(())
    }

    /// The positions that the last message carried; `None` where it carried all.
    pub(crate) fn positions(&self) -> Option<&[u32]> {
        (self.sent == Sent::Positions).then(|| self.compressed.positions())
    }

    /// Adds the residuals to `state`; raw tensors have none.
    pub(crate) fn save(&self, prefix: &str, state: &mut State) {
        self.compressed.save(prefix, state);
    }

    pub(crate) fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        self.compressed.restore(prefix, state)
    }
}

/// Decodes the messages of [`Sender`]s with the same spec.
pub(crate) struct Receiver {
    compressed: Decoder,
    raw: Decoder,
}

impl Receiver {
    pub(crate) fn new(spec: &Spec, seed: u64) -> Self {
        Self { compressed: Decoder::new(spec, seed), raw: Decoder::new(&raw(), seed) }
    }

    fn of(&mut self, is_raw: bool) -> &mut Decoder {
        if is_raw { &mut self.raw } else { &mut self.compressed }
    }

    /// Adds `weight` times the decoded message of the sender known as `rank` to `out`.
    pub(crate) fn decode_add(
        &mut self,
        tensor: &Tensor,
        is_raw: bool,
        from: (u64, usize),
        message: &[u8],
        weight: f32,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (step, rank) = from;
        self.of(is_raw).decode_add(tensor, step, rank as u32, message, weight, out)
    }

    /// What messages consist of, for linear compressors.
    pub(crate) fn linear(&mut self, is_raw: bool) -> Option<Element> {
        self.of(is_raw).compressor().linear()
    }
}

/// Which elements of each tensor this rank's messages of one step carried.
pub(crate) struct Carried(Vec<Elements>);

#[derive(Default, Clone)]
struct Elements {
    all: bool,
    positions: Vec<u32>,
}

impl Carried {
    pub(crate) fn new(tensors: usize) -> Self {
        Self(vec![Elements::default(); tensors])
    }

    /// Forgets the step before: nothing has been carried yet.
    pub(crate) fn clear(&mut self) {
        for elements in &mut self.0 {
            elements.all = false;
            elements.positions.clear();
        }
    }

    /// Notes the last message of a sender, for the elements of a tensor from `offset` on.
    pub(crate) fn note(&mut self, index: usize, offset: usize, sender: &Sender) {
        let elements = &mut self.0[index];
        match sender.positions() {
            None => elements.all = true,
            Some(positions) => {
                elements.positions.extend(positions.iter().map(|at| at + offset as u32));
            }
        }
    }

    /// The positions carried, increasing; `None` where all were.
    pub(crate) fn of(&self, index: usize) -> Option<&[u32]> {
        let elements = &self.0[index];
        (!elements.all).then_some(elements.positions.as_slice())
    }
}

/// Which of `tensors` travel uncompressed.
pub(crate) fn raw_tensors(policy: &Policy, tensors: &[Tensor]) -> Vec<bool> {
    tensors.iter().map(|tensor| policy.is_raw(tensor)).collect()
}
