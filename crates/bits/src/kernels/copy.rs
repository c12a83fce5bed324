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
    pub fn copy(simd, values: &[f32], out: &mut [f32]) {
        let len = values.len().min(out.len());
        let (values, out) = (&values[..len], &mut out[..len]);
        if S::f32s::LEN < 8 {
            // These vectors are no faster than `memcpy`.
            return plain(values, out);
        }
        let (groups, rest) = values.as_chunks::<16>();
        let (places, last) = out.as_chunks_mut::<16>();
        // The compiler turns a loop with one store into a call of `memcpy`, but not one with two.
        for (values, out) in groups.iter().zip(places) {
            let (low, high) = out.split_at_mut(8);
            f32x8::from_slice(simd, &values[..8]).store_slice(low);
            f32x8::from_slice(simd, &values[8..]).store_slice(high);
        }
        plain(rest, last);
    } plain {
        out.iter_mut().zip(values).for_each(|(out, x)| *out = *x);
    }
}

cases![("copy", |input, output| {
    let mut out = input.zeros();
    copy(&input.floats(), &mut out);
    output.moved(&out);
}),];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_length_is_copied() {
        let values: [f32; 40] = core::array::from_fn(|at| at as f32);
        let mut out = [7.5; 41];
        copy(&values, &mut out);
        assert_eq!((&out[..40], out[40]), (&values[..], 7.5));
        let mut short = [7.5; 35];
        copy(&values, &mut short);
        assert_eq!(short, values[..35]);
    }
}
