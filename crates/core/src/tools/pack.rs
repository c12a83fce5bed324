//! Symbols and positions, packed to the bit.

use gradwire_bits::{try_resize, varint};

use crate::wire::positions::{self, PositionCode};
use crate::wire::symbols::Alphabet;
use crate::{DecodeError, Helpers, Workspace};

/// Appends symbols of an alphabet of 2 to 2¹⁶, each in ⌈log2 alphabet⌉ bits, from the lowest bit of
/// a byte up; the last byte is padded with zeros.
///
/// # Panics
/// If the alphabet is of another size. A symbol outside the alphabet may panic or corrupt the
/// message.
pub fn pack(symbols: &[u16], alphabet: usize, message: &mut Vec<u8>) {
    of(alphabet).put_fixed(symbols, message);
}

/// Replaces `symbols` by `count` symbols read off the front of a message.
///
/// # Errors
/// If the bytes end too early, a symbol is outside the alphabet, padding is not zero, or memory is
/// short.
///
/// # Panics
/// If the alphabet is not of 2 to 2¹⁶ symbols.
pub fn unpack(
    message: &mut &[u8],
    alphabet: usize,
    count: usize,
    symbols: &mut Vec<u16>,
) -> Result<(), DecodeError> {
    if packed_len(count, alphabet) > message.len() {
        return Err(DecodeError::Truncated);
    }
    try_resize(symbols, count, 0)?;
    of(alphabet).take_fixed(message, symbols, &mut Helpers::default())
}

/// The bytes that `count` symbols take.
pub fn packed_len(count: usize, alphabet: usize) -> usize {
    of(alphabet).max_len(count)
}

/// The most symbols that fit in `len` bytes: the inverse of [`packed_len`].
pub fn packed_most(len: usize, alphabet: usize) -> usize {
    of(alphabet).max_elements(len)
}

fn of(symbols: usize) -> Alphabet {
    assert!((2..=1 << 16).contains(&symbols), "an alphabet of {symbols} symbols");
    Alphabet::new(symbols, false)
}

/// Appends symbols of an alphabet of 2 to 2¹⁶ in an entropy code: close to the entropy of order 0,
/// with few bits, even less than one, for frequent symbols. A byte names the code; symbols that no
/// code shortens are [packed](pack).
///
/// # Panics
/// If the alphabet is of another size, or a symbol is outside it.
pub fn pack_coded(
    symbols: &[u16],
    alphabet: usize,
    workspace: &mut Workspace,
    message: &mut Vec<u8>,
) {
    of(alphabet).coded().put(symbols, &mut workspace.coder, &mut workspace.helpers, message);
}

/// Replaces `symbols` by `count` symbols, which [`pack_coded`] wrote, read off the front of a
/// message. A few bytes may encode any number of symbols: take `count` from the tensor, or check it
/// against the tensor.
///
/// # Errors
/// If the bytes end too early or are not a valid code, a symbol is outside the alphabet, or memory
/// is short.
///
/// # Panics
/// If the alphabet is not of 2 to 2¹⁶ symbols.
pub fn unpack_coded(
    message: &mut &[u8],
    alphabet: usize,
    count: usize,
    symbols: &mut Vec<u16>,
    workspace: &mut Workspace,
) -> Result<(), DecodeError> {
    let Workspace { coder, helpers, .. } = workspace;
    of(alphabet).coded().take(message, count, symbols, coder, helpers)
}

/// The most bytes that [`pack_coded`] appends for `count` symbols.
pub fn packed_coded_len(count: usize, alphabet: usize) -> usize {
    of(alphabet).coded().max_len(count)
}

/// Appends increasing positions in a tensor of `elements` elements, at most 2³² − 1: a byte with
/// their code, their number as varint, and the shortest of a bitmap, a Rice code and 32 bits each.
pub fn pack_positions(positions: &[u32], elements: usize, message: &mut Vec<u8>) {
    let code = PositionCode::shortest(positions, elements);
    positions::put_header(code, positions.len(), message);
    code.encode(positions, elements, &mut Helpers::default(), message);
}

/// Reads positions in a tensor of `elements` elements off the front of a message, and stores them
/// in `positions`: increasing, and all in the tensor.
///
/// # Errors
/// If the bytes end too early, [`pack_positions`] could not have written them, or memory is short.
pub fn unpack_positions(
    message: &mut &[u8],
    elements: usize,
    positions: &mut Vec<u32>,
) -> Result<(), DecodeError> {
    let (code, count) = positions::take_header(message, elements)?;
    code.take(message, count, elements, positions, &mut Helpers::default())
}

