//! Two versions of elements, of which some differ.

use alloc::vec;
use alloc::vec::Vec;

use super::input::{Input, Shifted};
use crate::kernels::{BEHIND, CLASSES, Octaves, class_ranks};

/// Elements of this width before and after a change.
pub(in crate::kernels) fn versions(input: &Input, width: usize) -> (Shifted<u8>, Shifted<u8>) {
    let byte = |at: usize| (input.word(at / 4) >> (at % 4 * 8)) as u8;
    let rare = |at: usize| u8::from(input.word(5 * at + 1).is_multiple_of(7));
    let len = width * input.len;
    (input.elements(len, byte), input.elements(len, |at| byte(at) ^ rare(at)))
}

/// Divisions of elements of each width into classes.
pub(in crate::kernels) fn octaves(input: &Input) -> [Octaves; 6] {
    let first = input.x.to_bits() as u8 % 40;
    let few = [first, first + 9, 255, 255, 255, 255, 255];
    let many = core::array::from_fn(|at| 100 + first / 2 + 4 * at as u8);
    let all = [(1, 3, few), (2, 7, few), (2, 7, many), (2, 10, few), (4, 23, many), (8, 55, many)];
    all.map(|(width, shift, last)| Octaves { width, shift, last })
}

/// Elements and those of them that change.
pub(in crate::kernels) struct Changes {
    pub(in crate::kernels) base: Shifted<u8>,
    pub(in crate::kernels) positions: Vec<u32>,
    /// The ranks of the changed elements in their order, and class by class.
    pub(in crate::kernels) ranks: Vec<u32>,
    pub(in crate::kernels) sorted: Vec<u32>,
    /// By class: where its ranks end in `sorted`.
    pub(in crate::kernels) ends: [u32; CLASSES],
    /// By class: its number of elements.
    pub(in crate::kernels) sizes: [u32; CLASSES],
}

/// Elements that change, with the ranks that the kernel gives them in two blocks.
pub(in crate::kernels) fn changes(input: &Input, octaves: &Octaves) -> Changes {
    let (base, new) = versions(input, octaves.width);
    let width = octaves.width;
    let at = |position: usize| position * width..(position + 1) * width;
    let positions = (0..input.len).filter(|&place| base[at(place)] != new[at(place)]);
    let positions: Vec<u32> = positions.map(|position| position as u32).collect();
    let (mut ranks, mut sizes) = (vec![9; positions.len()], [0; CLASSES]);
    let half = input.len / 2;
    let (first, second) = positions.split_at(positions.partition_point(|&p| (p as usize) < half));
    let (start, end) = ranks.split_at_mut(first.len());
    class_ranks(octaves, &base[..half * width], 0, first, &mut sizes, start);
    class_ranks(octaves, &base[half * width..], half as u32, second, &mut sizes, end);
    let classes: Vec<usize> = octaves.each_class(&base).collect();
    let class = |place: usize| classes[positions[place] as usize];
    let mut order: Vec<usize> = (0..positions.len()).collect();
    order.sort_by_key(|&place| class(place));
    let sorted = order.iter().map(|&place| ranks[place]).collect();
    let ends = core::array::from_fn(|end| {
        order.iter().filter(|&&place| class(place) <= end).count() as u32
    });
    Changes { base, positions, ranks, sorted, ends, sizes }
}

/// Where lists start, by class, that each have room for all elements.
pub(in crate::kernels) fn list_starts(input: &Input, octaves: &Octaves) -> [usize; CLASSES] {
    core::array::from_fn(|class| class * (input.len + BEHIND / octaves.width))
}

/// Room for these lists.
pub(in crate::kernels) fn list_room(input: &Input, octaves: &Octaves) -> Vec<u8> {
    vec![9; CLASSES * (octaves.width * input.len + BEHIND)]
}
