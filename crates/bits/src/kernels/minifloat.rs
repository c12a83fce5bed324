//! Floats of 4 and of 8 bits.
//!
//! From the highest bit down, a code has a sign, an exponent and a mantissa, as in IEEE 754: the
//! exponent 0 stands for zero and subnormal numbers. Conversion rounds to nearest, ties to even,
//! and saturates: a number beyond the largest finite one becomes that number.

/// Fields of binary32.
const MANTISSA: u32 = 23;
const EXPONENT: u32 = 0x7f80_0000;
const SIGN: u32 = 1 << 31;

/// A format of floats.
pub(super) trait Minifloat: Copy {
    /// Bits of a code.
    const BITS: u32;
    /// Bits of the mantissa.
    const MANTISSA: u32;
    /// The least normal number.
    const LEAST: f32;
    /// The largest finite number.
    const MOST: f32;

    /// The code of the number nearest to `x·factor`, and this number, with the sign of `x`. The
    /// factor is at least 0. NaN becomes the largest number.
    #[inline(always)]
    fn nearest(x: f32, factor: f32) -> (u8, f32) {
        let sign = x.to_bits() & SIGN;
        let magnitude = f32::from_bits(x.to_bits() ^ sign) * factor;
        let magnitude = if magnitude < Self::MOST { magnitude } else { Self::MOST };
        let power = f32::from_bits(magnitude.to_bits() & EXPONENT);
        let power = if power > Self::LEAST { power } else { Self::LEAST }.to_bits();
        // The last bit of `unit` is the distance between two numbers, so the sum is rounded to a
        // number, and its lowest bits count distances.
        let shift = MANTISSA - Self::MANTISSA;
        let unit = f32::from_bits(power + (shift << MANTISSA));
        let sum = magnitude + unit;
        let count = sum.to_bits() - unit.to_bits();
        let code = count + (power >> shift) - (Self::LEAST.to_bits() >> shift);
        let number = f32::from_bits((sum - unit).to_bits() | sign);
        ((code | sign >> (32 - Self::BITS)) as u8, number)
    }

    /// The number of a code. Codes of infinity and NaN are numbers beyond the largest.
    #[inline(always)]
    fn number(code: u8) -> f32 {
        let code = u32::from(code);
        let sign = code << (32 - Self::BITS) & SIGN;
        let fields = (code & ((1 << (Self::BITS - 1)) - 1)) << (MANTISSA - Self::MANTISSA);
        // With the exponent of the least normal number, a subnormal number is too large by it.
        // Without a branch: a loop with branches is not compiled to vectors.
        let is_subnormal = u32::from(fields < 1 << MANTISSA).wrapping_neg();
        let least = Self::LEAST.to_bits();
        let wide = fields + least - (1 << MANTISSA & !is_subnormal);
        let magnitude = f32::from_bits(wide) - f32::from_bits(least & is_subnormal);
        f32::from_bits(magnitude.to_bits() | sign)
    }
}

/// FP8 with 4 bits of exponent; no infinity, NaN with all bits set.
#[derive(Debug, Clone, Copy)]
pub(super) struct E4m3;

impl Minifloat for E4m3 {
    const BITS: u32 = 8;
    const MANTISSA: u32 = 3;
    const LEAST: f32 = 1.0 / 64.0;
    const MOST: f32 = 448.0;
}

/// FP8 with 5 bits of exponent; infinity and NaN as in IEEE 754.
#[derive(Debug, Clone, Copy)]
pub(super) struct E5m2;

impl Minifloat for E5m2 {
    const BITS: u32 = 8;
    const MANTISSA: u32 = 2;
    const LEAST: f32 = 1.0 / 16_384.0;
    const MOST: f32 = 57_344.0;
}

/// FP4; neither infinity nor NaN.
#[derive(Debug, Clone, Copy)]
pub(super) struct E2m1;

