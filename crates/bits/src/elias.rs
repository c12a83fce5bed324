//! Elias' universal codes of positive integers: γ, δ and ω.
//!
//! With N = ⌊log2 x⌋, and binary numbers with their highest bit first:
//! - **γ** writes N zeros, then x in N + 1 bits: 2N + 1 bits.
//! - **δ** writes N + 1 in γ, then x without its highest bit: N + 2⌊log2(N + 1)⌋ + 1 bits.
//! - **ω** writes groups and a final zero. The last group is x; each earlier group is the number of
//!   bits of the next group minus one, down to 1, which is not written.
//!
//! The first bit of a code is the lowest free bit of a byte, as in all codes of this crate. The bits
//! of a number come highest first, as in Elias' paper; ω needs this to distinguish a group from the
//! final zero.
//!
//! Range: 1 to 2^64 − 1. Cost: the code of 1 has 1 bit. γ is the shortest up to 31 (ω is as short
//! for 2, 3 and 8 to 15), δ above; ω stays within three bits of δ.
//!
//! Source: Elias: "Universal codeword sets and representations of the integers", IEEE Trans. Inf.
//! Theory 21, 1975.
//!
//! ```
//! use gradwire_bits::elias::Elias;
//!
//! let mut code = Vec::new();
//! Elias::Delta.encode(&[17, 1, 2], &mut code);
//! // 001010001, 1, 0100, each from the lowest bit up.
//! assert_eq!(code, [0b0001_0100, 0b00_0101_1]);
//! assert_eq!(Elias::Delta.len_bits(&[17, 1, 2]), 14);
//!
//! let mut back = Vec::new();
//! let used = Elias::Delta.decode(&code, 3, &mut back)?;
//! assert_eq!((back, used), (vec![17, 1, 2], 2));
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;

use crate::{BitReader, BitWriter, DecodeError, try_resize};

/// One of the three codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Elias {
    /// γ, with the length in unary.
    Gamma = 0,
    /// δ, with the length in γ.
    Delta = 1,
    /// ω, with the length in ω.
    Omega = 2,
}

/// Numbers below this are written from a table.
const SMALL: usize = 256;
/// The width of an entry's code starts at this bit.
const WIDTH: u32 = 24;
/// The number of bits of the longest code that is read from a table.
const SHORT: u32 = 8;

/// By code and number: the bits, the first one lowest, and their count.
static WRITE: [[u32; SMALL]; 3] =
    [write_table(Elias::Gamma), write_table(Elias::Delta), write_table(Elias::Omega)];

/// By code and the next bits: the number and the width of its code; 0 for longer codes.
static READ: [[u16; 1 << SHORT]; 3] =
    [read_table(Elias::Gamma), read_table(Elias::Delta), read_table(Elias::Omega)];

/// The number of bits that index the tables of several numbers. One table's 16 KiB stay in the first-level cache.
const BITS: u32 = 11;
/// The most numbers of an entry, which are below 2^8.
const MOST: usize = 6;
/// The numbers that are written for an entry: its own, and two that are overwritten.
const WRITTEN: usize = 8;
/// The entries that one window of bits covers.
const LOOKUPS: usize = (BitReader::WINDOW / BITS) as usize;

/// By code and the next bits: the numbers whose codes are whole among them, a byte each; then their count, and in the
/// uppermost byte the number of bits. 0 if the first code is longer.
static SEVERAL: [[u64; 1 << BITS]; 3] =
    [several_table(Elias::Gamma), several_table(Elias::Delta), several_table(Elias::Omega)];

const fn several_table(elias: Elias) -> [u64; 1 << BITS] {
    let (mut table, mut bits) = ([0; 1 << BITS], 0);
    while bits < table.len() {
        let (mut entry, mut count, mut used) = (0, 0, 0);
        while count < MOST {
            let (value, width) = elias.parse(bits as u64 >> used, BITS - used);
            if width == 0 {
                break;
            }
            entry |= value << (8 * count);
            count += 1;
            used += width;
        }
        table[bits] = entry | (count as u64) << (8 * MOST) | (used as u64) << (8 * MOST + 8);
        bits += 1;
    }
    table
}

