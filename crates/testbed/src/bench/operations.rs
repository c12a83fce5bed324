//! The operations that are timed: a compressor compresses and decompresses a tensor, which is also
//! copied and read.

use std::hint::black_box;

use gradwire::{Coverage, Decoder, Encoder, Error, Floats, Spec, Tensor};
use gradwire_bits::kernels::abs_max_bits;

use super::entropy::{entropy, in_steps};
use super::input::{GRADIENTS, matrix, normal};

/// Warm-up steps.
pub(super) const WARM: u64 = 8;

/// The longer message of this warm-up step and the next is decoded and evaluated.
const FIRST_SAMPLE: u64 = 7;

/// The weight of decoded messages, as in a mean over four workers.
pub(super) const WEIGHT: f32 = 0.25;

/// A compressor and a tensor, and what their operations need.
pub(crate) struct Bench {
    encoder: Encoder,
    decoder: Decoder,
    tensor: Tensor,
    gradients: Vec<Vec<f32>>,
    message: Vec<u8>,
    step: u64,
    /// The message that is decoded.
    sample: Vec<u8>,
    /// Its step.
    sample_step: u64,
    /// The content of the message.
    sent: Coverage,
    out: Vec<f32>,
    /// Elements that share a scale; 0 for all.
    bucket: usize,
}

impl Bench {
    /// On a matrix of normal variates.
    pub(crate) fn new(spec: &Spec, elements: usize) -> Self {
        let gradients = (0..GRADIENTS).map(|stream| normal(elements, stream as u32)).collect();
        Self::of(spec, Tensor::new("bench", &matrix(elements)), gradients)
    }

    /// On a tensor with these gradients, in turn; at least one.
    pub(super) fn of(spec: &Spec, tensor: Tensor, gradients: Vec<Vec<f32>>) -> Self {
        Self {
            bucket: spec.number("bucket").map_or(0, |bucket| bucket as usize),
            sent: Coverage::All,
            encoder: Encoder::new(spec, 0, 0),
            decoder: Decoder::new(spec, 0),
            out: vec![0.0; tensor.elements()],
            tensor,
            gradients,
            message: Vec::new(),
            step: 0,
            sample: Vec::new(),
            sample_step: FIRST_SAMPLE,
        }
    }

    /// Takes the warm-up steps, and decodes, copies and reads as often.
    pub(crate) fn warm(&mut self) -> Result<(), Error> {
        while self.step < WARM {
            let sent = self.encode()?;
            if self.step >= FIRST_SAMPLE && self.message.len() > self.sample.len() {
                self.sample.clone_from(&self.message);
                (self.sample_step, self.sent) = (self.step, sent);
            }
        }
        for _ in 0..WARM {
            self.decode()?;
            self.copy()?;
            self.read()?;
        }
        Ok(())
    }

    pub(crate) fn encode(&mut self) -> Result<Coverage, Error> {
        self.step += 1;
        self.message.clear();
        let gradient = &self.gradients[self.step as usize % self.gradients.len()];
        let gradient = Floats::F32(black_box(gradient));
        self.encoder.encode(&self.tensor, self.step, gradient, &mut self.message)
    }

    pub(crate) fn decode(&mut self) -> Result<(), Error> {
        let message = black_box(self.sample.as_slice());
        let step = self.sample_step;
        self.decoder.decode_add(&self.tensor, step, 0, message, WEIGHT, &mut self.out)
    }

    /// Decodes the message without adding it to earlier ones.
    pub(super) fn decode_alone(&mut self) -> Result<(), Error> {
        self.out.fill(0.0);
        self.decode()
    }

    /// The elements of the tensor.
    pub(super) fn elements(&self) -> usize {
        self.out.len()
    }

    /// The bytes of the decoded message.
    pub(super) fn message_bytes(&self) -> usize {
        self.sample.len()
    }

    /// The cache lines that adding the message touches, as a fraction, after
    /// [`decode_alone`](Self::decode_alone).
    pub(super) fn touched(&self) -> f64 {
        touched(&self.out)
    }

    /// The entropy of the decoded message in bits, after [`decode_alone`](Self::decode_alone); see
    /// [`Measurement::entropy_bits`](super::Measurement::entropy_bits).
    pub(super) fn entropy(&mut self) -> f64 {
        if self.bucket > 0 && self.sent == Coverage::All {
            self.out.chunks_mut(self.bucket).for_each(in_steps);
        }
        let (words, rest) = self.sample.as_chunks();
        let words = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let whole = entropy(words) + 8.0 * rest.len() as f64;
        let elements = entropy(self.out.iter().map(|x| x.to_bits()).collect());
        whole.min(elements)
    }

    pub(super) fn read(&self) -> Result<(), Error> {
        black_box(abs_max_bits(black_box(&self.gradients[0])));
        Ok(())
    }

    pub(super) fn copy(&mut self) -> Result<(), Error> {
        self.out.copy_from_slice(black_box(&self.gradients[0]));
        black_box(&mut self.out);
        Ok(())
    }
}

/// The fraction of 64-byte cache lines that adding a message touches: lines with an element that is
/// not 0.
fn touched(decoded: &[f32]) -> f64 {
    let lines = decoded.chunks(16).filter(|line| line.iter().any(|x| *x != 0.0)).count();
    lines as f64 / decoded.len().div_ceil(16).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_touched_by_elements_that_are_not_zero() {
        let mut decoded = [0.0; 80];
        assert_eq!((touched(&decoded), touched(&[])), (0.0, 0.0));
        // The first and the last element of the second line, and one of the last.
        (decoded[16], decoded[31], decoded[70]) = (1.0, -1.0, 1e-40);
        assert_eq!(touched(&decoded), 0.4);
    }
}
