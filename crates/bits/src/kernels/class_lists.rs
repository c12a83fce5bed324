//! Lists of elements or of bits, one for each class of octaves of a base.

use fearless_simd::prelude::*;

use super::classes::deposit;
use super::octaves::{CLASSES, GROUP, Groups, Octaves};
use super::{by_width, cases, kernel};

/// Bytes behind each list that [`class_split`] overwrites and [`class_join`] reads.
pub const BEHIND: usize = 64;

kernel! {
    /// Writes each element to the list of its class, in order; the class is that of the element of
    /// `base` at the same place. All lists are in `lists`: by class, `next` has the number of
    /// elements in front of the place where the next one of the class is written, and then of the
    /// place behind the last one. [`BEHIND`] bytes behind each list get any values.
    ///
    /// # Panics
    /// If `elements` and `base` have different lengths, or a list and the bytes behind it are not
    /// within `lists`.
    pub fn class_split(
        simd,
        octaves: &Octaves,
        base: &[u8],
        elements: &[u8],
        next: &mut [usize; CLASSES],
        lists: &mut [u8],
    ) {
        assert_eq!(base.len(), elements.len(), "an element for each one of the base");
        by_width!(octaves.width => split<S, _>(simd, octaves, base, elements, next, lists));
    } plain {
        for (place, element) in places(octaves, base, next).zip(elements.chunks(octaves.width)) {
            lists[octaves.width * place..][..octaves.width].copy_from_slice(element);
        }
    }
}

#[inline(always)]
fn split<S: Simd, V: SimdBase<S, ByteVector = S::u8s>, const WIDTH: usize>(
    simd: S,
    octaves: &Octaves,
    base: &[u8],
    elements: &[u8],
    next: &mut [usize; CLASSES],
    lists: &mut [u8],
) {
    let (classes, used) = (octaves.classes(), octaves.used());
    let mut groups = Groups::<WIDTH>::new(base);
    for some in elements.as_chunks::<WIDTH>().0.chunks(GROUP) {
        let group = groups.next(simd, octaves);
        // Only AVX-512 moves chosen lanes to the front in one instruction.
        if S::u8s::LEN < BEHIND || some.len() < GROUP {
            for (element, &octave) in some.iter().zip(&group.octaves) {
                let next = &mut next[usize::from(classes[usize::from(octave)]) % CLASSES];
                lists.as_chunks_mut().0[*next] = *element;
                *next += 1;
            }
            continue;
        }
        for (class, next) in next.iter_mut().enumerate().take(used) {
            let places = group.class(class);
            for (at, lanes) in some.as_flattened().chunks_exact(BEHIND).enumerate() {
                let (mask, count) = lanes_of::<S, V>(simd, places, at);
                let lanes: V = S::u8s::from_slice(simd, lanes).bitcast();
                let front: S::u8s = lanes.compress(mask).bitcast();
                front.store_slice(&mut lists[WIDTH * *next..][..BEHIND]);
                *next += count;
            }
        }
    }
}

/// The lanes of a vector of a group whose places are 1, and their number.
#[inline(always)]
fn lanes_of<S: Simd, V: SimdBase<S>>(simd: S, places: u64, vector: usize) -> (V::Mask, usize) {
    let lanes = places >> (vector * V::LEN % GROUP) & (!0 >> (GROUP - V::LEN));
    (V::Mask::from_bitmask(simd, lanes), lanes.count_ones() as usize)
}

kernel! {
    /// Reads the elements from the lists that [`class_split`] wrote, with the same `base` and
    /// `next`.
    ///
    /// # Panics
    /// As [`class_split`].
    pub fn class_join(
        simd,
        octaves: &Octaves,
        base: &[u8],
        lists: &[u8],
        next: &mut [usize; CLASSES],
        elements: &mut [u8],
    ) {
        assert_eq!(base.len(), elements.len(), "an element for each one of the base");
        by_width!(octaves.width => join<S, _>(simd, octaves, base, lists, next, elements));
    } plain {
        let elements = elements.chunks_mut(octaves.width);
        for (place, element) in places(octaves, base, next).zip(elements) {
            element.copy_from_slice(&lists[octaves.width * place..][..octaves.width]);
        }
    }
}

#[inline(always)]
fn join<S: Simd, V: SimdInt<S, ByteVector = S::u8s>, const WIDTH: usize>(
    simd: S,
    octaves: &Octaves,
    base: &[u8],
    lists: &[u8],
    next: &mut [usize; CLASSES],
    elements: &mut [u8],
) {
    let (classes, used) = (octaves.classes(), octaves.used());
    let mut groups = Groups::<WIDTH>::new(base);
    for some in elements.as_chunks_mut::<WIDTH>().0.chunks_mut(GROUP) {
        let group = groups.next(simd, octaves);
        if S::u8s::LEN < BEHIND || some.len() < GROUP {
            for (element, &octave) in some.iter_mut().zip(&group.octaves) {
                let next = &mut next[usize::from(classes[usize::from(octave)]) % CLASSES];
                *element = lists.as_chunks().0[*next];
                *next += 1;
            }
            continue;
        }
        for (at, lanes) in some.as_flattened_mut().chunks_exact_mut(BEHIND).enumerate() {
            let mut all: V = S::u8s::splat(simd, 0).bitcast();
            for (class, next) in next.iter_mut().enumerate().take(used) {
                let (mask, count) = lanes_of::<S, V>(simd, group.class(class), at);
                let front = S::u8s::from_slice(simd, &lists[WIDTH * *next..][..BEHIND]);
                all |= front.bitcast::<V>().expand(mask);
                *next += count;
            }
            all.bitcast::<S::u8s>().store_slice(lanes);
        }
    }
}

