//! Lookups in four [Huffman](crate::huffman) streams at a time.
//!
//! Within a stream each lookup waits for the one before, which tells where its code starts. BMI2
//! shifts by a number in any register in one instruction.

use super::cases;
use crate::bit_io::window;
use crate::quarters::STREAMS;

/// Bits of a table's index. The compiler knows the size of such tables and omits bounds checks.
pub(crate) const TABLE_BITS: u32 = 12;
/// By the next bits: a symbol from bit 16 up, and the length of its code in the lowest byte.
pub(crate) type Singles = [u32; 1 << TABLE_BITS];
/// By the next bits: several symbols, their number in the second byte, and the length of their
/// codes in the lowest.
pub(crate) type Several = [u64; 1 << TABLE_BITS];

/// Decodes symbols of each stream, from positions in bits on, while all have whole words left, and
/// returns their numbers.
pub(crate) type LookUp<T, S> =
    fn(&T, &[u8], &mut [u64; STREAMS], &mut [&mut [S]; STREAMS]) -> [usize; STREAMS];

/// The number of lookups that one window covers.
const GROUP: usize = 4;
/// The most symbols of one byte in an entry.
const MOST: usize = 6;
/// More bytes than a group of lookups gives.
const ROOM: usize = 32;
/// The bytes that a lookup writes; those past its symbols are overwritten.
const WRITTEN: usize = 8;

/// Defines a [`LookUp`].
macro_rules! lookups {
    ($(#[$meta:meta])* $name:ident = $run:ident($table:ty) -> $symbol:ty) => {
        $(#[$meta])*
        pub(crate) fn $name(
            table: &$table,
            bytes: &[u8],
            positions: &mut [u64; STREAMS],
            parts: &mut [&mut [$symbol]; STREAMS],
        ) -> [usize; STREAMS] {
            // Not AVX-512, for which compilers turn the streams into slow vectors.
            #[cfg(target_arch = "x86_64")]
            if let Some(avx2) = super::level::used().as_avx2() {
                fearless_simd::kernel! {
                    fn with_bmi2(
                        avx2: Avx2,
                        table: &$table,
                        bytes: &[u8],
                        positions: &mut [u64; STREAMS],
                        parts: &mut [&mut [$symbol]; STREAMS],
                    ) -> [usize; STREAMS] {
                        let _ = avx2;
                        $run(table, bytes, positions, parts)
                    }
                }
                return with_bmi2(avx2, table, bytes, positions, parts);
            }
            $run(table, bytes, positions, parts)
        }
    };
}

lookups! {
    /// Looks up single symbols; each stream gives as many.
    look_up_singles = decode_singles(Singles) -> u16
}
lookups! {
    /// Looks up single symbols of one byte; each stream gives as many.
    look_up_bytes = decode_singles(Singles) -> u8
}
lookups! {
    /// Looks up one or two symbols, which are from bit 32 up.
    look_up_pairs = decode_pairs(Several) -> u16
}
lookups! {
    /// Looks up one to six symbols of one byte, which are from bit 16 up.
    look_up_sixes = decode_sixes(Several) -> u8
}

/// An integer of one or two bytes.
trait Narrow {
    fn of(symbol: u32) -> Self;
}

impl Narrow for u16 {
    #[inline(always)]
    fn of(symbol: u32) -> Self {
        symbol as u16
    }
}

impl Narrow for u8 {
    #[inline(always)]
    fn of(symbol: u32) -> Self {
        symbol as u8
    }
}

#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the streams take turns at each place")]
fn decode_singles<S: Narrow>(
    table: &Singles,
    bytes: &[u8],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [S]; STREAMS],
) -> [usize; STREAMS] {
    let parts = parts.each_mut().map(|part| part.as_chunks_mut::<GROUP>().0);
    let groups = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    for at in 0..groups {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return [at * GROUP; STREAMS] };
        // The mark shows afterwards by how many bits they were shifted.
        let mut bits = [a, b, c, d].map(|bits| bits | 1 << 63);
        for place in 0..GROUP {
            for i in 0..STREAMS {
                let entry = table[bits[i] as usize % table.len()];
                parts[i][at][place] = S::of(entry >> 16);
                // Shifts by the lowest six bits of the entry: its length.
                bits[i] = bits[i].wrapping_shr(entry);
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(bits[i].leading_zeros());
        }
    }
    [groups * GROUP; STREAMS]
}

#[inline(always)]
fn decode_pairs(
    table: &Several,
    bytes: &[u8],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u16]; STREAMS],
) -> [usize; STREAMS] {
    let mut done = [0; STREAMS];
    loop {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return done };
        if (0..STREAMS).any(|i| done[i] + 2 * GROUP > parts[i].len()) {
            return done;
        }
        let mut bits = [a, b, c, d].map(|bits| bits | 1 << 63);
        for _ in 0..GROUP {
            for i in 0..STREAMS {
                let entry = table[bits[i] as usize % table.len()];
                // The second symbol is overwritten if the entry has only one.
                let Some(place) = parts[i].get_mut(done[i]..done[i] + 2) else { return done };
                (place[0], place[1]) = ((entry >> 32) as u16, (entry >> 48) as u16);
                done[i] += (entry >> 8 & 0xff) as usize;
                bits[i] = bits[i].wrapping_shr(entry as u32);
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(bits[i].leading_zeros());
        }
    }
}

