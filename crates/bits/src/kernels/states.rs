//! The states of four [tANS](crate::tans) streams at a time.
//!
//! BMI2 extracts the lowest n bits of a word, or shifts by a number in any register, in one
//! instruction. Each symbol waits for the previous state, and so for these instructions.

use super::{cases, kernel};
use crate::bit_io::window;
use crate::quarters::STREAMS;

/// The number of symbols whose bits fit in a word after seven other bits.
const GROUP: usize = 4;

/// A decoder's step from a state: the symbol, the least next state, and the number of bits to read
/// and add.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Entry(u32);

/// An entry for each state. The number of states is a power of 2.
pub(crate) type Entries = [Entry; 1 << Entry::STATE_BITS];

impl Entry {
    /// Bits of a state.
    pub(crate) const STATE_BITS: u32 = 12;
    /// The place of the least next state, above the number of bits.
    const NEXT_AT: u32 = 8;
    /// The place of the symbol.
    const SYMBOL_AT: u32 = Self::NEXT_AT + Self::STATE_BITS;

    /// An entry for a symbol below 2^12 and a state after it below 2^12; up to twelve bits are
    /// read.
    pub(crate) fn new(symbol: u32, next: u32, bits: u32) -> Self {
        debug_assert!(
            symbol >> 12 == 0 && next >> Self::STATE_BITS == 0 && bits <= Self::STATE_BITS
        );
        Self(symbol << Self::SYMBOL_AT | next << Self::NEXT_AT | bits)
    }

    #[inline(always)]
    pub(crate) fn symbol(self) -> u16 {
        (self.0 >> Self::SYMBOL_AT) as u16
    }

    /// The number of bits to read.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0 & 0xff
    }

    /// The next state, if these bits follow.
    #[inline(always)]
    pub(crate) fn next(self, bits: u64) -> u32 {
        self.least_next() + (bits as u32 & !u32::MAX.wrapping_shl(self.0))
    }

    #[inline(always)]
    fn least_next(self) -> u32 {
        self.0 >> Self::NEXT_AT & ((1 << Self::STATE_BITS) - 1)
    }
}

/// An encoder's step from a state, with the number of states added, to the state that leads to it
/// by a symbol.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Transition {
    /// The state plus this is the number of bits to write, from bit 16 up.
    pub(crate) add: u32,
    /// The rest of the state plus this is the place of the next state in [`States`].
    pub(crate) find: u32,
}

/// The states of each symbol, each with the number of states added.
pub(crate) type States = [u16; 1 << Entry::STATE_BITS];

kernel! {
    /// Replaces the symbols of four streams, from the last to the first, by their code: the bits in
    /// the upper twelve bits, the first one lowest, and the number of bits in the lower four.
    /// `states` has the states after the last symbols, and gets the states before the first.
    ///
    /// # Panics
    /// If a symbol has no transition.
    pub(crate) fn encode_states(
        transitions: &[Transition],
        next: &States,
        states: &mut [u32; STREAMS],
        parts: &mut [&mut [u16]; STREAMS],
    ) {
        let step = |state: &mut u32, symbol: &mut u16| {
            let transition = transitions[usize::from(*symbol)];
            let count = state.wrapping_add(transition.add) >> 16;
            // The rest of the state is in the upper half, and the bits that leave it are at the top
            // of the lower half.
            *symbol = (*state << 16).wrapping_shr(count) as u16 | count as u16;
            let place = state.wrapping_shr(count).wrapping_add(transition.find);
            *state = u32::from(next[place as usize % next.len()]);
        };
        let together = parts.iter().map(|part| part.len()).min().unwrap_or(0);
        for (state, part) in states.iter_mut().zip(&mut *parts) {
            part[together..].iter_mut().rev().for_each(|symbol| step(state, symbol));
        }
        let [a, b, c, d] = parts.each_mut().map(|part| &mut part[..together]);
        let together = a.iter_mut().zip(b).zip(c).zip(d).rev();
        let [mut at, mut bt, mut ct, mut dt] = *states;
        for (((a, b), c), d) in together {
            step(&mut at, a);
            step(&mut bt, b);
            step(&mut ct, c);
            step(&mut dt, d);
        }
        *states = [at, bt, ct, dt];
    }
}

/// Decodes the same number of symbols of each stream while all have whole words left, and returns
/// this number.
pub(crate) fn decode_states(
    entries: &Entries,
    bytes: &[u8],
    states: &mut [u32; STREAMS],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u16]; STREAMS],
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx2) = super::level::used().as_avx2() {
        return with_bmi2(avx2, entries, bytes, states, positions, parts);
    }
    by_groups(entries, bytes, states, positions, parts, Entry::next)
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel! {
    /// [`by_groups`] with an instruction that keeps the lowest bits. AVX2: 1.15 times the speed of
    /// the portable text. AVX-512: 2.8 times, as compilers turn that text into slow vectors.
    fn with_bmi2(
        avx2: Avx2,
        entries: &Entries,
        bytes: &[u8],
        states: &mut [u32; STREAMS],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [u16]; STREAMS],
    ) -> usize {
        let _ = avx2;
        // The instruction takes the number of bits from the lowest byte.
        let next = |entry: Entry, bits: u64| {
            entry.least_next() + core::arch::x86_64::_bzhi_u32(bits as u32, entry.0)
        };
        by_groups(entries, bytes, states, positions, parts, next)
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the streams take turns at each place")]
fn by_groups(
    entries: &Entries,
    bytes: &[u8],
    states: &mut [u32; STREAMS],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u16]; STREAMS],
    next: impl Fn(Entry, u64) -> u32,
) -> usize {
    let parts = parts.each_mut().map(|part| part.as_chunks_mut::<GROUP>().0);
    let groups = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    for at in 0..groups {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return at * GROUP };
        // The mark shows afterwards by how many bits each was shifted.
        let mut bits = [a, b, c, d].map(|bits| bits | 1 << 63);
        for place in 0..GROUP {
            for i in 0..STREAMS {
                let entry = entries[states[i] as usize % entries.len()];
                parts[i][at][place] = entry.symbol();
                states[i] = next(entry, bits[i]);
                // Shifts by the lowest six bits: the number of bits read.
                bits[i] = bits[i].wrapping_shr(entry.0);
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(bits[i].leading_zeros());
        }
    }
    groups * GROUP
}

cases![("decode_states", streams), ("encode_states", states),];
