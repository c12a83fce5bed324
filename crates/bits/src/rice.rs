use alloc::vec::Vec;
use crate::DecodeError;
pub fn len_bits(positions: &[u32], b: u32) -> u64 {
    let mut next = 0u64; let mut bits = 0;
    for &p in positions { bits += ((u64::from(p) - next) >> b) + 1 + u64::from(b); next = u64::from(p) + 1; }
    bits
}
pub fn optimal_parameter(count: usize, universe: usize) -> u32 {
    if count == 0 || universe == 0 { return 0; }
    let p = count as f64 / universe as f64;
    if p >= 1.0 { return 0; }
    #[cfg(feature = "std")]
    { let b = 1.0 + ((0.618_033_988_749_895f64.ln()) / (1.0 - p).ln()).log2().floor(); b.clamp(0.0, 30.0) as u32 }
    #[cfg(not(feature = "std"))]
    { (universe / count).max(1).ilog2() }
}
pub fn encode(positions: &[u32], b: u32, out: &mut Vec<u8>) {
    let mut next = 0u64; let (mut acc, mut n) = (0u64, 0u32);
    let mut put = |v: u64, w: u32, out: &mut Vec<u8>| { acc |= v << n; n += w; while n >= 8 { out.push(acc as u8); acc >>= 8; n -= 8; } (acc, n) };
    let mut last = (0, 0);
    for &p in positions {
        let gap = u64::from(p) - next; next = u64::from(p) + 1;
        for _ in 0..gap >> b { put(1, 1, out); }
        put(0, 1, out);
        last = put(gap & ((1 << b) - 1), b, out);
    }
    if last.1 > 0 { out.push(last.0 as u8); }
}
pub fn for_each(bytes: &[u8], count: usize, universe: usize, b: u32, mut f: impl FnMut(u32)) -> Result<usize, DecodeError> {
    let mut at = 0u64; let total = bytes.len() as u64 * 8;
    let bit = |at: u64| -> Result<u64, DecodeError> { if at >= total { return Err(DecodeError::Truncated); } Ok(u64::from(bytes[(at / 8) as usize] >> (at % 8) & 1)) };
    let mut next = 0u64;
    for _ in 0..count {
        let mut q = 0u64;
        while bit(at)? == 1 { at += 1; q += 1; if q << b >= universe as u64 { return Err(DecodeError::Corrupt("position past the end")); } }
        at += 1;
        let mut r = 0; for i in 0..b { r |= bit(at)? << i; at += 1; }
        let p = next + (q << b) + r;
        if p >= universe as u64 { return Err(DecodeError::Corrupt("position past the end")); }
        f(p as u32); next = p + 1;
    }
    Ok(at.div_ceil(8) as usize)
}
