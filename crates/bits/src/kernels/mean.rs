//! Means of numbers that travel as they are.

use super::{cases, kernel};

/// `out = (out + x)/count` for the little-endian binary32 numbers x of `numbers`, up to the shorter
/// length. A mean of −0 becomes 0. Moves 12 bytes per element.
pub fn f32_mean(numbers: &[u8], count: u32, out: &mut [f32]) {
    if count.is_power_of_two() {
        // The product with 1/count is the same number, and faster.
        scaled_sums(numbers, 1.0 / count as f32, out);
    } else {
        divided_sums(numbers, count as f32, out);
    }
}

kernel! {
    fn scaled_sums(numbers: &[u8], factor: f32, out: &mut [f32]) {
        for (bytes, out) in numbers.as_chunks::<4>().0.iter().zip(out) {
            *out = (*out + f32::from_le_bytes(*bytes)) * factor + 0.0;
        }
    }
}

kernel! {
    fn divided_sums(numbers: &[u8], count: f32, out: &mut [f32]) {
        for (bytes, out) in numbers.as_chunks::<4>().0.iter().zip(out) {
            *out = (*out + f32::from_le_bytes(*bytes)) / count + 0.0;
        }
    }
}

kernel! {
    /// Reads little-endian binary32 numbers, up to the shorter length. −0 becomes 0. Moves 8 bytes
    /// per element.
    pub fn f32_read(numbers: &[u8], out: &mut [f32]) {
        for (bytes, out) in numbers.as_chunks::<4>().0.iter().zip(out) {
            *out = f32::from_le_bytes(*bytes) + 0.0;
        }
    }
}

cases![
    ("f32_mean", |input, output| {
        adds(|x, _, out| f32_mean(x, 2, out), input, output);
        adds(|x, _, out| f32_mean(x, 3, out), input, output);
    }),
    ("f32_read", |input, output| adds(|x, _, out| f32_read(x, out), input, output)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_by_hand() {
        let bytes = |values: [f32; 3]| values.map(f32::to_le_bytes).concat();
        let mut out = [1.0, -0.0, 3.0, 9.0];
        f32_mean(&bytes([2.0, -0.0, f32::MAX]), 2, &mut out);
        assert_eq!(out.map(f32::to_bits), [1.5, 0.0, f32::MAX / 2.0, 9.0].map(f32::to_bits));
        f32_mean(&bytes([0.5, -1.0, f32::MAX]), 3, &mut out);
        assert_eq!(out, [2.0 / 3.0, -1.0 / 3.0, f32::INFINITY, 9.0]);
        f32_read(&bytes([-0.0, 7.0, -2.0]), &mut out);
        assert_eq!(out.map(f32::to_bits), [0.0, 7.0, -2.0, 9.0].map(f32::to_bits));
    }
}
