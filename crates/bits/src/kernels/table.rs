//! Stochastic rounding to a table of integers; the expectation is the value.

use super::kernel;

/// The largest allowed last integer of a table.
const MOST: usize = 32;

/// A table of integers that increase from 0, prepared for [`stochastic_entries`]. For each integer
/// below the last, it has the entry at or below this integer.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    last: f32,
    entries: [f32; MOST],
    /// The distances to the next entries.
    steps: [f32; MOST],
    indices: [u32; MOST],
}

impl Table {
    /// Prepares a table.
    ///
    /// # Panics
    /// If the integers do not start at 0, do not increase, or end above 32.
    pub const fn new(table: &[u8]) -> Self {
        let last = table[table.len() - 1] as usize;
        assert!(table[0] == 0 && last <= MOST, "a table goes from 0 to at most 32");
        let (mut entries, mut steps, mut indices) = ([0.0; MOST], [0.0; MOST], [0; MOST]);
        let mut index = 0;
        while index + 1 < table.len() {
            assert!(table[index] < table[index + 1], "a table increases");
            let mut at = table[index] as usize;
            while at < table[index + 1] as usize {
                entries[at] = table[index] as f32;
                steps[at] = (table[index + 1] - table[index]) as f32;
                indices[at] = index as u32;
                at += 1;
            }
            index += 1;
        }
        Self { last: last as f32, entries, steps, indices }
    }
}

/// Writes for each `t = value·scale + offset`, clipped to the table's range, the index of the entry
/// at or below t or of the next entry. It is the next one if the upper 24 bits of a random word, as
/// a fraction of 1, are below t's fraction of the way to it. A NaN may become any index. Processes
/// the shortest length.
pub fn stochastic_entries(
    values: &[f32],
    scale: f32,
    offset: f32,
    table: &Table,
    random: &[u32],
    indices: &mut [u16],
) {
    let len = values.len().min(random.len()).min(indices.len());
    let (values, random, indices) = (&values[..len], &random[..len], &mut indices[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let ((values, rest), (random, words)) = (values.as_chunks(), random.as_chunks());
        let (indices, last) = indices.as_chunks_mut();
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::entries(values, scale, offset, table, random, indices) };
        return one_by_one(rest, scale, offset, table, words, last);
    }
    one_by_one(values, scale, offset, table, random, indices);
}

kernel! {
    /// The loop of [`stochastic_entries`].
    fn one_by_one(
        values: &[f32],
        scale: f32,
        offset: f32,
        table: &Table,
        random: &[u32],
        indices: &mut [u16],
    ) {
        for ((value, word), index) in values.iter().zip(random).zip(indices) {
            let t = value * scale + offset;
            let t = if t > 0.0 { t } else { 0.0 };
            let t = if t < table.last { t } else { table.last };
            let cell = (t as i32).min(table.last as i32 - 1) as usize & (MOST - 1);
            let chance = (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0);
            let up = chance * table.steps[cell] < t - table.entries[cell];
            *index = (table.indices[cell] + u32::from(up)) as u16;
        }
    }
}

/// Writes for each index one of sixteen numbers, selected by its four lower bits. Processes the
/// shorter length.
pub fn looked_up(indices: &[u16], numbers: &[f32; 16], out: &mut [f32]) {
    let len = indices.len().min(out.len());
    let (indices, out) = (&indices[..len], &mut out[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let ((eights, rest), (outs, last)) = (indices.as_chunks(), out.as_chunks_mut());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx2::looked_up(eights, numbers, outs) };
        return looked_up_scalar(rest, numbers, last);
    }
    looked_up_scalar(indices, numbers, out);
}

fn looked_up_scalar(indices: &[u16], numbers: &[f32; 16], out: &mut [f32]) {
    for (&index, out) in indices.iter().zip(out) {
        *out = numbers[usize::from(index & 15)];
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    use super::Table;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn entries(
        values: &[[f32; 16]],
        scale: f32,
        offset: f32,
        table: &Table,
        random: &[[u32; 16]],
        indices: &mut [[u16; 16]],
    ) {
        let [scale, offset, last] = [scale, offset, table.last].map(|x| _mm512_set1_ps(x));
        let (most, unit) = (_mm512_set1_epi32(table.last as i32 - 1), 1.0 / 16_777_216.0);
        // SAFETY: each array holds 32 words.
        let ([entries, more], [steps, wider], [below, above]) = unsafe {
            let halves = |at: *const f32| [_mm512_loadu_ps(at), _mm512_loadu_ps(at.add(16))];
            let numbers = table.indices.as_ptr();
            let both =
                [_mm512_loadu_si512(numbers.cast()), _mm512_loadu_si512(numbers.add(16).cast())];
            (halves(table.entries.as_ptr()), halves(table.steps.as_ptr()), both)
        };
        for ((values, words), indices) in values.iter().zip(random).zip(indices) {
            // SAFETY: the arrays hold the sixteen values and words that are read.
            let (x, words) = unsafe {
                (_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_si512(words.as_ptr().cast()))
            };
            let t = _mm512_add_ps(_mm512_mul_ps(x, scale), offset);
            // Of a NaN, the second.
            let t = _mm512_min_ps(_mm512_max_ps(t, _mm512_setzero_ps()), last);
            let cell = _mm512_min_epi32(_mm512_cvttps_epi32(t), most);
            let entry = _mm512_permutex2var_ps(entries, cell, more);
            let step = _mm512_permutex2var_ps(steps, cell, wider);
            let index = _mm512_permutex2var_epi32(below, cell, above);
            let chance = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(words));
            let chance = _mm512_mul_ps(chance, _mm512_set1_ps(unit));
            let (limit, way) = (_mm512_mul_ps(chance, step), _mm512_sub_ps(t, entry));
            let up = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(limit, way);
            let index = _mm512_mask_add_epi32(index, up, index, _mm512_set1_epi32(1));
            // SAFETY: the array holds the sixteen indices that are written.
            unsafe {
                let indices = indices.as_mut_ptr();
                _mm256_storeu_si256(indices.cast(), _mm512_cvtepi32_epi16(index));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn looked_up(indices: &[[u16; 8]], numbers: &[f32; 16], out: &mut [[f32; 8]]) {
        // SAFETY: the array holds sixteen numbers.
        let (low, high) = unsafe {
            (_mm256_loadu_ps(numbers.as_ptr()), _mm256_loadu_ps(numbers.as_ptr().add(8)))
        };
        for (indices, out) in indices.iter().zip(out) {
            // SAFETY: the arrays hold the eight indices that are read and the numbers that are
            // written.
            unsafe {
                let index = _mm256_cvtepu16_epi32(_mm_loadu_si128(indices.as_ptr().cast()));
                // The permutations use the three lower bits, the choice between them the fourth.
                let (a, b) =
                    (_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index));
                let fourth = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index));
                _mm256_storeu_ps(out.as_mut_ptr(), _mm256_blendv_ps(a, b, fourth));
            }
        }
    }
}

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
