//! `eden`: the tensor rotated at random, quantized as if it were normally distributed, and scaled.
//!
//! A block of n = 4096 elements x becomes y = H·D·x, with the Walsh–Hadamard matrix H and random
//! signs D, which the receiver draws, too. The elements of y are close to normally distributed with
//! the deviation ‖x‖, so y / ‖x‖ is rounded to the nearest level of the [Lloyd–Max
//! quantizer](crate::numeric::lloyd_max) of a normal distribution. The block decodes to a·D·H·q
//! with these levels q. With one bit the levels are ±1, so H·q consists of whole numbers.
//!
//! - **Scale**: without error feedback a = ‖x‖² / ⟨q, y⟩, which makes the decoded block's component
//!   along x right. Its squared error is 0.571, 0.133, 0.0358 and 0.00959 of ‖x‖² with 1 to 4 bits.
//!   With error feedback a = ⟨q, y⟩ / (n·‖q‖²), which minimises the error of a block without
//!   padding: 0.363, 0.1175, 0.03454 and 0.00950.
//! - **Bits**: from 0.1 to 8. With b = ⌊b⌋ + f bits, the first round(f·n) elements of a rotated
//!   block have ⌈b⌉ bits, the others ⌊b⌋. `drive` is the preset of one bit. With b < 1 bits, k =
//!   max(1, round(b·d)) elements at random positions are sent as a separate tensor with one bit
//!   each, multiplied by d / k without error feedback. Its squared error is π / (2·b) − 1 of ‖x‖²,
//!   and 1 − 0.637·b with error feedback.
//! - **Blocks**: [pieces](crate::numeric::rotation) of up to 4096 elements.
//! - **Message**: a of each block as f32, then the levels of ⌈b⌉ bits of all blocks, then the
//!   levels of ⌊b⌋ bits. With `code=huffman` each of the two lists begins with a byte that says
//!   whether [Huffman code](gradwire_bits::huffman) follows, which it does if it is shorter: 1.92
//!   (in tANS), 2.88 and 3.81 bits instead of 2, 3 and 4, with scales. An empty tensor has an empty
//!   message.
//! - **Draws**: the signs of the [rotation](crate::numeric::rotation) come from the sender's stream
//!   for tensor and step. Below one bit positions are drawn as in `randomk`, on each rank
//!   separately, from stream 1; they are not sent.
//! - **Expectation**: close to the gradient for blocks without dominant elements. A block with few
//!   elements, or few non-zero ones, has a bias that persists over many steps: with 1 bit, two
//!   elements 1 and 0.5 among zeros decode to 1.25 and 0. The errors of elements in one message
//!   depend on each other; the errors of different ranks or steps do not.
//! - **Error feedback**: off.
//! - **Limits**: a block whose scale is below 1.2·10⁻³⁸ is sent as zero. With error feedback the
//!   scale is lower if an element's residual would overflow.
//! - **Deviations**: the paper rotates the whole tensor; here blocks stay in the cache, each with
//!   its own scale (0.008 bits per element). A fraction of a bit is a fixed share of the elements;
//!   the paper draws them.
//! - **Cost**: 4 bytes per element (with error feedback 20, in two passes), and 4 to write and read
//!   the levels with `code=huffman` or a fraction of a bit; 12 additions per rotation: one rotation
//!   to encode (two with error feedback), one to decode; 2^(b−1) − 1 comparisons. Below one bit
//!   only k elements are rotated, with a cache miss each, after a pass that checks all.
//!
//! References: Vargaftik et al.: "DRIVE: One-bit Distributed Mean Estimation", NeurIPS 2021; "EDEN:
//! Communication-Efficient and Robust Distributed Mean Estimation for Federated Learning", ICML
//! 2022.

mod piece;
mod quantizer;
mod sampled;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::Bound::Included;
use std::ops::Range;

use gradwire_bits::DecodeError;

use self::piece::{Block, add_piece, add_signs, encode_piece, encode_signs};
use self::quantizer::Quantizer;
use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::rotation::{Signs, pieces, pieces_of};
use crate::parameters::{Parameters, either, real};
use crate::parts::{LARGE, cut_mut};
use crate::wire::symbols::{Alphabet, View};
use crate::wire::{fields, levels};
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Helpers,
    Properties, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "eden",
    summary: "a random rotation, then the best quantizer for normally distributed values",
    formula: "x̂ = a·D·H·q, q the levels nearest to H·D·c/‖c‖, a = ‖c‖²/⟨q, H·D·c⟩, in blocks of 4096",
    family: Family::Quantization,
    examples: &[
        "ef=on",
        "bits=2.5,code=huffman",
        "bits=4",
        "bits=8,ef=on",
        "bits=1.5,code=huffman,ef=on",
        "bits=0.3",
        "bits=0.5,ef=on",
    ],
    reference: "Vargaftik et al., ICML 2022",
    payload: "scales f32, levels",
    properties: |values| Eden::new(values).properties(),
    ..Entry::of::<Eden>(|_| Guarantee::Contractive)
};

