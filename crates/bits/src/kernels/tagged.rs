//! Words stored in 0, 1, 2 or 4 bytes; a tag of two bits gives the size of each.
//!
//! Four tags share a byte, from the lowest bit up. As in Stream VByte (Lemire, Kurz, Rupp: "Stream
//! VByte: Faster Byte-Oriented Integer Compression", Information Processing Letters 130, 2018),
//! such a byte selects a permutation of 16 bytes, which packs or unpacks four words at a time.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use fearless_simd::{prelude::*, u8x16, u32x4};
#[cfg(target_arch = "x86_64")]
use {core::arch::x86_64::_mm_shuffle_epi8, fearless_simd::x86::Avx2};

use super::{cases, kernel};

/// Tags in a byte.
pub const TAGS: usize = 4;
/// Bytes of a word by its tag.
const SIZES: [u8; 4] = [0, 1, 2, 4];

/// The words of a byte of tags.
struct Group {
    /// The index of each word's first byte among the bytes of all four.
    starts: [u8; TAGS],
    /// Bytes of all four.
    size: u8,
}

static GROUPS: [Group; 256] = {
    let mut groups = [const { Group { starts: [0; TAGS], size: 0 } }; 256];
    let mut tags = 0;
    while tags < groups.len() {
        let mut at = 0;
        while at < TAGS {
            groups[tags].starts[at] = groups[tags].size;
            groups[tags].size += SIZES[tags >> (2 * at) & 3];
            at += 1;
        }
        tags += 1;
    }
    groups
};

/// A permutation of the bytes of four words.
#[repr(align(32))]
struct Permutation {
    /// For each byte of the result its place before, or 255 for a byte that is 0.
    places: [u8; 4 * TAGS],
    /// Bytes of the packed words.
    size: u8,
}

/// For each byte of tags, the permutation that packs its words.
static PACKED: [Permutation; 256] = permutations(false);
/// For each byte of tags, the permutation that unpacks its words.
static UNPACKED: [Permutation; 256] = permutations(true);

const fn permutations(unpack: bool) -> [Permutation; 256] {
    let mut all = [const { Permutation { places: [255; 4 * TAGS], size: 0 } }; 256];
    let mut tags = 0;
    while tags < all.len() {
        let Permutation { places, size } = &mut all[tags];
        let mut at = 0;
        while at < 4 * TAGS {
            if at % 4 < SIZES[tags >> (at / 4 * 2) & 3] as usize {
                let (from, to) = if unpack { (*size, at) } else { (at as u8, *size as usize) };
                places[to] = from;
                *size += 1;
            }
            at += 1;
        }
        tags += 1;
    }
    all
}

kernel! {
    /// Packs tags, which are below 4. Unused bits of the last byte are 0.
    ///
    /// # Panics
    /// If `packed` does not have a byte for every four tags, rounded up.
    pub fn pack_tags(tags: &[u8], packed: &mut [u8]) {
        assert_eq!(packed.len(), tags.len().div_ceil(TAGS));
        let pack = |tags: [u8; TAGS]| {
            let tags = u32::from_le_bytes(tags);
            (tags | tags >> 6 | tags >> 12 | tags >> 18) as u8
        };
        let (fours, rest) = tags.as_chunks();
        packed.iter_mut().zip(fours).for_each(|(byte, tags)| *byte = pack(*tags));
        if let ([_, ..], [.., last]) = (rest, packed) {
            *last = rest.iter().rev().fold(0, |byte, tag| byte << 2 | tag);
        }
    }
}

kernel! {
    /// The reverse of [`pack_tags`].
    ///
    /// # Panics
    /// If `packed` does not have a byte for every four tags, rounded up.
    pub fn unpack_tags(packed: &[u8], tags: &mut [u8]) {
        assert_eq!(packed.len(), tags.len().div_ceil(TAGS));
        let unpack = |byte: u8| {
            let byte = u32::from(byte);
            ((byte | byte << 6 | byte << 12 | byte << 18) & 0x0303_0303).to_le_bytes()
        };
        let (fours, rest) = tags.as_chunks_mut();
        packed.iter().zip(fours).for_each(|(byte, tags)| *tags = unpack(*byte));
        if let ([.., last], [_, ..]) = (packed, &*rest) {
            let len = rest.len();
            rest.copy_from_slice(&unpack(*last)[..len]);
        }
    }
}

