//! Two versions of elements, of which some differ.

use alloc::vec;
use alloc::vec::Vec;

use super::input::{Input, Shifted};
use crate::kernels::{CLASSES, Octaves, Ranks, changed, class_counts, class_ranks};

/// Elements of this width before and after a change.
pub(super) fn versions(input: &Input, width: usize) -> (Shifted<u8>, Shifted<u8>) {
    let byte = |at: usize| (input.word(at / 4) >> (at % 4 * 8)) as u8;
    let rare = |at: usize| u8::from(input.word(5 * at + 1).is_multiple_of(7));
    let len = width * input.len;
    (input.elements(len, byte), input.elements(len, |at| byte(at) ^ rare(at)))
}

/// Divisions of elements of each width into classes.
pub(super) fn octaves(input: &Input) -> [Octaves; 6] {
    let first = input.x.to_bits() as u8 % 40;
    let few = [first, first + 9, 255, 255, 255, 255, 255];
    let many = core::array::from_fn(|at| 100 + first / 2 + 4 * at as u8);
    let all = [(1, 3, few), (2, 7, few), (2, 7, many), (2, 10, few), (4, 23, many), (8, 55, many)];
    all.map(|(width, shift, last)| Octaves { width, shift, last })
}

/// Ranks of the elements that differ.
pub(super) struct Ranked {
    pub(super) sizes: [u32; CLASSES],
    /// By class: the place after its last rank.
    pub(super) next: [u32; CLASSES],
    pub(super) ranks: Vec<u32>,
    pub(super) places: Vec<u32>,
}

/// Ranks of the elements that differ, the elements before, and the bits of those that differ.
pub(super) fn ranks(input: &Input, octaves: &Octaves) -> (Ranked, Shifted<u8>, Shifted<u64>) {
    let (base, new) = versions(input, octaves.width);
    let mut bits = input.elements(input.len.div_ceil(64), |_| 9u64);
    let count = changed(octaves.width, &base, &new, &mut bits);
    let each: Vec<u8> = (0..input.len)
        .filter(|at| bits[at / 64] >> (at % 64) & 1 == 1)
        .flat_map(|at| base[at * octaves.width..(at + 1) * octaves.width].to_vec())
        .collect();
    let sizes = class_counts(octaves, &each, &mut vec![0; count.div_ceil(64)]);
    let next = core::array::from_fn(|class| sizes[..class].iter().sum());
    let (mut ranks, mut places) = (vec![9; count], vec![9; count]);
    let mut out = Ranks { next, ranks: &mut ranks, places: &mut places };
    let sizes = class_ranks(octaves, &base, &bits, &mut out);
    let next = out.next;
    (Ranked { sizes, next, ranks, places }, base, bits)
}