kernel! {
    /// Reads a bit for each element of `base` from the list of its class, in order. All lists are
    /// in `lists`, the first bit of a word is the lowest: by class, `next` has the place of the
    /// next bit, and then of the one behind the last. Bit i mod 64 of word i / 64 of `bits` becomes
    /// the bit of element i.
    ///
    /// # Panics
    /// If `bits` is not one word for each 64 elements, or a list does not end two words before
    /// `lists` does.
    pub fn class_bits(
        simd,
        octaves: &Octaves,
        base: &[u8],
        lists: &[u64],
        next: &mut [usize; CLASSES],
        bits: &mut [u64],
    ) {
        let groups = (base.len() / octaves.width).div_ceil(GROUP);
        assert_eq!(bits.len(), groups, "a word for each group");
        by_width!(octaves.width => join_bits<S>(simd, octaves, base, lists, next, bits));
    } plain {
        bits.fill(0);
        for (at, place) in places(octaves, base, next).enumerate() {
            bits[at / 64] |= (lists[place / 64] >> (place % 64) & 1) << (at % 64);
        }
    }
}

#[inline(always)]
fn join_bits<S: Simd, const WIDTH: usize>(
    simd: S,
    octaves: &Octaves,
    base: &[u8],
    lists: &[u64],
    next: &mut [usize; CLASSES],
    bits: &mut [u64],
) {
    let used = octaves.used();
    let mut groups = Groups::<WIDTH>::new(base);
    for bits in bits {
        let group = groups.next(simd, octaves);
        *bits = 0;
        for (class, next) in next.iter_mut().enumerate().take(used) {
            let places = group.class(class);
            let words = &lists[*next / 64..][..2];
            let both = u128::from(words[1]) << 64 | u128::from(words[0]);
            *bits |= deposit(simd, (both >> (*next % 64)) as u64, places);
            *next += places.count_ones() as usize;
        }
    }
}

/// By element of the base, the place of its class that is next.
fn places<'a>(
    octaves: &Octaves,
    base: &'a [u8],
    next: &'a mut [usize; CLASSES],
) -> impl Iterator<Item = usize> + use<'a> {
    octaves.each_class(base).map(|class| {
        next[class] += 1;
        next[class] - 1
    })
}

cases![
    ("class_split", |input, output| {
        for octaves in octaves(input) {
            let ((base, new), starts) =
                (versions(input, octaves.width), list_starts(input, &octaves));
            let (mut next, mut lists) = (starts, list_room(input, &octaves));
            class_split(&octaves, &base, &new, &mut next, &mut lists);
            for (start, end) in starts.into_iter().zip(next) {
                let list = &lists[octaves.width * start..octaves.width * end];
                output.bits(list.iter().copied());
            }
        }
    }),
    ("class_join", |input, output| {
        for octaves in octaves(input) {
            let ((base, new), starts) =
                (versions(input, octaves.width), list_starts(input, &octaves));
            let mut lists = list_room(input, &octaves);
            class_split(&octaves, &base, &new, &mut starts.clone(), &mut lists);
            let (mut next, mut back) = (starts, input.elements(new.len(), |_| 9u8));
            class_join(&octaves, &base, &lists, &mut next, &mut back);
            assert_eq!(&back[..], &new[..]);
            output.bits(next.map(|next| next as u32));
            output.bits(back.iter().copied());
        }
    }),
    ("class_bits", |input, output| {
        for octaves in octaves(input) {
            let ((base, _), mut next) =
                (versions(input, octaves.width), list_starts(input, &octaves));
            let words = next[CLASSES - 1] + input.len;
            let lists = input.elements(words / 64 + 2, |at| input.wide(at));
            let mut bits = input.elements(input.len.div_ceil(64), |_| 9u64);
            class_bits(&octaves, &base, &lists, &mut next, &mut bits);
            output.bits(next.map(|next| next as u32));
            output.words(&bits);
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_by_hand() {
        // Octaves below 2, 2 to 4, and from 5 up.
        let octaves = Octaves { width: 1, shift: 4, last: [1, 4, 255, 255, 255, 255, 255] };
        let base = [0x0f, 0x2f, 0xff, 0x90, 0x50, 0x4f, 0x80];
        let (mut next, mut lists) = ([0, 100, 200, 0, 0, 0, 0, 0], [0; 300]);
        class_split(&octaves, &base, b"abcdefg", &mut next, &mut lists);
        assert_eq!(next, [3, 102, 202, 0, 0, 0, 0, 0]);
        assert_eq!([&lists[..3], &lists[100..102], &lists[200..202]], [&b"adg"[..], b"bf", b"ce"]);
        let (mut next, mut back) = ([0, 100, 200, 0, 0, 0, 0, 0], [0; 7]);
        class_join(&octaves, &base, &lists, &mut next, &mut back);
        assert_eq!(&back, b"abcdefg");
        // The classes of the elements are 0, 1, 2, 0, 2, 1 and 0.
        let (mut next, mut bits) = ([1, 62, 70, 0, 0, 0, 0, 0], [9]);
        let lists = [0b1010 | 0b10 << 62, 0b11 << 6, 0];
        class_bits(&octaves, &base, &lists, &mut next, &mut bits);
        assert_eq!(next, [4, 64, 72, 0, 0, 0, 0, 0]);
        assert_eq!(bits, [0b111_0101]);
    }
}
