//! Octaves of elements, and their classes, in groups of 64 elements.
//!
//! The octave of an element is the upper bits of its exponent, at most eight. Classes are intervals
//! of octaves.

use fearless_simd::prelude::*;

use super::prefetch::prefetch_line;

/// The most classes.
pub const CLASSES: usize = 8;

/// The elements of a group; the last one may have fewer.
pub(super) const GROUP: usize = 64;

/// How elements are divided into classes.
#[derive(Debug, Clone, Copy)]
pub struct Octaves {
    /// Bytes of an element: 1, 2, 4 or 8.
    pub width: usize,
    /// The bits of an element below the octave. The octave is the bits from there up to the sign
    /// bit, which is the uppermost one; at most eight.
    pub shift: u32,
    /// The last octave of each class but the last one, increasing; 255 for classes that are not
    /// used.
    pub last: [u8; CLASSES - 1],
}

impl Octaves {
    /// By octave: its class.
    pub fn classes(&self) -> [u8; 256] {
        core::array::from_fn(|octave| self.class(octave as u8) as u8)
    }

    /// The class of an octave.
    fn class(&self, octave: u8) -> usize {
        self.last.iter().filter(|&&last| octave > last).count()
    }

    /// The number of classes in use.
    pub fn used(&self) -> usize {
        1 + self.last.iter().filter(|&&last| last < 255).count()
    }

    /// The octave of an element.
    #[inline]
    pub fn of(&self, element: u64) -> u8 {
        let below_sign = 8 * self.width as u32 - 1;
        ((element & ((1 << below_sign) - 1)) >> self.shift) as u8
    }

    /// The class of each element, one by one.
    pub(super) fn each_class<'a>(
        &self,
        elements: &'a [u8],
    ) -> impl Iterator<Item = usize> + use<'a> {
        let octaves = *self;
        elements.chunks_exact(octaves.width).map(move |element| {
            let element = element.iter().rfold(0, |all, &byte| all << 8 | u64::from(byte));
            octaves.class(octaves.of(element))
        })
    }
}

/// The groups of a list of elements, one after another.
pub(super) struct Groups<'a, const WIDTH: usize> {
    base: &'a [u8],
    start: usize,
    /// The elements of the last group, if they are fewer.
    last: [[u8; WIDTH]; GROUP],
}

impl<'a, const WIDTH: usize> Groups<'a, WIDTH> {
    /// Bytes from a group that is read to the one that is asked for.
    const AHEAD: usize = 4096;
    const BYTES: usize = GROUP * WIDTH;

    #[inline(always)]
    pub(super) fn new(base: &'a [u8]) -> Self {
        let (mut last, rest) = ([[0; WIDTH]; GROUP], base.len() % Self::BYTES);
        last.as_flattened_mut()[..rest].copy_from_slice(&base[base.len() - rest..]);
        Self { base, start: 0, last }
    }

    /// The next group, of which there must be one.
    #[inline(always)]
    pub(super) fn next<S: Simd>(&mut self, simd: S, octaves: &Octaves) -> Group {
        let group = self.skip();
        self.group(simd, octaves, group)
    }

    /// Skips a group, and asks for a later one.
    #[inline(always)]
    pub(super) fn skip(&mut self) -> usize {
        for line in 0..WIDTH {
            prefetch_line(self.base, self.start + Self::AHEAD + 64 * line);
        }
        let start = self.start;
        self.start += Self::BYTES;
        start
    }

    /// The octaves of the whole group that starts at this byte.
    #[inline(always)]
    pub(super) fn octaves<S: Simd>(&self, simd: S, octaves: &Octaves, start: usize) -> [u8; GROUP] {
        octaves_of::<S, WIDTH>(simd, &self.base[start..start + Self::BYTES], octaves.shift)
    }

