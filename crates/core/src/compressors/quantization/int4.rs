//! `int4`: 15 evenly spaced levels in blocks, optionally after a Hadamard transform of each block.
//!
//! The tensor is cut into blocks of `block` elements; the last may be shorter. In each block
//! `step = max|c| / 7`, `q = round(c / step)` in [−7, 7] (ties to even), decoded as `q·step`. With
//! `hadamard=on`, `H·c` of each whole block is quantized, with the Walsh–Hadamard matrix H of ±1:
//! `step = max|H·c| / (7·block)`, `q = round(H·c / (block·step))`, decoded as `step·H·q`. A large
//! element is spread over its block, so the others do not all become 0.
//!
//! - **Message**: for each block `step` as bf16, rounded up, and two levels per byte, the first in
//!   the low half, as q + 8: 4 + 16 / `block` bits per element. An odd last level shares its byte
//!   with a 0.
//! - **Range**: `block` is a power of two from 32 to 4096.
//! - **Error feedback**: on.
//! - **Limits**: if `1 / step` overflows in a block, or with `hadamard=on` the tensor's max|c| /
//!   `step`, the step is 0 and the block stays in the residual.
//! - **Use**: under scatter-reduce a value is rounded to 4 bits twice: by the sender, and, after
//!   averaging, by the owner of the slice. This is ZeRO++'s qgZ within one node. Across nodes use
//!   `hierarchical`.
//! - **Deviations**: both papers quantize without error feedback (`ef=off` here). SDP4Bit
//!   transforms 32 elements and quantizes 128 together; here both are `block`. qgZ does not say how
//!   it stores scales.
//! - **Cost**: 8 bytes per element for the sum, 8 for the residual, half a byte for the message;
//!   the transform takes log2(`block`) additions per element in each direction.
//!
//! References: Wang et al.: "ZeRO++: Extremely Efficient Collective Communication for Giant Model
//! Training", ICLR 2024, §3.3 (qgZ); Jia et al.: "SDP4Bit: Toward 4-bit Communication Quantization
//! in Sharded Data Parallelism for LLM Training", NeurIPS 2024, §3.2 (the transform).

use gradwire_bits::{DecodeError, kernels};

use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::matrix::abs_max;
use crate::parameters::{Choice, choice, either};
use crate::wire::{fields, levels};
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Properties, Unit,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "int4",
    summary: "15 evenly spaced levels up to the largest absolute value of a block",
    formula: "x̂ = s·round(c/s), s = max|c|/7 of the block; with the transform s·H·round(H·c/(n·s)), s = max|H·c|/(7·n), n = block",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["hadamard=on", "block=32", "block=512,hadamard=on,ef=off"],
    reference: "Wang et al., ICLR 2024, §3.3; Jia et al., NeurIPS 2024",
    payload: "for each block: step bf16, two levels per byte",
    properties: |_| Properties { value_bits: Some(4), ..Properties::DEFAULT },
    ..Entry::of::<Int4>(|_| Guarantee::Contractive)
};

/// The number of elements of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BlockSize(usize);

impl Choice for BlockSize {
    const WORDS: &'static [&'static str] =
        &["128", "32", "64", "256", "512", "1024", "2048", "4096"];
    const VALUES: &'static [Self] = &[
        BlockSize(128),
        BlockSize(32),
        BlockSize(64),
        BlockSize(256),
        BlockSize(512),
        BlockSize(1024),
        BlockSize(2048),
        BlockSize(4096),
    ];
}

crate::parameters! {
    /// 4-bit quantization in blocks.
    pub struct Int4 {
        /// number of elements that share a step
        block: BlockSize = choice::<BlockSize>(),
        /// whether blocks are transformed before quantization
        hadamard: bool = either(&["off", "on"]),
    }
}

/// The greatest level.
const LEVELS: f32 = 7.0;
/// Bytes of a step.
const STEP: usize = 2;

