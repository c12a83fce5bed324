//! `adaptive`: elements at random, each with the probability that keeps the variance least for the number
//! sent.
//!
//! - **Probabilities**: an element is sent with p = min(|c| / M, 1), where the level M is such that
//!   Σp = k = max(1, round(ratio·d)). M is found from Σ|c| / k on by M ← Σ_{|c| ≤ M} |c| / (k − n), n the
//!   number of elements above M (Algorithm 3, with 1 / M for its λ), until n stays or 8 times. Each
//!   round lowers M towards its goal, so that ending early, or rounding M up to an f32, sends fewer,
//!   and takes nothing from the expectation. Where M would be above the largest f32, it is that.
//! - **Values**: what is sent stands for c / p: an element up to M for ±M, one above for itself. The
//!   message is unbiased, with variance |c|·(M − |c|) below M and 0 above.
//! - **Message**: the elements above M as in `topk`: a byte that names the code of their positions (0
//!   bitmap, 1 Rice, 2 raw), their number as varint, their values as f32, the positions. Then those drawn:
//!   code and number likewise, and unless that is 0 M as f32, a bit a sign, the positions. An empty tensor has an
//!   empty message.
//! - **Draws**: element i uses word i of the sender's stream for the tensor and step; 24 bits each, so that
//!   probabilities are multiples of 2⁻²⁴, rounded up.
//! - **Range**: ratio in (0, 1]; up to 2³² − 1 elements. At most k elements are above M; the number
//!   drawn is random.
//! - **Error feedback**: off; what is not sent is made up for by what is.
//! - **Cost**: 4 bytes an element for the maximum, 4 for the sum, 4 for each further round where
//!   elements are above M, 4 for the draws.
//!
//! Reference: Wangni, Wang, Liu, Zhang: "Gradient Sparsification for Communication-Efficient Distributed
//! Optimization", NeurIPS 2018.

use std::sync::Arc;

use gradwire_bits::kernels::{self, Side};
use gradwire_bits::{DecodeError, varint};

use super::fraction;
use super::positions::{self, Code, MOST_ELEMENTS};
use crate::compressors::fields;
use crate::compressors::hybrid::signs;
use crate::registry::{Ends, Guarantees, Kind, Param};
use crate::{Aggregation, BLOCK, Compressor, Context, Entry, Family, Sent, Source, Workspace};

/// The registry entry.
pub static ENTRY: Entry = Entry {
    id: "adaptive",
    summary: "elements at random, the larger the likelier, unbiased with least variance",
    family: Family::Sparsification,
    aggregation: Aggregation::Gather,
    error_feedback: false,
    parameters: &[Param {
        key: "ratio",
        kind: Kind::Real { min: 0.0, max: 1.0, ends: Ends::Upper, default: 0.01 },
        help: "fraction of elements to send in the mean",
    }],
    reference: "Wangni et al., NeurIPS 2018",
    payload: "large ones as topk; code u8, count varint, M f32, signs, positions",
    guarantees: Guarantees { unbiased: true, lossless: false },
    build: |values| Arc::new(Adaptive { ratio: values.real("ratio") }),
};

/// The most rounds that look for M.
const ROUNDS: usize = 8;

/// Sparsification with probabilities in proportion to absolute values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adaptive {
    ratio: f64,
}

impl Adaptive {
    /// k: how many elements a message carries in the mean.
    fn kept(&self, elements: usize) -> usize {
        fraction::kept(self.ratio, elements)
    }

    /// Empties the workspace, with room for what is drawn.
    fn make_room(&self, elements: usize, workspace: &mut Workspace) {
        let kept = self.kept(elements);
        // Eight standard deviations more than the mean, and what the kernel writes past the end.
        let room = (kept + 8 * kept.isqrt()).min(elements) + BLOCK;
        let Workspace { positions, values, others, words, counts, .. } = workspace;
        for numbers in [positions, words, counts] {
            numbers.clear();
            numbers.reserve(room);
        }
        for numbers in [values, others] {
            numbers.clear();
            numbers.reserve(room);
        }
    }
}