crate::parameters! {
    /// Quantization after a random rotation.
    pub struct Eden {
        /// bits per element
        bits: f64 = real(1.0, Included(0.1), Included(8.0)),
        /// levels of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

/// The buffers that only this method uses.
#[derive(Debug, Default)]
struct LevelBuffers {
    /// The levels of ⌈b⌉ and of ⌊b⌋ bits.
    symbols: [Vec<u16>; 2],
    scales: Vec<[u8; 4]>,
}

impl Eden {
    /// The two widths of levels, ⌊b⌋ + 1 and ⌊b⌋. If b is a whole number, no element has the first.
    fn widths(&self) -> [u32; 2] {
        let lower = self.bits.floor() as u32;
        [lower + 1, lower]
    }

    /// The numbers of elements of a piece with ⌈b⌉ and with ⌊b⌋ bits.
    fn counts(&self, size: usize) -> [usize; 2] {
        let upper = (self.bits.fract() * size as f64).round() as usize;
        [upper, size - upper]
    }

    /// The number of pieces, and the numbers of elements with ⌈b⌉ and with ⌊b⌋ bits.
    fn totals(&self, elements: usize) -> (usize, [usize; 2]) {
        let whole = elements / BLOCK;
        let counts = self.counts(BLOCK).map(|count| count.saturating_mul(whole));
        pieces(elements % BLOCK).map(|piece| self.counts(piece.size)).fold(
            (whole, counts),
            |(number, [upper, lower]), [more_upper, more_lower]| {
                let add = usize::saturating_add;
                (number + 1, [add(upper, more_upper), add(lower, more_lower)])
            },
        )
    }

    fn quantizers(&self) -> [Option<Quantizer>; 2] {
        if self.bits == 1.0 {
            return [None, Some(Quantizer::of_signs())];
        }
        let [upper, lower] = self.widths();
        let upper = if self.bits.fract() > 0.0 { Quantizer::new(upper) } else { None };
        [upper, Quantizer::new(lower)]
    }

    fn properties(&self) -> Properties {
        let [_, alphabet] = self.alphabets();
        let value_bits = match self.sample() {
            Some(sample) => sample.value_bits(),
            None if self.bits.fract() > 0.0 => None,
            None => alphabet.value_bits(),
        };
        let draws_positions = self.sample().is_some();
        // With error feedback, the scale is the least-squares one.
        Properties { value_bits, draws_positions, ..Properties::DEFAULT }
    }

    /// The codes of the levels.
    fn alphabets(&self) -> [Alphabet; 2] {
        // An alphabet without elements writes nothing.
        self.widths().map(|bits| Alphabet::new(1 << bits.min(8), self.huffman))
    }
}

/// Cuts off the first `len` elements of a slice, which has at least as many.
fn cut<'a, T>(slice: &mut &'a [T], len: usize) -> &'a [T] {
    slice.split_off(..len).expect("there are as many")
}

impl Eden {
    /// Whether the levels of each piece are whole bytes, which follow each other in the message.
    fn has_whole_pieces(&self) -> bool {
        self.bits.fract() == 0.0 && !self.huffman
    }

    /// Whether they are signs, a bit each.
    fn has_signs(&self) -> bool {
        self.bits == 1.0 && !self.huffman
    }

    /// Encodes every element, with at least one bit.
    fn encode_all(&self, args: EncodeArgs<'_, '_>) {
        if self.has_whole_pieces() { self.encode_pieces(args) } else { self.encode_lists(args) }
    }

