//! `lossless`: every element unchanged, in fewer bits.
//!
//! - **Message**: for each part of 65 536 elements a format and a block of [planes of
//!   bytes](gradwire_bits::planes). The plane of the exponents is in an entropy code. Signs and
//!   mantissas are random, and are sent as they are. The elements of a part are binary32 numbers,
//!   or bfloat16 numbers if the lower half of each is zero, as for gradients of bfloat16
//!   parameters.
//! - **Size**: about 26.6·d bits for binary32 gradients (83 %), 10.6·d for bfloat16 ones (66 % of
//!   16 bits) and 13.6·d for binary16 ones; zeros and other equal elements take next to nothing.
//!   Never more than 32·d bits and two bytes for each part.
//! - **Aggregation**: gather.
//! - **Error feedback**: off. With it, the residual stays zero, because nothing is lost.
//! - **Cost**: a pass that copies the elements, one that splits them into planes, one that counts
//!   the exponents and one that writes them. Threads share the encoding of a large tensor. One
//!   thread decodes a message: where a part ends is known only once its last plane is decoded. The
//!   threads share the addition of the elements.
//!
//! Sources: entropy codes of exponents alone: Hershcovitch et al.: "ZipNN: Lossless Compression for
//! AI Models", arXiv:2411.05239.

use std::sync::Arc;

use gradwire_bits::planes::{Coder, Layout};
use gradwire_bits::{DecodeError, kernels, try_resize};

use crate::wire::fields;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Statistics, Unit,
    Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "lossless",
    summary: "32-bit floats with entropy-coded exponents",
    formula: "x̂ = c",
    family: Family::Baseline,
    reference: "Hershcovitch et al., 2024",
    payload: "for each part: format u8, planes of bytes",
    lossless: true,
    ..Entry::new(&[], |_| Guarantee::Both, |_| Arc::new(Lossless))
};

/// Elements of a part.
const PART: usize = 1 << 16;
/// The shortest part: its format, the forms of two planes, and a byte of each.
const SHORTEST: usize = 4;

/// The format of a part's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Format {
    Binary32 = 0,
    /// The upper halves of binary32 numbers whose lower halves are zero.
    Bfloat16 = 1,
}

impl Format {
    fn layout(self) -> Layout {
        match self {
            Self::Binary32 => Layout::floats(4),
            Self::Bfloat16 => Layout::floats(2),
        }
    }

    fn take(message: &mut &[u8]) -> Result<Self, DecodeError> {
        match message.split_off_first() {
            Some(0) => Ok(Self::Binary32),
            Some(1) => Ok(Self::Bfloat16),
            Some(_) => Err(DecodeError::Corrupt("the format of a part is above 1")),
            None => Err(DecodeError::Truncated),
        }
    }
}

/// Exact elements.
#[derive(Debug)]
struct Lossless;

/// Working memory of a thread.
#[derive(Debug, Default)]
struct Buffers {
    /// A part in binary32.
    elements: Vec<u8>,
    /// A part in bfloat16.
    halves: Vec<u8>,
    coder: Coder,
}

impl Buffers {
    /// Reserves memory to encode a part.
    fn reserve(&mut self) {
        self.coder.reserve(Layout::floats(4), PART);
        for (buffer, width) in [(&mut self.elements, 4), (&mut self.halves, 2)] {
            buffer.clear();
            buffer.reserve(width * PART);
        }
    }

    /// Reserves memory to decode a part.
    fn try_reserve(&mut self) -> Result<(), DecodeError> {
        self.coder.try_reserve(Layout::floats(4), PART)?;
        self.elements.clear();
        self.elements.try_reserve(4 * PART)?;
        Ok(())
    }

    /// Appends the part in `elements`, and removes it.
    fn put(&mut self, message: &mut Vec<u8>) {
        let numbers = self.elements.as_chunks::<4>().0;
        let is_half = numbers.iter().fold(true, |all, number| all & (number[..2] == [0; 2]));
        let (format, elements) = if is_half {
            self.halves.clear();
            self.halves.extend(numbers.iter().flat_map(|&[_, _, a, b]| [a, b]));
            (Format::Bfloat16, &self.halves)
        } else {
            (Format::Binary32, &self.elements)
        };
        message.push(format as u8);
        self.coder.encode(format.layout(), elements, message);
        self.elements.clear();
    }

    /// Reads a part from the start of a message.
    fn take(&mut self, message: &mut &[u8], part: &mut [f32]) -> Result<(), DecodeError> {
        let format = Format::take(message)?;
        let layout = format.layout();
        try_resize(&mut self.elements, layout.width() * part.len(), 0)?;
        let elements = &mut self.elements[..layout.width() * part.len()];
        let used = self.coder.decode(layout, message, elements)?;
        *message = &message[used..];
        match format {
            Format::Binary32 => fields::read_f32s(elements, part),
            Format::Bfloat16 => {
                for (number, bytes) in part.iter_mut().zip(elements.as_chunks().0) {
                    *number = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
                }
            }
        }
        Ok(())
    }
}

