//! Places of elements within classes of octaves.
//!
//! The rank of an element is the number of elements of its class before it.

use fearless_simd::{prelude::*, u32x8, u64x8};

use super::octaves::{CLASSES, GROUP, Group, Groups, Octaves};
use super::{by_width, cases, kernel};

kernel! {
    /// Counts the elements of each class in each group: byte c of a group's word is the number in
    /// class c. Returns the sums.
    ///
    /// # Panics
    /// If `counts` is not one word for each group.
    pub fn class_counts(
        simd,
        octaves: &Octaves,
        base: &[u8],
        counts: &mut [u64],
    ) -> [u32; CLASSES] {
        check(octaves, base, counts.len());
        by_width!(octaves.width => count<S>(simd, octaves, base, counts))
    } plain {
        check(octaves, base, counts.len());
        let mut sums = [0; CLASSES];
        for (group, count) in base.chunks(GROUP * octaves.width).zip(counts) {
            let mut bytes = [0; CLASSES];
            octaves.each_class(group).for_each(|class| bytes[class] += 1);
            *count = u64::from_le_bytes(bytes);
            add(&mut sums, *count);
        }
        sums
    }
}

fn check(octaves: &Octaves, base: &[u8], groups: usize) {
    assert!(matches!(octaves.width, 1 | 2 | 4 | 8), "elements have 1, 2, 4 or 8 bytes");
    assert!(base.len().is_multiple_of(octaves.width), "whole elements");
    assert_eq!(groups, (base.len() / octaves.width).div_ceil(GROUP), "a word for each group");
}

#[inline(always)]
fn count<S: Simd, const WIDTH: usize>(
    simd: S,
    octaves: &Octaves,
    base: &[u8],
    counts: &mut [u64],
) -> [u32; CLASSES] {
    let mut sums = [0; CLASSES];
    let mut groups = Groups::<WIDTH>::new(base);
    for count in counts {
        *count = groups.next(simd, octaves).counts();
        add(&mut sums, *count);
    }
    sums
}

#[inline(always)]
fn add(sums: &mut [u32; CLASSES], counts: u64) {
    sums.iter_mut().zip(counts.to_le_bytes()).for_each(|(sum, count)| *sum += u32::from(count));
}

kernel! {
    /// Writes the rank of each of some elements of a block, in the order of their positions. The
    /// block begins at position `first`. `before` has, by class, the number of elements before the
    /// block, and then of those before its end.
    ///
    /// # Panics
    /// If the positions do not increase or are outside of the block, or `ranks` is not one for
    /// each.
    pub fn class_ranks(
        simd,
        octaves: &Octaves,
        base: &[u8],
        first: u32,
        positions: &[u32],
        before: &mut [u32; CLASSES],
        ranks: &mut [u32],
    ) {
        check(octaves, base, (base.len() / octaves.width).div_ceil(GROUP));
        assert_eq!(positions.len(), ranks.len(), "a rank for each position");
        let elements = Elements { first, positions, ranks };
        by_width!(octaves.width => rank<S>(simd, octaves, base, elements, before));
    } plain {
        assert_eq!(positions.len(), ranks.len(), "a rank for each position");
        let mut rest = positions.iter().zip(ranks).peekable();
        for (at, class) in (first..).zip(octaves.each_class(base)) {
            if let Some((_, rank)) = rest.next_if(|(position, _)| **position == at) {
                *rank = before[class];
            }
            before[class] += 1;
        }
        assert!(rest.next().is_none(), "positions increase within the block");
    }
}

/// Groups that are divided into classes at once, before the elements in them are ranked.
const TOGETHER: usize = 32;

/// A group, and by class the number of elements before it in this class and those before.
#[derive(Clone, Copy)]
struct Counted {
    group: Group,
    before: [u64; CLASSES],
}

/// The number of a class, of the numbers of each class and those before.
#[inline(always)]
fn difference(upto: &[u64; CLASSES], class: usize) -> u32 {
    (upto[class] - if class == 0 { 0 } else { upto[class - 1] }) as u32
}