    /// Encodes every element, if the levels of each piece are whole bytes.
    fn encode_pieces(&self, args: EncodeArgs<'_, '_>) {
        let EncodeArgs { source, context, workspace, message } = args;
        let quantizers = self.quantizers();
        let [_, alphabet] = self.alphabets();
        let mut scales = std::mem::take(&mut workspace.own::<LevelBuffers>().scales);
        scales.resize(self.totals(source.len()).0, [0; 4]);
        let start = message.len();
        message.resize(start + 4 * scales.len(), 0);
        let mut rest = &mut scales[..];
        let of_part = |part: Range<usize>| {
            let scales = cut_mut(&mut rest, self.totals(part.len()).0);
            (part, scales)
        };
        source.append_in_parts(1, workspace, message, of_part, |source, of_part, message, own| {
            let (part, scales) = of_part;
            let mut symbols = [0; BLOCK];
            for (piece, scale) in pieces_of(part).zip(scales) {
                let signs = Signs::draw(&context.rng(0), piece);
                if self.has_signs() {
                    let start = message.len();
                    message.resize(start + piece.size.div_ceil(8), 0);
                    let found = encode_signs(piece, &signs, source, &mut message[start..], own);
                    *scale = found.to_le_bytes();
                    continue;
                }
                let symbols = &mut symbols[..piece.size];
                let levels = [&mut [][..], &mut *symbols];
                let found = encode_piece(piece, &signs, &quantizers, source, levels, own);
                *scale = found.to_le_bytes();
                alphabet.put_fixed(symbols, message);
            }
        });
        message[start..start + 4 * scales.len()].copy_from_slice(scales.as_flattened());
        workspace.own::<LevelBuffers>().scales = scales;
    }

    /// Encodes every element, if levels are coded or of two widths.
    fn encode_lists(&self, args: EncodeArgs<'_, '_>) {
        let EncodeArgs { source, context, workspace, message } = args;
        let quantizers = self.quantizers();
        let (number, totals) = self.totals(source.len());
        let mut symbols = std::mem::take(&mut workspace.own::<LevelBuffers>().symbols);
        symbols.iter_mut().zip(totals).for_each(|(symbols, total)| symbols.resize(total, 0));
        let start = message.len();
        message.resize(start + 4 * number, 0);

        let mut scales = message[start..].as_chunks_mut().0;
        let mut rest = symbols.each_mut().map(|symbols| &mut symbols[..]);
        let of_part = |part: Range<usize>| {
            let (number, counts) = self.totals(part.len());
            let [upper, lower] = &mut rest;
            let symbols = [cut_mut(upper, counts[0]), cut_mut(lower, counts[1])];
            (part, cut_mut(&mut scales, number), symbols)
        };
        source.in_parts(workspace, of_part, |source, (part, scales, mut symbols), own| {
            for (piece, scale) in pieces_of(part).zip(scales) {
                let [upper, lower] = self.counts(piece.size);
                let symbols = [cut_mut(&mut symbols[0], upper), cut_mut(&mut symbols[1], lower)];
                let signs = Signs::draw(&context.rng(0), piece);
                *scale =
                    encode_piece(piece, &signs, &quantizers, source, symbols, own).to_le_bytes();
            }
        });
        for (alphabet, symbols) in self.alphabets().iter().zip(&symbols) {
            if !symbols.is_empty() {
                alphabet.put(symbols, &mut workspace.coder, &mut workspace.helpers, message);
            }
        }
        workspace.own::<LevelBuffers>().symbols = symbols;
    }

