//! `qsparse-local`: the largest elements, or random ones, quantized.
//!
//! - **Selection**: k = max(1, round(ratio·d)) elements, at most d. `select=topk` sends the
//!   elements with the largest absolute values, `select=randomk` elements at random positions, the
//!   same on all ranks, as [`topk`](crate::compressors::sparsification::topk) and
//!   [`randomk`](crate::compressors::sparsification::randomk) do.
//! - **Values**: `quantizer=qsgd` sends the levels of [`qsgd`], with the Euclidean norm per bucket
//!   of `bucket` sent elements in order of position, or one norm with `bucket=0`; `quantizer=sign`
//!   sends ±‖·‖₁ / k: each sign, and the mean absolute value.
//! - **Scale**: if B elements share a norm, E‖Q(x)‖² ≤ (1 + β)‖x‖² with β = min(B / s², √B / s).
//!   `scale=on` divides the step by 1 + β: then E‖c − decoded‖² is at most (1 − k / (d·(1 +
//!   β)))·‖c‖² for every β (Lemma 2). With `scale=off` the bound is (1 − (1 − β)·k / d)·‖c‖², which
//!   is below ‖c‖² only if β is below 1 (Lemma 1). Signs need no scale (Lemma 3).
//! - **Message**: with `topk` a byte with the code of the positions (0 bitmap, 1 Rice, 2 raw). Then
//!   the values: the mean as f32 and one bit per sign, 1 below zero; or the steps as f32, and
//!   level + s in ⌈log2(2s + 1)⌉ bits each or in [Huffman code](gradwire_bits::huffman). With
//!   `topk` the positions follow, in the shortest code. An empty tensor has an empty message.
//! - **Range**: ratio in (0, 1], s from 1 to 32 767; up to 2³² − 1 elements.
//! - **Draws**: the i-th sent element uses the upper 24 bits of word i [for
//!   rounding](crate::Rng::fill_rounding) of the sender's stream for the tensor and step; positions
//!   come from the shared stream.
//! - **Error feedback**: on; it is part of the method, as are local steps (`every`).
//! - **Limits**: a step below about 3·10⁻³⁹ is sent as zero, and so is a mean below 2⁻¹⁴⁹.
//! - **Deviations**: the paper uses one norm for all k; the default here is one per 512 elements,
//!   which keeps β at 0.03 for tensors of any size. Lemma 3 allows several norms for signs; this is
//!   the first.
//! - **Cost**: as for the selection, plus 4 bytes per sent element to quantize and to write back.
//!
//! Reference: Basu, Data, Karakus, Diggavi: "Qsparse-local-SGD: Distributed SGD with Quantization,
//! Sparsification, and Local Computations", NeurIPS 2019, section 2.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::kernels::{self, Levels};
use gradwire_bits::{DecodeError, try_resize};

use super::signs;
use crate::compressors::quantization::qsgd;
use crate::compressors::sparsification::fraction;
use crate::compressors::sparsification::randomk::RandomK;
use crate::numeric::take::{take_at_positions, take_largest};
use crate::parameters::{Parameters, either, real, whole};
use crate::tools::give_back;
use crate::wire::fields;
use crate::wire::levels::{self, Norm};
use crate::wire::positions::{MOST_ELEMENTS, PositionCode};
use crate::wire::symbols::Alphabet;
use crate::{
    BLOCK, Compressor, Context, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes,
    Properties, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "qsparse-local",
    summary: "the largest or random elements, quantized",
    formula: "x̂ = Q(c) at the k largest |c| or at k random positions, 0 elsewhere; Q(c) = \
        qsgd(c)/(1 + β), or sign(c) times the mean |c| of these k",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &[
        "ratio=0.1",
        "ratio=0.5,select=randomk,s=3,bucket=0,scale=off,code=huffman",
        "ratio=0.1,quantizer=sign",
        "ratio=0.3,s=1,bucket=0,scale=off",
        "ratio=0.05,quantizer=sign",
        "ratio=0.1,select=randomk,code=huffman",
        "ratio=0.02,code=huffman",
        "select=randomk,quantizer=sign",
    ],
    reference: "Basu et al., NeurIPS 2019",
    payload: "[code u8,] steps f32, levels [, positions]",
    passes: Passes::TWO,
    properties: |values| QsparseLocal::new(values).properties(),
    ..Entry::of::<QsparseLocal>(|values| QsparseLocal::new(values).guarantee())
};

