use alloc::vec::Vec;
use crate::DecodeError;
pub fn len(count: usize, width: u32) -> usize { (count * width as usize).div_ceil(8) }
pub fn pack(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let (mut acc, mut n) = (0u64, 0);
    for &v in values { acc |= u64::from(v) << n; n += width; while n >= 8 { out.push(acc as u8); acc >>= 8; n -= 8; } }
    if n > 0 { out.push(acc as u8); }
}
pub fn unpack(bytes: &[u8], width: u32, values: &mut [u32]) -> Result<(), DecodeError> {
    let need = len(values.len(), width);
    if bytes.len() < need { return Err(DecodeError::Truncated); }
    if bytes.len() > need { return Err(DecodeError::Trailing { extra: bytes.len() - need }); }
    let (mut acc, mut n, mut at) = (0u64, 0, 0);
    for v in values { while n < width { acc |= u64::from(bytes[at]) << n; at += 1; n += 8; } *v = (acc & ((1u64 << width) - 1)) as u32; acc >>= width; n -= width; }
    if acc != 0 { return Err(DecodeError::Corrupt("padding bits are not zero")); }
    Ok(())
}
