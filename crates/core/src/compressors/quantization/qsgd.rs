//! `qsgd`: stochastic rounding to levels up to the norm; the expectation is the gradient.
//!
//! The tensor is cut into buckets. With the bucket's norm, step = norm / s and t = c / step. An
//! element becomes the level ⌊t⌋, or ⌊t⌋ + 1 with probability t − ⌊t⌋, and decodes to level·step.
//!
//! - **Message**: the step of each bucket as f32, then the levels:
//!   - `code=fixed`: level + s, in ⌈log2(2s + 1)⌉ bits each;
//!   - `code=elias`: for each non-zero level the distance from the previous one (the first from
//!     index −1) in [Elias ω code](gradwire_bits::elias), a sign bit, 1 below zero, and the
//!     magnitude in the same code; finally the distance to index d. Use it for few levels and long
//!     buckets, when most levels are 0;
//!   - `code=huffman`: level + s in [Huffman code](gradwire_bits::huffman); in
//!     [tANS](gradwire_bits::tans) or a significance map if a level is so frequent that it takes
//!     less than a bit; in fixed width if that is shorter.
//!
//!   An empty tensor has an empty message.
//! - **Range**: s from 1 to 32 767. The default, 127, fits in 8 bits. `bucket=0` is one bucket for
//!   the tensor, as in the analysis; the default of 512 is from the paper's experiments. `norm=2`
//!   is the Euclidean norm, `norm=max` the largest absolute value, which uses all levels. With
//!   Elias and Huffman code up to 2³² − 1 elements. The message is unbiased up to 2⁻²⁴ of a step,
//!   with variance step²·(t − ⌊t⌋)·(⌊t⌋ + 1 − t).
//! - **Draws**: element i uses the upper 24 bits of word i [for
//!   rounding](crate::Rng::fill_rounding) of the sender's stream for the tensor and step.
//! - **Limits**: if 1 / step overflows (a step below about 3·10⁻³⁹), the step and the bucket's
//!   elements are sent as zero. The norm is at most the largest finite number.
//! - **Error feedback**: off; with it training may diverge (in a long bucket with few levels the
//!   rounding noise is larger than the gradient itself, and feedback would amplify it).
//! - **Deviations**: the step is sent; the paper sends the norm. For negative t, ⌊t⌋ is the level
//!   farther from zero; the two levels and their probabilities are the paper's. One Elias code
//!   covers all buckets; a final distance ends it.
//! - **Cost**: 4 bytes per element to quantize (a bucket is read twice, the second time from the
//!   cache), 4 for the draws; with error feedback 8 to check first, and 12 to quantize; with an
//!   entropy code 4 to write and read the levels. Elias code takes about 2 ns per non-zero level.
//!
//! Reference: Alistarh, Grubic, Li, Tomioka, Vojnovic: "QSGD: Communication-Efficient SGD via
//! Gradient Quantization and Encoding", NIPS 2017, sections 3.1, 3.2 and 4.

use std::iter;
use std::ops::Range;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Levels};

use super::elias_levels;
use crate::device::dense::copy;
use crate::device::{DeviceArgs, DeviceForm};
use crate::parameters::{Choice, Kind, Parameters, choice, whole};
use crate::parts::cut_mut;
use crate::wire::fields;
use crate::wire::levels::{self, Norm};
use crate::wire::symbols::{Alphabet, View};
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Helpers,
    Properties, Rng, Source, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "qsgd",
    summary: "stochastic rounding to evenly spaced levels up to the norm",
    formula: "x̂ = step·(⌊t⌋ + [u < t − ⌊t⌋]), t = c/step, step = ‖c‖/s in each bucket",
    family: Family::Quantization,
    examples: &[
        "s=4,bucket=0,code=elias",
        "s=10,bucket=100,norm=max,code=huffman,ef=on",
        "s=7,bucket=0,code=elias",
        "s=1,norm=max,code=huffman",
        "s=1000,bucket=9000,norm=max",
        "s=2,bucket=3,ef=on",
    ],
    reference: "Alistarh et al., NIPS 2017",
    payload: "steps f32, levels",
    properties: |values| Qsgd::new(values).properties(),
    ..Entry::of::<Qsgd>(|values| Qsgd::new(values).guarantee())
};

