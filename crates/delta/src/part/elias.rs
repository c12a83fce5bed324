//! Numbers of a header, and Rice codes of single numbers.

use gradwire_bits::{BitReader, BitWriter, DecodeError};

const TOO_LONG: &str = "a number has more than 64 bits";

/// Appends n ≥ 1 in Elias γ code: as many zeros as n has bits below its highest one, a one, and
/// these bits.
pub(super) fn put_gamma(writer: &mut BitWriter<'_>, n: u64) {
    let below = n.ilog2();
    writer.put(0, below);
    writer.put(1, 1);
    writer.put(n & ((1 << below) - 1), below);
}

/// Reads a number that [`put_gamma`] wrote.
pub(super) fn gamma(reader: &mut BitReader<'_>) -> Result<u64, DecodeError> {
    let mut below = 0;
    loop {
        let zeros = reader.peek().trailing_zeros().min(BitReader::WINDOW);
        below += zeros;
        if below > 63 {
            return Err(DecodeError::Corrupt(TOO_LONG));
        }
        reader.skip(zeros);
        reader.check()?;
        if zeros < BitReader::WINDOW {
            break;
        }
    }
    reader.skip(1);
    let low = take(reader, below.min(32));
    let high = take(reader, below.saturating_sub(32));
    reader.check()?;
    Ok(1 << below | high << 32 | low)
}

/// Appends n in exponential Golomb code with this parameter, at most 31: n >> parameter, plus 1, in
/// Elias γ code, and the lower bits.
#[inline(always)]
pub(super) fn put_golomb(writer: &mut BitWriter<'_>, n: u64, parameter: u32) {
    put_gamma(writer, (n >> parameter) + 1);
    writer.put(n & ((1 << parameter) - 1), parameter);
}

/// The bits of [`put_golomb`], for n below 2^64 − 1.
#[inline(always)]
pub(super) fn golomb_len(n: u64, parameter: u32) -> u64 {
    u64::from(2 * ((n >> parameter) + 1).ilog2() + 1 + parameter)
}

/// Reads a number that [`put_golomb`] wrote.
#[inline(always)]
pub(super) fn golomb(reader: &mut BitReader<'_>, parameter: u32) -> Result<u64, DecodeError> {
    let upper = gamma(reader)? - 1;
    let lower = take(reader, parameter);
    reader.check()?;
    if upper.leading_zeros() < parameter {
        return Err(DecodeError::Corrupt(TOO_LONG));
    }
    Ok(upper << parameter | lower)
}

/// The next bits, at most 56; zeros past the end.
pub(super) fn take(reader: &mut BitReader<'_>, width: u32) -> u64 {
    let bits = reader.peek() & ((1 << width) - 1);
    reader.skip(width);
    bits
}

/// Appends a signed number, mostly near 0.
pub(super) fn put_signed(writer: &mut BitWriter<'_>, n: i32) {
    put_gamma(writer, 1 + u64::from((n << 1 ^ n >> 31) as u32));
}

/// Reads a number that [`put_signed`] wrote, if its absolute value is below 100.
pub(super) fn signed(reader: &mut BitReader<'_>) -> Result<i32, DecodeError> {
    match gamma(reader)? - 1 {
        zigzag @ 0..200 => Ok((zigzag >> 1) as i32 ^ -((zigzag & 1) as i32)),
        _ => Err(DecodeError::Corrupt("a parameter is out of range")),
    }
}

/// The most ones of a Rice code; the rest of a larger number is in γ code.
const ONES: u64 = 20;

/// Appends n in Rice code with this parameter, at most 63: the number q = n >> parameter in ones
/// and a zero, and the lower bits. From 20 ones on, there is no zero, but q − 19 in γ code.
#[inline(always)]
pub(super) fn put_rice(writer: &mut BitWriter<'_>, n: u64, parameter: u32) {
    let ones = n >> parameter;
    if ones < ONES {
        writer.put((1 << ones) - 1, ones as u32 + 1);
    } else {
        writer.put((1 << ONES) - 1, ONES as u32);
        put_gamma(writer, ones - (ONES - 1));
    }
    writer.put(n & ((1 << parameter) - 1), parameter);
}

/// Reads a number that [`put_rice`] wrote.
#[inline(always)]
pub(super) fn rice(reader: &mut BitReader<'_>, parameter: u32) -> Result<u64, DecodeError> {
    let mut ones = u64::from(reader.peek().trailing_ones()).min(ONES);
    reader.skip(ones as u32);
    if ones < ONES {
        reader.skip(1);
    } else {
        let more = gamma(reader)? - 1;
        ones = more.checked_add(ones).ok_or(DecodeError::Corrupt(TOO_LONG))?;
    }
    let low = take(reader, parameter.min(32));
    let high = take(reader, parameter.saturating_sub(32));
    reader.check()?;
    if ones.leading_zeros() < parameter {
        return Err(DecodeError::Corrupt(TOO_LONG));
    }
    Ok(ones << parameter | high << 32 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_by_hand() {
        let mut out = vec![];
        let mut writer = BitWriter::new(&mut out);
        put_gamma(&mut writer, 5); // 0 0 1 1 0
        put_signed(&mut writer, -1); // 2: 0 1 0
        put_rice(&mut writer, 13, 2); // 1 1 1 0 1 0
        put_rice(&mut writer, 20, 0); // 20 ones, and 1
        put_golomb(&mut writer, 5, 1); // 2 + 1: 0 1 1; then 1
        writer.finish();
        assert_eq!(out, [0b0100_1100, 0b1101_0111, 0xff, 0xff, 0b0111_0111]);
        let mut reader = BitReader::new(&out);
        assert_eq!(gamma(&mut reader), Ok(5));
        assert_eq!(signed(&mut reader), Ok(-1));
        assert_eq!(rice(&mut reader, 2), Ok(13));
        assert_eq!(rice(&mut reader, 0), Ok(20));
        assert_eq!(golomb(&mut reader, 1), Ok(5));
        assert_eq!(reader.finish(), Ok(5));
    }

    #[test]
    fn numbers_return() {
        let numbers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, u64::MAX >> bits]);
        let numbers: Vec<u64> = numbers.collect();
        for parameter in (0..64).step_by(7) {
            let mut out = vec![];
            let mut writer = BitWriter::new(&mut out);
            for &n in &numbers {
                put_rice(&mut writer, n, parameter);
                put_gamma(&mut writer, n.max(1));
                put_golomb(&mut writer, n >> 1, parameter.min(31));
            }
            writer.finish();
            let mut reader = BitReader::new(&out);
            for &n in &numbers {
                assert_eq!(rice(&mut reader, parameter), Ok(n));
                assert_eq!(gamma(&mut reader), Ok(n.max(1)));
                assert_eq!(golomb(&mut reader, parameter.min(31)), Ok(n >> 1));
            }
            assert_eq!(reader.finish(), Ok(out.len()));
        }
        assert!(gamma(&mut BitReader::new(&[0; 40])).is_err());
        assert!(rice(&mut BitReader::new(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0]), 60).is_err());
        assert_eq!(gamma(&mut BitReader::new(&[0])), Err(DecodeError::Truncated));
        // The largest number in γ code after the ones.
        let mut out = vec![];
        let mut writer = BitWriter::new(&mut out);
        writer.put((1 << ONES) - 1, ONES as u32);
        put_gamma(&mut writer, u64::MAX);
        writer.finish();
        for parameter in [0, 5] {
            let error = rice(&mut BitReader::new(&out), parameter).unwrap_err();
            assert_eq!(error, DecodeError::Corrupt(TOO_LONG));
        }
    }
}