/// Elements to be ranked.
struct Elements<'a> {
    first: u32,
    positions: &'a [u32],
    ranks: &'a mut [u32],
}

#[inline(always)]
fn rank<S: Simd, const WIDTH: usize>(
    simd: S,
    octaves: &Octaves,
    base: &[u8],
    Elements { first, positions, ranks }: Elements<'_>,
    before: &mut [u32; CLASSES],
) {
    let classes = octaves.classes();
    let mut together = [Counted { group: Group::default(), before: [0; CLASSES] }; TOGETHER];
    let (mut groups, mut at) = (Groups::<WIDTH>::new(base), 0);
    let mut sum = 0;
    let mut upto = u64x8::from_slice(
        simd,
        &before.map(|before| {
            sum += u64::from(before);
            sum
        }),
    );
    let all = base.len().div_ceil(GROUP * WIDTH);
    for start in (0..all).step_by(TOGETHER) {
        let together = &mut together[..TOGETHER.min(all - start)];
        together.iter_mut().for_each(|counted| counted.group = groups.next(simd, octaves));
        for counted in &mut *together {
            upto.store_slice(&mut counted.before);
            upto += u64x8::from_slice(simd, &counted.group.upto).count_ones();
        }
        let start = first + (GROUP * start) as u32;
        while let Some(&position) = positions.get(at) {
            let within = position.wrapping_sub(start) as usize;
            let Some(Counted { group, before }) = together.get(within / GROUP) else { break };
            let bit = within % GROUP;
            let class = usize::from(classes[usize::from(group.octaves[bit])]) % CLASSES;
            let inside = (group.class(class) & ((1 << bit) - 1)).count_ones();
            ranks[at] = difference(before, class) + inside;
            at += 1;
        }
    }
    let mut end = [0; CLASSES];
    upto.store_slice(&mut end);
    *before = core::array::from_fn(|class| difference(&end, class));
    assert_eq!(at, positions.len(), "positions increase within the block");
}

/// Ranks of elements, class by class, of which the first ones are already placed.
#[derive(Debug, Clone)]
pub struct Ranked<'a> {
    /// By class: the ranks that are not yet placed, increasing.
    rest: [&'a [u32]; CLASSES],
    /// By class: the next rank; the largest number if there is none.
    next: [u32; CLASSES],
    /// By class: the number of elements before.
    before: [u32; CLASSES],
}

impl<'a> Ranked<'a> {
    /// The ranks of each class, increasing. `ends` are where those of a class end.
    ///
    /// # Panics
    /// If the ends decrease or are past the ranks.
    pub fn new(ranks: &'a [u32], ends: [u32; CLASSES]) -> Self {
        let start = |class: usize| if class == 0 { 0 } else { ends[class - 1] as usize };
        let rest = core::array::from_fn(|class| &ranks[start(class)..ends[class] as usize]);
        let next = rest.map(|rest: &[u32]| rest.first().copied().unwrap_or(u32::MAX));
        Self { rest, next, before: [0; CLASSES] }
    }

    /// Takes the ranks of a class below `end`, and returns them as bits from the number of elements
    /// before.
    #[inline(always)]
    fn take(&mut self, class: usize, end: u32) -> u64 {
        let mut taken = 0;
        while self.next[class] < end {
            taken |= 1 << (self.next[class].wrapping_sub(self.before[class]) % 64);
            self.rest[class] = &self.rest[class][1..];
            self.next[class] = self.rest[class].first().copied().unwrap_or(u32::MAX);
        }
        taken
    }
}