kernel! {
    /// The number of bytes of words with these packed tags.
    pub fn tagged_len(packed: &[u8]) -> usize {
        // The size is the tag, plus one for a tag of 3. Each half of a byte has two sizes, whose
        // sum is at most 8.
        let size = |tags: u8| {
            let (low, high) = (tags & 0x55, tags >> 1 & 0x55);
            let in_halves = |bits: u8| (bits & 0x33) + (bits >> 2 & 0x33);
            let halves = in_halves(low) + 2 * in_halves(high) + in_halves(low & high);
            (halves & 15) + (halves >> 4)
        };
        let of_stretch = |stretch: &[u8]| stretch.iter().map(|&tags| u32::from(size(tags))).sum::<u32>();
        packed.chunks(1 << 20).map(|stretch| of_stretch(stretch) as usize).sum()
    }
}

kernel! {
    /// Appends the lowest bytes of words; their packed tags give the numbers of bytes.
    ///
    /// # Panics
    /// If `packed` does not have a byte for every four words, rounded up.
    pub fn pack_tagged(simd, packed: &[u8], words: &[u32], out: &mut Vec<u8>) {
        assert_eq!(packed.len(), words.len().div_ceil(TAGS));
        let (fours, rest) = words.as_chunks::<TAGS>();
        out.reserve(4 * words.len());
        let (mut len, room) = (0, out.spare_capacity_mut());
        for (&tags, four) in packed.iter().zip(fours) {
            // SAFETY: sixteen bytes are reserved for each group, and earlier ones took no more.
            let place = unsafe { &mut *room.as_mut_ptr().add(len).cast() };
            len += usize::from(pack_four(simd, usize::from(tags), four, place));
        }
        // SAFETY: each group wrote at least the bytes that it counts, behind those of the last.
        unsafe { out.set_len(out.len() + len) };
        plain(&packed[fours.len()..], rest, out);
    } plain {
        for (&tags, words) in packed.iter().zip(words.chunks(TAGS)) {
            for (at, word) in words.iter().enumerate() {
                let size = SIZES[usize::from(tags >> (2 * at) & 3)];
                out.extend_from_slice(&word.to_le_bytes()[..usize::from(size)]);
            }
        }
    }
}

/// Whether a set permutes bytes in one instruction.
#[inline(always)]
fn permutes<S: Simd>() -> bool {
    // SSE2 does not.
    cfg!(not(target_arch = "x86_64")) || S::u8s::LEN > 16
}

/// Packs four words, overwrites bytes behind them, and returns their number of bytes.
#[inline(always)]
fn pack_four<S: Simd>(
    simd: S,
    tags: usize,
    words: &[u32; TAGS],
    room: &mut [MaybeUninit<u8>; 4 * TAGS],
) -> u8 {
    if permutes::<S>() {
        let Permutation { places, size } = &PACKED[tags];
        let bytes: u8x16<S> = u32x4::from_slice(simd, words).bitcast();
        *room = bytes.swizzle_dyn(*places).to_array().map(MaybeUninit::new);
        *size
    } else {
        let Group { starts, size } = &GROUPS[tags];
        for (&start, word) in starts.iter().zip(words) {
            room[usize::from(start)..][..4].write_copy_of_slice(&word.to_le_bytes());
        }
        *size
    }
}

kernel! {
    /// Reads words whose sizes are given by packed tags, and returns the number of their bytes.
    ///
    /// # Panics
    /// If `packed` does not have a byte for every four words, rounded up, or if there are fewer
    /// bytes than [`tagged_len`] says.
    pub fn unpack_tagged(
        simd,
        packed: &[u8],
        bytes: &[u8],
        words: &mut [u32],
    ) -> usize {
        assert_eq!(packed.len(), words.len().div_ceil(TAGS));
        if !permutes::<S>() {
            return plain(packed, bytes, words);
        }
        let (mut groups, mut used) = (0, 0);
        for (&tags, four) in packed.iter().zip(words.as_chunks_mut::<TAGS>().0) {
            let Some(packed) = bytes[used..].first_chunk::<{ 4 * TAGS }>() else { break };
            let Permutation { places, size } = &UNPACKED[usize::from(tags)];
            let words = unpack_four(simd, packed, places);
            words.bitcast::<u32x4<S>>().store_slice(four);
            used += usize::from(*size);
            groups += 1;
        }
        used + plain(&packed[groups..], &bytes[used..], &mut words[groups * TAGS..])
    } plain {
        const MASKS: [u32; 4] = [0, 0xff, 0xffff, u32::MAX];
        let (mut rest, mut end) = (bytes, [0; 4 * TAGS]);
        for (&tags, words) in packed.iter().zip(words.chunks_mut(TAGS)) {
            let Group { starts, size } = &GROUPS[usize::from(tags)];
            let after =
                rest.get(usize::from(*size)..).expect("there are the bytes that the tags require");
            let group: &[u8; 4 * TAGS] = rest.first_chunk().unwrap_or_else(|| {
                end[..rest.len()].copy_from_slice(rest);
                &end
            });
            for (at, word) in words.iter_mut().enumerate() {
                let own = group[usize::from(starts[at])..].first_chunk();
                let own = u32::from_le_bytes(*own.expect("the last begins four bytes before the end"));
                *word = own & MASKS[usize::from(tags >> (2 * at) & 3)];
            }
            rest = after;
        }
        bytes.len() - rest.len()
    }
}

