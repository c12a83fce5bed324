use alloc::vec::Vec;
use crate::DecodeError;
pub fn write(mut value: u64, out: &mut Vec<u8>) { while value >= 128 { out.push(value as u8 | 128); value >>= 7; } out.push(value as u8); }
pub fn len(value: u64) -> usize { (64 - (value | 1).leading_zeros() as usize).div_ceil(7) }
pub fn read(input: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0u64;
    for (i, &b) in input.iter().enumerate() {
        if i == 9 && b > 1 { return Err(DecodeError::Corrupt("varint too long")); }
        value |= u64::from(b & 127) << (7 * i);
        if b < 128 {
            if b == 0 && i > 0 { return Err(DecodeError::Corrupt("varint not canonical")); }
            *input = &input[i + 1..];
            return Ok(value);
        }
    }
    Err(DecodeError::Truncated)
}
