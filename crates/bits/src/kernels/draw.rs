//! Random selection of elements with probability proportional to their magnitude.

use super::{cases, kernel};

/// The largest f32 below 2³¹.
const BELOW_ONE: f32 = 2_147_483_520.0;

kernel! {
    /// Writes each drawn value x, and 0 for the others. x is drawn with probability |x| / level (1
    /// from the level up): if u·level < |x|, where u is the upper 31 bits of its random word as a
    /// fraction in [0, 1), rounded to 24 significant bits. Below 2⁻¹²⁶ u·level, and thus the
    /// probability, is rounded to a multiple of 2⁻¹⁴⁹. Processes the shortest length.
    pub fn drawn(values: &[f32], level: f32, random: &[u32], out: &mut [f32]) {
        for ((x, word), out) in values.iter().zip(random).zip(out) {
            // The largest word would be rounded to 1.
            let u = ((word >> 1) as i32 as f32).min(BELOW_ONE) * (1.0 / 2_147_483_648.0);
            let limit = u * level;
            *out = if x.abs() > limit { *x } else { 0.0 };
        }
    }
}

kernel! {
    /// The sum of the absolute values up to `limit`, and the number of the others. The sum is in
    /// double precision and sixteen lanes, added from first to last on every processor.
    pub fn sum_up_to(values: &[f32], limit: f32) -> (f64, usize) {
        let (mut sums, mut above) = ([0f64; 16], [0u32; 16]);
        let (groups, rest) = values.as_chunks::<16>();
        for group in groups {
            for lane in 0..16 {
                let x = group[lane].abs();
                sums[lane] += f64::from(if x > limit { 0.0 } else { x });
                above[lane] += u32::from(x > limit);
            }
        }
        for (lane, x) in rest.iter().enumerate() {
            let x = x.abs();
            sums[lane] += f64::from(if x > limit { 0.0 } else { x });
            above[lane] += u32::from(x > limit);
        }
        (sums.iter().sum(), above.iter().map(|&count| count as usize).sum())
    }
}

cases![
    ("drawn", |input, output| {
        let mut out = input.zeros();
        drawn(&input.floats(), input.x, &input.draws(), &mut out);
        output.moved(&out);
    }),
    ("sum_up_to", |input, output| {
        let (sum, above) = sum_up_to(&input.floats(), input.x);
        output.wide(sum);
        output.wide(above as f64);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_by_hand() {
        // u = 0, ¼, ½ and just below 1, with a level of 4.
        let words = [0, 1 << 30, 1 << 31, u32::MAX];
        let mut out = [7.0; 4];
        let mut drawn = |values: [f32; 4]| {
            drawn(&values, 4.0, &words, &mut out);
            out
        };
        assert_eq!(drawn([1.0; 4]), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(drawn([-2.5; 4]), [-2.5, -2.5, -2.5, 0.0]);
        assert_eq!(drawn([4.0, -4.0, 9.0, -4.0]), [4.0, -4.0, 9.0, -4.0]);
        assert_eq!(drawn([0.0, -0.0, 0.0, 0.0]), [0.0; 4]);
        // A chance of 1.5 · 2⁻²⁴: 384 of all words.
        let rare = 1.5 / 16_777_216.0;
        super::drawn(&[rare; 4], 1.0, &[0, 383, 384, u32::MAX], &mut out);
        assert_eq!(out, [rare, rare, 0.0, 0.0]);
    }

    #[test]
    fn sums_by_hand() {
        assert_eq!(sum_up_to(&[1.0, -2.0, 0.5, 3.0, -4.0], 2.0), (3.5, 2));
        assert_eq!(sum_up_to(&[f32::MAX; 40], f32::MAX), (40.0 * f64::from(f32::MAX), 0));
        assert_eq!(sum_up_to(&[], 1.0), (0.0, 0));
    }
}