impl Minifloat for E2m1 {
    const BITS: u32 = 4;
    const MANTISSA: u32 = 1;
    const LEAST: f32 = 1.0;
    const MOST: f32 = 6.0;
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// The numbers of all codes that are finite, by the definition; an even code has an even
    /// mantissa.
    fn numbers<F: Minifloat>() -> Vec<(u8, f64)> {
        let mantissas = 1 << F::MANTISSA;
        let decode = |code: u32| {
            let magnitude = code & ((1 << (F::BITS - 1)) - 1);
            let (exponent, mantissa) = (magnitude / mantissas, f64::from(magnitude % mantissas));
            let fraction = mantissa / f64::from(mantissas);
            let bias = match F::BITS - 1 - F::MANTISSA {
                2 => 1,
                4 => 7,
                _ => 15,
            };
            let magnitude = match exponent as i32 {
                0 => fraction * 2f64.powi(1 - bias),
                exponent => (1.0 + fraction) * 2f64.powi(exponent - bias),
            };
            (code as u8, if code >> (F::BITS - 1) == 1 { -magnitude } else { magnitude })
        };
        (0..1 << F::BITS).map(decode).filter(|(_, number)| number.abs() <= F::MOST.into()).collect()
    }

    /// Compares with the nearest of all numbers: the even code of two.
    fn compare<F: Minifloat>(finite: usize) {
        let numbers = numbers::<F>();
        assert_eq!(numbers.len(), finite);
        for &(code, number) in &numbers {
            let found = f64::from(F::number(code));
            assert!(found == number && found.is_sign_negative() == number.is_sign_negative());
        }
        // Every number and every middle between two with their neighbours, and numbers across the
        // range.
        let mut positive: Vec<f64> =
            numbers.iter().map(|&(_, number)| number).filter(|x| x.is_sign_positive()).collect();
        positive.sort_by(f64::total_cmp);
        let middles = positive.windows(2).map(|two| (two[0] + two[1]) / 2.0);
        let edges = positive.iter().copied().chain(middles).map(|x| x as f32);
        let edges = edges.flat_map(|x| [x.next_down(), x, x.next_up()]);
        let spread = (0..0x7f80).map(|upper| f32::from_bits(upper << 16 | upper));
        for x in edges.chain(spread).flat_map(|x| [x, -x]) {
            let of_sign =
                numbers.iter().filter(|one| one.1.is_sign_negative() == x.is_sign_negative());
            // Beyond the largest number, distances would be equal after rounding.
            let limited = f64::from(x).clamp((-F::MOST).into(), F::MOST.into());
            let distance = |number: f64| (number - limited).abs();
            let best = of_sign.min_by(|a, b| {
                let order = distance(a.1).total_cmp(&distance(b.1));
                order.then((a.0 % 2).cmp(&(b.0 % 2)))
            });
            let (code, number) = *best.unwrap();
            let (found, rounded) = F::nearest(x, 1.0);
            assert_eq!((found, f64::from(rounded)), (code, number), "{x:e}");
            assert_eq!(rounded.is_sign_negative(), x.is_sign_negative());
        }
        let largest = (1 << (F::BITS - 1)) - 1;
        for (x, sign) in
            [(f32::INFINITY, 0), (f32::NEG_INFINITY, 1 << (F::BITS - 1)), (f32::NAN, 0)]
        {
            let (code, number) = F::nearest(x, 1.0);
            assert_eq!((number.abs(), code & !largest), (F::MOST, sign));
        }
    }

    #[test]
    fn codes_are_those_of_the_nearest_numbers() {
        // Without NaN, and without infinity and NaN.
        compare::<E4m3>(254);
        compare::<E5m2>(248);
        compare::<E2m1>(16);
    }

    #[test]
    fn numbers_of_the_standards() {
        // OCP 8-bit Floating Point Specification, table 1; Microscaling Formats, table 5.
        let e4m3 = [0x01, 0x07, 0x08, 0x38, 0x7e].map(E4m3::number);
        assert_eq!(e4m3, [2f32.powi(-9), 0.875 * 2f32.powi(-6), 2f32.powi(-6), 1.0, 448.0]);
        let e5m2 = [0x01, 0x03, 0x04, 0x3c, 0x7b].map(E5m2::number);
        assert_eq!(e5m2, [2f32.powi(-16), 0.75 * 2f32.powi(-14), 2f32.powi(-14), 1.0, 57_344.0]);
        let e2m1: Vec<f32> = (0..16).map(E2m1::number).collect();
        assert_eq!(e2m1[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(e2m1[8..], [-0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]);
    }
}
