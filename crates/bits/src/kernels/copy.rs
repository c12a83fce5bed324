//! Copies of a block.

use fearless_simd::f32x8;
use fearless_simd::prelude::*;

use super::{cases, kernel};

kernel! {
    /// Copies numbers. Processes the shorter length.
    ///
    /// For more than a few kilobytes, `memcpy` of GNU/Linux uses one instruction (`rep movsb`). On
    /// a Zen 3 it takes ten times as long as a loop if source and destination have nearly the same
    /// page offset, or if the destination is not aligned.
    pub fn copy / plain_copy(simd, values: &[f32], out: &mut [f32]) {
        let len = values.len().min(out.len());
        let (values, out) = (&values[..len], &mut out[..len]);
        if S::f32s::LEN < 8 {
            // These vectors are no faster than `memcpy`.
            return plain_copy(values, out);
        }
        let (groups, rest) = values.as_chunks::<16>();
        let (places, last) = out.as_chunks_mut::<16>();
        // The compiler turns a loop with one store into a call of `memcpy`, but not one with two.
        for (values, out) in groups.iter().zip(places) {
            let (low, high) = out.split_at_mut(8);
            f32x8::from_slice(simd, &values[..8]).store_slice(low);
            f32x8::from_slice(simd, &values[8..]).store_slice(high);
        }
        plain_copy(rest, last);
    }
}

fn plain_copy(values: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(values).for_each(|(out, x)| *out = *x);
}

cases![("copy", |input, output| {
    let mut out = input.zeros();
    copy(&input.floats(), &mut out);
    output.moved(&out);
}),];

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