/// The quantizer of the sent elements.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Quantizer {
    Sign,
    Levels { s: u16, bucket: usize, scaled: bool, alphabet: Alphabet },
}

crate::parameters! {
    /// Sparsification and quantization.
    pub struct QsparseLocal {
        /// fraction of elements to send
        ratio: f64 = real(0.01, Excluded(0.0), Included(1.0)),
        /// send the largest elements, or random positions that are the same on all ranks
        random("select"): bool = either(&["topk", "randomk"]),
        /// send stochastic levels, or signs with the mean absolute value
        sign("quantizer"): bool = either(&["qsgd", "sign"]),
        /// levels on either side of zero
        s: u16 = qsgd::S,
        /// number of sent elements that share a norm; 0: one norm for all of them
        bucket: usize = whole(512, 0..=1 << 30),
        /// shrink values by 1/(1 + β), so that rounding noise never makes the result worse than
        /// sending nothing (Lemma 2 of the paper)
        scaled("scale"): bool = either(&["on", "off"]),
        /// symbols of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

impl QsparseLocal {
    fn quantizer(&self) -> Quantizer {
        let Self { sign, s, bucket, scaled, huffman, .. } = *self;
        if sign {
            return Quantizer::Sign;
        }
        let bucket = if bucket == 0 { usize::MAX } else { bucket };
        let alphabet = Alphabet::new(2 * usize::from(s) + 1, huffman);
        Quantizer::Levels { s, bucket, scaled, alphabet }
    }

    fn properties(&self) -> Properties {
        let value_bits = match self.quantizer() {
            Quantizer::Sign => Some(1),
            Quantizer::Levels { alphabet, .. } => alphabet.value_bits(),
        };
        Properties { value_bits, draws_positions: self.random, ..Properties::DEFAULT }
    }

    fn guarantee(&self) -> Guarantee {
        // Lemmas 1 to 3 of the paper.
        match self.quantizer() {
            Quantizer::Levels { s, bucket, scaled: false, .. } if qsgd::beta(bucket, s) >= 1.0 => {
                Guarantee::Neither("with few levels the rounding noise may exceed the elements")
            }
            _ => Guarantee::Contractive,
        }
    }

    /// The random selection, which is the same on all ranks.
    fn shared(&self) -> RandomK {
        RandomK { ratio: self.ratio, unbiased: false, independent: false }
    }
}

impl Quantizer {
    /// Appends the values in the workspace, and leaves their quantization errors there.
    fn write(self, context: &Context<'_>, workspace: &mut Workspace, message: &mut Vec<u8>) {
        let Workspace { values, random, symbols, .. } = &mut *workspace;
        let Quantizer::Levels { s, bucket, scaled, alphabet } = self else {
            let sums = kernels::sums_by_sign(values);
            let mean = ((sums.positive_sum - sums.negative_sum) / values.len() as f64) as f32;
            fields::put_f32(mean, message);
            signs::put(values, message);
            return values.iter_mut().for_each(|x| *x -= mean.copysign(*x));
        };
        let (rng, levels) = (context.rng(0), f32::from(s));
        let beta = if scaled { qsgd::beta(values.len().min(bucket), s) } else { 0.0 };
        symbols.resize(values.len(), 0);
        random.resize(BLOCK, 0);
        let mut first = 0;
        for (values, symbols) in values.chunks_mut(bucket).zip(symbols.chunks_mut(bucket)) {
            let (step, inverse) =
                levels::step(Norm::Euclidean.finish(Norm::Euclidean.add(0.0, values)), levels);
            let step = (f64::from(step) / (1.0 + beta)) as f32;
            fields::put_f32(step, message);
            let levels = Levels { least: -levels, most: levels, inverse, step };
            for (values, symbols) in values.chunks_mut(BLOCK).zip(symbols.chunks_mut(BLOCK)) {
                let random = &mut random[..values.len()];
                rng.fill_rounding(first, random);
                first += values.len();
                kernels::stochastic_levels(values, levels, random, symbols);
                kernels::levels_off(values, symbols, levels);
            }
        }
        alphabet.write(workspace, message);
    }

    /// Reads `count` values off the front of a message into the workspace, times `weight`.
    fn read(
        self,
        message: &mut &[u8],
        count: usize,
        weight: f32,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Quantizer::Levels { s, bucket, alphabet, .. } = self else {
            let mean = weight * fields::take_scale(message)?;
            let signs = signs::take(message, count)?;
            let values = &mut workspace.values;
            values.clear();
            values.try_reserve(count)?;
            let value = |at| if signs::is_negative(signs, at) { -mean } else { mean };
            values.extend((0..count).map(value));
            return Ok(());
        };
        let s = f32::from(s);
        let steps = levels::take_steps(message, count.div_ceil(bucket), s)?;
        alphabet.read(message, count, workspace)?;
        let Workspace { values, symbols, .. } = workspace;
        values.clear();
        try_resize(values, count, 0.0)?;
        let buckets = values.chunks_mut(bucket).zip(symbols.chunks_mut(bucket));
        for ((values, symbols), step) in buckets.zip(steps) {
            kernels::levels_add(symbols, -s, weight * f32::from_le_bytes(*step), values);
        }
        Ok(())
    }

    /// The most bytes that `count` values take.
    fn max_len(self, count: usize) -> usize {
        match self {
            Quantizer::Sign => 4 + count.div_ceil(8),
            Quantizer::Levels { bucket, alphabet, .. } => {
                let steps = count.div_ceil(bucket).saturating_mul(4);
                steps.saturating_add(alphabet.max_len(count))
            }
        }
    }

    /// The most values that fit in `len` bytes.
    fn most(self, len: usize) -> usize {
        match self {
            Quantizer::Sign => len.saturating_mul(8),
            Quantizer::Levels { bucket, alphabet, .. } => {
                alphabet.max_elements(len).min((len / 4).saturating_mul(bucket))
            }
        }
    }
}

impl Compressor for QsparseLocal {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let elements = source.len();
        workspace.positions.clear();
        if elements == 0 {
            return Coverage::Positions;
        }
        let code = if !self.random {
            take_largest(source, fraction::kept(self.ratio, elements), workspace);
            Some(PositionCode::shortest(&workspace.positions, elements))
        } else {
            self.shared().draw(0, context, elements, workspace);
            take_at_positions(source, 1.0, workspace);
            None
        };
        message.extend(code.map(|code| code as u8));
        self.quantizer().write(context, workspace, message);
        let Workspace { positions, values, helpers, .. } = workspace;
        if let Some(code) = code {
            code.encode(positions, elements, helpers, message);
        }
        give_back(source, positions, values, helpers);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, context, weight, workspace, out } = args;
        if out.is_empty() {
            return fields::expect_len(message, 0);
        }
        let count = fraction::kept(self.ratio, out.len());
        if !self.random {
            let code = PositionCode::from_tag(fields::take(&mut message, 1)?[0])?;
            self.quantizer().read(&mut message, count, weight, workspace)?;
            let Workspace { positions, helpers, .. } = &mut *workspace;
            code.decode(message, count, out.len(), positions, helpers)?;
        } else {
            self.quantizer().read(&mut message, count, weight, workspace)?;
            fields::expect_len(message, 0)?;
            self.shared().make_room(out.len(), workspace)?;
            self.shared().draw(0, context, out.len(), workspace);
        }
        let Workspace { positions, values, helpers, .. } = workspace;
        helpers.add_at(positions, values, out, |value| value);
        Ok(())
    }

    fn statistics(&self, elements: usize) -> Statistics {
        let kept = fraction::kept(self.ratio, elements);
        if self.random { Statistics::Largest } else { Statistics::KthLargest(kept) }
    }

    fn max_len(&self, elements: usize) -> usize {
        let count = fraction::kept(self.ratio, elements);
        let positions =
            if !self.random { 1 + PositionCode::shortest_max_len(count, elements) } else { 0 };
        self.quantizer().max_len(count).saturating_add(positions)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        if message_len == 0 {
            return 0;
        }
        // Every code takes at least a bit per position.
        let positions = if !self.random { message_len.saturating_mul(8) } else { usize::MAX };
        let most = self.quantizer().most(message_len).min(positions);
        fraction::largest(self.ratio, most).min(MOST_ELEMENTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{Sender, encode, refused, residual, round_trip};
    use crate::{Rng, Tensor};

    /// The two largest are 3 and −4, of norm 5 and mean 3.5.
    const GRADIENT: [f32; 8] = [0.0, 1.0, 3.0, -1.0, 0.0, -4.0, 2.0, 0.0];
    const POSITIONS: u8 = 0b0010_0100;

    #[test]
    fn levels_worked_by_hand() {
        // A bitmap; step 1; 3 and −4 of five either side are 8 and 1 in four bits.
        let spec = "qsparse-local:ratio=0.25,s=5,scale=off";
        assert_eq!(encode(spec, &GRADIENT), [0, 0, 0, 0x80, 0x3f, 0x18, POSITIONS]);
        assert_eq!(round_trip(spec, &GRADIENT), [0.0, 0.0, 3.0, 0.0, 0.0, -4.0, 0.0, 0.0]);
        assert_eq!(residual(spec, &GRADIENT), [0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 2.0, 0.0]);
        assert!(encode(spec, &[]).is_empty());
    }

    #[test]
    fn the_scale_worked_by_hand() {
        // β is the lesser of 2 / 25 and √2 / 5.
        let (spec, step) = ("qsparse-local:ratio=0.25,s=5", 1.0f32 / 1.08);
        let message = encode(spec, &GRADIENT);
        assert_eq!(message[1..5], step.to_le_bytes());
        assert_eq!(message[5..], [0x18, POSITIONS]);
        let expected = [0.0, 1.0, 3.0 - 3.0 * step, -1.0, 0.0, -4.0 + 4.0 * step, 2.0, 0.0];
        assert_eq!(residual(spec, &GRADIENT), expected);
        let scaled = |step: f32| ((f64::from(step) / 1.04) as f32).to_le_bytes();
        // Each of the two alone: β is the lesser of 1 / 25 and 1 / 5, norms 3 and 4.
        let message = encode("qsparse-local:ratio=0.25,s=5,bucket=1", &GRADIENT);
        assert_eq!(message[1..5], scaled(0.6));
        assert_eq!(message[5..9], scaled(0.8));
        assert_eq!(message[9..], [0x0a, POSITIONS]);
    }

    #[test]
    fn signs_worked_by_hand() {
        let spec = "qsparse-local:ratio=0.25,quantizer=sign";
        assert_eq!(encode(spec, &GRADIENT), [0, 0, 0, 0x60, 0x40, 0b10, POSITIONS]);
        assert_eq!(round_trip(spec, &GRADIENT), [0.0, 0.0, 3.5, 0.0, 0.0, -3.5, 0.0, 0.0]);
        assert_eq!(residual(spec, &GRADIENT), [0.0, 1.0, -0.5, -1.0, 0.0, -0.5, 2.0, 0.0]);
    }

    #[test]
    fn random_positions_do_not_travel() {
        let spec = "qsparse-local:ratio=1,select=randomk,quantizer=sign";
        assert_eq!(encode(spec, &[1.0, -2.0]), [0, 0, 0xc0, 0x3f, 0b10]);
        // 10 of 1000 ones, with a norm of √10 in one step: the drawn ones of the ten are sent.
        let spec = "qsparse-local:select=randomk,s=1,scale=off";
        let decoded = round_trip(spec, &[1.0; 1000]);
        assert_eq!(encode(spec, &[1.0; 1000]).len(), 4 + 3);
        let sent: Vec<f32> = decoded.into_iter().filter(|&x| x != 0.0).collect();
        assert!((1..10).contains(&sent.len()) && sent.iter().all(|&x| x == 10f32.sqrt()));
        let kept = residual(spec, &[1.0; 1000]);
        assert_eq!(kept.iter().filter(|&&x| x == 1.0 - 10f32.sqrt()).count(), sent.len());
        assert_eq!(kept.iter().filter(|&&x| x == 1.0).count(), 1000 - sent.len());
    }

    #[test]
    fn the_ith_element_sent_is_decided_by_word_i() {
        // Norms of 2 in one step, and a norm of 128 in 64: ones are half way from 0 to 2.
        let mut words = vec![0; 16_384];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill_rounding(0, &mut words);
        let expected: Vec<f32> =
            words.iter().map(|word| if word >> 31 == 0 { 2.0 } else { 0.0 }).collect();
        for rest in ["bucket=4,s=1", "bucket=0,s=64", "bucket=4,s=1,select=randomk"] {
            let spec = format!("qsparse-local:ratio=1,scale=off,{rest}");
            assert!(round_trip(&spec, &[1.0; 16_384]) == expected, "{rest}");
        }
    }

    #[test]
    fn the_error_is_that_of_the_lemmas() {
        // One level, k = 20 of d = 100 equal elements: β = √20, and the variance is √20 − 1 of the
        // sent elements.
        let error = |rest: &str| {
            let spec = format!("qsparse-local:ratio=0.2,s=1,{rest}");
            let draws = 2000;
            let errors = (0..draws).map(|step| {
                let mut sender = Sender::new(&spec, &[100]);
                sender.encode(step, &[1.0; 100]);
                sender.residual().iter().map(|x| f64::from(x * x)).sum::<f64>()
            });
            errors.sum::<f64>() / draws as f64 / 100.0
        };
        let variance = 20f64.sqrt() - 1.0;
        for select in ["topk", "randomk"] {
            let plain = error(&format!("scale=off,select={select}"));
            assert!((plain - (0.8 + 0.2 * variance)).abs() < 0.03, "{select}: {plain}");
            let scaled = error(&format!("select={select}"));
            let bound = 1.0 - 0.2 / (1.0 + 20f64.sqrt());
            assert!(scaled <= bound && plain > 1.0, "{select}: {scaled} of {bound}");
        }
    }

    #[test]
    fn extremes_of_the_format_decode_to_finite_numbers() {
        for rest in ["", ",s=1,scale=off", ",quantizer=sign", ",select=randomk,bucket=0"] {
            let spec = format!("qsparse-local:ratio=1{rest}");
            let decoded = round_trip(&spec, &[f32::MAX, -f32::MAX, f32::MAX, 0.0, 1.0]);
            assert!(decoded.iter().all(|x| x.is_finite()), "{spec}: {decoded:?}");
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = [0, 0, 0, 0x80, 0x3f, 0x18, POSITIONS];
        let changed = |at: usize, byte: u8| {
            let mut bad = good;
            bad[at] = byte;
            refused("qsparse-local:ratio=0.25,s=5", 8, &bad)
        };
        assert_eq!(changed(0, 4), DecodeError::Corrupt("unknown position code"));
        assert!(matches!(changed(4, 0xbf), DecodeError::Corrupt(_)));
        assert!(matches!(changed(4, 0x7f), DecodeError::Corrupt(_)));
        assert_eq!(changed(5, 0x1b), DecodeError::Corrupt("a symbol is not in the alphabet"));
        let ones = DecodeError::Corrupt("the bitmap has a wrong number of ones");
        assert_eq!(changed(6, 0b0010_0000), ones);
        let spec = "qsparse-local:ratio=0.25,quantizer=sign";
        let signs = [0, 0, 0, 0x60, 0x40, 0b110, POSITIONS];
        assert_eq!(refused(spec, 8, &signs), DecodeError::Corrupt("a padding bit is set"));
        let random = "qsparse-local:ratio=0.25,quantizer=sign,select=randomk";
        assert_eq!(refused(random, 8, &[0; 6]), DecodeError::Trailing { extra: 1 });
    }
}
