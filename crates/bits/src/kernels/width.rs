//! Converts 8-bit symbols between bytes and the numbers of other kernels.

use super::{cases, kernel};

kernel! {
    /// Writes each byte as a number, and returns the largest, or 0 without bytes. Processes the
    /// shorter length.
    pub fn widen(bytes: &[u8], symbols: &mut [u16]) -> u16 {
        let mut largest = 0;
        for (&byte, symbol) in bytes.iter().zip(symbols) {
            *symbol = u16::from(byte);
            largest = largest.max(byte);
        }
        u16::from(largest)
    }
}

kernel! {
    /// Writes the lower byte of each symbol. Processes the shorter length.
    pub fn narrow(symbols: &[u16], bytes: &mut [u8]) {
        for (&symbol, byte) in symbols.iter().zip(bytes) {
            *byte = symbol as u8;
        }
    }
}

cases![
    ("widen", |input, output| {
        let mut symbols = input.symbols();
        output.bits([u32::from(widen(&input.bytes(), &mut symbols))]);
        output.bits(symbols.iter().copied());
    }),
    ("narrow", |input, output| {
        let mut bytes = input.bytes();
        narrow(&input.symbols(), &mut bytes);
        output.bits(bytes.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_by_hand() {
        let (mut symbols, mut bytes) = ([9; 4], [9; 3]);
        assert_eq!(widen(&[0, 255, 7], &mut symbols), 255);
        assert_eq!(symbols, [0, 255, 7, 9]);
        assert_eq!(widen(&[], &mut symbols), 0);
        narrow(&[0, 0x1ff, 7], &mut bytes);
        assert_eq!(bytes, [0, 255, 7]);
    }
}
