//! Values between two limits.

use alloc::vec::Vec;

use fearless_simd::prelude::*;

use super::chosen::{any_of_four, append_lanes};
use super::compact::key;
use super::{Side, cases, kernel};

kernel! {
    /// Appends the values of a side that are above `low` but not above `high`, in order, and
    /// returns how many are above `high`; `limits` are `low` and `high`. `Both` compares absolute
    /// values, and `Below` the negatives of values. A NaN is neither appended nor counted.
    pub fn values_between(
        simd,
        values: &[f32],
        side: Side,
        limits: [f32; 2],
        taken: &mut Vec<f32>,
    ) -> usize {
        let size = 4 * S::f32s::LEN;
        let (whole, rest) = values.split_at(values.len() / size * size);
        let [low, high] = limits;
        // The same values are between the limits, and all above `high` are above `low`, too.
        let low = if low > high || low.is_nan() { high } else { low };
        let masks = side.lanes(simd);
        taken.reserve(values.len() + size);
        let mut above = 0;
        for group in whole.chunks_exact(size) {
            let mut reached = [S::mask32s::splat(simd, false); 4];
            for (x, reached) in group.chunks_exact(S::f32s::LEN).zip(&mut reached) {
                *reached = key::<S>(S::f32s::from_slice(simd, x), masks).simd_gt(low);
            }
            if !any_of_four::<S>(reached) {
                continue;
            }
            // No branch for each vector, which would often be mispredicted.
            append_lanes(simd, taken, group, 4, #[inline(always)] |_, x| {
                let key = key::<S>(x, masks);
                let over = key.simd_gt(high);
                above += over.to_bitmask().count_ones() as usize;
                key.simd_gt(low) & !over
            });
        }
        above + plain(rest, side, limits, taken)
    } plain {
        let ([low, high], (kept, flipped)) = (limits, side.masks());
        let mut above = 0;
        for &x in values {
            let key = f32::from_bits(x.to_bits() & kept ^ flipped);
            let over = key > high;
            above += usize::from(over);
            if key > low && !over {
                taken.push(x);
            }
        }
        above
    }
}

cases![("values_between", |input, output| {
    for side in [Side::Both, Side::Above, Side::Below] {
        let mut taken = Vec::new();
        let above = values_between(&input.floats(), side, [input.x, input.y], &mut taken);
        output.moved(&taken);
        output.wide(above as f64);
    }
}),];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn limits_by_hand() {
        let values = [1.0, -3.0, 2.0, -2.0, 2.5, f32::NAN, 4.0, -0.0];
        let between = |side, limits| {
            let mut taken = vec![9.0];
            (values_between(&values, side, limits, &mut taken), taken)
        };
        assert_eq!(between(Side::Both, [1.0, 2.5]), (2, vec![9.0, 2.0, -2.0, 2.5]));
        assert_eq!(between(Side::Above, [1.0, 2.5]), (1, vec![9.0, 2.0, 2.5]));
        assert_eq!(between(Side::Below, [2.0, f32::MAX]), (0, vec![9.0, -3.0]));
        let all = [1.0, -3.0, 2.0, -2.0, 2.5, 4.0, -0.0];
        assert_eq!(between(Side::Both, [-1.0, f32::MAX]).1[1..], all);
    }
}
