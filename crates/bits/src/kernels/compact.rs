//! Selection of elements beyond a threshold.

use alloc::vec::Vec;

use super::kernel;

/// The values that a threshold t ≥ 0 selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Values above t and values below −t.
    Both,
    /// Values above t.
    Above,
    /// Values below −t.
    Below,
}

impl Side {
    /// A mask and then an exclusive-or on a value's pattern; the value is selected if the result is
    /// above t.
    pub(super) const fn masks(self) -> (u32, u32) {
        match self {
            Side::Both => (0x7fff_ffff, 0),
            Side::Above => (u32::MAX, 0),
            Side::Below => (u32::MAX, 0x8000_0000),
        }
    }
}

/// Moves the elements beyond `threshold` out of `values`: appends `base` + index and value of each,
/// in order, and sets the element to 0.
pub fn compact_beyond(
    values: &mut [f32],
    side: Side,
    threshold: f32,
    base: u32,
    positions: &mut Vec<u32>,
    taken: &mut Vec<f32>,
) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (groups, rest) = values.as_chunks_mut::<16>();
        let after = base.wrapping_add(16 * groups.len() as u32);
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::compact(groups, side, threshold, base, positions, taken) };
        return compact_beyond_scalar(rest, side, threshold, after, positions, taken);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (groups, rest) = values.as_chunks_mut::<32>();
        let after = base.wrapping_add(32 * groups.len() as u32);
        // SAFETY: as above.
        unsafe { avx2::compact(groups, side, threshold, base, positions, taken) };
        return compact_beyond_scalar(rest, side, threshold, after, positions, taken);
    }
    compact_beyond_scalar(values, side, threshold, base, positions, taken);
}

