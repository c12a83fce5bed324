//! Gaps of increasing positions in [Rice code](crate::rice).
//!
//! A code starts where the previous one ends, so each shift by the length of a code delays all
//! codes after it. With BMI2 a shift is one instruction.

use core::mem;

use super::{cases, kernel};
use crate::gap_code::gap_code;
use crate::group_writer::GROUP_BITS;

/// The most positions whose codes are joined at once.
pub(crate) const JOINED: usize = 256;
/// The most bits of a code that is joined to another.
pub(crate) const SHORT: u32 = GROUP_BITS / 2;

kernel! {
    /// Writes the codes of each two positions as a [word](super::codes), or 0 if one of them has
    /// more than [`SHORT`] bits. With an odd number of positions, the last has no word. `next` is
    /// the least possible first position. Returns whether all positions increase from there.
    pub(crate) fn join_gaps(
        next: u64,
        positions: &[u32],
        parameter: u32,
        words: &mut [u64],
    ) -> bool {
        let mut gaps = [0; JOINED];
        let gaps = &mut gaps[..positions.len()];
        let increase = fill_gaps(next, positions, gaps);
        for (&[one, other], word) in gaps.as_chunks().0.iter().zip(words) {
            let ((first, start), (second, more)) = (gap_code(one, parameter), gap_code(other, parameter));
            let (bits, width) = (first | second.wrapping_shl(start), start.wrapping_add(more));
            let joined = bits.wrapping_shl(64u32.wrapping_sub(width)) | u64::from(width);
            *word = if start <= SHORT && more <= SHORT { joined } else { 0 };
        }
        increase
    }
}

/// Writes the gaps of positions, and returns whether they increase from `next` on.
#[inline(always)]
fn fill_gaps(next: u64, positions: &[u32], gaps: &mut [u32]) -> bool {
    let (Some(gap_of_first), Some(&first)) = (gaps.first_mut(), positions.first()) else {
        return true;
    };
    *gap_of_first = first.wrapping_sub(next as u32);
    let mut increase = u64::from(first) >= next;
    for (into, &[before, position]) in gaps[1..].iter_mut().zip(positions.array_windows()) {
        *into = gap(before, position);
        increase &= before < position;
    }
    increase
}

/// The number of positions between two.
#[inline(always)]
fn gap(before: u32, position: u32) -> u32 {
    position.wrapping_sub(before).wrapping_sub(1)
}

kernel! {
    /// The number of ones in the codes of increasing positions, all at least `next`.
    pub(crate) fn ones_of_gaps(next: u64, positions: &[u32], parameter: u32) -> u64 {
        let gaps = positions.array_windows().map(|&[before, position]| gap(before, position));
        let ones = gaps.map(|gap| u64::from(gap >> parameter));
        let first = positions.first().map_or(0, |&first| (u64::from(first) - next) >> parameter);
        ones.sum::<u64>() + first
    }
}

/// The most codes read before the window is filled again. Filling it for each code would delay the
/// next one.
const BETWEEN: usize = 4;
/// The largest parameter with which four codes rarely have more bits than the window.
const FOUR: u32 = 10;

/// The progress of reading positions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// The bits read.
    pub(crate) bits: u64,
    /// The least position that can follow.
    pub(crate) next: u64,
}

kernel! {
    /// Reads positions below `universe`, and returns their number. Stops before a code that is
    /// longer than a window, ends past the bytes or gives a position past the universe, or up to
    /// [`BETWEEN`] codes earlier.
    pub(crate) fn read_gaps(
        bytes: &[u8],
        parameter: u32,
        universe: u64,
        place: &mut Place,
        positions: &mut [u32],
    ) -> usize {
        let room = positions.len();
        let Some(mut lane) = Lane::at(bytes, universe, *place, positions) else { return 0 };
        if parameter <= FOUR {
            while lane.read::<BETWEEN>(parameter) {}
        } else {
            while lane.read::<2>(parameter) {}
        }
        lane.finish(place, room)
    }
}

/// A code, and the positions read from it.
struct Lane<'a> {
    window: Window<'a>,
    universe: u64,
    /// The least position that can follow.
    next: u64,
    /// Room for the positions that follow.
    positions: &'a mut [u32],
}

impl<'a> Lane<'a> {
    /// Starts at this place; `None` if the bytes end before it.
    #[inline(always)]
    fn at(bytes: &'a [u8], universe: u64, place: Place, positions: &'a mut [u32]) -> Option<Self> {
        let window = Window::at(bytes, place.bits)?;
        Some(Self { window, universe, next: place.next, positions })
    }

