//! Elements drawn in proportion to their absolute values, up to a level; all larger ones are sent.
//!
//! With the level M an element c is sent as ±M with probability |c| / M, or as itself if it is
//! above M. A message contains the elements above the level as in `topk`, then the drawn ones:
//! code, number and, unless that is 0, the level as f32, one bit per sign, the positions.

use std::iter::repeat;

use gradwire_bits::kernels::{self, Side};
use gradwire_bits::{DecodeError, varint};

use crate::compressors::hybrid::signs;
use crate::parts::part_result;
use crate::wire::fields;
use crate::wire::positions::{self, PositionCode};
use crate::{BLOCK, Context, Helpers, Source, Workspace};

/// The largest number of iterations that compute a level.
const ROUNDS: usize = 8;

/// The lowest level with which at most `kept` elements are expected, or a higher one if [`ROUNDS`]
/// iterations do not reach it. At most `kept` elements are above it.
pub(in crate::compressors) fn level(
    source: &mut Source<'_>,
    kept: f64,
    helpers: &mut Helpers,
) -> f32 {
    let (mut level, mut above) = (f32::MAX, 0);
    for round in 0..ROUNDS {
        let (sum, beyond) = sum_up_to(source, level, helpers);
        if sum == 0.0 || beyond as f64 >= kept || (round > 0 && beyond == above) {
            break;
        }
        above = beyond;
        level = level.min(rounded_up(sum / (kept - above as f64)));
        if level >= source.abs_max() {
            break;
        }
    }
    level
}

/// The sum of the absolute values up to a limit, and the number of values above it.
fn sum_up_to(source: &mut Source<'_>, limit: f32, helpers: &mut Helpers) -> (f64, usize) {
    let (mut sum, mut beyond) = (0.0, 0);
    let look = |(sum, beyond): &mut (f64, usize), _, block: &[f32]| {
        let (part, count) = kernels::sum_up_to(block, limit);
        *sum += part;
        *beyond += count;
    };
    source.peek_parts(helpers, repeat((0.0, 0)), look, |(part, count)| {
        sum += part;
        beyond += count;
    });
    (sum, beyond)
}

/// The smallest f32 that is at least `x`, or the largest finite one.
pub(in crate::compressors) fn rounded_up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }.min(f32::MAX)
}

/// The elements to send: elements above the level, unchanged, and drawn ones, as the level.
#[derive(Debug, Default)]
struct Drawn {
    large: Vec<u32>,
    large_values: Vec<f32>,
    small: Vec<u32>,
    small_values: Vec<f32>,
}

part_result!(Drawn { large, large_values, small, small_values });

/// Room for the drawn elements if `kept` are expected: up to eight standard deviations above the
/// mean, which are exceeded with negligible probability, and the registers that the kernel writes
/// past the end.
fn room(kept: usize, elements: usize) -> usize {
    (kept + 8 * kept.isqrt()).min(elements) + BLOCK
}

/// Clears the lists, and reserves memory for the drawn elements if `kept` are expected.
fn make_room(kept: usize, elements: usize, positions: &mut Vec<u32>, drawn: &mut Drawn) {
    let room = room(kept, elements);
    let Drawn { large, large_values, small, small_values } = drawn;
    for numbers in [positions, large, small] {
        numbers.clear();
        numbers.reserve(room);
    }
    for numbers in [large_values, small_values] {
        numbers.clear();
        numbers.reserve(room);
    }
}

/// Draws the elements of a tensor that is not empty and appends their message; `kept` elements are
/// expected. Leaves the positions of all sent elements in the workspace, and the error of the
/// message in the residual.
pub(in crate::compressors) fn encode(
    source: &mut Source<'_>,
    context: &Context<'_>,
    level: f32,
    kept: usize,
    workspace: &mut Workspace,
    message: &mut Vec<u8>,
) {
    let elements = source.len();
    let mut drawn = std::mem::take(workspace.own());
    make_room(kept, elements, &mut workspace.positions, &mut drawn);
    let words = Words::of(elements, kept);
    source.merge_parts(1, workspace, &mut drawn, |source, drawn| {
        draw(source, context, level, words, drawn);
    });
    let Drawn { large, large_values, small, small_values } = &drawn;
    merge(large, small, &mut workspace.positions);
    let code = PositionCode::shortest(large, elements);
    let helpers = &mut workspace.helpers;
    positions::put_with_values(code, large, large_values, elements, helpers, message);
    signs::write(&[level], elements, small, small_values, helpers, message);
    *workspace.own() = drawn;
}

/// The random words of elements.
#[derive(Debug, Clone, Copy)]
enum Words {
    /// Words [for rounding](crate::Rng::fill_rounding), of 24 bits.
    Rounding,
    /// One word of 32 bits per element. With fewer bits, probabilities near 2⁻²⁴ would be rounded
    /// up a lot.
    Whole,
}