fn compact_beyond_scalar(
    values: &mut [f32],
    side: Side,
    threshold: f32,
    base: u32,
    positions: &mut Vec<u32>,
    taken: &mut Vec<f32>,
) {
    let (kept, flipped) = side.masks();
    for (i, x) in values.iter_mut().enumerate() {
        if f32::from_bits(x.to_bits() & kept ^ flipped) > threshold {
            positions.push(base.wrapping_add(i as u32));
            taken.push(*x);
            *x = 0.0;
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::Side;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn compact(
        groups: &mut [[f32; 16]],
        side: Side,
        threshold: f32,
        base: u32,
        positions: &mut Vec<u32>,
        taken: &mut Vec<f32>,
    ) {
        let limit = _mm512_set1_ps(threshold);
        let (kept, flipped) = side.masks();
        let (kept, flipped) = (_mm512_set1_epi32(kept as i32), _mm512_set1_epi32(flipped as i32));
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for (i, group) in groups.iter_mut().enumerate() {
            // SAFETY: the group holds the sixteen floats that are read.
            let x = unsafe { _mm512_loadu_ps(group.as_ptr()) };
            let key = _mm512_xor_si512(_mm512_and_si512(_mm512_castps_si512(x), kept), flipped);
            let mask = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(_mm512_castsi512_ps(key), limit);
            if mask == 0 {
                continue;
            }
            let first = base.wrapping_add(16 * i as u32);
            let at = _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32));
            let count = mask.count_ones() as usize;
            positions.reserve(16);
            taken.reserve(16);
            // SAFETY: both vectors have capacity for sixteen more elements, where whole registers
            // are stored; the lengths grow by the number of selected lanes. The group holds the
            // sixteen floats that are written.
            unsafe {
                let end = positions.as_mut_ptr().add(positions.len());
                _mm512_storeu_si512(end.cast(), _mm512_maskz_compress_epi32(mask, at));
                positions.set_len(positions.len() + count);
                let end = taken.as_mut_ptr().add(taken.len());
                _mm512_storeu_ps(end, _mm512_maskz_compress_ps(mask, x));
                taken.set_len(taken.len() + count);
                _mm512_storeu_ps(group.as_mut_ptr(), _mm512_maskz_mov_ps(!mask, x));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::Side;
    use crate::kernels::compress::compress;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn compact(
        groups: &mut [[f32; 32]],
        side: Side,
        threshold: f32,
        base: u32,
        positions: &mut Vec<u32>,
        taken: &mut Vec<f32>,
    ) {
        let limit = _mm256_set1_ps(threshold);
        let (kept, flipped) = side.masks();
        let (kept, flipped) = (_mm256_set1_epi32(kept as i32), _mm256_set1_epi32(flipped as i32));
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        for (i, group) in groups.iter_mut().enumerate() {
            let (eights, _) = group.as_chunks_mut::<8>();
            let mut beyond = [_mm256_setzero_ps(); 4];
            for (eight, beyond) in eights.iter().zip(&mut beyond) {
                // SAFETY: the array holds the eight floats that are read.
                let x = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
                let key = _mm256_xor_si256(_mm256_and_si256(x, kept), flipped);
                *beyond = _mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_castsi256_ps(key), limit);
            }
            let [a, b, c, d] = beyond;
            let any = _mm256_or_ps(_mm256_or_ps(a, b), _mm256_or_ps(c, d));
            if _mm256_movemask_ps(any) == 0 {
                continue;
            }
            // No branch for each eight, which would often be mispredicted.
            positions.reserve(32);
            taken.reserve(32);
            let mut at = base.wrapping_add(32 * i as u32);
            for (eight, beyond) in eights.iter_mut().zip(beyond) {
                let mask = _mm256_movemask_ps(beyond) as u8;
                let places = _mm256_add_epi32(lanes, _mm256_set1_epi32(at as i32));
                let count = mask.count_ones() as usize;
                // SAFETY: both vectors have capacity for 32 more elements, and each of the four
                // stores of eight begins at most eight after the one before. The lengths grow by
                // the number of selected lanes. The array holds the eight floats that are written.
                unsafe {
                    let x = _mm256_loadu_si256(eight.as_ptr().cast());
                    let end = positions.as_mut_ptr().add(positions.len());
                    _mm256_storeu_si256(end.cast(), compress(places, mask));
                    positions.set_len(positions.len() + count);
                    let end = taken.as_mut_ptr().add(taken.len());
                    _mm256_storeu_si256(end.cast(), compress(x, mask));
                    taken.set_len(taken.len() + count);
                    let left = _mm256_andnot_si256(_mm256_castps_si256(beyond), x);
                    _mm256_storeu_si256(eight.as_mut_ptr().cast(), left);
                }
                at = at.wrapping_add(8);
            }
        }
    }
}

kernel! {
    /// The number of elements with |value| above `threshold`.
    pub fn count_above(values: &[f32], threshold: f32) -> usize {
        let mut count = 0;
        for stretch in values.chunks(1 << 20) {
            count += stretch.iter().map(|x| u32::from(x.abs() > threshold)).sum::<u32>() as usize;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::sweep;
    use alloc::vec;

    fn taken(side: Side) -> (Vec<u32>, Vec<f32>, [f32; 5]) {
        let mut values = [1.0, -3.0, 2.0, -2.0, 2.5];
        let (mut positions, mut taken) = (vec![9], vec![0.5]);
        compact_beyond(&mut values, side, 2.0, 100, &mut positions, &mut taken);
        (positions, taken, values)
    }

    #[test]
    fn moves_the_elements_beyond_the_threshold() {
        let both = (vec![9, 101, 104], vec![0.5, -3.0, 2.5], [1.0, 0.0, 2.0, -2.0, 0.0]);
        assert_eq!(taken(Side::Both), both);
        let above = (vec![9, 104], vec![0.5, 2.5], [1.0, -3.0, 2.0, -2.0, 0.0]);
        assert_eq!(taken(Side::Above), above);
        let below = (vec![9, 101], vec![0.5, -3.0], [1.0, 0.0, 2.0, -2.0, 2.5]);
        assert_eq!(taken(Side::Below), below);
    }

    #[test]
    fn counts_are_those_of_a_filter() {
        sweep(|x| {
            for threshold in [0.0, 0.3, 0.9, 1e20, f32::MAX] {
                let count = x.iter().filter(|x| x.abs() > threshold).count();
                assert_eq!(count_above(x, threshold), count);
            }
        });
    }
}