/// The most bytes that up to `count` positions in a tensor of `elements` elements take.
pub fn packed_positions_len(count: usize, elements: usize) -> usize {
    1 + varint::len(count as u64) + PositionCode::shortest_max_len(count, elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn symbols_worked_by_hand() {
        // Five symbols take three bits: 100 001 011 000.
        let mut message = Vec::new();
        pack(&[4, 1, 3, 0], 5, &mut message);
        assert_eq!(message, [0b1100_1100, 0]);
        assert_eq!((packed_len(4, 5), packed_most(2, 5)), (2, 5));
        message.push(7);
        let (mut rest, mut symbols) = (&message[..], vec![8; 9]);
        unpack(&mut rest, 5, 4, &mut symbols).unwrap();
        assert_eq!((&symbols[..], rest), (&[4, 1, 3, 0][..], &[7][..]));
    }

    #[test]
    fn coded_symbols_take_the_entropy() {
        // One of sixteen is 1, 2 or 3, equally often: the entropy is 0.337 + log2 3 / 16 = 0.436
        // bits.
        let mut words = vec![0; 48_000];
        Rng::new(0, 1, 2, 3, 4).fill(&mut words);
        let symbol = |word: u32| if word % 16 == 3 { 1 + word / 16 % 3 } else { 0 };
        let symbols: Vec<u16> = words.into_iter().map(|word| symbol(word) as u16).collect();
        let (mut workspace, mut message) = (Workspace::default(), Vec::new());
        pack_coded(&symbols, 4, &mut workspace, &mut message);
        let bits = 8.0 * message.len() as f64 / symbols.len() as f64;
        assert!((0.43..0.445).contains(&bits), "{bits}");
        assert!(packed_coded_len(symbols.len(), 4) == 12_001);
        message.push(7);
        let (mut rest, mut back) = (&message[..], vec![9; 5]);
        unpack_coded(&mut rest, 4, symbols.len(), &mut back, &mut workspace).unwrap();
        assert_eq!((back, rest), (symbols, &[7][..]));
        let mut short = &message[..100];
        assert!(unpack_coded(&mut short, 4, 48_000, &mut Vec::new(), &mut workspace).is_err());
    }

    #[test]
    fn what_was_not_packed_is_refused() {
        let refused = |mut bytes: &[u8], alphabet, count| {
            unpack(&mut bytes, alphabet, count, &mut Vec::new()).unwrap_err()
        };
        assert_eq!(refused(&[0], 5, 3), DecodeError::Truncated);
        assert!(matches!(refused(&[5], 5, 1), DecodeError::Corrupt(_)));
        assert!(matches!(refused(&[0b1000], 5, 1), DecodeError::Corrupt(_)));
        assert_eq!(refused(&[0; 64], 3, usize::MAX), DecodeError::Truncated);
    }

    #[test]
    fn positions_worked_by_hand() {
        // A bitmap of eight elements is one byte.
        let mut message = Vec::new();
        pack_positions(&[0, 3], 8, &mut message);
        assert_eq!(message, [0, 2, 0b1001]);
        message.push(7);
        let (mut rest, mut positions) = (&message[..], vec![8; 9]);
        unpack_positions(&mut rest, 8, &mut positions).unwrap();
        assert_eq!((&positions[..], rest), (&[0, 3][..], &[7][..]));
        let refused =
            |mut bytes: &[u8]| unpack_positions(&mut bytes, 8, &mut Vec::new()).unwrap_err();
        assert!(matches!(refused(&[0, 3, 0b1001]), DecodeError::Corrupt(_)));
        assert!(matches!(refused(&[0, 9, 0b1001]), DecodeError::Corrupt(_)));
        assert!(matches!(refused(&[4, 2, 0b1001]), DecodeError::Corrupt(_)));
        assert_eq!(refused(&[2, 2, 0, 0, 0, 0, 1, 0, 0]), DecodeError::Truncated);
    }

    #[test]
    fn every_density_returns_within_its_bound_and_leaves_the_rest() {
        let elements = 10_000;
        for step in [1, 2, 7, 100, 3_000, 9_999] {
            let positions: Vec<u32> = (0..elements as u32).step_by(step).collect();
            let mut message = Vec::new();
            pack_positions(&positions, elements, &mut message);
            assert!(message.len() <= packed_positions_len(positions.len(), elements));
            message.extend([1, 2, 3]);
            let (mut rest, mut back) = (&message[..], Vec::new());
            unpack_positions(&mut rest, elements, &mut back).unwrap();
            assert_eq!((back, rest), (positions, &[1, 2, 3][..]), "every {step}");
        }
    }
}