/// The greatest step as bf16 at which no level overflows.
const MOST: f32 = f32::from_bits((f32::MAX / LEVELS).to_bits() & 0xffff_0000);

/// The step as bf16, rounded up unless this would overflow, and its inverse; both 0 if the inverse
/// overflows.
fn step_from(least: f32) -> (f32, f32) {
    let up = f32::from_bits(least.to_bits().saturating_add(0xffff) & 0xffff_0000);
    levels::invertible(up.min(MOST))
}

/// The buffers of a block.
struct BlockBuffers {
    levels: [i8; BLOCK],
    /// The transformed block, then its decoded levels.
    rotated: [f32; BLOCK],
}

impl BlockBuffers {
    fn new() -> Self {
        Self { levels: [0; BLOCK], rotated: [0.0; BLOCK] }
    }

    /// Quantizes a block, leaves the quantization errors in it, and returns the step.
    fn quantize(&mut self, block: &mut [f32]) -> f32 {
        let (step, inverse) = step_from(abs_max(block) / LEVELS);
        kernels::int8_residual(block, inverse, step, &mut self.levels[..block.len()]);
        step
    }

    /// As [`quantize`](Self::quantize), for the transformed block; `largest` is the tensor's
    /// largest absolute value.
    fn quantize_transformed(&mut self, block: &mut [f32], largest: f32) -> f32 {
        let (largest, inverse) = levels::invertible(largest);
        let size = block.len() as f32;
        let (numbers, rotated) =
            (&mut self.levels[..block.len()], &mut self.rotated[..block.len()]);
        rotated.iter_mut().zip(&*block).for_each(|(to, x)| *to = x * inverse);
        kernels::hadamard(rotated);
        // With this division by the size, the inverse need not be normalised. Powers of two do not
        // round.
        let (mut step, _) = step_from(abs_max(rotated) / LEVELS / size * largest);
        let mut over_step = largest / size / step;
        if !over_step.is_finite() {
            (step, over_step) = (0.0, 0.0);
        }
        kernels::int8_residual(rotated, over_step, 0.0, numbers);
        transform_back(numbers, rotated);
        // The residual of an element is finite, too.
        if largest > f32::MAX / (2.0 * size) {
            let room = (f32::MAX - largest) / abs_max(rotated).max(1.0);
            step = step.min(f32::from_bits(room.to_bits() & 0xffff_0000));
        }
        kernels::add_limited(block, rotated, step, -1.0);
        step
    }
}

/// Writes the transform of levels.
fn transform_back(levels: &[i8], out: &mut [f32]) {
    out.iter_mut().zip(levels).for_each(|(out, &level)| *out = level.into());
    kernels::hadamard(out);
}

impl Int4 {
    /// Whether a block of this length is transformed.
    fn transforms(&self, len: usize) -> bool {
        self.hadamard && len == self.block.0
    }

    /// Bytes of the message of a tensor.
    fn message_len(&self, elements: usize) -> usize {
        let whole = (elements / self.block.0).saturating_mul(STEP + self.block.0 / 2);
        match elements % self.block.0 {
            0 => whole,
            rest => whole.saturating_add(STEP + rest.div_ceil(2)),
        }
    }

