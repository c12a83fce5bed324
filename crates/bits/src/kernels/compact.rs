//! Selection of elements beyond a threshold.

use alloc::vec::Vec;

use fearless_simd::prelude::*;

use super::chosen::{any_of_four, append_lanes, append_places};
use super::{cases, kernel};

/// The values that a threshold t ≥ 0 selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Values above t and values below −t.
    Both,
    /// Values above t.
    Above,
    /// Values below −t.
    Below,
}

impl Side {
    /// A mask and then an exclusive-or on a value's pattern; the value is selected if the result is
    /// above t.
    pub(super) const fn masks(self) -> (u32, u32) {
        match self {
            Side::Both => (0x7fff_ffff, 0),
            Side::Above => (u32::MAX, 0),
            Side::Below => (u32::MAX, 0x8000_0000),
        }
    }

    /// The masks, in every lane.
    #[inline(always)]
    pub(super) fn lanes<S: Simd>(self, simd: S) -> [S::u32s; 2] {
        let (kept, flipped) = self.masks();
        [kept, flipped].map(|mask| S::u32s::splat(simd, mask))
    }
}

/// The values after the masks.
#[inline(always)]
pub(super) fn key<S: Simd>(x: S::f32s, [kept, flipped]: [S::u32s; 2]) -> S::f32s {
    (x.bitcast::<S::u32s>() & kept ^ flipped).bitcast()
}

kernel! {
    /// Moves the elements beyond `threshold` out of `values`: appends `base` + index and value of
    /// each, in order, and sets the element to 0.
    pub fn compact_beyond(
        simd,
        values: &mut [f32],
        side: Side,
        threshold: f32,
        base: u32,
        positions: &mut Vec<u32>,
        taken: &mut Vec<f32>,
    ) {
        let size = 4 * S::f32s::LEN;
        let (whole, rest) = values.split_at_mut(values.len() / size * size);
        let after = base.wrapping_add(whole.len() as u32);
        let masks = side.lanes(simd);
        for (at, group) in whole.chunks_exact_mut(size).enumerate() {
            let mut beyond = [S::mask32s::splat(simd, false); 4];
            for (x, beyond) in group.chunks_exact(S::f32s::LEN).zip(&mut beyond) {
                *beyond = key::<S>(S::f32s::from_slice(simd, x), masks).simd_gt(threshold);
            }
            if !any_of_four::<S>(beyond) {
                continue;
            }
            // No branch for each vector, which would often be mispredicted.
            let first = S::u32s::splat(simd, base.wrapping_add((size * at) as u32));
            positions.reserve(size);
            append_places(simd, positions, first, 4, |part| beyond[part].to_bitmask());
            taken.reserve(size);
            append_lanes(simd, taken, group, 4, |part, _| beyond[part]);
            for (x, beyond) in group.chunks_exact_mut(S::f32s::LEN).zip(beyond) {
                let beyond = beyond.to_vector().bitcast::<S::u32s>();
                let others = S::f32s::from_slice(simd, x).bitcast::<S::u32s>() & !beyond;
                others.bitcast::<S::f32s>().store_slice(x);
            }
        }
        plain(rest, side, threshold, after, positions, taken);
    } plain {
        let (kept, flipped) = side.masks();
        for (i, x) in values.iter_mut().enumerate() {
            if f32::from_bits(x.to_bits() & kept ^ flipped) > threshold {
                positions.push(base.wrapping_add(i as u32));
                taken.push(*x);
                *x = 0.0;
            }
        }
    }
}

kernel! {
    /// The number of elements with |value| above `threshold`.
    pub fn count_above(values: &[f32], threshold: f32) -> usize {
        let mut count = 0;
        for stretch in values.chunks(1 << 20) {
            count += stretch.iter().map(|x| u32::from(x.abs() > threshold)).sum::<u32>() as usize;
        }
        count
    }
}

cases![
    ("compact_beyond", |input, output| {
        for side in [Side::Both, Side::Above, Side::Below] {
            let (mut values, mut positions, mut taken) = (input.floats(), Vec::new(), Vec::new());
            compact_beyond(&mut values, side, input.x, u32::MAX - 9, &mut positions, &mut taken);
            output.moved(&values);
            output.moved(&taken);
            output.bits(positions);
        }
    }),
    ("count_above", |input, output| output.wide(count_above(&input.floats(), input.x) as f64)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn taken(side: Side) -> (Vec<u32>, Vec<f32>, [f32; 5]) {
        let mut values = [1.0, -3.0, 2.0, -2.0, 2.5];
        assert_eq!(count_above(&values, 2.0), 2);
        let (mut positions, mut taken) = (vec![9], vec![0.5]);
        compact_beyond(&mut values, side, 2.0, 100, &mut positions, &mut taken);
        (positions, taken, values)
    }

    #[test]
    fn moves_the_elements_beyond_the_threshold() {
        let both = (vec![9, 101, 104], vec![0.5, -3.0, 2.5], [1.0, 0.0, 2.0, -2.0, 0.0]);
        assert_eq!(taken(Side::Both), both);
        let above = (vec![9, 104], vec![0.5, 2.5], [1.0, -3.0, 2.0, -2.0, 0.0]);
        assert_eq!(taken(Side::Above), above);
        let below = (vec![9, 101], vec![0.5, -3.0], [1.0, 0.0, 2.0, -2.0, 2.5]);
        assert_eq!(taken(Side::Below), below);
    }
}