/// M, by which at most `kept` elements are expected, and at most so many are above it.
fn level(source: &mut Source<'_>, kept: usize) -> f32 {
    let (mut level, mut above) = (f32::MAX, 0);
    for round in 0..ROUNDS {
        let (mut sum, mut beyond) = (0.0, 0);
        source.peek_blocks(|_, block| {
            let (part, count) = kernels::sum_up_to(block, level);
            sum += part;
            beyond += count;
        });
        if sum == 0.0 || beyond >= kept || (round > 0 && beyond == above) {
            break;
        }
        above = beyond;
        level = level.min(rounded_up(sum / (kept - above) as f64));
        if level >= source.abs_max() {
            break;
        }
    }
    level
}

/// The least f32 that is no smaller, or the largest.
fn rounded_up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }.min(f32::MAX)
}

/// Draws elements, and leaves what they fail to stand for. Those above the level go with their positions
/// into `others` and `words`, the rest into `values` and `counts`.
fn draw(source: &mut Source<'_>, context: &Context<'_>, level: f32, workspace: &mut Workspace) {
    let Workspace { values: small_values, others: large_values, .. } = workspace;
    let Workspace { counts: small, words: large, .. } = workspace;
    let (rng, keeps_residual) = (context.rng(0), source.keeps_residual());
    let (mut random, mut drawn) = ([0; BLOCK], [0.0; BLOCK]);
    source.take_blocks(|offset, block| {
        let (random, drawn) = (&mut random[..block.len()], &mut drawn[..block.len()]);
        rng.fill_from(offset, random);
        kernels::drawn(block, level, random, drawn);
        let (first, base) = ([large.len(), small.len()], offset as u32);
        // What is taken leaves a zero in its place, so that the second call takes the rest.
        kernels::compact_beyond(drawn, Side::Both, level, base, large, large_values);
        kernels::compact_beyond(drawn, Side::Both, 0.0, base, small, small_values);
        if keeps_residual {
            for &position in &large[first[0]..] {
                block[position as usize - offset] = 0.0;
            }
            for (&position, value) in small[first[1]..].iter().zip(&small_values[first[1]..]) {
                block[position as usize - offset] -= level.copysign(*value);
            }
        }
    });
}

/// Appends two increasing sequences as one.
fn merge(few: &[u32], mut many: &[u32], all: &mut Vec<u32>) {
    for &position in few {
        let before = many.iter().take_while(|other| **other < position).count();
        let (head, rest) = many.split_at(before);
        all.extend_from_slice(head);
        all.push(position);
        many = rest;
    }
    all.extend_from_slice(many);
}

impl Compressor for Adaptive {
    fn encode(
        &self,
        source: &mut Source<'_>,
        context: &Context<'_>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Sent {
        let elements = source.len();
        workspace.positions.clear();
        if elements == 0 {
            return Sent::Positions;
        }
        let kept = self.kept(elements);
        let level = level(source, kept);
        self.make_room(elements, workspace);
        draw(source, context, level, workspace);
        let Workspace { positions, values, others, words: large, counts: small, .. } = workspace;
        merge(large, small, positions);
        let code = Code::shortest(large, elements);
        positions::put_header(code, large.len(), message);
        for values in others.chunks(BLOCK) {
            fields::put_f32s(values, message);
        }
        code.encode(large, elements, message);
        signs::write(&[level], elements, small, values, message);
        Sent::Positions
    }