impl Words {
    /// The words to draw about `kept` elements.
    fn of(elements: usize, kept: usize) -> Self {
        if elements / kept.max(1) < 1 << 12 { Self::Rounding } else { Self::Whole }
    }
}

/// Draws elements, and leaves the error of the message in the residual.
fn draw(
    source: &mut Source<'_>,
    context: &Context<'_>,
    level: f32,
    words: Words,
    drawn: &mut Drawn,
) {
    let Drawn { large, large_values, small, small_values } = drawn;
    let (rng, keeps_residual) = (context.rng(0), source.keeps_residual());
    let (mut random, mut drawn) = ([0; BLOCK], [0.0; BLOCK]);
    source.take_blocks(|offset, block| {
        let (random, drawn) = (&mut random[..block.len()], &mut drawn[..block.len()]);
        match words {
            Words::Rounding => rng.fill_rounding(offset, random),
            Words::Whole => rng.fill_from(offset, random),
        }
        kernels::drawn(block, level, random, drawn);
        let (first, base) = ([large.len(), small.len()], offset as u32);
        // The first call sets its elements to 0, so the second selects the others.
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

/// Merges two increasing sequences into one.
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

/// Adds `weight` times the message to `out`, which is not empty. At most `most` elements may be
/// above the level; `expected` are sent in total.
pub(in crate::compressors) fn decode_add(
    mut message: &[u8],
    most: usize,
    expected: usize,
    weight: f32,
    workspace: &mut Workspace,
    out: &mut [f32],
) -> Result<(), DecodeError> {
    let elements = out.len();
    let Workspace { own, helpers, .. } = workspace;
    let Drawn { large, small, .. } = own.get();
    for positions in [&mut *large, &mut *small] {
        positions.clear();
        positions.try_reserve(room(expected, elements))?;
    }
    let (code, count) = positions::take_header(&mut message, most)?;
    let values = fields::take(&mut message, 4 * count)?.as_chunks().0;
    code.take(&mut message, count, elements, large, helpers)?;
    let ([level], signs) = signs::read(message, elements, elements, small, helpers)?;
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
    fields::add_f32s_at(large, values, weight, out, helpers);
    signs::add(signs, [weight * level, weight * -level], small, out, helpers);
    Ok(())
}

/// The largest size of a message with up to `most` of `elements` elements above the level.
pub(in crate::compressors) fn max_len(most: usize, elements: usize) -> usize {
    // The shortest code of positions is at most a bitmap's length.
    let large = 1 + varint::len(most as u64) + PositionCode::Bitmap.max_len(most, elements);
    (large + signs::max_len::<1>(elements, elements)).saturating_add(most.saturating_mul(4))
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
    use crate::{Floats, Rng, SCRATCH};

    fn level_of(values: &[f32], kept: f64) -> f32 {
        let mut scratch = vec![0.0; SCRATCH];
        let floats = Floats::F32(values);
        let mut source = Source::new(floats, None, &mut scratch).unwrap();
        level(&mut source, kept, &mut Helpers::default())
    }

    #[test]
    fn levels_worked_by_hand() {
        // Σ = 16: M = 4, above it 8: M = 8 / 3, above it 3 too: M = 5 / 2, and no more are above
        // it.
        assert_eq!(level_of(&[8.0, 3.0, -2.0, 1.0, -1.0, 1.0], 4.0), 2.5);
        assert_eq!(level_of(&[1.0, 1.0, 0.0], 1.0), 2.0);
        assert_eq!(level_of(&[f32::MAX; 3], 1.0), f32::MAX);
        // A budget need not be whole.
        assert_eq!(level_of(&[1.0, 1.0, 0.0], 1.6), 1.25);
        // A third of the least number, rounded up.
        assert_eq!(level_of(&[f32::from_bits(1), 0.0, 0.0], 3.0), f32::from_bits(1));
        assert_eq!(rounded_up(1.0 + 1e-12), 1f32.next_up());
    }

    #[test]
    fn the_level_spends_the_budget_and_no_more() {
        let mut words = vec![0; 10_000];
        Rng::new(3, 0, 0, 0, 0).fill(&mut words);
        let uniform = words.iter().map(|&word| f64::from(word) / 4_294_967_296.0);
        for power in [0, 1, 3, 9] {
            let values: Vec<f32> = uniform.clone().map(|u| u.powi(power) as f32).collect();
            for kept in [1.0, 100.0, 3_000.0, 9_999.0] {
                let level = f64::from(level_of(&values, kept));
                let budget: f64 = values.iter().map(|&x| (f64::from(x) / level).min(1.0)).sum();
                // If all but one are to be sent, eight rounds come less close.
                let least = if kept < 9_999.0 { 0.9999 } else { 0.8 };
                let share = budget / kept;
                assert!((least..=1.0 + 1e-9).contains(&share), "{power} {kept}: {share}");
            }
        }
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