const fn write_table(elias: Elias) -> [u32; SMALL] {
    let mut table = [0; SMALL];
    let mut value = 1;
    while value < SMALL {
        let (bits, width) = elias.bits(value as u64);
        table[value] = bits as u32 | width << WIDTH;
        value += 1;
    }
    table
}

const fn read_table(elias: Elias) -> [u16; 1 << SHORT] {
    let mut table = [0; 1 << SHORT];
    let mut value = 1;
    while value < SMALL {
        let (bits, width) = elias.bits(value as u64);
        if width <= SHORT {
            let mut rest = 0;
            while rest < 1 << (SHORT - width) {
                table[bits as usize | rest << width] = (value as u32 | width << SHORT) as u16;
                rest += 1;
            }
        }
        value += 1;
    }
    table
}

/// The lowest `width` bits in reverse order.
const fn reversed(value: u64, width: u32) -> u64 {
    if width == 0 { 0 } else { value.reverse_bits() >> (64 - width) }
}

impl Elias {
    /// The bits of a number's code, the first one lowest, and their count; for tables.
    ///
    /// # Panics
    /// If the number is 0, which has no code.
    pub const fn bits(self, value: u64) -> (u128, u32) {
        let below = value.ilog2();
        match self {
            Elias::Gamma => ((reversed(value, below + 1) as u128) << below, 2 * below + 1),
            Elias::Delta => {
                let (length, width) = Elias::Gamma.bits(below as u64 + 1);
                (length | (reversed(value, below) as u128) << width, width + below)
            }
            Elias::Omega => {
                let (mut bits, mut width, mut group) = (0, 1, value);
                while group > 1 {
                    let size = group.ilog2() + 1;
                    bits = bits << size | reversed(group, size) as u128;
                    width += size;
                    group = size as u64 - 1;
                }
                (bits, width)
            }
        }
    }

    /// The number whose code comes first, and the code's width; 0 if it has more than `most` bits, at most [`BITS`].
    const fn parse(self, bits: u64, most: u32) -> (u64, u32) {
        let (value, width) = match self {
            Elias::Gamma => {
                let below = if bits == 0 { most } else { bits.trailing_zeros() };
                (reversed(bits >> below, below + 1), 2 * below + 1)
            }
            Elias::Delta => {
                let (length, width) = Elias::Gamma.parse(bits, most);
                if width == 0 {
                    return (0, 0);
                }
                let below = length as u32 - 1;
                (1 << below | reversed(bits >> width, below), width + below)
            }
            Elias::Omega => {
                let (mut value, mut width) = (1, 0);
                while width < most && bits >> width & 1 == 1 {
                    let size = value as u32 + 1;
                    value = reversed(bits >> width, size);
                    width += size;
                }
                (value, width + 1)
            }
        };
        if width <= most { (value, width) } else { (0, 0) }
    }

    /// The length of a number's code, in bits.
    ///
    /// # Panics
    /// If the number is 0, which has no code.
    #[inline]
    pub fn len(self, value: u64) -> u32 {
        let below = value.ilog2();
        match self {
            Elias::Gamma => 2 * below + 1,
            Elias::Delta => below + 2 * (below + 1).ilog2() + 1,
            Elias::Omega => {
                let (mut width, mut group) = (1, below);
                while group > 0 {
                    width += group + 1;
                    group = group.ilog2();
                }
                width
            }
        }
    }

    /// Writes a number.
    ///
    /// # Panics
    /// If the number is 0, which has no code.
    #[inline]
    pub fn write(self, value: u64, writer: &mut BitWriter<'_>) {
        if value.wrapping_sub(1) < SMALL as u64 - 1 {
            let entry = WRITE[self as usize][value as usize];
            writer.put(u64::from(entry & ((1 << WIDTH) - 1)), entry >> WIDTH);
        } else {
            self.write_large(value, writer);
        }
    }

    #[cold]
    fn write_large(self, value: u64, writer: &mut BitWriter<'_>) {
        assert!(value > 0, "Elias codes encode numbers of 1 or more, not 0");
        let (mut bits, mut width) = self.bits(value);
        while width > 32 {
            writer.put(bits as u64 & 0xffff_ffff, 32);
            bits >>= 32;
            width -= 32;
        }
        writer.put(bits as u64, width);
    }

