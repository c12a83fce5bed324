//! Differences of the bit patterns of elements, as zigzag numbers.
//!
//! The difference d modulo 2^bits is the number 2·d, or −1 − 2·d if d is negative, so small
//! differences have small numbers.

use super::{cases, kernel};

/// Defines the kernels for elements of one width.
macro_rules! zigzags {
    ($zigzags:ident, $moved:ident, $unsigned:ty, $signed:ty, $width:literal) => {
        #[inline(always)]
        fn $zigzags(base: &[u8], new: &[u8], zigzags: &mut [u8]) {
            let pairs = base.as_chunks::<$width>().0.iter().zip(new.as_chunks::<$width>().0);
            for ((base, new), out) in pairs.zip(zigzags.as_chunks_mut::<$width>().0) {
                let [base, new] = [base, new].map(|bytes| <$unsigned>::from_le_bytes(*bytes));
                let difference = new.wrapping_sub(base) as $signed;
                *out = (difference << 1 ^ difference >> (<$signed>::BITS - 1)).to_le_bytes();
            }
        }

        #[inline(always)]
        fn $moved(base: &[u8], zigzags: &[u8], new: &mut [u8]) {
            let pairs = base.as_chunks::<$width>().0.iter().zip(zigzags.as_chunks::<$width>().0);
            for ((base, zigzag), out) in pairs.zip(new.as_chunks_mut::<$width>().0) {
                let [base, zigzag] = [base, zigzag].map(|bytes| <$unsigned>::from_le_bytes(*bytes));
                let difference = zigzag >> 1 ^ (zigzag & 1).wrapping_neg();
                *out = base.wrapping_add(difference).to_le_bytes();
            }
        }
    };
}

zigzags!(zigzags_1, moved_1, u8, i8, 1);
zigzags!(zigzags_2, moved_2, u16, i16, 2);
zigzags!(zigzags_4, moved_4, u32, i32, 4);
zigzags!(zigzags_8, moved_8, u64, i64, 8);

kernel! {
    /// Writes the zigzag number of `new` − `base` for each element of `width` bytes.
    ///
    /// # Panics
    /// If the width is not 1, 2, 4 or 8, or the lengths differ.
    pub fn zigzags(width: usize, base: &[u8], new: &[u8], zigzags: &mut [u8]) {
        check(base.len(), new.len(), zigzags.len());
        match width {
            1 => zigzags_1(base, new, zigzags),
            2 => zigzags_2(base, new, zigzags),
            4 => zigzags_4(base, new, zigzags),
            8 => zigzags_8(base, new, zigzags),
            _ => panic!("elements have 1, 2, 4 or 8 bytes"),
        }
    }
}

kernel! {
    /// Writes `base` plus the difference of each zigzag number: the reverse of [`zigzags`].
    ///
    /// # Panics
    /// As [`zigzags`].
    pub fn add_zigzags(width: usize, base: &[u8], zigzags: &[u8], new: &mut [u8]) {
        check(base.len(), zigzags.len(), new.len());
        match width {
            1 => moved_1(base, zigzags, new),
            2 => moved_2(base, zigzags, new),
            4 => moved_4(base, zigzags, new),
            8 => moved_8(base, zigzags, new),
            _ => panic!("elements have 1, 2, 4 or 8 bytes"),
        }
    }
}

fn check(base: usize, others: usize, out: usize) {
    assert!(base == others && base == out, "all have the same elements");
}

cases![
    ("zigzags", |input, output| {
        for width in [1, 2, 4, 8] {
            let (base, new) = versions(input, width);
            let mut out = input.elements(base.len(), |_| 9u8);
            zigzags(width, &base, &new, &mut out);
            output.bits(out.iter().copied());
        }
    }),
    ("add_zigzags", |input, output| {
        for width in [1, 2, 4, 8] {
            let (base, new) = versions(input, width);
            let mut out = input.elements(base.len(), |_| 9u8);
            add_zigzags(width, &base, &new, &mut out);
            output.bits(out.iter().copied());
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_by_hand() {
        let (base, new) = ([5, 5, 5, 5, 0xff, 0, 0], [5, 4, 6, 2, 0, 0x7f, 0x80]);
        let mut out = [9; 7];
        zigzags(1, &base, &new, &mut out);
        assert_eq!(out, [0, 1, 2, 5, 2, 0xfe, 0xff]);
        let mut back = [9; 7];
        add_zigzags(1, &base, &out, &mut back);
        assert_eq!(back, new);
        // 0x00ff + 1 carries; 0x0100 − 0x0101 is negative.
        let (base, new) = ([0xff, 0, 1, 1], [0, 1, 0, 1]);
        let mut out = [9; 4];
        zigzags(2, &base, &new, &mut out);
        assert_eq!(out, [2, 0, 1, 0]);
        let mut back = [9; 4];
        add_zigzags(2, &base, &out, &mut back);
        assert_eq!(back, new);
    }
}
