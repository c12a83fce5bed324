use alloc::vec::Vec;
use crate::DecodeError;
pub fn len(universe: usize) -> usize { universe.div_ceil(8) }
pub fn encode(positions: &[u32], universe: usize, out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + len(universe), 0);
    for &p in positions { out[at + p as usize / 8] |= 1 << (p % 8); }
}
pub fn count(bytes: &[u8], universe: usize) -> Result<usize, DecodeError> {
    if bytes.len() < len(universe) { return Err(DecodeError::Truncated); }
    if bytes.len() > len(universe) { return Err(DecodeError::Trailing { extra: bytes.len() - len(universe) }); }
    if universe % 8 != 0 && bytes[bytes.len() - 1] >> (universe % 8) != 0 { return Err(DecodeError::Corrupt("padding bits are not zero")); }
    Ok(bytes.iter().map(|b| b.count_ones() as usize).sum())
}
pub fn for_each(bytes: &[u8], universe: usize, mut f: impl FnMut(u32)) -> Result<usize, DecodeError> {
    let n = count(bytes, universe)?;
    for (i, &b) in bytes.iter().enumerate() { let mut b = b; while b != 0 { f(i as u32 * 8 + b.trailing_zeros()); b &= b - 1; } }
    Ok(n)
}