    /// Reads a number.
    ///
    /// # Errors
    /// `Truncated`, or `Corrupt` for a number of more than 64 bits.
    #[inline]
    pub fn read(self, reader: &mut BitReader<'_>) -> Result<u64, DecodeError> {
        let entry = READ[self as usize][reader.peek() as usize & ((1 << SHORT) - 1)];
        if entry != 0 {
            reader.skip(u32::from(entry >> SHORT));
            reader.check()?;
            return Ok(u64::from(entry & ((1 << SHORT) - 1)));
        }
        self.read_long(reader)
    }

    fn read_long(self, reader: &mut BitReader<'_>) -> Result<u64, DecodeError> {
        let value = match self {
            Elias::Gamma => {
                let below = zeros(reader)?;
                number(reader, below + 1)
            }
            Elias::Delta => {
                let length = Elias::Gamma.read(reader)?;
                if length > 64 {
                    return Err(TOO_LARGE);
                }
                let below = length as u32 - 1;
                1 << below | number(reader, below)
            }
            Elias::Omega => {
                let mut value = 1;
                while reader.peek() & 1 == 1 {
                    if value > 63 {
                        return Err(TOO_LARGE);
                    }
                    value = number(reader, value as u32 + 1);
                }
                reader.skip(1);
                value
            }
        };
        reader.check()?;
        Ok(value)
    }

    /// The length of the codes of several numbers, in bits before padding.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn len_bits(self, values: &[u32]) -> u64 {
        values.iter().map(|&value| u64::from(self.len(u64::from(value)))).sum()
    }

    /// Appends the codes of several numbers; the last byte is padded with zeros.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn encode(self, values: &[u32], out: &mut Vec<u8>) {
        let mut writer = BitWriter::new(out);
        values.iter().for_each(|&value| self.write(u64::from(value), &mut writer));
        writer.finish();
    }

    /// Appends `count` numbers decoded from the start of `bytes` to `out`, and returns the number of
    /// bytes read. Each number takes at least one bit, so the memory for an untrusted count is bounded
    /// by the length of `bytes`.
    ///
    /// # Errors
    /// `Truncated`, `OutOfMemory`, or `Corrupt` for padding that is not zero and for numbers of more than
    /// 32 bits. What was appended is then unspecified.
    pub fn decode(
        self,
        bytes: &[u8],
        count: usize,
        out: &mut Vec<u32>,
    ) -> Result<usize, DecodeError> {
        if count > bytes.len().saturating_mul(8) {
            return Err(DecodeError::Truncated);
        }
        let start = out.len();
        try_resize(out, start.saturating_add(count), 0)?;
        let (mut rest, mut reader) = (&mut out[start..], BitReader::new(bytes));
        loop {
            let read = self.read_several(&mut reader, rest);
            rest = &mut rest[read..];
            let Some((next, after)) = rest.split_first_mut() else { break };
            *next = u32::try_from(self.read(&mut reader)?).map_err(|_| TOO_LARGE)?;
            rest = after;
        }
        reader.finish()
    }

    /// Reads numbers by the table of several up to one whose code is too long, or close to the end. Returns how many there
    /// are; numbers behind them may have been overwritten.
    fn read_several(self, reader: &mut BitReader<'_>, out: &mut [u32]) -> usize {
        let (table, mut next) = (&SEVERAL[self as usize], 0);
        while next + LOOKUPS * MOST + WRITTEN <= out.len() {
            let (mut bits, mut width) = (reader.peek(), 0);
            for _ in 0..LOOKUPS {
                let entry = table[bits as usize % table.len()];
                if entry == 0 {
                    reader.skip(width);
                    return next;
                }
                let written = out[next..next + WRITTEN].iter_mut().zip(entry.to_le_bytes());
                written.for_each(|(number, byte)| *number = u32::from(byte));
                next += usize::from((entry >> (8 * MOST)) as u8);
                let used = (entry >> (8 * MOST + 8)) as u32;
                bits >>= used;
                width += used;
            }
            reader.skip(width);
            if reader.check().is_err() {
                break;
            }
        }
        next
    }
}

const TOO_LARGE: DecodeError = DecodeError::Corrupt("an Elias-coded number is too large");

/// Reads up to 63 zeros, and not the one that follows.
fn zeros(reader: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    let mut all = 0;
    loop {
        let zeros = reader.peek().trailing_zeros().min(BitReader::WINDOW);
        reader.skip(zeros);
        reader.check()?;
        all += zeros;
        if all > 63 {
            return Err(TOO_LARGE);
        }
        if zeros < BitReader::WINDOW {
            return Ok(all);
        }
    }
}