    /// The group that starts at this byte.
    #[inline(always)]
    pub(super) fn group<S: Simd>(&self, simd: S, octaves: &Octaves, start: usize) -> Group {
        match self.base.get(start..start + Self::BYTES) {
            Some(group) => Group::new::<S, WIDTH>(simd, octaves, group),
            None => {
                let mut group = Group::new::<S, WIDTH>(simd, octaves, self.last.as_flattened());
                let len = (self.base.len() - start) / WIDTH;
                group.upto.iter_mut().for_each(|upto| *upto &= (1 << len) - 1);
                group
            }
        }
    }
}

/// A group of elements.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) octaves: [u8; GROUP],
    /// By class: the elements of this class and those before it.
    pub(super) upto: [u64; CLASSES],
}

impl Group {
    #[inline(always)]
    fn new<S: Simd, const WIDTH: usize>(simd: S, octaves: &Octaves, group: &[u8]) -> Self {
        let found = octaves_of::<S, WIDTH>(simd, group, octaves.shift);
        let mut upto = [!0; CLASSES];
        for (upto, &last) in upto.iter_mut().zip(&octaves.last) {
            let parts = found.chunks_exact(S::u8s::LEN).enumerate();
            *upto = parts.fold(0, |ones, (at, part)| {
                let part = S::u8s::from_slice(simd, part).simd_le(last);
                ones | part.to_bitmask() << (at * S::u8s::LEN % 64)
            });
        }
        Self { octaves: found, upto }
    }

    /// The number of elements of each class, a byte each.
    #[inline(always)]
    pub(super) fn counts(&self) -> u64 {
        let upto = u64::from_le_bytes(self.upto.map(|upto| upto.count_ones() as u8));
        // No byte is below the one before it, so none borrows.
        upto - (upto << 8)
    }

    /// The elements of a class.
    #[inline(always)]
    pub(super) fn class(&self, class: usize) -> u64 {
        self.upto[class] & !(if class == 0 { 0 } else { self.upto[class - 1] })
    }
}

/// The octaves of 64 elements.
#[inline(always)]
fn octaves_of<S: Simd, const WIDTH: usize>(simd: S, group: &[u8], shift: u32) -> [u8; GROUP] {
    let bytes = S::u8s::LEN;
    let load = |at: usize| S::u8s::from_slice(simd, &group[at * bytes..(at + 1) * bytes]);
    let two = |at: usize| (load(at).bitcast::<S::u16s>() & 0x7fff) >> shift;
    let four = |at: usize| (load(at).bitcast::<S::u32s>() & 0x7fff_ffff) >> shift;
    let mut octaves = [0; GROUP];
    for (at, out) in octaves.chunks_exact_mut(bytes).enumerate() {
        let vector = match WIDTH {
            1 => (load(at) & 0x7f) >> shift,
            2 => two(2 * at).narrow(two(2 * at + 1)),
            4 => {
                let half = |at| four(at).narrow(four(at + 1));
                half(4 * at).narrow(half(4 * at + 2))
            }
            _ => {
                let (low, high) = (8 * at, 8 * at + 4);
                eights::<S>(simd, group, low, shift).narrow(eights::<S>(simd, group, high, shift))
            }
        };
        vector.store_slice(out);
    }
    octaves
}

/// The octaves of the elements of four vectors, of eight bytes each.
#[inline(always)]
fn eights<S: Simd>(simd: S, group: &[u8], first: usize, shift: u32) -> S::u16s {
    // Not `array::from_fn`: the compiler would leave its closure without the set's instructions.
    let mut parts = [S::u64s::splat(simd, 0); 4];
    for (at, part) in parts.iter_mut().enumerate() {
        let bytes = &group[(first + at) * S::u8s::LEN..][..S::u8s::LEN];
        *part = (S::u8s::from_slice(simd, bytes).bitcast::<S::u64s>() & (!0 >> 1)) >> shift;
    }
    let [a, b, c, d] = parts;
    a.narrow(b).narrow(c.narrow(d))
}

/// A group without elements.
impl Default for Group {
    fn default() -> Self {
        Self { octaves: [0; GROUP], upto: [0; CLASSES] }
    }
}