    fn decode_add(
        &self,
        mut message: &[u8],
        _: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let elements = out.len();
        if elements == 0 {
            return fields::expect_len(message, 0);
        }
        self.make_room(elements, workspace);
        let Workspace { words: large, counts: small, .. } = workspace;
        let (code, count) = positions::take_header(&mut message)?;
        if count > self.kept(elements) as u64 {
            return Err(DecodeError::Corrupt(
                "more elements are above the level than the ratio allows",
            ));
        }
        let count = count as usize;
        let values = fields::take(&mut message, 4 * count)?.as_chunks::<4>().0;
        code.take(&mut message, count, elements, large)?;
        let ([level], signs) = signs::read(message, elements, elements, small)?;
        if !small.is_empty() && level == 0.0 {
            return Err(DecodeError::Corrupt("the level is 0"));
        }
        let is_large = |bytes: &[u8; 4]| {
            let value = f32::from_le_bytes(*bytes);
            value.is_finite() && value.abs() > level
        };
        if !values.iter().all(is_large) {
            return Err(DecodeError::Corrupt("a value is not above the level"));
        }
        if meet(large, small) {
            return Err(DecodeError::Corrupt("an element is sent twice"));
        }
        for (&position, value) in large.iter().zip(values) {
            out[position as usize] += weight * f32::from_le_bytes(*value);
        }
        signs::add(signs, [weight * level, weight * -level], small, out);
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        let most = self.kept(elements);
        // No code of positions is longer than a bitmap where that is the shortest.
        let large = 1 + varint::len(most as u64) + Code::Bitmap.max_len(most, elements);
        (large + signs::max_len::<1>(elements, elements)).saturating_add(most.saturating_mul(4))
    }

    fn max_elements(&self, message_len: usize) -> usize {
        // A tensor of zeros sends nothing, however large it is.
        if message_len == 0 { 0 } else { MOST_ELEMENTS }
    }
}

