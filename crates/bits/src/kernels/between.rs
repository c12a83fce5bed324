//! Values between two limits.

use alloc::vec::Vec;

use super::Side;

/// Appends the values of a side that are above `low` but not above `high`, in order, and returns
/// how many are above `high`. `Both` compares absolute values, and `Below` the negatives of values.
/// A NaN is neither appended nor counted.
pub fn values_between(
    values: &[f32],
    side: Side,
    [low, high]: [f32; 2],
    taken: &mut Vec<f32>,
) -> usize {
    // The vector instructions write whole registers behind the last value.
    taken.reserve(values.len() + 32);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (groups, rest) = values.as_chunks::<16>();
        // SAFETY: the processor has the features the function is compiled for.
        let above = unsafe { avx512::between(groups, side, [low, high], taken) };
        return above + values_between_scalar(rest, side, [low, high], taken);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (groups, rest) = values.as_chunks::<32>();
        // SAFETY: as above.
        let above = unsafe { avx2::between(groups, side, [low, high], taken) };
        return above + values_between_scalar(rest, side, [low, high], taken);
    }
    values_between_scalar(values, side, [low, high], taken)
}

fn values_between_scalar(
    values: &[f32],
    side: Side,
    [low, high]: [f32; 2],
    taken: &mut Vec<f32>,
) -> usize {
    let (kept, flipped) = side.masks();
    let mut above = 0;
    for &x in values {
        let key = f32::from_bits(x.to_bits() & kept ^ flipped);
        let over = key > high;
        above += usize::from(over);
        if key > low && !over {
            taken.push(x);
        }
    }
    above
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::Side;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn between(
        groups: &[[f32; 16]],
        side: Side,
        limits: [f32; 2],
        taken: &mut Vec<f32>,
    ) -> usize {
        let [low, high] = [_mm512_set1_ps(limits[0]), _mm512_set1_ps(limits[1])];
        let (kept, flipped) = side.masks();
        let (kept, flipped) = (_mm512_set1_epi32(kept as i32), _mm512_set1_epi32(flipped as i32));
        let mut above = 0;
        for group in groups {
            // SAFETY: the group holds the sixteen floats that are read.
            let x = unsafe { _mm512_loadu_ps(group.as_ptr()) };
            let key = _mm512_xor_si512(_mm512_and_si512(_mm512_castps_si512(x), kept), flipped);
            let key = _mm512_castsi512_ps(key);
            let over = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(key, high);
            let mask = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(key, low) & !over;
            above += over.count_ones() as usize;
            // SAFETY: the caller has reserved room for all values and more than a register. The
            // length grows by the number of selected lanes.
            unsafe {
                let end = taken.as_mut_ptr().add(taken.len());
                _mm512_storeu_ps(end, _mm512_maskz_compress_ps(mask, x));
                taken.set_len(taken.len() + mask.count_ones() as usize);
            }
        }
        above
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::Side;
    use crate::kernels::compress::compress;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn between(
        groups: &[[f32; 32]],
        side: Side,
        limits: [f32; 2],
        taken: &mut Vec<f32>,
    ) -> usize {
        let [low, high] = limits.map(|limit| _mm256_set1_ps(limit));
        // Values up to the lower limit are neither taken nor counted. `min` ignores a NaN limit.
        let least = _mm256_set1_ps(limits[0].min(limits[1]));
        let (kept, flipped) = side.masks();
        let (kept, flipped) = (_mm256_set1_epi32(kept as i32), _mm256_set1_epi32(flipped as i32));
        let key = |x| _mm256_castsi256_ps(_mm256_xor_si256(_mm256_and_si256(x, kept), flipped));
        let mut above = 0;
        for group in groups {
            let (eights, _) = group.as_chunks::<8>();
            let mut any = _mm256_setzero_ps();
            for eight in eights {
                // SAFETY: the array holds the eight floats that are read.
                let x = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
                any = _mm256_or_ps(any, _mm256_cmp_ps::<_CMP_GT_OQ>(key(x), least));
            }
            if _mm256_movemask_ps(any) == 0 {
                continue;
            }
            // No branch for each eight, which would often be mispredicted.
            for eight in eights {
                // SAFETY: the array holds the eight floats that are read. The caller has reserved
                // room for all values and more than a register. The length grows by the number of
                // selected lanes.
                unsafe {
                    let x = _mm256_loadu_si256(eight.as_ptr().cast());
                    let over = _mm256_cmp_ps::<_CMP_GT_OQ>(key(x), high);
                    let mask = _mm256_andnot_ps(over, _mm256_cmp_ps::<_CMP_GT_OQ>(key(x), low));
                    let mask = _mm256_movemask_ps(mask) as u8;
                    above += _mm256_movemask_ps(over).count_ones() as usize;
                    let end = taken.as_mut_ptr().add(taken.len());
                    _mm256_storeu_si256(end.cast(), compress(x, mask));
                    taken.set_len(taken.len() + mask.count_ones() as usize);
                }
            }
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::sweep;
    use alloc::vec;

    #[test]
    fn limits_by_hand() {
        let values = [1.0, -3.0, 2.0, -2.0, 2.5, f32::NAN, 4.0, -0.0];
        let between = |side, limits| {
            let mut taken = vec![9.0];
            (values_between(&values, side, limits, &mut taken), taken)
        };
        assert_eq!(between(Side::Both, [1.0, 2.5]), (2, vec![9.0, 2.0, -2.0, 2.5]));
        assert_eq!(between(Side::Above, [1.0, 2.5]), (1, vec![9.0, 2.0, 2.5]));
        assert_eq!(between(Side::Below, [2.0, f32::MAX]), (0, vec![9.0, -3.0]));
        let all = [1.0, -3.0, 2.0, -2.0, 2.5, 4.0, -0.0];
        assert_eq!(between(Side::Both, [-1.0, f32::MAX]).1[1..], all);
    }

    #[test]
    fn values_are_those_of_a_filter() {
        sweep(|x| {
            for limits in [[0.0, 0.3], [0.3, 0.9], [-1.0, f32::MAX], [0.9, 0.3]] {
                let mut taken = Vec::new();
                let above = values_between(x, Side::Both, limits, &mut taken);
                let beyond = |limit: f32| move |x: &&f32| x.abs() > limit;
                assert_eq!(above, x.iter().filter(beyond(limits[1])).count());
                let expected = x.iter().filter(beyond(limits[0])).filter(|x| x.abs() <= limits[1]);
                assert!(taken.iter().eq(expected));
            }
        });
    }
}
