//! Stochastic rounding to a table of integers; the expectation is the value.

use fearless_simd::prelude::*;
use fearless_simd::{f32x16, i32x16, u8x32, u8x64, u32x16};
#[cfg(target_arch = "x86_64")]
use {
    core::arch::x86_64::*,
    fearless_simd::{f32x8, u16x8},
};

use super::{cases, kernel};

/// The largest allowed last integer of a table.
const MOST: usize = 32;

/// 2^-24: the upper 24 bits of a random word count such fractions.
const FRACTION: f32 = 1.0 / 16_777_216.0;

/// A table of integers that increase from 0, prepared for [`stochastic_entries`]. For each integer
/// below the last, it has the entry at or below this integer; for the last, the entry before.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    last: f32,
    entries: [u8; 2 * MOST],
    /// The distances to the next entries.
    steps: [u8; 2 * MOST],
    indices: [u8; 2 * MOST],
}

impl Table {
    /// Prepares a table.
    ///
    /// # Panics
    /// If the integers do not start at 0, do not increase, or end above 32.
    pub const fn new(table: &[u8]) -> Self {
        let last = table[table.len() - 1] as usize;
        assert!(table[0] == 0 && last <= MOST, "a table goes from 0 to at most 32");
        let [mut entries, mut steps, mut indices] = [[0; 2 * MOST]; 3];
        let mut index = 0;
        while index + 1 < table.len() {
            assert!(table[index] < table[index + 1], "a table increases");
            let mut at = table[index] as usize;
            while at < table[index + 1] as usize {
                entries[at] = table[index];
                steps[at] = table[index + 1] - table[index];
                indices[at] = index as u8;
                at += 1;
            }
            index += 1;
        }
        let before = last.saturating_sub(1);
        entries[last] = entries[before];
        steps[last] = steps[before];
        indices[last] = indices[before];
        Self { last: last as f32, entries, steps, indices }
    }
}

kernel! {
    /// Writes for each `t = value·scale + offset`, clipped to the table's range, the index of the
    /// entry at or below t or of the next entry. It is the next one if the upper 24 bits of a
    /// random word, as a fraction of 1, are below t's fraction of the way to it. A NaN may become
    /// any index. Processes the shortest length.
    pub fn stochastic_entries(
        simd,
        values: &[f32],
        scale: f32,
        offset: f32,
        table: &Table,
        random: &[u32],
        indices: &mut [u16],
    ) {
        if cfg!(target_arch = "x86_64") && S::u8s::LEN < MOST {
            // SSE2 cannot look up bytes.
            return plain(values, scale, offset, table, random, indices);
        }
        let len = values.len().min(random.len()).min(indices.len());
        let (groups, rest) = values[..len].as_chunks::<32>();
        let (random, words) = random[..len].as_chunks::<32>();
        let (places, last) = indices[..len].as_chunks_mut::<32>();
        for ((values, random), indices) in groups.iter().zip(random).zip(places) {
            let low = sixteen(simd, &values[..16], scale, offset, table, &random[..16]);
            let high = sixteen(simd, &values[16..], scale, offset, table, &random[16..]);
            low.relaxed_narrow(high).store_array(indices);
        }
        plain(rest, scale, offset, table, words, last);
    } plain {
        for ((value, word), index) in values.iter().zip(random).zip(indices) {
            let t = value * scale + offset;
            let t = if t > 0.0 { t } else { 0.0 };
            let t = if t < table.last { t } else { table.last };
            let cell = (t as i32 as usize).min(MOST);
            let limit = (word >> 8) as i32 as f32 * FRACTION * f32::from(table.steps[cell]);
            let up = limit < t - f32::from(table.entries[cell]);
            *index = u16::from(table.indices[cell]) + u16::from(up);
        }
    }
}

/// The indices of sixteen values.
#[inline(always)]
fn sixteen<S: Simd>(
    simd: S,
    values: &[f32],
    scale: f32,
    offset: f32,
    table: &Table,
    random: &[u32],
) -> u32x16<S> {
    let t = f32x16::from_slice(simd, values) * scale + offset;
    let t = t.max(0.0).min(table.last);
    let cells = i32x16::truncate_from(t);
    // The upper bytes of a cell are 0, and cell 0 has the entry and the index 0.
    let (entry, index) = (found(simd, &table.entries, cells), found(simd, &table.indices, cells));
    let step = found(simd, &table.steps, cells) & 255;
    let random: i32x16<S> = (u32x16::from_slice(simd, random) >> 8).bitcast();
    let limit = f32x16::float_from(random) * FRACTION * f32x16::float_from(step);
    let up = limit.simd_lt(t - f32x16::float_from(entry));
    up.select(index + 1, index).bitcast()
}

/// For each byte of `cells`, a byte of a table.
#[inline(always)]
fn found<S: Simd>(simd: S, table: &[u8; 2 * MOST], cells: i32x16<S>) -> i32x16<S> {
    let cells: u8x64<S> = cells.bitcast();
    if S::u8s::LEN == table.len() {
        return u8x64::load_array_ref(simd, table).swizzle_dyn(cells).bitcast();
    }
    let half = u8x32::from_slice(simd, &table[..MOST]);
    let (low, high) = cells.min(MOST as u8 - 1).split();
    half.swizzle_dyn(low).combine(half.swizzle_dyn(high)).bitcast()
}