    /// Reads this many positions, if their codes are in the window and there is room for them.
    /// Overwrites the room in any case.
    #[inline(always)]
    fn read<const COUNT: usize>(&mut self, parameter: u32) -> bool {
        self.window.fill();
        let Some(group) = self.positions.first_chunk_mut::<COUNT>() else { return false };
        let low = (1u64 << parameter) - 1;
        let (mut inverted, mut next, mut width) = (self.window.inverted, self.next, 0);
        // An incomplete code gives a wrong position; whether all were complete is checked only
        // once.
        for into in group {
            let ones = inverted.trailing_zeros();
            inverted = inverted.wrapping_shr(ones) >> 1;
            let position =
                next.wrapping_add(!inverted & low).wrapping_add(u64::from(ones) << parameter);
            inverted >>= parameter;
            *into = position as u32;
            next = position.wrapping_add(1);
            width += ones;
        }
        width += COUNT as u32 * (1 + parameter);
        if width > self.window.filled || next > self.universe {
            return false;
        }
        self.window.skip(width);
        self.next = next;
        self.positions = &mut mem::take(&mut self.positions)[COUNT..];
        true
    }

    /// Moves the place behind the read positions, and returns their number.
    #[inline(always)]
    fn finish(self, place: &mut Place, room: usize) -> usize {
        *place = Place { bits: self.window.position(), next: self.next };
        room - self.positions.len()
    }
}

/// The next bits of bytes. Refilling needs no branch on the number of skipped bits.
struct Window<'a> {
    /// The next bits inverted, the first one lowest: leading ones are then counted as zeros, in one
    /// instruction.
    inverted: u64,
    /// The number of valid bits, up to 63; the bits above are zeros, or the inverted bits that
    /// follow.
    filled: u32,
    /// The bytes that follow.
    rest: &'a [u8],
    /// The number of all bytes.
    len: usize,
}

impl<'a> Window<'a> {
    /// Starts after this many bits; `None` if there are fewer.
    #[inline(always)]
    fn at(bytes: &'a [u8], bits: u64) -> Option<Self> {
        let rest = bytes.get((bits / 8) as usize..)?;
        let mut window = Self { inverted: 0, filled: 0, rest, len: bytes.len() };
        window.fill();
        let used = (bits % 8) as u32;
        (used <= window.filled).then(|| {
            window.skip(used);
            window
        })
    }

    /// Adds bits until at least 56 are valid, if there are as many.
    #[inline(always)]
    fn fill(&mut self) {
        let room = (63 - self.filled) / 8;
        let (word, whole) = match self.rest.first_chunk() {
            Some(bytes) => (u64::from_le_bytes(*bytes), room),
            None => last(self.rest, room),
        };
        self.inverted |= !word << self.filled;
        self.rest = &self.rest[whole as usize..];
        self.filled += 8 * whole;
    }

    #[inline(always)]
    fn skip(&mut self, bits: u32) {
        self.inverted >>= bits;
        self.filled -= bits;
    }

    /// The bits before these.
    #[inline(always)]
    fn position(&self) -> u64 {
        8 * (self.len - self.rest.len()) as u64 - u64::from(self.filled)
    }
}

/// The last bytes, up to `room` of them.
#[cold]
fn last(rest: &[u8], room: u32) -> (u64, u32) {
    let word = rest.iter().rev().fold(!0, |word, &byte| word << 8 | u64::from(byte));
    (word, room.min(rest.len() as u32))
}

cases![
    ("join_gaps", |input, output| {
        let any = input.elements(input.len.min(JOINED), |at| input.word(at));
        let mut next = 0;
        let increasing = input.elements(input.len.min(JOINED), |at| {
            // Mostly short gaps.
            next += 1 + (input.word(at) >> (9 + input.word(at + 1) % 23));
            next - 1
        });
        for (positions, next) in [(&any, u64::from(input.word(6))), (&increasing, 0)] {
            let mut words = [0; JOINED / 2];
            let increase = join_gaps(next, positions, input.word(5) % 31, &mut words);
            output.bits([u32::from(increase)]);
            output.words(&words);
        }
    }),
    ("ones_of_gaps", |input, output| {
        for parameter in [0, 4, 30] {
            let positions = input.elements(input.len, |at| input.word(at));
            let next = positions.first().map_or(0, |&first| u64::from(first / 2));
            output.words(&[ones_of_gaps(next, &positions, parameter)]);
        }
    }),
    ("read_gaps", |input, output| {
        let ones = input.elements(input.len, |at| input.word(at) as u8 | 0xfe);
        for ((bytes, parameter), bits) in [(input.bytes(), 0), (input.bytes(), 9), (ones, 3)]
            .iter()
            .flat_map(|case| [0, 3, 40, 98].map(|bits| (case, bits)))
        {
            let (mut place, mut positions) = (Place { bits, next: 3 }, input.zeros());
            let universe = u64::from(input.word(1));
            let count = read_gaps(bytes, *parameter, universe, &mut place, &mut positions);
            output.bits([count as u32, place.bits as u32, place.next as u32]);
            output.bits(positions.iter().copied());
        }
    }),
];
