use alloc::vec::Vec;
use crate::DecodeError;
pub fn len(n: usize) -> usize { n.div_ceil(5) }
pub fn pack(trits: &[i8], out: &mut Vec<u8>) {
    let l = len(trits.len());
    for j in 0..l { let mut d = 0u8; for k in 0..5 { d = d * 3 + (trits.get(k * l + j).copied().unwrap_or(0) + 1) as u8; } out.push(d); }
}
pub fn unpack(bytes: &[u8], trits: &mut [i8]) -> Result<(), DecodeError> {
    let l = len(trits.len());
    if bytes.len() < l { return Err(DecodeError::Truncated); }
    if bytes.len() > l { return Err(DecodeError::Trailing { extra: bytes.len() - l }); }
    const P: [u8; 5] = [81, 27, 9, 3, 1];
    for (j, &b) in bytes.iter().enumerate() {
        if b > 242 { return Err(DecodeError::Corrupt("a quartic byte above 242")); }
        for k in 0..5 { let q = (b / P[k] % 3) as i8 - 1; match trits.get_mut(k * l + j) { Some(t) => *t = q, None if q != 0 => return Err(DecodeError::Corrupt("padding digits are not 1")), None => {} } }
    }
    Ok(())
}
