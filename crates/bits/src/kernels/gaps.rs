//! Gaps of increasing positions in [Rice code](crate::rice).
//!
//! A code starts where the one before it ends, so each shift by the length of a code delays all codes after it. With BMI2 that is one
//! instruction.

use super::vectorised;
use crate::group_writer::GROUP_BITS;
use crate::rice::code;

/// The most positions whose codes are joined at once.
pub(crate) const JOINED: usize = 256;
/// The most bits of a code that is joined to another one.
pub(crate) const SHORT: u32 = GROUP_BITS / 2;

vectorised! {
    /// Writes the codes of each two positions as a [word](super::codes), or 0 if one of them has more than [`SHORT`] bits. An odd number's
    /// last position has no word. `next` is the least position that can come first. Returns whether all positions increase from there.
    pub(crate) fn join_gaps / joined(
        next: u64,
        positions: &[u32],
        parameter: u32,
        words: &mut [u64],
    ) -> bool {
        let mut gaps = [0; JOINED];
        let gaps = &mut gaps[..positions.len()];
        let increase = fill_gaps(next, positions, gaps);
        for (&[one, other], word) in gaps.as_chunks().0.iter().zip(words) {
            let ((first, start), (second, more)) = (code(one, parameter), code(other, parameter));
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

vectorised! {
    /// The number of ones in the codes of increasing positions.
    pub(crate) fn ones_of_gaps / ones_of(positions: &[u32], parameter: u32) -> u64 {
        let gaps = positions.array_windows().map(|&[before, position]| gap(before, position));
        let ones = gaps.map(|gap| u64::from(gap >> parameter));
        ones.sum::<u64>() + positions.first().map_or(0, |&gap| u64::from(gap >> parameter))
    }
}

/// The most codes that are read until the window is filled again.
const BETWEEN: usize = 4;

/// How far positions were read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// The bits read.
    pub(crate) bits: u64,
    /// The least position that can follow.
    pub(crate) next: u64,
}

vectorised! {
    /// Reads positions below `universe`, and returns their number. Stops before a code that is longer than a window, does not end
    /// within the bytes, or is that of a position past the universe.
    pub(crate) fn read_gaps / gaps_read(
        bytes: &[u8],
        parameter: u32,
        universe: u64,
        place: &mut Place,
        positions: &mut [u32],
    ) -> usize {
        let Some(mut window) = Window::at(bytes, place.bits) else { return 0 };
        let low = (1u64 << parameter) - 1;
        let (mut next, mut count) = (place.next, 0);
        while count < positions.len() {
            window.fill();
            let before = count;
            // Filling is not needed for each code: it would delay the next one.
            for into in positions[count..].iter_mut().take(BETWEEN) {
                let ones = window.inverted.trailing_zeros();
                let width = ones + (1 + parameter);
                if width > window.filled {
                    break;
                }
                let lower = !(window.inverted >> ones >> 1) & low;
                let position = next + (u64::from(ones) << parameter | lower);
                if position >= universe {
                    break;
                }
                window.skip(width);
                *into = position as u32;
                (next, count) = (position + 1, count + 1);
            }
            if count == before {
                break;
            }
        }
        *place = Place { bits: window.position(), next };
        count
    }
}

/// The next bits of bytes. They are added without a branch that depends on how many were skipped.
struct Window<'a> {
    /// The next bits, the first one lowest, each inverted: ones are counted as zeros, in one instruction.
    inverted: u64,
    /// How many of them count, up to 63; those above are zeros, or the inverted bits that follow.
    filled: u32,
    /// The bytes that follow.
    rest: &'a [u8],
    /// The number of all bytes.
    len: usize,
}

impl<'a> Window<'a> {
    /// Starts after this many bits; `None` if there are not as many.
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

    /// Adds bits, so that 56 count at least, if there are as many.
    #[inline(always)]
    fn fill(&mut self) {
        let room = (63 - self.filled) / 8;
        let (word, whole) = match self.rest.first_chunk() {
            Some(bytes) => (u64::from_le_bytes(*bytes), room),
            None => self.last(room),
        };
        self.inverted |= !word << self.filled;
        self.rest = &self.rest[whole as usize..];
        self.filled += 8 * whole;
    }

    /// The last bytes, of which up to `room` count.
    #[cold]
    fn last(&self, room: u32) -> (u64, u32) {
        let word = self.rest.iter().rev().fold(!0, |word, &byte| word << 8 | u64::from(byte));
        (word, room.min(self.rest.len() as u32))
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