/// The values of `s`: a symbol of 16 bits holds level + s.
pub(in crate::compressors) const S: Kind = whole(127, 1..=32_767);

impl Choice for Norm {
    const WORDS: &'static [&'static str] = &["2", "max"];
    const VALUES: &'static [Self] = &[Norm::Euclidean, Norm::Max];
}

/// A bound β on the quantizer's variance: E‖Q(x) − x‖² ≤ β·‖x‖² for this number of elements that
/// share a norm of either kind.
pub(in crate::compressors) fn beta(elements: usize, s: u16) -> f64 {
    let (elements, s) = (elements as f64, f64::from(s));
    (elements / (s * s)).min(elements.sqrt() / s)
}

/// The code of the levels.
#[derive(Debug, Clone, Copy, PartialEq)]
enum LevelCode {
    Fixed,
    Elias,
    Huffman,
}

impl Choice for LevelCode {
    const WORDS: &'static [&'static str] = &["fixed", "elias", "huffman"];
    const VALUES: &'static [Self] = &[LevelCode::Fixed, LevelCode::Elias, LevelCode::Huffman];
}

crate::parameters! {
    /// Stochastic quantization by norm.
    pub struct Qsgd {
        /// levels on either side of zero
        s: u16 = S,
        /// number of elements that share a norm; 0: one norm for the whole tensor
        bucket: usize = whole(512, 0..=1 << 30),
        /// the Euclidean norm, or the largest absolute value
        norm: Norm = choice::<Norm>(),
        /// levels of fixed width, or Elias or Huffman coded
        code: LevelCode = choice::<LevelCode>(),
    }
}

impl Qsgd {
    fn alphabet(&self) -> Alphabet {
        Alphabet::new(2 * usize::from(self.s) + 1, self.code == LevelCode::Huffman)
    }

    fn properties(&self) -> Properties {
        let value_bits = self.symbols().and_then(Alphabet::value_bits);
        Properties { value_bits, ..Properties::DEFAULT }
    }

    fn guarantee(&self) -> Guarantee {
        // The bound of a shorter last bucket is lower.
        let is_contractive = self.bucket > 0 && beta(self.bucket, self.s) < 1.0;
        if is_contractive { Guarantee::Both } else { Guarantee::Unbiased }
    }

    /// The alphabet of the levels; `None` with Elias code.
    fn symbols(&self) -> Option<Alphabet> {
        (self.code != LevelCode::Elias).then(|| self.alphabet())
    }

    /// Appends the levels in the workspace.
    fn write(&self, workspace: &mut Workspace, message: &mut Vec<u8>) {
        match self.symbols() {
            None => elias_levels::write(&workspace.symbols, self.s, message),
            Some(alphabet) => alphabet.write(workspace, message),
        }
    }