    /// The step and the levels of each block of a message of the right length.
    fn blocks<'a>(&self, message: &'a [u8]) -> impl Iterator<Item = (f32, &'a [u8])> + use<'a> {
        message.chunks(STEP + self.block.0 / 2).map(|block| {
            let (step, levels) = block.split_at(STEP);
            (f32::from_bits(u32::from(u16::from_le_bytes([step[0], step[1]])) << 16), levels)
        })
    }

    fn check(&self, message: &[u8], elements: usize) -> Result<(), DecodeError> {
        fields::expect_len(message, self.message_len(elements))?;
        for (step, levels) in self.blocks(message) {
            if !(0.0..=MOST).contains(&step) || step.is_sign_negative() {
                return Err(DecodeError::Corrupt("a step is negative or too large"));
            }
            if kernels::has_empty_nibble(levels) {
                return Err(DecodeError::Corrupt("a level is -8"));
            }
        }
        match message.last() {
            Some(byte) if elements % 2 == 1 && byte >> 4 != 8 => {
                Err(DecodeError::Corrupt("the padding after the last level is not zero"))
            }
            _ => Ok(()),
        }
    }

    /// Adds the blocks of a checked message.
    fn add(&self, message: &[u8], weight: f32, out: &mut [f32]) {
        let BlockBuffers { mut levels, mut rotated } = BlockBuffers::new();
        for (out, (step, bytes)) in out.chunks_mut(self.block.0).zip(self.blocks(message)) {
            let levels = &mut levels[..out.len()];
            kernels::unpack_nibbles(bytes, levels);
            if !self.transforms(out.len()) {
                kernels::int8_add(levels, weight * step, out);
                continue;
            }
            let rotated = &mut rotated[..out.len()];
            transform_back(levels, rotated);
            kernels::add_limited(out, rotated, step, weight);
        }
    }
}

impl Compressor for Int4 {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let largest = source.abs_max();
        source.append(workspace, message, |source, message| {
            let mut buffers = BlockBuffers::new();
            source.take_blocks(|_, values| {
                for block in values.chunks_mut(self.block.0) {
                    let step = match self.transforms(block.len()) {
                        true => buffers.quantize_transformed(block, largest),
                        false => buffers.quantize(block),
                    };
                    message.extend(((step.to_bits() >> 16) as u16).to_le_bytes());
                    let start = message.len();
                    message.resize(start + block.len().div_ceil(2), 0);
                    kernels::pack_nibbles(&buffers.levels[..block.len()], &mut message[start..]);
                }
            });
        });
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        self.check(message, out.len())?;
        let unit = Unit { items: self.max_len(self.block.0), elements: self.block.0 };
        workspace.helpers.add_in_parts(message, unit, out, |_, message, out| {
            self.add(message, weight, out);
        });
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        self.message_len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_mul(2)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        (!self.hadamard).then_some(self as &dyn DeviceForm)
    }
}