/// Writes for each index one of sixteen numbers, selected by its four lower bits. Processes the
/// shorter length.
pub fn looked_up(indices: &[u16], numbers: &[f32; 16], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = super::level::used().as_avx2() {
        return permuted(avx2, indices, numbers, out);
    }
    plain_looked_up(indices, numbers, out);
}

fn plain_looked_up(indices: &[u16], numbers: &[f32; 16], out: &mut [f32]) {
    for (&index, out) in indices.iter().zip(out) {
        *out = numbers[usize::from(index & 15)];
    }
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    // AVX2: 3.4 times as fast as the plain loop; AVX-512: 1.6 times.
    fn permuted(avx2: Avx2, indices: &[u16], numbers: &[f32; 16], out: &mut [f32]) {
        let len = indices.len().min(out.len());
        let (groups, rest) = indices[..len].as_chunks::<8>();
        let (eights, last) = out[..len].as_chunks_mut::<8>();
        let (low, high) = f32x16::load_array_ref(avx2, numbers).split();
        for (indices, out) in groups.iter().zip(eights) {
            let index = _mm256_cvtepu16_epi32(u16x8::load_array_ref(avx2, indices).into());
            // The permutations use the three lower bits, the choice between them the fourth.
            let below = _mm256_permutevar8x32_ps(low.into(), index);
            let above = _mm256_permutevar8x32_ps(high.into(), index);
            let fourth = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
            let found: f32x8<_> = _mm256_blendv_ps(below, above, fourth).simd_into(avx2);
            found.store_array(out);
        }
        plain_looked_up(rest, numbers, last);
    }
);

cases![
    ("stochastic_entries", |input, output| {
        let (table, mut indices) = (Table::new(&[0, 1, 5, 9, 30]), input.zeros());
        stochastic_entries(&input.floats(), input.x, 15.0, &table, &input.draws(), &mut indices);
        output.bits(indices.iter().copied());
    }),
    ("looked_up", |input, output| {
        let (numbers, mut out) = (input.more(), input.zeros());
        let sixteen = core::array::from_fn(|at| numbers.get(at).copied().unwrap_or(at as f32));
        looked_up(&input.symbols(), &sixteen, &mut out);
        output.moved(&out);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_by_hand() {
        // Entries 0, 2 and 5; t = 2·value + 1.
        let table = Table::new(&[0, 2, 5]);
        let values = [0.0, 0.0, 0.5, 1.25, 1.25, 9.0, -9.0, f32::INFINITY];
        // Half of the way from 0 to 2 twice, at 2, half of the way from 2 to 5 twice, clipped.
        let half = 1 << 31;
        let words = [half - 1, half, 0, half - 1, half, u32::MAX, 0, 0];
        let mut indices = [9; 8];
        stochastic_entries(&values, 2.0, 1.0, &table, &words, &mut indices);
        assert_eq!(indices, [1, 0, 1, 2, 1, 2, 0, 2]);
    }

    #[test]
    fn the_largest_table_and_the_smallest() {
        use crate::kernels::testing::{InstructionSet, limited};

        // t at the last entry, between the last two, and at 0.
        let values: [f32; 48] = core::array::from_fn(|at| [32.0, 31.0, 31.0, 0.0][at % 4]);
        let half = 1 << 31;
        let words: [u32; 48] = core::array::from_fn(|at| [u32::MAX, half - 1, half, 0][at % 4]);
        let mut indices = [9; 48];
        for set in [InstructionSet::Plain, InstructionSet::Avx2, InstructionSet::Avx512] {
            for (entries, expected) in [(&[0, 30, 32][..], [2, 2, 1, 0]), (&[0], [0; 4])] {
                let table = Table::new(entries);
                limited(set, || {
                    stochastic_entries(&values, 1.0, 0.0, &table, &words, &mut indices);
                });
                assert!(indices.chunks(4).all(|four| four == expected), "{set:?}, {entries:?}");
            }
        }
    }

    #[test]
    fn indices_choose_numbers() {
        let numbers = core::array::from_fn(|at| 10.0 + at as f32);
        let indices: [u16; 21] = core::array::from_fn(|at| at as u16);
        let mut out = [0.0; 21];
        looked_up(&indices, &numbers, &mut out);
        assert_eq!(out, core::array::from_fn::<_, 21, _>(|at| 10.0 + (at % 16) as f32));
    }

    #[test]
    fn the_mean_is_the_value() {
        let entries = [0u8, 3, 4, 30];
        let table = Table::new(&entries);
        let mut words = [0; 4096];
        super::super::philox4x32([1, 2], [0; 4], &mut words);
        for t in [0.5, 2.9, 3.25, 4.0, 11.0, 29.5] {
            let (values, mut indices) = ([t; 4096], [9; 4096]);
            stochastic_entries(&values, 1.0, 0.0, &table, &words, &mut indices);
            let sum: f32 =
                indices.iter().map(|&index| f32::from(entries[usize::from(index)])).sum();
            assert!((sum / 4096.0 - t).abs() < 1.0, "{t}");
        }
    }
}