impl Compressor for Lossless {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        source.append_in_parts(
            PART,
            workspace,
            message,
            |_| (),
            |source, (), message, workspace| {
                let buffers: &mut Buffers = workspace.own();
                buffers.reserve();
                source.take_blocks(|_, block| {
                    fields::put_f32s(block, &mut buffers.elements);
                    block.fill(0.0);
                    if buffers.elements.len() == 4 * PART {
                        buffers.put(message);
                    }
                });
                if !buffers.elements.is_empty() {
                    buffers.put(message);
                }
            },
        );
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let Workspace { values, helpers, own, .. } = workspace;
        let buffers: &mut Buffers = own.get();
        buffers.try_reserve()?;
        try_resize(values, out.len(), 0.0)?;
        for part in values.chunks_mut(PART) {
            buffers.take(&mut message, part)?;
        }
        fields::expect_len(message, 0)?;
        helpers.add_in_parts(values, Unit::ONE, out, |_, values, out| {
            kernels::add_scaled(out, values, weight);
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn max_len(&self, elements: usize) -> usize {
        elements.div_ceil(PART).saturating_mul(2).saturating_add(elements.saturating_mul(4))
    }

    fn max_elements(&self, message_len: usize) -> usize {
        (message_len / SHORTEST).saturating_mul(PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, refused, residual, round_trip};

    /// Normal numbers: sums of twelve uniform ones.
    fn normal(len: usize) -> Vec<f32> {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
        };
        (0..len).map(|_| 0.01 * (0..12).map(|_| uniform()).sum::<f64>() as f32).collect()
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn messages_by_hand() {
        // Binary32: four constant planes, from the lowest byte up, with the sign at the end.
        // -1 - 2^-23 = 0xbf80_0001 becomes 0x7f00_0003.
        assert_eq!(encode("lossless", &[-1.0 - f32::EPSILON]), [0, 0b0101_0101, 3, 0, 0, 0x7f]);
        // Bfloat16, two raw planes: -1 = 0xbf80 becomes 0x7f01, and 2 = 0x4000 becomes 0x8000.
        assert_eq!(encode("lossless", &[-1.0, 2.0]), [1, 0, 1, 0, 0x7f, 0x80]);
        assert_eq!(encode("lossless", &[0.0; 70_000]), [1, 0b0101, 0, 0, 1, 0b0101, 0, 0]);
        assert!(encode("lossless", &[]).is_empty());
    }

    #[test]
    fn every_bit_returns() {
        let mut gradient = normal(PART + 999);
        gradient[..5].copy_from_slice(&[0.0, f32::MAX, f32::MIN, 1e-45, -1e-40]);
        for values in [&gradient[..], &gradient[..1], &gradient[..5000]] {
            assert_eq!(bits(&round_trip("lossless", values)), bits(values));
        }
        let left = residual("lossless:ef=on", &gradient);
        assert!(left.iter().all(|x| x.to_bits() == 0));
    }

    #[test]
    fn sizes_of_normal_gradients() {
        let gradient = normal(4 * PART);
        let size =
            |values: &[f32]| 8.0 * encode("lossless", values).len() as f64 / values.len() as f64;
        let size_of_32 = size(&gradient);
        assert!((26.4..26.75).contains(&size_of_32), "{size_of_32}");
        let half = |mask: u32| -> Vec<f32> {
            gradient.iter().map(|x| f32::from_bits(x.to_bits() & mask)).collect()
        };
        let size_of_bf16 = size(&half(0xffff_0000));
        assert!((10.4..0.67 * 16.0).contains(&size_of_bf16), "{size_of_bf16}");
        // As many bits of mantissa as binary16.
        let size_of_f16 = size(&half(0xffff_e000));
        assert!((13.4..13.8).contains(&size_of_f16), "{size_of_f16}");
    }

    #[test]
    fn damaged_messages_are_refused() {
        let message = encode("lossless", &normal(5000));
        for end in (0..message.len()).step_by(501) {
            assert_eq!(refused("lossless", 5000, &message[..end]), DecodeError::Truncated);
        }
        let format = DecodeError::Corrupt("the format of a part is above 1");
        assert_eq!(refused("lossless", 1, &[2, 0, 0, 0, 0, 0]), format);
        let more = [&message[..], &[0]].concat();
        assert_eq!(refused("lossless", 5000, &more), DecodeError::Trailing { extra: 1 });
        let mut sum = [1.0; 2];
        decode("lossless", &[1, 0, 1, 0, 0x7f, 0x80], 0.5, &mut sum).unwrap();
        assert_eq!(sum, [0.5, 2.0]);
    }
}