#[inline(always)]
fn decode_sixes(
    table: &Several,
    bytes: &[u8],
    positions: &mut [u64; STREAMS],
    parts: &mut [&mut [u8]; STREAMS],
) -> [usize; STREAMS] {
    const { assert!((GROUP - 1) * MOST < ROOM && MOST <= WRITTEN) };
    let mut done = [0; STREAMS];
    loop {
        let windows = positions.map(|position| window(bytes, position));
        let [Some(a), Some(b), Some(c), Some(d)] = windows else { return done };
        let [e, f, g, h] = &mut *parts;
        let (Some(e), Some(f), Some(g), Some(h)) = (
            e[done[0]..].first_chunk_mut(),
            f[done[1]..].first_chunk_mut(),
            g[done[2]..].first_chunk_mut(),
            h[done[3]..].first_chunk_mut(),
        ) else {
            return done;
        };
        let places: [&mut [u8; ROOM + WRITTEN]; STREAMS] = [e, f, g, h];
        let mut bits = [a, b, c, d].map(|bits| bits | 1 << 63);
        let mut ends = [0; STREAMS];
        for _ in 0..GROUP {
            for i in 0..STREAMS {
                let entry = table[bits[i] as usize % table.len()];
                // The remainder tells the compiler that there is room.
                let at = ends[i] % ROOM;
                places[i][at..at + WRITTEN].copy_from_slice(&(entry >> 16).to_le_bytes());
                ends[i] = at + (entry >> 8 & 0xff) as usize;
                bits[i] = bits[i].wrapping_shr(entry as u32);
            }
        }
        for i in 0..STREAMS {
            positions[i] += u64::from(bits[i].leading_zeros());
            done[i] += ends[i];
        }
    }
}

cases![
    ("look_up_singles", |input, output| {
        let entry = |symbol, length| (symbol << 16 | length) as u32;
        lookups(input, output, entry, look_up_singles);
    }),
    ("look_up_bytes", |input, output| {
        let entry = |symbol, length| (symbol << 16 | length) as u32;
        lookups(input, output, entry, look_up_bytes);
    }),
    ("look_up_pairs", |input, output| {
        let entry = |word: u64, length| word << 32 | (1 + word % 2) << 8 | length;
        lookups(input, output, entry, look_up_pairs);
    }),
    ("look_up_sixes", |input, output| {
        let entry = |word: u64, length| word << 16 | (1 + word % 6) << 8 | length;
        lookups(input, output, entry, look_up_sixes);
    }),
];