    /// Checks the levels of all elements, with at least one bit.
    fn levels<'a>(
        &self,
        mut message: &'a [u8],
        totals: [usize; 2],
        workspace: &'a mut Workspace,
    ) -> Result<([View<'a>; 2], &'a mut Helpers), DecodeError> {
        if self.has_whole_pieces() {
            let ([_, alphabet], [_, total]) = (self.alphabets(), totals);
            let (levels, helpers) = alphabet.view(&mut message, total, workspace)?;
            fields::expect_len(message, 0)?;
            return Ok(([View::List(&[]), levels], helpers));
        }
        let Workspace { own, coder, helpers, .. } = workspace;
        let LevelBuffers { symbols, .. } = own.get();
        for ((alphabet, symbols), total) in self.alphabets().iter().zip(&mut *symbols).zip(totals) {
            symbols.clear();
            if total > 0 {
                alphabet.take(&mut message, total, symbols, coder, helpers)?;
            }
        }
        fields::expect_len(message, 0)?;
        Ok((symbols.each_ref().map(|symbols| View::List(symbols)), helpers))
    }

    /// Decodes a message of [signs](Self::has_signs).
    fn decode_signs(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, context, weight, workspace, out } = args;
        let (number, [_, total]) = self.totals(out.len());
        let mut scales = levels::take_steps(&mut message, number, 1.0)?;
        let mut bits = fields::take(&mut message, total.div_ceil(8))?;
        fields::expect_len(message, 0)?;
        if !total.is_multiple_of(8) && bits.last().is_some_and(|last| last >> (total % 8) != 0) {
            return Err(DecodeError::Corrupt("padding bits are not zero"));
        }
        let (parts, large) = (workspace.helpers.parts(out.len(), 1), out.len() >= LARGE);
        let jobs = parts.places().zip(out.chunks_mut(parts.len())).map(|(part, out)| {
            let (number, [_, count]) = self.totals(part.len());
            (part, cut(&mut scales, number), cut(&mut bits, count.div_ceil(8)), out)
        });
        workspace.helpers.share(jobs, |(part, scales, mut bits, mut rest)| {
            let mut turned = Block::default();
            for (piece, scale) in pieces_of(part).zip(scales) {
                let signs = Signs::draw(&context.rng(0), piece);
                let bits = cut(&mut bits, piece.size.div_ceil(8));
                let out = cut_mut(&mut rest, piece.len);
                let factors = [f32::from_le_bytes(*scale), weight];
                let ahead = if large { &rest[..rest.len().min(BLOCK)] } else { &[] };
                add_signs(&signs, bits, factors, &mut turned.0[..piece.size], out, ahead);
            }
        });
        Ok(())
    }

    /// Decodes the output of [`encode_all`](Self::encode_all).
    fn decode_all(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        if self.has_signs() {
            return self.decode_signs(args);
        }
        let DecodeArgs { mut message, context, weight, workspace, out } = args;
        let (number, totals) = self.totals(out.len());
        let mut scales = levels::take_steps(&mut message, number, 1.0)?;
        let (levels, helpers) = self.levels(message, totals, workspace)?;
        let parts = helpers.parts(out.len(), 1);
        let quantizers = self.quantizers();
        let mut first = [0; 2];
        let jobs = parts.places().zip(out.chunks_mut(parts.len())).map(|(part, out)| {
            let (number, counts) = self.totals(part.len());
            let of_part = first;
            first = [first[0] + counts[0], first[1] + counts[1]];
            (part, cut(&mut scales, number), of_part, out)
        });
        helpers.share(jobs, |(part, scales, mut first, mut out)| {
            let mut unpacked = [[0; BLOCK]; 2];
            for (piece, scale) in pieces_of(part).zip(scales) {
                let mut symbols = [&[][..]; 2];
                let each = symbols.iter_mut().zip(&levels).zip(&mut unpacked).zip(&mut first);
                for ((((symbols, levels), unpacked), first), count) in
                    each.zip(self.counts(piece.size))
                {
                    let places = *first..*first + count;
                    *first = places.end;
                    *symbols = levels.some(places, unpacked).expect("the levels were checked");
                }
                let signs = Signs::draw(&context.rng(0), piece);
                let out = cut_mut(&mut out, piece.len);
                let scale = f32::from_le_bytes(*scale);
                add_piece(piece, &signs, &quantizers, symbols, (scale, weight), out);
            }
        });
        Ok(())
    }

    /// The most bytes of a message that has every element.
    fn max_len_of_all(&self, elements: usize) -> usize {
        let (number, totals) = self.totals(elements);
        let levels = self.alphabets().into_iter().zip(totals).filter(|(_, total)| *total > 0);
        levels.fold(number.saturating_mul(4), |len, (alphabet, total)| {
            len.saturating_add(alphabet.max_len(total))
        })
    }
}

impl Compressor for Eden {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        match self.sample() {
            Some(sample) => sample.encode(args),
            None => {
                self.encode_all(args);
                Coverage::All
            }
        }
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        match self.sample() {
            Some(sample) => sample.decode_add(args),
            None => self.decode_all(args),
        }
    }

    fn statistics(&self, _: usize) -> Statistics {
        // A sample leaves out elements, which must be checked, too.
        if self.sample().is_some() { Statistics::Largest } else { Statistics::None }
    }

    fn max_len(&self, elements: usize) -> usize {
        match self.sample() {
            Some(sample) => sample.max_len(elements),
            None => self.max_len_of_all(elements),
        }
    }

    fn max_elements(&self, message_len: usize) -> usize {
        let mut most = (message_len / 4).saturating_mul(BLOCK);
        if self.huffman {
            // Counts of symbols have 32 bits.
            most = most.min(u32::MAX as usize);
        }
        self.sample().map_or(most, |sample| sample.most_elements(most))
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        self.sample().is_none().then_some(self as &dyn DeviceForm)
    }
}

/// The scale of each piece, then the levels of ⌈b⌉ bits of all pieces, then the levels of ⌊b⌋ bits.
/// Below one bit there is no form.
impl DenseForm for Eden {
    fn convert(&self, direction: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from, to, elements, workspace, .. } = args;
        let (number, totals) = self.totals(elements);
        let mut rest = from;
        levels::take_steps(&mut rest, number, 1.0)?;
        copy(&from[..4 * number], to)?;
        for (alphabet, total) in self.alphabets().into_iter().zip(totals) {
            if total > 0 {
                direction.take(alphabet, &mut rest, total, workspace)?;
                direction.put(alphabet, workspace, to)?;
            }
        }
        fields::expect_len(rest, 0)
    }
}