    /// Checks a message, and returns its steps and its levels.
    fn view<'a>(
        &self,
        mut message: &'a [u8],
        elements: usize,
        workspace: &'a mut Workspace,
    ) -> Result<(&'a [[u8; 4]], View<'a>, &'a mut Helpers), DecodeError> {
        let steps = levels::take_steps(&mut message, self.count(elements), f32::from(self.s))?;
        let Some(alphabet) = self.symbols() else {
            elias_levels::read(message, elements, self.s, &mut workspace.symbols)?;
            return Ok((steps, View::List(&workspace.symbols), &mut workspace.helpers));
        };
        let (levels, helpers) = alphabet.view(&mut message, elements, workspace)?;
        fields::expect_len(message, 0)?;
        Ok((steps, levels, helpers))
    }

    /// Checks a message, and reads its levels into the workspace.
    fn read(
        &self,
        mut message: &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        levels::take_steps(&mut message, self.count(elements), f32::from(self.s))?;
        let Some(alphabet) = self.symbols() else {
            return elias_levels::read(message, elements, self.s, &mut workspace.symbols);
        };
        alphabet.read(&mut message, elements, workspace)?;
        fields::expect_len(message, 0)
    }

    /// The levels for a bucket, with the step of its norm.
    fn levels(&self, source: &mut Source<'_>, bucket: Range<usize>) -> Levels {
        let (s, mut total) = (f32::from(self.s), 0.0);
        for (start, len) in pieces(bucket.clone(), bucket.start) {
            total = source.peek(start, len, |block| self.norm.add(total, block));
        }
        let (step, inverse) = levels::step(self.norm.finish(total), s);
        Levels { least: -s, most: s, inverse, step }
    }

    /// Quantizes the elements of a part, and writes the steps of its buckets to these places. Calls
    /// `write` with the levels of [`BLOCK`] elements at a time.
    fn quantize(
        &self,
        source: &mut Source<'_>,
        part: Range<usize>,
        (steps, random): (&mut [f32], &mut Vec<u32>),
        rng: &Rng,
        mut write: impl FnMut(&[u16]),
    ) {
        let (mut symbols, bucket_len) = ([0; BLOCK], self.bucket_len(part.end));
        for (start, step) in part.clone().step_by(bucket_len).zip(steps) {
            let bucket = start..part.end.min(start + bucket_len);
            let levels = self.levels(source, bucket.clone());
            *step = levels.step;
            for (start, len) in pieces(bucket, part.start) {
                let at = (start - part.start) % BLOCK;
                if at == 0 {
                    rng.rounding_words(start, BLOCK.min(part.end - start), random);
                }
                let (random, places) = (&random[at..at + len], &mut symbols[at..at + len]);
                let keeps_residual = source.keeps_residual();
                if keeps_residual || source.has_velocity() {
                    source.take(start, len, |block| {
                        kernels::stochastic_levels(block, levels, random, places);
                        if keeps_residual {
                            kernels::levels_off(block, places, levels);
                        }
                    });
                } else {
                    source.peek_again(start, len, |block| {
                        kernels::stochastic_levels(block, levels, random, places);
                    });
                }
                if at + len == BLOCK || start + len == part.end {
                    write(&symbols[..at + len]);
                }
            }
        }
    }

    /// The elements of every bucket but the last, in a tensor of `elements` elements.
    fn bucket_len(&self, elements: usize) -> usize {
        if self.bucket == 0 { elements.max(1) } else { self.bucket }
    }

    fn count(&self, elements: usize) -> usize {
        if self.bucket == 0 { elements.min(1) } else { elements.div_ceil(self.bucket) }
    }
}

/// The pieces of a bucket in blocks from `first` on.
fn pieces(bucket: Range<usize>, first: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = bucket.start;
    iter::from_fn(move || {
        let len = (BLOCK - (start - first) % BLOCK).min(bucket.end - start);
        let piece = (start, len);
        start += len;
        (len > 0).then_some(piece)
    })
}

/// The steps of all buckets.
#[derive(Debug, Default)]
struct Steps(Vec<f32>);