/// Whether increasing sequences have an element in common.
fn meet(few: &[u32], many: &[u32]) -> bool {
    let mut rest = many.iter().peekable();
    few.iter().any(|position| {
        while rest.next_if(|other| *other < position).is_some() {}
        rest.peek() == Some(&position)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, residual, round_trip};
    use crate::{Floats, Memory, Rng, SCRATCH, Tensor};

    fn level_of(values: &[f32], kept: usize) -> f32 {
        let mut scratch = vec![0.0; SCRATCH];
        let floats = Floats::F32(values);
        level(&mut Source::new(floats, Memory::None, None, &mut scratch).unwrap(), kept)
    }

    #[test]
    fn certain_elements_make_the_bytes_worked_by_hand() {
        // Two of four: M = 6 / 2, and 4 is above: M = 2 / 1. So 4 as it is, and −2 as −M.
        let expected = [0, 1, 0, 0, 0x80, 0x40, 0b0010, 0, 1, 0, 0, 0, 0x40, 1, 0b1000];
        let gradient = [0.0, 4.0, 0.0, -2.0];
        assert_eq!(encode("adaptive:ratio=0.5", &gradient), expected);
        assert_eq!(round_trip("adaptive:ratio=0.5", &gradient), gradient);
        assert_eq!(residual("adaptive:ratio=0.5,ef=on", &gradient), [0.0; 4]);
        // A constant at full ratio is its signs: nothing is above M.
        let expected = [2, 0, 0, 3, 0, 0, 0, 0x3f, 0b010, 0b111];
        assert_eq!(encode("adaptive:ratio=1", &[0.5, -0.5, 0.5]), expected);
        assert_eq!(encode("adaptive", &[0.0; 9]), [2, 0, 2, 0]);
        assert!(encode("adaptive", &[]).is_empty());
    }

    #[test]
    fn levels_worked_by_hand() {
        // Σ = 16: M = 4, above it 8: M = 8 / 3, above it 3 too: M = 5 / 2, which leaves only those.
        assert_eq!(level_of(&[8.0, 3.0, -2.0, 1.0, -1.0, 1.0], 4), 2.5);
        assert_eq!(level_of(&[1.0, 1.0, 0.0], 1), 2.0);
        assert_eq!(level_of(&[f32::MAX; 3], 1), f32::MAX);
        // A third of the least number, rounded up.
        assert_eq!(level_of(&[f32::from_bits(1), 0.0, 0.0], 3), f32::from_bits(1));
        assert_eq!(rounded_up(1.0 + 1e-12), 1f32.next_up());
    }

    #[test]
    fn the_level_spends_the_budget_and_no_more() {
        let mut words = vec![0; 10_000];
        Rng::new(3, 0, 0, 0, 0).fill(&mut words);
        let uniform = words.iter().map(|&word| f64::from(word) / 4_294_967_296.0);
        for power in [0, 1, 3, 9] {
            let values: Vec<f32> = uniform.clone().map(|u| u.powi(power) as f32).collect();
            for kept in [1, 100, 3_000, 9_999] {
                let level = f64::from(level_of(&values, kept));
                let budget: f64 = values.iter().map(|&x| (f64::from(x) / level).min(1.0)).sum();
                // Where all but one are to be sent, eight rounds come less near.
                let least = if kept < 9_999 { 0.9999 } else { 0.8 };
                let share = budget / kept as f64;
                assert!((least..=1.0 + 1e-9).contains(&share), "{power} {kept}: {share}");
            }
        }
    }

    #[test]
    fn element_i_is_decided_by_word_i() {
        let elements = BLOCK + 1003;
        let gradient: Vec<f32> = (0..elements).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        let level = level_of(&gradient, fraction::kept(0.3, elements));
        let mut words = vec![0; elements];
        Rng::new(1, Tensor::new("t", &[]).id(), 3, 2, 0).fill(&mut words);
        let drawn = |(&x, &word): (&f32, &u32)| {
            let sent = (word >> 8) as f32 / 16_777_216.0 * level < x.abs();
            if sent { level.max(x.abs()).copysign(x) } else { 0.0 }
        };
        let expected: Vec<f32> = gradient.iter().zip(&words).map(drawn).collect();
        assert_eq!(round_trip("adaptive:ratio=0.3", &gradient), expected);
        let kept = residual("adaptive:ratio=0.3,ef=on", &gradient);
        assert!(kept.iter().zip(&gradient).zip(&expected).all(|((m, g), q)| *m == g - q));
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = [0, 1, 0, 0, 0x80, 0x40, 0b0010, 0, 1, 0, 0, 0, 0x40, 1, 0b1000];
        let refused = |at: usize, byte: u8| {
            let (mut bad, mut out) = (good, [0.5; 4]);
            bad[at] = byte;
            let error = decode("adaptive:ratio=0.5", &bad, 1.0, &mut out).unwrap_err();
            assert_eq!(out, [0.5; 4]);
            error
        };
        let corrupt = DecodeError::Corrupt;
        let many = corrupt("more elements are above the level than the ratio allows");
        assert_eq!(refused(1, 3), many);
        assert_eq!(refused(4, 0), corrupt("a value is not above the level"));
        assert_eq!(refused(14, 0b0010), corrupt("an element is sent twice"));
        assert_eq!(refused(12, 0), corrupt("the level is 0"));
        assert_eq!(refused(12, 0xc0), corrupt("the scale is negative"));
        assert_eq!(refused(13, 2), corrupt("a padding bit is set"));
    }

    #[test]
    fn sequences_are_merged() {
        let merged = |few: &[u32], many: &[u32]| {
            let mut all = Vec::new();
            merge(few, many, &mut all);
            all
        };
        assert_eq!(merged(&[1, 2, 9], &[0, 3, 5, 10]), [0, 1, 2, 3, 5, 9, 10]);
        assert_eq!(merged(&[], &[3]), [3]);
        assert_eq!(merged(&[3], &[]), [3]);
    }

    #[test]
    fn sequences_meet_in_an_element() {
        assert!(!meet(&[], &[1]) && !meet(&[1], &[]) && !meet(&[1, 4], &[0, 2, 3, 5]));
        assert!(meet(&[1, 4], &[0, 4]) && meet(&[0], &[0, 4]) && meet(&[9], &[0, 4, 9]));
    }
}
