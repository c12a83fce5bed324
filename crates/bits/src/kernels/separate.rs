//! Splits a list into its symbols other than the most frequent one, and marks of their places.

use fearless_simd::prelude::*;
use fearless_simd::{u16x8, u16x32};

use super::{cases, kernel};

kernel! {
    /// Writes the symbols other than `common` to `others`, in order, and returns their number; the
    /// rest of `others` is unspecified. A mark is 1 at the place of such a symbol, and otherwise 0.
    ///
    /// # Panics
    /// If there are not as many marks as symbols, or `others` is shorter than the list.
    pub fn separate(
        simd,
        list: &[u16],
        common: u16,
        marks: &mut [u16],
        others: &mut [u16],
    ) -> usize {
        assert!(list.len() == marks.len(), "each symbol has a mark");
        assert!(list.len() <= others.len(), "there is room for every symbol");
        match S::u16s::LEN {
            32 => separate_vectors::<S, u16x32<S>>(simd, list, common, marks, others),
            16 => separate_vectors::<S, u16x8<S>>(simd, list, common, marks, others),
            _ => plain_separate(list, common, marks, others),
        }
    } plain {
        plain_separate(list, common, marks, others)
    }
}

#[inline(always)]
fn separate_vectors<S: Simd, V: SimdBase<S, Element = u16>>(
    simd: S,
    list: &[u16],
    common: u16,
    marks: &mut [u16],
    others: &mut [u16],
) -> usize {
    let (mut kept, whole) = (0, list.len() / V::LEN * V::LEN);
    let [zero, one, common_lanes] = [0, 1, common].map(|x| V::splat(simd, x));
    for (list, marks) in list.chunks_exact(V::LEN).zip(marks.chunks_exact_mut(V::LEN)) {
        let symbols = V::from_slice(simd, list);
        let differ = symbols.simd_ne(common_lanes);
        differ.select(one, zero).store_slice(marks);
        symbols.compress(differ).store_slice(&mut others[kept..kept + V::LEN]);
        kept += differ.to_bitmask().count_ones() as usize;
    }
    kept + plain_separate(&list[whole..], common, &mut marks[whole..], &mut others[kept..])
}

fn plain_separate(list: &[u16], common: u16, marks: &mut [u16], others: &mut [u16]) -> usize {
    let mut kept = 0;
    for (&symbol, mark) in list.iter().zip(marks) {
        // No branch, which would be mispredicted.
        others[kept] = symbol;
        *mark = u16::from(symbol != common);
        kept += usize::from(symbol != common);
    }
    kept
}

kernel! {
    /// Replaces each mark that is 0 by `common`, and the others, in order, by the symbols in
    /// `others`, or by 0 if there are too few.
    pub fn put_back(simd, marks: &mut [u16], common: u16, others: &[u16]) {
        match S::u16s::LEN {
            32 => put_back_vectors::<S, u16x32<S>>(simd, marks, common, others),
            16 => put_back_vectors::<S, u16x8<S>>(simd, marks, common, others),
            _ => plain_put_back(marks, common, others),
        }
    } plain {
        plain_put_back(marks, common, others);
    }
}

#[inline(always)]
fn put_back_vectors<S: Simd, V: SimdBase<S, Element = u16>>(
    simd: S,
    marks: &mut [u16],
    common: u16,
    mut others: &[u16],
) {
    let common_lanes = V::splat(simd, common);
    // The symbols of the last vectors, and zeros.
    let mut last = [0; 64];
    let mut groups = marks.chunks_exact_mut(V::LEN);
    for marks in &mut groups {
        if others.len() < V::LEN {
            last[..others.len()].copy_from_slice(others);
            last[others.len()..].fill(0);
        }
        let next = others.get(..V::LEN).unwrap_or(&last[..V::LEN]);
        let marked = V::from_slice(simd, marks).simd_ne(0);
        V::from_slice(simd, next).expand_merge(marked, common_lanes).store_slice(marks);
        let used = marked.to_bitmask().count_ones() as usize;
        others = others.get(used..).unwrap_or_default();
    }
    plain_put_back(groups.into_remainder(), common, others);
}

fn plain_put_back(marks: &mut [u16], common: u16, others: &[u16]) {
    let mut used = 0;
    for mark in marks {
        let other = others.get(used).copied().unwrap_or(0);
        used += usize::from(*mark != 0);
        *mark = if *mark == 0 { common } else { other };
    }
}

cases![
    ("separate", |input, output| {
        let list = input.elements(input.len, |at| (input.word(at) % 3) as u16);
        let (mut marks, mut others) = (input.symbols(), input.symbols());
        let kept = separate(&list, 0, &mut marks, &mut others);
        output.bits(others[..kept].iter().chain(marks.iter()).copied());
    }),
    ("put_back", |input, output| {
        let mut marks = input.elements(input.len, |at| (input.word(at) % 3) as u16);
        // Enough for the marks, or too few.
        let others = &input.symbols()[..input.word(1) as usize % (input.len + 1)];
        put_back(&mut marks, 7, others);
        output.bits(marks.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

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
}
