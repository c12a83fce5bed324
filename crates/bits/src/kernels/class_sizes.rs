//! Sizes of classes of octaves.

use fearless_simd::prelude::*;

use super::octaves::{CLASSES, GROUP, Groups, Octaves};
use super::{by_width, cases, kernel};

kernel! {
    /// Counts the elements of each class.
    ///
    /// # Panics
    /// If the width is not 1, 2, 4 or 8, or the last element is incomplete.
    pub fn class_sizes(
        simd,
        octaves: &Octaves,
        base: &[u8],
    ) -> [u32; CLASSES] {
        assert!(base.len().is_multiple_of(octaves.width), "whole elements");
        by_width!(octaves.width => sizes<S>(simd, octaves, base))
    } plain {
        let mut sums = [0; CLASSES];
        octaves.each_class(base).for_each(|class| sums[class] += 1);
        sums
    }
}

/// The most groups whose elements are counted in bytes.
const COUNTED: usize = 255;

#[inline(always)]
fn sizes<S: Simd, const WIDTH: usize>(simd: S, octaves: &Octaves, base: &[u8]) -> [u32; CLASSES] {
    let bytes = S::u8s::LEN;
    let (whole, rest) = base.split_at(base.len() / (GROUP * WIDTH) * (GROUP * WIDTH));
    // By class: the elements of this class and those before.
    let mut upto = [0u32; CLASSES];
    upto[CLASSES - 1] = (base.len() / WIDTH) as u32;
    for block in whole.chunks(COUNTED * GROUP * WIDTH) {
        let (mut groups, mut counts) =
            (Groups::<WIDTH>::new(block), [[S::u8s::splat(simd, 0); 4]; CLASSES - 1]);
        for _ in block.chunks(GROUP * WIDTH) {
            let start = groups.skip();
            let found = groups.octaves(simd, octaves, start);
            for (at, part) in found.chunks_exact(bytes).enumerate() {
                let part = S::u8s::from_slice(simd, part);
                for (counts, &last) in counts.iter_mut().zip(&octaves.last) {
                    let one =
                        part.simd_le(last).select(S::u8s::splat(simd, 1), S::u8s::splat(simd, 0));
                    counts[at % 4] += one;
                }
            }
        }
        for (upto, counts) in upto.iter_mut().zip(&counts) {
            let bytes = counts.iter().flat_map(|count| count.as_slice());
            *upto += bytes.map(|&byte| u32::from(byte)).sum::<u32>();
        }
    }
    for class in octaves.each_class(rest) {
        upto[class..CLASSES - 1].iter_mut().for_each(|upto| *upto += 1);
    }
    core::array::from_fn(|class| upto[class] - if class == 0 { 0 } else { upto[class - 1] })
}

cases![("class_sizes", |input, output| {
    for octaves in octaves(input) {
        let (base, _) = versions(input, octaves.width);
        output.bits(class_sizes(&octaves, &base));
    }
    // More groups than are counted in bytes.
    let octaves = Octaves { width: 1, shift: 3, last: [4, 9, 255, 255, 255, 255, 255] };
    let base = input.elements(input.len + 40_000, |at| input.word(at) as u8);
    output.bits(class_sizes(&octaves, &base));
}),];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_by_hand() {
        // Octaves 0, 2, 7, 1, 5, 4, 0; the sign does not count.
        let octaves = Octaves { width: 1, shift: 4, last: [1, 4, 255, 255, 255, 255, 255] };
        let base = [0x0f, 0x2f, 0xff, 0x90, 0x50, 0x4f, 0x80];
        assert_eq!(class_sizes(&octaves, &base), [3, 2, 2, 0, 0, 0, 0, 0]);
        let many = base.repeat(64 * 300);
        assert_eq!(class_sizes(&octaves, &many), [57_600, 38_400, 38_400, 0, 0, 0, 0, 0]);
    }
}