/// Reads a number of up to 64 bits, the highest first; bits past the end are zeros.
fn number(reader: &mut BitReader<'_>, width: u32) -> u64 {
    let mut part = |width: u32| {
        let bits = reversed(reader.peek(), width);
        reader.skip(width);
        bits
    };
    let (high, low) = (width / 2, width - width / 2);
    part(high) << low | part(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    const ALL: [Elias; 3] = [Elias::Gamma, Elias::Delta, Elias::Omega];

    /// The codes as Elias defines them, as strings of zeros and ones.
    fn text(elias: Elias, value: u64) -> String {
        let binary = format!("{value:b}");
        match elias {
            Elias::Gamma => "0".repeat(binary.len() - 1) + &binary,
            Elias::Delta => text(Elias::Gamma, binary.len() as u64) + &binary[1..],
            Elias::Omega => {
                let (mut code, mut group) = (String::from("0"), value);
                while group != 1 {
                    let binary = format!("{group:b}");
                    group = binary.len() as u64 - 1;
                    code = binary + &code;
                }
                code
            }
        }
    }

    /// Packs zeros and ones into bytes, from the lowest bit up.
    fn bytes(bits: &str) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().map(|bit| bit - b'0').collect();
        let byte = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
        bits.chunks(8).map(byte).collect()
    }

    fn written(elias: Elias, value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = BitWriter::new(&mut out);
        elias.write(value, &mut writer);
        writer.finish();
        out
    }

    fn read(elias: Elias, bytes: &[u8]) -> Result<(u64, usize), DecodeError> {
        let mut reader = BitReader::new(bytes);
        let value = elias.read(&mut reader)?;
        Ok((value, reader.finish()?))
    }

    #[test]
    fn bits_by_hand() {
        let cases = [
            (Elias::Gamma, 1, "1"),
            (Elias::Gamma, 2, "010"),
            (Elias::Gamma, 5, "00101"),
            (Elias::Gamma, 300, "00000000100101100"),
            (Elias::Delta, 1, "1"),
            (Elias::Delta, 2, "0100"),
            (Elias::Delta, 4, "01100"),
            (Elias::Delta, 8, "00100000"),
            (Elias::Delta, 17, "001010001"),
            (Elias::Omega, 1, "0"),
            (Elias::Omega, 2, "100"),
            (Elias::Omega, 3, "110"),
            (Elias::Omega, 4, "101000"),
            (Elias::Omega, 16, "10100100000"),
            (Elias::Omega, 1000, "11100111111010000"),
        ];
        for (elias, value, bits) in cases {
            assert_eq!(elias.len(value) as usize, bits.len(), "{elias:?} {value}");
            assert_eq!(written(elias, value), bytes(bits), "{elias:?} {value}");
            let expected = (value, bits.len().div_ceil(8));
            assert_eq!(read(elias, &bytes(bits)), Ok(expected), "{elias:?} {value}");
        }
        // From the lowest bit up: 17 is 001010001.
        assert_eq!(written(Elias::Delta, 17), [0b0001_0100, 0b0000_0001]);
    }

    #[test]
    fn entries_by_hand() {
        // γ: 1, 1, 010 and 00101, from the lowest; one bit is left.
        let entry = SEVERAL[Elias::Gamma as usize][0b10_1000_1011].to_le_bytes();
        assert_eq!(entry, [1, 1, 2, 5, 0, 0, 4, 10]);
        // δ: 0100, 01100; 01 is not whole. ω: six of one bit; 16 has eleven bits.
        let entry = SEVERAL[Elias::Delta as usize][0b100_0110_0010].to_le_bytes();
        assert_eq!(entry, [2, 4, 0, 0, 0, 0, 2, 9]);
        assert_eq!(SEVERAL[Elias::Omega as usize][0].to_le_bytes(), [1, 1, 1, 1, 1, 1, 6, 6]);
        let entry = SEVERAL[Elias::Omega as usize][0b000_0010_0101].to_le_bytes();
        assert_eq!(entry, [16, 0, 0, 0, 0, 0, 1, 11]);
        assert_eq!(SEVERAL[Elias::Gamma as usize][0], 0);
    }

    #[test]
    fn all_sizes_are_those_of_the_definition() {
        let edges = (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, u64::MAX >> bit]);
        for value in (1..2000).chain(edges).chain([u64::MAX]) {
            for elias in ALL {
                let bits = text(elias, value);
                assert_eq!(elias.len(value) as usize, bits.len(), "{elias:?} {value}");
                assert_eq!(written(elias, value), bytes(&bits), "{elias:?} {value}");
                assert_eq!(read(elias, &bytes(&bits)).map(|(value, _)| value), Ok(value));
            }
        }
    }

    #[test]
    fn numbers_that_end_early_or_never_are_refused() {
        for elias in ALL {
            for value in [2, 9, 300, 1 << 40, u64::MAX] {
                let code = written(elias, value);
                for end in 0..code.len() {
                    assert!(read(elias, &code[..end]).is_err(), "{elias:?} {value} at {end}");
                }
            }
            assert_eq!(read(elias, &[]), Err(DecodeError::Truncated));
            assert_eq!(elias.decode(&[0xff], 9, &mut Vec::new()), Err(DecodeError::Truncated));
        }
        assert_eq!(read(Elias::Gamma, &[0; 20]), Err(TOO_LARGE));
        assert_eq!(read(Elias::Delta, &[0; 20]), Err(TOO_LARGE));
        // A length of 65: 0000001000001.
        assert_eq!(
            read(Elias::Delta, &bytes(&(text(Elias::Gamma, 65) + &"1".repeat(70)))),
            Err(TOO_LARGE)
        );
        assert_eq!(read(Elias::Omega, &[0xff; 40]), Err(TOO_LARGE));
        let long = written(Elias::Gamma, 1 << 32);
        assert_eq!(Elias::Gamma.decode(&long, 1, &mut Vec::new()), Err(TOO_LARGE));
        let padded = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(Elias::Gamma.decode(&[0b1000_1011], 2, &mut Vec::new()), Err(padded));
    }

    #[test]
    #[should_panic(expected = "numbers of 1 or more")]
    fn zero_has_no_code() {
        Elias::Omega.encode(&[0], &mut Vec::new());
    }

    proptest! {
        #[test]
        fn numbers_return(values: Vec<u32>, shift in 0u32..32) {
            let values: Vec<u32> = values.iter().map(|value| (value >> shift).max(1)).collect();
            for elias in ALL {
                let mut code = Vec::new();
                elias.encode(&values, &mut code);
                let bits: String = values.iter().map(|&value| text(elias, value.into())).collect();
                prop_assert_eq!(elias.len_bits(&values), bits.len() as u64);
                prop_assert_eq!(&code, &bytes(&bits));
                let mut back = Vec::new();
                prop_assert_eq!(elias.decode(&code, values.len(), &mut back), Ok(code.len()));
                prop_assert_eq!(&back, &values);
            }
        }

        #[test]
        fn several_numbers_are_those_read_one_by_one(
            noise in prop::collection::vec(any::<u8>(), 0..200), sparse: bool, count in 0usize..900,
        ) {
            // With few ones the codes of γ and δ are long, and those of ω short.
            let noise: Vec<u8> =
                noise.iter().map(|byte| if sparse { byte & byte.rotate_left(3) } else { *byte }).collect();
            for elias in ALL {
                let mut reader = BitReader::new(&noise);
                let one = |_| u32::try_from(elias.read(&mut reader)?).map_err(|_| TOO_LARGE);
                let numbers: Result<Vec<u32>, _> = (0..count).map(one).collect();
                let expected = numbers.and_then(|numbers| Ok((numbers, reader.finish()?)));
                let mut values = alloc::vec![5];
                let result = elias.decode(&noise, count, &mut values);
                prop_assert_eq!(result.map(|used| (values[1..].to_vec(), used)).ok(), expected.ok());
            }
        }

        #[test]
        fn any_bytes_are_numbers_or_an_error(noise: Vec<u8>, count in 0usize..100) {
            for elias in ALL {
                let mut values = Vec::new();
                if let Ok(used) = elias.decode(&noise, count, &mut values) {
                    let mut code = Vec::new();
                    elias.encode(&values, &mut code);
                    prop_assert_eq!(&code, &noise[..used]);
                }
            }
        }
    }
}