kernel! {
    /// Finds the elements with the next ranks: the reverse of [`class_ranks`]. `counts` is from
    /// [`class_counts`] of the same elements. Elements may come in blocks of whole groups. Ranks
    /// that do not increase, or are not below the size of their class, set other bits or none.
    ///
    /// # Panics
    /// If `counts` or `changed` is not one word for each group.
    pub fn class_places(
        simd,
        octaves: &Octaves,
        base: &[u8],
        counts: &[u64],
        ranked: &mut Ranked<'_>,
        changed: &mut [u64],
    ) {
        check(octaves, base, counts.len());
        check(octaves, base, changed.len());
        by_width!(octaves.width => place<S>(simd, octaves, base, counts, ranked, changed));
    } plain {
        check(octaves, base, counts.len());
        check(octaves, base, changed.len());
        changed.fill(0);
        for (at, class) in octaves.each_class(base).enumerate() {
            let end = ranked.before[class] + 1;
            changed[at / GROUP] |= ranked.take(class, end) << (at % GROUP);
            ranked.before[class] = end;
        }
    }
}

#[inline(always)]
fn place<S: Simd, const WIDTH: usize>(
    simd: S,
    octaves: &Octaves,
    base: &[u8],
    counts: &[u64],
    ranked: &mut Ranked<'_>,
    changed: &mut [u64],
) {
    let mut groups = Groups::<WIDTH>::new(base);
    for (&counts, changed) in counts.iter().zip(changed) {
        let start = groups.skip();
        let mut upto = ranked.before;
        add(&mut upto, counts);
        let next = u32x8::from_slice(simd, &ranked.next);
        let mut found = next.simd_lt(u32x8::from_slice(simd, &upto)).to_bitmask();
        *changed = 0;
        if found != 0 {
            let group = groups.group(simd, octaves, start);
            while found != 0 {
                let class = found.trailing_zeros() as usize % CLASSES;
                found &= found - 1;
                let ranks = ranked.take(class, upto[class]);
                *changed |= deposit(simd, ranks, group.class(class));
            }
        }
        ranked.before = upto;
    }
}

/// Moves bit i of `bits` to the place of the i-th one of `places`.
#[inline(always)]
pub(super) fn deposit<S: Simd>(simd: S, mut bits: u64, mut places: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd.level().as_avx2() {
        return pdep(avx2, bits, places);
    }
    let _ = simd;
    let mut moved = 0;
    while bits != 0 && places != 0 {
        let skipped = bits.trailing_zeros();
        for _ in 0..skipped {
            places &= places.wrapping_sub(1);
        }
        bits >>= skipped;
        moved |= places & places.wrapping_neg();
        places &= places.wrapping_sub(1);
        bits >>= 1;
    }
    moved
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    // AVX-512 and AVX2: makes `class_places` 1.7 to 2.4 times as fast as the loop.
    #[inline]
    fn pdep(avx2: Avx2, bits: u64, places: u64) -> u64 {
        core::arch::x86_64::_pdep_u64(bits, places)
    }
);

cases![
    ("class_counts", |input, output| {
        for octaves in octaves(input) {
            let (base, _) = versions(input, octaves.width);
            let mut counts = input.elements(input.len.div_ceil(64), |_| 9u64);
            output.bits(class_counts(&octaves, &base, &mut counts));
            output.words(&counts);
        }
    }),
    ("class_ranks", |input, output| {
        for octaves in octaves(input) {
            let changes = changes(input, &octaves);
            output.bits(changes.ranks.into_iter().chain(changes.sizes));
        }
    }),
    ("class_places", |input, output| {
        for octaves in octaves(input) {
            let Changes { base, positions, sorted, ends, .. } = changes(input, &octaves);
            let mut counts = input.elements(input.len.div_ceil(64), |_| 9u64);
            class_counts(&octaves, &base, &mut counts);
            let (mut ranked, mut back) = (Ranked::new(&sorted, ends), vec![9; counts.len()]);
            let (first, second) = counts.split_at(counts.len() / 2);
            let (base, rest) = base.split_at(64 * octaves.width * first.len());
            let (start, end) = back.split_at_mut(first.len());
            class_places(&octaves, base, first, &mut ranked, start);
            class_places(&octaves, rest, second, &mut ranked, end);
            let bytes: Vec<u8> = back.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut found = Vec::new();
            ones(&bytes, 0, &mut found);
            assert_eq!(found, positions, "the ranks are those of the changed elements");
            output.bits(found);
        }
    }),
];

#[cfg(test)]
mod tests;
