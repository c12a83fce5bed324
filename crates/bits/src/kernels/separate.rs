//! Splits a list into its symbols other than the most frequent one, and marks of their places.

/// Writes the symbols other than `common` to `others`, in order, and returns their number; the rest
/// of `others` is unspecified. A mark is 1 at the place of such a symbol, and otherwise 0.
///
/// # Panics
/// If there are not as many marks as symbols, or `others` is shorter than the list.
pub fn separate(list: &[u16], common: u16, marks: &mut [u16], others: &mut [u16]) -> usize {
    assert!(list.len() == marks.len(), "each symbol has a mark");
    assert!(list.len() <= others.len(), "there is room for every symbol");
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        // SAFETY: the processor has the features the function is compiled for, and slices are as
        // long as it requires.
        let (done, kept) = unsafe { avx512::separate(list, common, marks, others) };
        let rest = (&list[done..], &mut marks[done..], &mut others[kept..]);
        return kept + separate_scalar(rest.0, common, rest.1, rest.2);
    }
    separate_scalar(list, common, marks, others)
}

fn separate_scalar(list: &[u16], common: u16, marks: &mut [u16], others: &mut [u16]) -> usize {
    let mut kept = 0;
    for (&symbol, mark) in list.iter().zip(marks) {
        // No branch, which would be mispredicted.
        others[kept] = symbol;
        *mark = u16::from(symbol != common);
        kept += usize::from(symbol != common);
    }
    kept
}

/// Replaces each mark that is 0 by `common`, and the others, in order, by the symbols in `others`,
/// or by 0 if there are too few.
pub fn put_back(marks: &mut [u16], common: u16, others: &[u16]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (groups, rest) = marks.as_chunks_mut();
        // SAFETY: the processor has the features the function is compiled for.
        let used = unsafe { avx512::put_back(groups, common, others) };
        return put_back_scalar(rest, common, others.get(used..).unwrap_or_default());
    }
    put_back_scalar(marks, common, others);
}

fn put_back_scalar(marks: &mut [u16], common: u16, others: &[u16]) {
    let mut used = 0;
    for mark in marks {
        let other = others.get(used).copied().unwrap_or(0);
        used += usize::from(*mark != 0);
        *mark = if *mark == 0 { common } else { other };
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    /// Symbols of a register.
    const LANES: usize = 32;

    /// Separates the symbols of whole registers, and returns their number and the number of others.
    ///
    /// # Safety
    /// There are as many marks as symbols, and room for as many others.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    pub(super) unsafe fn separate(
        list: &[u16],
        common: u16,
        marks: &mut [u16],
        others: &mut [u16],
    ) -> (usize, usize) {
        let (whole, mut kept) = (list.len() / LANES * LANES, 0);
        let common = _mm512_set1_epi16(common as i16);
        for at in (0..whole).step_by(LANES) {
            // SAFETY: all slices have a register of symbols from this index on, and at most `at`
            // symbols were kept.
            unsafe {
                let symbols = _mm512_loadu_si512(list.as_ptr().add(at).cast());
                let differ = _mm512_cmpneq_epi16_mask(symbols, common);
                let ones = _mm512_maskz_set1_epi16(differ, 1);
                _mm512_storeu_si512(marks.as_mut_ptr().add(at).cast(), ones);
                let front = _mm512_maskz_compress_epi16(differ, symbols);
                _mm512_storeu_si512(others.as_mut_ptr().add(kept).cast(), front);
                kept += differ.count_ones() as usize;
            }
        }
        (whole, kept)
    }

    /// Replaces the marks of whole registers, and returns the number of others used; missing ones
    /// count and are 0.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    pub(super) fn put_back(groups: &mut [[u16; LANES]], common: u16, others: &[u16]) -> usize {
        let common = _mm512_set1_epi16(common as i16);
        let mut used = 0;
        for marks in groups {
            let others = others.get(used..).unwrap_or_default();
            let there = !u32::MAX.checked_shl(others.len() as u32).unwrap_or(0);
            // SAFETY: the array has the symbols of a register; only existing others are read.
            unsafe {
                let marked = _mm512_loadu_si512(marks.as_ptr().cast());
                let marked = _mm512_test_epi16_mask(marked, marked);
                let others = _mm512_maskz_loadu_epi16(there, others.as_ptr().cast());
                let all = _mm512_mask_expand_epi16(common, marked, others);
                _mm512_storeu_si512(marks.as_mut_ptr().cast(), all);
                used += marked.count_ones() as usize;
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn marks_and_others_by_hand() {
        let (mut marks, mut others) = ([9; 6], [9; 7]);
        assert_eq!(separate(&[5, 7, 5, 5, 0, 7], 5, &mut marks, &mut others), 3);
        assert_eq!((&others[..3], marks), (&[7, 0, 7][..], [0, 1, 0, 0, 1, 1]));
        put_back(&mut marks, 5, &[7, 0, 7]);
        assert_eq!(marks, [5, 7, 5, 5, 0, 7]);
        let mut marks = [1, 0, 8];
        put_back(&mut marks, 5, &[3]);
        assert_eq!(marks, [3, 5, 0]);
    }

    #[test]
    fn every_length_returns() {
        for len in (0..200).chain([1000]) {
            for modulus in [1, 2, 3, 17, 1000] {
                let list: Vec<u16> = (0..len).map(|i: u32| (i * i % modulus) as u16).collect();
                let (mut others, mut marks) = (list.clone(), list.clone());
                let kept = separate(&list, 1, &mut marks, &mut others);
                let plain: Vec<u16> = list.iter().copied().filter(|&symbol| symbol != 1).collect();
                assert_eq!(others[..kept], plain, "{len} modulo {modulus}");
                put_back(&mut marks, 1, &plain);
                assert_eq!(marks, list, "{len} modulo {modulus}");
            }
        }
    }
}
