//! Tables of codes, computed at compile time: to write small numbers, and to read one or several
//! numbers with short codes.

use super::bits::Elias;
use crate::BitReader;

/// Numbers below this are written from a table.
pub(super) const SMALL: usize = 256;
/// The width of an entry's code starts at this bit.
pub(super) const WIDTH: u32 = 24;
/// The number of bits of the longest code in a reading table.
pub(super) const SHORT: u32 = 8;

/// By code and number: the bits, the first one lowest, and their count.
pub(super) static WRITE: [[u32; SMALL]; 3] =
    [write_table(Elias::Gamma), write_table(Elias::Delta), write_table(Elias::Omega)];

/// By code and the next bits: the number and the width of its code; 0 for longer codes.
pub(super) static READ: [[u16; 1 << SHORT]; 3] =
    [read_table(Elias::Gamma), read_table(Elias::Delta), read_table(Elias::Omega)];

/// The number of bits that index the tables of several numbers. One table's 16 KiB stay in the
/// first-level cache.
const BITS: u32 = 11;
/// The most numbers of an entry, which are below 2^8.
pub(super) const MOST: usize = 6;
/// The numbers written for an entry: its own, and two that are overwritten.
pub(super) const WRITTEN: usize = 8;
/// The entries that one window of bits covers.
pub(super) const LOOKUPS: usize = (BitReader::WINDOW / BITS) as usize;

/// By code and the next bits: the numbers whose whole codes they contain, a byte each; then their
/// count, and in the uppermost byte the number of bits. 0 if the first code is longer.
pub(super) static SEVERAL: [[u64; 1 << BITS]; 3] =
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
