//! Few elements out of many: those above a threshold in absolute value.

use alloc::vec::Vec;

use super::vectorised;

/// Takes the elements with |value| above `threshold` out of `values`: appends `base` + index and
/// value of each, in order, and leaves 0 in its place.
pub fn compact_above(
    values: &mut [f32],
    threshold: f32,
    base: u32,
    positions: &mut Vec<u32>,
    taken: &mut Vec<f32>,
) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::has_avx512() {
        let (groups, rest) = values.as_chunks_mut::<16>();
        let after = base.wrapping_add(16 * groups.len() as u32);
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::compact(groups, threshold, base, positions, taken) };
        return compact_above_scalar(rest, threshold, after, positions, taken);
    }
    compact_above_scalar(values, threshold, base, positions, taken);
}

fn compact_above_scalar(
    values: &mut [f32],
    threshold: f32,
    base: u32,
    positions: &mut Vec<u32>,
    taken: &mut Vec<f32>,
) {
    for (i, x) in values.iter_mut().enumerate() {
        if x.abs() > threshold {
            positions.push(base.wrapping_add(i as u32));
            taken.push(*x);
            *x = 0.0;
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn compact(
        groups: &mut [[f32; 16]],
        threshold: f32,
        base: u32,
        positions: &mut Vec<u32>,
        taken: &mut Vec<f32>,
    ) {
        let limit = _mm512_set1_ps(threshold);
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        for (i, group) in groups.iter_mut().enumerate() {
            // SAFETY: the group holds the sixteen floats that are read.
            let x = unsafe { _mm512_loadu_ps(group.as_ptr()) };
            let mask = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(_mm512_abs_ps(x), limit);
            if mask == 0 {
                continue;
            }
            let first = base.wrapping_add(16 * i as u32);
            let at = _mm512_add_epi32(lanes, _mm512_set1_epi32(first as i32));
            let count = mask.count_ones() as usize;
            positions.reserve(16);
            taken.reserve(16);
            // SAFETY: sixteen elements of capacity are reserved behind both lengths; whole
            // registers are stored there, and the lengths grow by the lanes that are meant. The
            // group holds the sixteen floats that are written.
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

vectorised! {
    /// The number of elements with |value| above `threshold`.
    pub fn count_above / count_above_scalar(values: &[f32], threshold: f32) -> usize {
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
    use crate::kernels::testing::{same, sweep};
    use alloc::vec;

    #[test]
    fn takes_what_is_above() {
        let mut values = [1.0, -3.0, 2.0, -2.0, 2.5];
        let (mut positions, mut taken) = (vec![9], vec![0.5]);
        compact_above(&mut values, 2.0, 100, &mut positions, &mut taken);
        assert_eq!(positions, [9, 101, 104]);
        assert_eq!(taken, [0.5, -3.0, 2.5]);
        assert_eq!(values, [1.0, 0.0, 2.0, -2.0, 0.0]);
    }

    #[test]
    fn entries_equal_their_twins() {
        sweep(|x| {
            for threshold in [0.0, 0.3, 0.9, 1e20, f32::MAX] {
                let (mut a, mut b) = (x.to_vec(), x.to_vec());
                let (mut pa, mut va, mut pb, mut vb) = (vec![], vec![], vec![], vec![]);
                compact_above(&mut a, threshold, 5, &mut pa, &mut va);
                compact_above_scalar(&mut b, threshold, 5, &mut pb, &mut vb);
                assert!(pa == pb && same(&va, &vb) && same(&a, &b));
                assert_eq!(count_above(x, threshold), pa.len());
                assert_eq!(count_above_scalar(x, threshold), pa.len());
            }
        });
    }
}