/// The message itself.
impl DenseForm for Int4 {
    fn convert(&self, _: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        self.check(args.from, args.elements)?;
        copy(args.from, args.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn levels_are_whole_steps_from_zero_in_each_block() {
        // The largest of the first block is 7, so its step is 1; the step of the second is 1/2.
        let mut gradient = [0.0; 35];
        gradient[..6].copy_from_slice(&[7.0, -7.0, 0.5, 1.5, -2.25, 3.0]);
        gradient[32..].copy_from_slice(&[3.5, 0.25, -0.75]);
        let mut expected = vec![0x80, 0x3f, 0x1f, 0xa8, 0xb6];
        expected.extend([0x88; 13]);
        expected.extend([0, 0x3f, 0x8f, 0x86]);
        assert_eq!(encode("int4:block=32", &gradient), expected);
        let left = residual("int4:block=32", &gradient);
        assert_eq!(left[..6], [0.0, 0.0, 0.5, -0.5, -0.25, 0.0]);
        assert_eq!(left[32..], [0.0, 0.25, 0.25]);
    }

    #[test]
    fn steps_are_rounded_up() {
        // A seventh of 1 is 0x3e124925; as bf16 the next above is 0x3e13.
        assert_eq!(encode("int4", &[1.0])[..2], [0x13, 0x3e]);
        let step = f32::from_bits(0x3e13_0000);
        assert_eq!(round_trip("int4", &[1.0]), [7.0 * step]);
    }

    #[test]
    fn a_transform_spreads_what_is_large() {
        // One non-zero element, 32, of 32: all are ±1 after the transform, the step is 1/7 rounded
        // up, and all levels are ±7.
        let mut gradient = [0.0; 32];
        gradient[3] = 32.0;
        let message = encode("int4:block=32,hadamard=on", &gradient);
        assert_eq!(message[..2], [0x13, 0x3e]);
        // The signs of the fourth row of H: + − − +, over and over.
        assert!(message[2..].chunks(2).all(|two| two == [0x1f, 0xf1]), "{message:x?}");
        let decoded = round_trip("int4:block=32,hadamard=on", &gradient);
        let step = f32::from_bits(0x3e13_0000);
        assert_eq!(decoded[3], 32.0 * 7.0 * step);
        assert!(decoded.iter().enumerate().all(|(at, &x)| at == 3 || x == 0.0));
    }

    /// The squared error over the square.
    fn error(spec: &str, gradient: &[f32]) -> f64 {
        let square = |x: f32| f64::from(x) * f64::from(x);
        let decoded = round_trip(spec, gradient);
        let errors = gradient.iter().zip(decoded).map(|(x, y)| square(x - y));
        errors.sum::<f64>() / gradient.iter().map(|&x| square(x)).sum::<f64>()
    }

    #[test]
    fn transforms_help_where_blocks_have_large_elements() {
        // Gaussian numbers; one in 64 is a hundred times larger.
        let mut gradient = crate::laws::samples::gaussian(1 << 14, 3);
        gradient.iter_mut().step_by(64).for_each(|x| *x *= 100.0);
        let small: Vec<f32> = gradient.iter().copied().filter(|x| x.abs() < 5.0).collect();
        let kept = |spec: &str| {
            let decoded = round_trip(spec, &gradient);
            let pairs = gradient.iter().zip(decoded).filter(|(x, _)| x.abs() < 5.0);
            pairs.filter(|(_, y)| *y != 0.0).count()
        };
        assert!(kept("int4") < small.len() / 10);
        assert!(kept("int4:hadamard=on") > small.len() * 9 / 10);
    }

    #[test]
    fn the_error_of_gaussian_numbers_is_that_of_their_step() {
        // A uniform error of step² / 12; the mean square of a seventh of the largest of 128 is
        // about 0.15.
        let gradient = crate::laws::samples::gaussian(1 << 16, 5);
        for spec in ["int4", "int4:hadamard=on"] {
            let mut expected = 0.0;
            for block in gradient.chunks(128) {
                expected += 128.0 * f64::from(abs_max(block) / LEVELS).powi(2) / 12.0;
            }
            expected /= gradient.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
            let found = error(spec, &gradient);
            assert!((found / expected - 1.0).abs() < 0.05, "{spec}: {found} for {expected}");
        }
    }

    #[test]
    fn bad_steps_and_levels_are_corrupt() {
        let one = encode("int4", &[1.0, -1.0, 0.5]);
        assert_eq!(one.len(), 4);
        for (at, byte) in [(1, 0xbf), (1, 0x7f), (2, 0x0f), (2, 0xf0), (3, 0x98)] {
            let mut bytes = one.clone();
            bytes[at] = byte;
            assert!(matches!(refused("int4", 3, &bytes), DecodeError::Corrupt(_)), "{at}");
        }
    }

    #[test]
    fn the_ends_of_the_range_stay_finite() {
        for spec in ["int4", "int4:block=32,hadamard=on"] {
            let large: Vec<f32> =
                (0..64).map(|at| if at % 3 == 0 { f32::MAX } else { f32::MIN }).collect();
            assert!(round_trip(spec, &large).iter().all(|x| x.is_finite()));
            assert!(residual(spec, &large).iter().all(|x| x.is_finite()));
        }
        // A block far smaller than the tensor's largest element.
        let mut mixed = [0.0; 64];
        mixed[0] = 3e38;
        mixed[32..].fill(0.01);
        let left = residual("int4:block=32,hadamard=on", &mixed);
        let decoded = round_trip("int4:block=32,hadamard=on", &mixed);
        assert!(left[32..].iter().zip(&decoded[32..]).all(|(a, b)| (a, b) == (&0.01, &0.0)));
        let tiny = [f32::from_bits(1), -f32::from_bits(9)];
        assert_eq!(residual("int4", &tiny), tiny);
    }
}
