//! Uniform quantization between the smallest and the largest value.

use super::{cases, kernel};

/// Bins of equal width, from the smallest value up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bins {
    /// The lower end of the lowest bin.
    pub least: f64,
    /// The width of a bin.
    pub width: f64,
    /// The index of the highest bin.
    pub top: u16,
}

impl Bins {
    /// The middle of a bin.
    #[inline(always)]
    fn middle(self, bin: u16) -> f32 {
        (self.least + self.width * (f64::from(bin) + 0.5)) as f32
    }
}

kernel! {
    /// The smallest and the largest value; (∞, −∞) for an empty slice. −0 is below 0.
    pub fn extremes(values: &[f32]) -> (f32, f32) {
        // As integers, the patterns of negative numbers have the reverse order.
        let key = |x: f32| {
            let bits = x.to_bits() as i32;
            bits ^ ((bits >> 31) & i32::MAX)
        };
        let (mut least, mut greatest) = (key(f32::INFINITY), key(f32::NEG_INFINITY));
        for &x in values {
            least = least.min(key(x));
            greatest = greatest.max(key(x));
        }
        let value = |key: i32| f32::from_bits((key ^ ((key >> 31) & i32::MAX)) as u32);
        (value(least), value(greatest))
    }
}

/// 2⁵²; f64 from here to its double are the integers.
const INTEGERS: f64 = 4_503_599_627_370_496.0;

kernel! {
    /// Writes the bin of each value; values above the highest bin are clamped to it. Processes the
    /// shorter length.
    pub fn bin_of(values: &[f32], bins: Bins, symbols: &mut [u16]) {
        let (scale, top) = (1.0 / bins.width, f64::from(bins.top));
        for (symbol, &x) in symbols.iter_mut().zip(values) {
            let place = ((f64::from(x) - bins.least) * scale).min(top).max(0.0);
            // Rounded down without a conversion, for which the compiler has no vector instructions:
            // the last bits of the sum are the nearest integer.
            let sum = place + INTEGERS;
            *symbol = (sum.to_bits() as u16).wrapping_sub((sum - INTEGERS > place).into());
        }
    }
}

kernel! {
    /// Subtracts the middle of its bin from each value. Processes the shorter length.
    pub fn middle_off(values: &mut [f32], symbols: &[u16], bins: Bins) {
        for (x, &symbol) in values.iter_mut().zip(symbols) {
            *x -= bins.middle(symbol);
        }
    }
}

kernel! {
    /// Adds `weight` times the middle of each bin. Processes the shorter length.
    pub fn middle_add(
        symbols: &[u16],
        bins: Bins,
        weight: f32,
        out: &mut [f32],
    ) {
        for (x, &symbol) in out.iter_mut().zip(symbols) {
            *x += weight * bins.middle(symbol);
        }
    }
}

cases![
    ("bin_of", |input, output| {
        let mut symbols = input.zeros();
        bin_of(&input.floats(), bins(input), &mut symbols);
        output.bits(symbols.iter().copied());
    }),
    ("extremes", |input, output| {
        let (least, greatest) = extremes(&input.floats());
        output.moved(&[least, greatest]);
    }),
    ("middle_add", |input, output| {
        let mut out = input.more();
        middle_add(&input.symbols(), bins(input), input.x, &mut out);
        output.computed(&out);
    }),
    ("middle_off", |input, output| {
        let mut values = input.floats();
        middle_off(&mut values, &input.symbols(), bins(input));
        output.computed(&values);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bins_by_hand() {
        let bins = Bins { least: -1.0, width: 0.5, top: 3 };
        let mut symbols = [9; 5];
        bin_of(&[-1.0, -0.51, 0.0, 0.99, 1.0], bins, &mut symbols);
        assert_eq!(symbols, [0, 0, 2, 3, 3]);
        let mut values = [-1.0, -0.5, 0.0, 1.0, 1.0];
        middle_off(&mut values, &symbols, bins);
        assert_eq!(values, [-0.25, 0.25, -0.25, 0.25, 0.25]);
        let mut out = [1.0; 5];
        middle_add(&symbols, bins, 2.0, &mut out);
        assert_eq!(out, [-0.5, -0.5, 1.5, 2.5, 2.5]);
    }

    #[test]
    fn extremes_are_exact() {
        assert_eq!(extremes(&[0.5, -3.0, 2.0, -2.5]), (-3.0, 2.0));
        assert_eq!(extremes(&[]), (f32::INFINITY, f32::NEG_INFINITY));
        let (least, greatest) = extremes(&[0.0, -0.0]);
        assert!(least.is_sign_negative() && greatest.is_sign_positive());
        assert_eq!(
            extremes(&[-f32::MIN_POSITIVE / 2.0; 3]),
            (-f32::MIN_POSITIVE / 2.0, -f32::MIN_POSITIVE / 2.0)
        );
    }
}
