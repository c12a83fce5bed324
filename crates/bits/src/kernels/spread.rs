//! Random words for rounding; groups of elements share the lower bits.

use super::vectorised;

/// The number of elements that share the lower bits of their words.
pub const SHARING: usize = 16;

vectorised! {
    /// Writes words whose upper 8 bits are an element's own byte, and whose next 16 are those of its group of [`SHARING`]
    /// elements; the lowest 8 are 0. Processes the shortest length.
    pub fn spread / spread_scalar(own: &[u8], shared: &[u16], out: &mut [u32]) {
        let len = out.len().min(own.len());
        let (groups, rest) = out[..len].as_chunks_mut::<SHARING>();
        let (bytes, last) = own[..len].as_chunks::<SHARING>();
        for ((words, bytes), &low) in groups.iter_mut().zip(bytes).zip(shared) {
            spread_group(bytes, low, words);
        }
        if let Some(&low) = shared.get(groups.len()) {
            spread_group(last, low, rest);
        }
    }
}

/// The words of a group, or of a part of one.
#[inline(always)]
fn spread_group(bytes: &[u8], low: u16, words: &mut [u32]) {
    for (word, &byte) in words.iter_mut().zip(bytes) {
        *word = u32::from(byte) << 24 | u32::from(low) << 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_by_hand() {
        let mut own = [0; 18];
        (own[0], own[1], own[16]) = (0xff, 1, 0x80);
        let mut words = [9; 18];
        spread(&own, &[0x1234, 0xabcd], &mut words);
        assert_eq!(words[..3], [0xff12_3400, 0x0112_3400, 0x0012_3400]);
        assert_eq!(words[15..], [0x0012_3400, 0x80ab_cd00, 0x00ab_cd00]);
    }
}