/// Moves bytes to their places; the places 255 give 0.
#[inline(always)]
fn unpack_four<S: Simd>(simd: S, bytes: &[u8; 4 * TAGS], places: &[u8; 4 * TAGS]) -> u8x16<S> {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = simd.level().as_avx2() {
        // 1.3 times as fast as the portable text, which gives 0 for all places from 16 on.
        return u8x16::from_slice(simd, shuffle(avx2, bytes, places).as_slice());
    }
    u8x16::from_slice(simd, bytes).swizzle_dyn_precise(*places)
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    #[inline(always)]
    fn shuffle(avx2: Avx2, bytes: &[u8; 4 * TAGS], places: &[u8; 4 * TAGS]) -> u8x16<Avx2> {
        let [bytes, places] = [bytes, places].map(|all| u8x16::load_array_ref(avx2, all).into());
        _mm_shuffle_epi8(bytes, places).simd_into(avx2)
    }
);

cases![
    ("pack_tags", |input, output| {
        let tags = input.elements(input.len, |at| input.word(at) as u8 % 4);
        let mut packed = input.elements(input.len.div_ceil(4), |_| 0);
        pack_tags(&tags, &mut packed);
        output.bits(packed.iter().copied());
    }),
    ("unpack_tags", |input, output| {
        let (packed, mut tags) = (tags(input), input.zeros());
        unpack_tags(&packed, &mut tags);
        output.bits(tags.iter().copied());
    }),
    ("tagged_len", |input, output| output.bits([tagged_len(&tags(input)) as u32])),
    ("pack_tagged", |input, output| {
        let mut bytes = Vec::new();
        pack_tagged(&tags(input), &input.draws(), &mut bytes);
        output.bits(bytes);
    }),
    ("unpack_tagged", |input, output| {
        let packed = tags(input);
        for more in [0, 20] {
            let bytes = input.elements(tagged_len(&packed) + more, |at| input.word(at) as u8);
            let mut words = input.zeros();
            output.bits([unpack_tagged(&packed, &bytes, &mut words) as u32]);
            output.bits(words.iter().copied());
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_hand() {
        // Tags 3, 0, 1, 2 and 1: 10 01 00 11, 01.
        let (tags, words) = ([3, 0, 1, 2, 1], [0x1234_5678, 0, 0xab, 0xcdef, 7]);
        let mut packed = [9; 2];
        pack_tags(&tags, &mut packed);
        assert_eq!(packed, [0b10_01_00_11, 0b01]);
        assert_eq!(tagged_len(&packed), 8);
        let mut bytes = alloc::vec![5];
        pack_tagged(&packed, &words, &mut bytes);
        assert_eq!(bytes, [5, 0x78, 0x56, 0x34, 0x12, 0xab, 0xef, 0xcd, 7]);
        let (mut back, mut found) = ([9; 5], [9; 5]);
        unpack_tags(&packed, &mut back);
        assert_eq!(back, tags);
        // A following byte does not belong to them.
        bytes.push(1);
        assert_eq!(unpack_tagged(&packed, &bytes[1..], &mut found), 8);
        assert_eq!(found, words);
    }

    #[test]
    fn every_group_returns() {
        let words = [0xffff_fff1, 0xffff_fff2, 0xffff_fff3, 0xffff_fff4];
        for packed in (0..=255).map(|byte| [byte; 7]) {
            let words = [words; 7].concat();
            let mut bytes = Vec::new();
            pack_tagged(&packed, &words, &mut bytes);
            assert_eq!(bytes.len(), tagged_len(&packed));
            let (mut tags, mut back) = ([0; 28], [0; 28]);
            unpack_tags(&packed, &mut tags);
            assert_eq!(unpack_tagged(&packed, &bytes, &mut back), bytes.len());
            for (at, &tag) in tags.iter().enumerate() {
                let mask = [0, 0xff, 0xffff, u32::MAX][usize::from(tag)];
                assert_eq!(back[at], words[at] & mask, "{packed:?} at {at}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "the tags require")]
    fn missing_bytes_are_refused() {
        unpack_tagged(&[0b11], &[1, 2, 3], &mut [0]);
    }
}
