//! Copies of a block.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
use core::arch::x86_64::*;

/// Copies numbers. Processes the shorter length.
///
/// For more than a few kilobytes, `memcpy` of GNU/Linux uses one instruction (`rep movsb`). On a
/// Zen 3 it takes ten times as long as a loop if source and destination have nearly the same page
/// offset, or if the destination is not aligned.
pub fn copy(values: &[f32], out: &mut [f32]) {
    let len = values.len().min(out.len());
    let (values, out) = (&values[..len], &mut out[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let ((groups, rest), (places, last)) = (values.as_chunks(), out.as_chunks_mut());
        // SAFETY: the processor has the instructions.
        unsafe { avx2_copy(groups, places) };
        return last.copy_from_slice(rest);
    }
    out.copy_from_slice(values);
}

/// The compiler turns a loop with one store into a call of `memcpy`, but not one with two.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx2")]
fn avx2_copy(values: &[[f32; 16]], out: &mut [[f32; 16]]) {
    for (values, out) in values.iter().zip(out) {
        // SAFETY: the arrays hold the sixteen numbers that are read and written.
        unsafe {
            let (values, out) = (values.as_ptr(), out.as_mut_ptr());
            let [low, high] = [_mm256_loadu_ps(values), _mm256_loadu_ps(values.add(8))];
            _mm256_storeu_ps(out, low);
            _mm256_storeu_ps(out.add(8), high);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn the_shorter_length_is_copied() {
        crate::kernels::samples::sweep(|values| {
            let mut out = vec![7.5; values.len() + 1];
            copy(values, &mut out);
            assert!(out.iter().zip(values).all(|(out, x)| out.to_bits() == x.to_bits()));
            assert_eq!(out[values.len()], 7.5);
            let mut out = vec![0.0; values.len() / 2];
            copy(values, &mut out);
            assert!(out.iter().zip(values).all(|(out, x)| out.to_bits() == x.to_bits()));
        });
    }
}