impl Compressor for Qsgd {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let (rng, bucket) = (context.rng(0), self.bucket_len(source.len()));
        // The levels of a part fill whole bytes.
        let unit = bucket << (3 - bucket.trailing_zeros().min(3));
        let (start, count) = (message.len(), self.count(source.len()));
        message.resize(start + 4 * count, 0);
        let Steps(mut steps) = std::mem::take(workspace.own());
        steps.resize(count, 0.0);
        let mut symbols = std::mem::take(&mut workspace.symbols);
        symbols.resize(if self.code == LevelCode::Fixed { 0 } else { source.len() }, 0);
        let (mut steps_left, mut symbols_left) = (&mut steps[..], &mut symbols[..]);
        let of_part = |part: Range<usize>| {
            let steps = cut_mut(&mut steps_left, part.len().div_ceil(bucket));
            let symbols =
                (self.code != LevelCode::Fixed).then(|| cut_mut(&mut symbols_left, part.len()));
            (part, steps, symbols)
        };
        let work =
            |source: &mut Source<'_>, of_part, message: &mut _, own: &mut Workspace| {
                let (part, steps, mut symbols): (_, _, Option<&mut [u16]>) = of_part;
                self.quantize(source, part, (steps, &mut own.random), &rng, |levels| {
                    match &mut symbols {
                        Some(symbols) => cut_mut(symbols, levels.len()).copy_from_slice(levels),
                        None => self.alphabet().put_fixed(levels, message),
                    }
                });
            };
        source.append_in_parts(unit, workspace, message, of_part, work);
        workspace.symbols = symbols;
        for (place, step) in message[start..].as_chunks_mut().0.iter_mut().zip(&steps) {
            *place = step.to_le_bytes();
        }
        *workspace.own() = Steps(steps);
        if self.code != LevelCode::Fixed {
            self.write(workspace, message);
        }
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let (s, bucket) = (f32::from(self.s), self.bucket_len(out.len()));
        let (steps, levels, helpers) = self.view(message, out.len(), workspace)?;
        levels.add(out, helpers, |mut first, mut symbols, mut out| {
            while !symbols.is_empty() {
                let len = (bucket - first % bucket).min(symbols.len());
                let (of_bucket, elements);
                (of_bucket, symbols) = symbols.split_at(len);
                (elements, out) = out.split_at_mut(len);
                let step = weight * f32::from_le_bytes(steps[first / bucket]);
                kernels::levels_add(of_bucket, -s, step, elements);
                first += len;
            }
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::None
    }

    fn max_len(&self, elements: usize) -> usize {
        let levels = match self.symbols() {
            None => elias_levels::max_len(elements, self.s),
            Some(alphabet) => alphabet.max_len(elements),
        };
        self.count(elements).saturating_mul(4).saturating_add(levels)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        let by_steps = match self.bucket {
            0 if message_len < 4 => 0,
            0 => usize::MAX,
            bucket => (message_len / 4).saturating_mul(bucket),
        };
        by_steps.min(match self.symbols() {
            // A tensor of zeros has one distance, however large the tensor is.
            None => u32::MAX as usize,
            Some(alphabet) => alphabet.max_elements(message_len),
        })
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The step of each bucket, then level + s of each element.
impl DeviceForm for Qsgd {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        let (mut rest, count) = (form, self.count(elements));
        levels::take_steps(&mut rest, count, f32::from(self.s))?;
        self.alphabet().take_form(&mut rest, elements, workspace)?;
        fields::expect_len(rest, 0)?;
        copy(&form[..4 * count], message)?;
        self.write(workspace, message);
        Ok(Coverage::All)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        let count = self.count(elements);
        self.read(message, elements, workspace)?;
        copy(&message[..4 * count], form)?;
        self.alphabet().put_form(workspace, form)
    }

    fn value_bits(&self) -> Option<u32> {
        self.symbols().and_then(Alphabet::form_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};
    use crate::{Rng, Tensor};

    const ONE: [u8; 4] = [0, 0, 0x80, 0x3f];

    #[test]
    fn whole_levels_are_certain() {
        // Largest 4, step 1, levels 4, −2, 0, 1: 8, 2, 4, 5 in four bits.
        let gradient = [4.0, -2.0, 0.0, 1.0];
        let expected = [&ONE[..], &[0x28, 0x54]].concat();
        assert_eq!(encode("qsgd:s=4,norm=max", &gradient), expected);
        assert_eq!(round_trip("qsgd:s=4,norm=max", &gradient), gradient);
        assert_eq!(residual("qsgd:s=4,norm=max,ef=on", &gradient), [0.0; 4]);
        // Norm 5, step 1, levels 3, −4: 8 and 1 in four bits.
        assert_eq!(encode("qsgd:s=5", &[3.0, -4.0]), [&ONE[..], &[0x18]].concat());
        assert!(encode("qsgd", &[]).is_empty());
    }

    #[test]
    fn elias_worked_by_hand() {
        // Distance 1, +, 4: 0 0 101000. 1, −, 2: 0 1 100. 2, +, 1: 100 0 0. The end: 0.
        let gradient = [4.0, -2.0, 0.0, 1.0];
        let expected = [&ONE[..], &[0b0001_0100, 0b0010_0110, 0]].concat();
        assert_eq!(encode("qsgd:s=4,norm=max,code=elias", &gradient), expected);
        assert_eq!(round_trip("qsgd:s=4,norm=max,code=elias", &gradient), gradient);
        // The end at a distance of 5: 10 101 0.
        let expected = [0, 0, 0, 0, 0b01_0101];
        assert_eq!(encode("qsgd:bucket=0,code=elias", &[0.0; 4]), expected);
        assert!(encode("qsgd:code=elias", &[]).is_empty());
    }

    #[test]
    fn buckets_have_steps_of_their_own() {
        // Largest elements 2, 8 and 0, so steps 1, 4 and 0; levels 2 −1, −2 1, 0 in three bits.
        let gradient = [2.0, -1.0, -8.0, 4.0, 0.0];
        let message = encode("qsgd:s=2,bucket=2,norm=max", &gradient);
        assert_eq!(message[..12], [0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x40, 0, 0, 0, 0]);
        // 4, 1, 0, 3, 2: 100 001 000 011 010, each from the right.
        assert_eq!(message[12..], [0b0000_1100, 0b010_0110]);
        assert_eq!(round_trip("qsgd:s=2,bucket=2,norm=max", &gradient), gradient);
    }

    #[test]
    fn element_i_is_decided_by_word_i() {
        let elements = 3 * BLOCK + 1003;
        let mut gradient: Vec<f32> =
            (0..elements).map(|i| (i * 37 % 255) as f32 / 128.0 - 1.0).collect();
        // Each bucket's largest is 1.
        gradient.iter_mut().step_by(100).for_each(|x| *x = -1.0);
        let mut words = vec![0; elements];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill_rounding(0, &mut words);
        let drawn = |(&x, &word): (&f32, &u32)| {
            let (t, chance) = (f64::from(x) * 16.0, f64::from(word >> 8) / 16_777_216.0);
            let level = t.floor() + f64::from(u8::from(chance < t - t.floor()));
            (level / 16.0) as f32
        };
        let expected: Vec<f32> = gradient.iter().zip(&words).map(drawn).collect();
        for rest in
            ["bucket=100", "bucket=5000", "bucket=0", "bucket=100,code=elias", "code=huffman"]
        {
            let spec = format!("qsgd:s=16,norm=max,{rest}");
            assert!(round_trip(&spec, &gradient) == expected, "{rest}");
            let kept = residual(&format!("{spec},ef=on"), &gradient);
            assert!(kept.iter().zip(&gradient).zip(&expected).all(|((m, g), q)| *m == g - q));
        }
    }

    #[test]
    fn skewed_levels_take_fewer_bits() {
        // Normal values with a norm of 22 deviations, 5.6 levels per deviation: 4.5 bits of
        // entropy.
        let mut words = vec![0; 12 * 51_200];
        Rng::new(5, 0, 0, 0, 0).fill(&mut words);
        let uniform = |word: &u32| *word as f32 / 4_294_967_296.0;
        let gradient: Vec<f32> =
            words.chunks(12).map(|w| w.iter().map(uniform).sum::<f32>() - 6.0).collect();
        let bits = |spec: &str| 8.0 * encode(spec, &gradient).len() as f64 / 51_200.0;
        assert_eq!(bits("qsgd"), 8.0 + 32.0 / 512.0);
        let huffman = bits("qsgd:code=huffman");
        assert!((4.5..4.7).contains(&huffman), "{huffman}");
        // Few levels: the paper's sparse regime, s = 1, with √512 non-zero levels of 512.
        let (elias, fixed) = (bits("qsgd:s=1,code=elias"), bits("qsgd:s=1"));
        assert!(elias < 0.3 * fixed, "{elias} and {fixed}");
    }

    #[test]
    fn extremes_of_the_format_decode_to_finite_numbers() {
        for spec in ["qsgd:s=1", "qsgd:s=3,norm=max", "qsgd:s=32767"] {
            let decoded = round_trip(spec, &[f32::MAX, -f32::MAX, f32::MAX, 0.0, 1.0]);
            assert!(decoded.iter().all(|x| x.is_finite()), "{spec}: {decoded:?}");
        }
        assert_eq!(round_trip("qsgd", &[f32::from_bits(1); 3]), [0.0; 3]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |rest: &[u8], len| refused("qsgd:s=4", len, &[&ONE[..], rest].concat());
        assert_eq!(result(&[0x28], 4), DecodeError::Truncated);
        assert_eq!(result(&[0x28, 4], 2), DecodeError::Trailing { extra: 1 });
        let alphabet = DecodeError::Corrupt("a symbol is not in the alphabet");
        assert_eq!(result(&[0x29], 2), alphabet);
        for step in [-1.0, f32::NAN, f32::INFINITY, 1e38] {
            let message = [&f32::to_le_bytes(step)[..], &[0x28]].concat();
            let error = refused("qsgd:s=4", 2, &message);
            assert!(matches!(error, DecodeError::Corrupt(_)), "{step}");
        }
    }
}
