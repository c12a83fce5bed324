//! Reductions of a slice to a few numbers.

use core::ops::AddAssign;

use fearless_simd::prelude::*;

use super::{cases, kernel};

kernel! {
    /// The largest absolute value, as its bit pattern; 0 for an empty slice.
    ///
    /// Bit patterns of absolute values have the order of the numbers, with infinity (`0x7f80_0000`)
    /// above the finite ones and NaN above infinity. One maximum therefore finds the scale and also
    /// detects non-finite elements.
    pub fn abs_max_bits(simd, values: &[f32]) -> u32 {
        // Four maxima at a time, because each waits for the one before.
        let (groups, rest) = values.as_chunks::<64>();
        let mut largest = [S::i32s::splat(simd, 0); 4];
        for group in groups {
            for four in group.chunks_exact(4 * S::f32s::LEN) {
                for (x, largest) in four.chunks_exact(S::f32s::LEN).zip(&mut largest) {
                    let magnitude = S::f32s::from_slice(simd, x).abs().bitcast::<S::i32s>();
                    *largest = largest.max(magnitude);
                }
            }
        }
        let [a, b, c, d] = largest;
        let largest = a.max(b).max(c.max(d)).reduce_max() as u32;
        largest.max(plain(rest))
    } plain {
        values.iter().fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff))
    }
}

kernel! {
    /// The [largest absolute value](abs_max_bits) of the sum that [`accumulate`](super::accumulate)
    /// would leave. Processes the shorter length.
    pub fn abs_max_of_sum(
        memory: &[f32],
        gradient: &[f32],
        beta: f32,
        gamma: f32,
    ) -> u32 {
        let sums = memory.iter().zip(gradient).map(|(m, g)| beta * m + gamma * g);
        sums.fold(0, |largest, x| largest.max(x.to_bits() & 0x7fff_ffff))
    }
}

kernel! {
    /// The largest byte; 0 for an empty slice.
    pub fn max_byte(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |largest, &byte| largest.max(byte))
    }
}

kernel! {
    /// The largest symbol; 0 for an empty slice.
    pub fn max_symbol(symbols: &[u16]) -> u16 {
        symbols.iter().fold(0, |largest, &symbol| largest.max(symbol))
    }
}

kernel! {
    /// Whether a byte is among the bytes. Looks at all of them.
    pub fn has_byte(bytes: &[u8], byte: u8) -> bool {
        bytes.iter().fold(0, |found, &x| found | u8::from(x == byte)) != 0
    }
}

kernel! {
    /// The number of occurrences of a symbol.
    pub fn occurrences(symbols: &[u16], symbol: u16) -> u32 {
        // Sixteen bits hold the count of a chunk, so twice as many symbols are counted at a time.
        let among = |chunk: &[u16]| chunk.iter().fold(0u16, |n, &x| n + u16::from(x == symbol));
        symbols.chunks(1 << 15).map(|chunk| u32::from(among(chunk))).sum()
    }
}

/// The sum of the negative elements, and the sum of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SignSums {
    /// Sum of the elements below zero.
    pub negative_sum: f64,
    /// Sum of the elements at or above zero (−0 counts as zero).
    pub positive_sum: f64,
    /// Number of elements below zero.
    pub negative_count: u64,
}

impl AddAssign for SignSums {
    fn add_assign(&mut self, other: Self) {
        self.negative_sum += other.negative_sum;
        self.positive_sum += other.positive_sum;
        self.negative_count += other.negative_count;
    }
}

const LANES: usize = 16;

kernel! {
    /// The inner product in double precision. Products are added in lanes, as for
    /// [`sum_of_squares`]. Processes the shorter length.
    pub fn inner_product(a: &[f32], b: &[f32]) -> f64 {
        let mut lanes = [0.0; LANES];
        let len = a.len().min(b.len());
        let ((a, a_rest), (b, b_rest)) = (a[..len].as_chunks::<LANES>(), b[..len].as_chunks::<LANES>());
        for (a, b) in a.iter().zip(b) {
            for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += f64::from(a) * f64::from(b);
            }
        }
        for ((lane, &a), &b) in lanes.iter_mut().zip(a_rest).zip(b_rest) {
            *lane += f64::from(a) * f64::from(b);
        }
        lanes.iter().sum()
    }
}

kernel! {
    /// The sum of the squares in double precision. Element i is added in lane i mod 16; then the
    /// lanes are added from first to last.
    pub fn sum_of_squares(values: &[f32]) -> f64 {
        sum_in_lanes(values, |x| f64::from(x) * f64::from(x))
    }
}

kernel! {
    /// The sum of the absolute values in double precision, in lanes, as for [`sum_of_squares`].
    pub fn sum_of_magnitudes(values: &[f32]) -> f64 {
        sum_in_lanes(values, |x| f64::from(x.abs()))
    }
}

kernel! {
    /// The sum of the values and the sum of their squares, in double precision and in lanes, as for
    /// [`sum_of_squares`].
    pub fn moments(values: &[f32]) -> [f64; 2] {
        let (mut sums, mut squares) = ([[0.0; HALF]; 2], [[0.0; HALF]; 2]);
        for_each_half(values, |half, values| {
            for ((sum, square), &x) in sums[half].iter_mut().zip(&mut squares[half]).zip(values) {
                *sum += f64::from(x);
                *square += f64::from(x) * f64::from(x);
            }
        });
        [sums, squares].map(|lanes| lanes.as_flattened().iter().sum())
    }
}

/// The sum of what `of` gives for each value.
#[inline(always)]
fn sum_in_lanes(values: &[f32], of: impl Fn(f32) -> f64) -> f64 {
    let mut lanes = [[0.0; HALF]; 2];
    for_each_half(values, |half, values| {
        lanes[half].iter_mut().zip(values).for_each(|(lane, &x)| *lane += of(x));
    });
    lanes.as_flattened().iter().sum()
}

/// The lanes that fit in a register of double precision: half of them.
const HALF: usize = LANES / 2;

/// Calls `add` with 0 and the values for the first half of the lanes, then with 1 and the values
/// for the second half, and so on. With all lanes at once, the compiler would divide them among
/// registers of different sizes.
#[inline(always)]
fn for_each_half(values: &[f32], mut add: impl FnMut(usize, &[f32])) {
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        add(0, &group[..HALF]);
        add(1, &group[HALF..]);
    }
    let (first, second) = rest.split_at(rest.len().min(HALF));
    add(0, first);
    add(1, second);
}

kernel! {
    /// Sums by sign in double precision. Element i is added in lane i mod 16; then the lanes are
    /// added from first to last, so the result does not depend on the processor.
    pub fn sums_by_sign(simd, values: &[f32]) -> SignSums {
        match S::f32s::LEN {
            16 => sums_in_registers::<S, 1>(simd, values),
            8 => sums_in_registers::<S, 2>(simd, values),
            _ => sums_in_registers::<S, 4>(simd, values),
        }
    } plain {
        finish([[0.0; LANES]; 2], 0, values)
    }
}

/// The sums of one sign, by lane.
type Lanes = [f64; LANES];

/// As [`sums_by_sign`]; sixteen lanes are `PARTS` registers of f32.
#[inline(always)]
fn sums_in_registers<S: Simd, const PARTS: usize>(simd: S, values: &[f32]) -> SignSums {
    let zero = S::f64s::splat(simd, 0.0);
    let (mut negative, mut positive, mut count) = ([[zero; 2]; PARTS], [[zero; 2]; PARTS], 0);
    let (groups, rest) = values.as_chunks::<LANES>();
    for group in groups {
        let mut signs = 0;
        for (part, lanes) in group.chunks_exact(S::f32s::LEN).enumerate() {
            let x = S::f32s::from_slice(simd, lanes);
            let below = x.simd_lt(0.0);
            signs |= below.to_bitmask() << (part * S::f32s::LEN);
            let (low, high) = x.widen();
            let (low_below, high_below) = below.widen();
            for (half, (x, below)) in [(low, low_below), (high, high_below)].into_iter().enumerate()
            {
                add_by_sign::<S>(&mut negative[part][half], &mut positive[part][half], below, x);
            }
        }
        count += u64::from(signs.count_ones());
    }
    let mut lanes = [[0.0; LANES]; 2];
    for (lanes, sums) in lanes.iter_mut().zip([negative, positive]) {
        for (lanes, sums) in lanes.chunks_exact_mut(S::f64s::LEN).zip(sums.as_flattened()) {
            sums.store_slice(lanes);
        }
    }
    finish(lanes, count, rest)
}

#[inline(always)]
fn add_by_sign<S: Simd>(
    negative: &mut S::f64s,
    positive: &mut S::f64s,
    below: S::mask64s,
    x: S::f64s,
) {
    if S::f64s::LEN == 8 {
        // AVX-512 adds some lanes in one instruction. A sum is never −0, which adding 0 changes.
        *negative = below.select(*negative + x, *negative);
        *positive = below.select(*positive, *positive + x);
    } else {
        let zero = S::f64s::splat(x.token(), 0.0);
        *negative += below.select(x, zero);
        *positive += below.select(zero, x);
    }
}

/// Adds the last elements, and then the lanes.
#[inline(always)]
fn finish([mut negative, mut positive]: [Lanes; 2], mut count: u64, rest: &[f32]) -> SignSums {
    for group in rest.chunks(LANES) {
        for ((&x, negative), positive) in group.iter().zip(&mut negative).zip(&mut positive) {
            let below = x < 0.0;
            *negative += f64::from(if below { x } else { 0.0 });
            *positive += f64::from(if below { 0.0 } else { x });
            count += u64::from(below);
        }
    }
    SignSums {
        negative_sum: negative.iter().sum(),
        positive_sum: positive.iter().sum(),
        negative_count: count,
    }
}

cases![
    ("moments", |input, output| moments(&input.floats()).into_iter().for_each(|x| output.wide(x))),
    ("occurrences", |input, output| {
        let symbols = input.elements(input.len, |at| (input.word(at) % 3) as u16);
        output
            .bits([occurrences(&symbols, 0), occurrences(&input.symbols(), symbols.len() as u16)]);
    }),
    ("abs_max_bits", |input, output| output.bits([abs_max_bits(&input.floats())])),
    ("abs_max_of_sum", |input, output| {
        let largest = abs_max_of_sum(&input.floats(), &input.more(), input.x, input.y);
        // NaN has several patterns.
        output.bits([largest.min(f32::NAN.to_bits())]);
    }),
    ("max_byte", |input, output| output.bits([max_byte(&input.bytes())])),
    ("max_symbol", |input, output| output.bits([u32::from(max_symbol(&input.symbols()))])),
    ("has_byte", |input, output| {
        output.bits(input.bytes().chunks(40).map(|bytes| u32::from(has_byte(bytes, 0x80))));
    }),
    ("sum_of_squares", |input, output| output.wide(sum_of_squares(&input.floats()))),
    ("sum_of_magnitudes", |input, output| output.wide(sum_of_magnitudes(&input.floats()))),
    ("inner_product", |input, output| {
        output.wide(inner_product(&input.floats(), &input.more()));
    }),
    ("sums_by_sign", |input, output| {
        let sums = sums_by_sign(&input.floats());
        output.wide(sums.negative_sum);
        output.wide(sums.positive_sum);
        output.wide(sums.negative_count as f64);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::sweep;
    use alloc::vec::Vec;

    #[test]
    fn the_maximum_detects_non_finite_elements() {
        assert_eq!(abs_max_bits(&[]), 0);
        assert_eq!(abs_max_bits(&[-3.5, 2.0, -0.0]), 3.5f32.to_bits());
        assert_eq!(abs_max_bits(&[-1e-45]), 1);
        assert_eq!(abs_max_bits(&[f32::MAX, f32::NEG_INFINITY]), 0x7f80_0000);
        assert!(abs_max_bits(&[f32::INFINITY, -f32::NAN, 1.0]) > 0x7f80_0000);
    }

    #[test]
    fn the_maximum_of_a_sum_is_that_of_what_is_accumulated() {
        sweep(|x| {
            let gradient: Vec<f32> = x.iter().rev().map(|x| 0.7 * x).collect();
            for (beta, gamma) in [(1.0, 1.0), (0.5, 3.0), (f32::MAX, 1.0)] {
                let mut sum = x.to_vec();
                crate::kernels::accumulate(&mut sum, &gradient, beta, gamma);
                assert_eq!(abs_max_of_sum(x, &gradient, beta, gamma), abs_max_bits(&sum));
            }
        });
    }

    #[test]
    fn bytes_and_symbols_by_hand() {
        assert_eq!((max_byte(&[]), max_byte(&[7, 200, 3])), (0, 200));
        assert_eq!((max_symbol(&[]), max_symbol(&[7, 2000, 3])), (0, 2000));
        assert!(has_byte(&[7, 200, 3], 3) && !has_byte(&[7, 200, 3], 4));
        assert_eq!(occurrences(&[7, 2000, 7], 7), 2);
        assert_eq!(occurrences(&[3; 70_000], 3), 70_000);
    }

    #[test]
    fn sums_by_hand() {
        let sums = sums_by_sign(&[1.0, -2.0, -0.0, 0.25, -0.5]);
        let expected = SignSums { negative_sum: -2.5, positive_sum: 1.25, negative_count: 2 };
        assert_eq!(sums, expected);
    }

    #[test]
    fn squares_by_hand() {
        assert_eq!(sum_of_squares(&[]), 0.0);
        assert_eq!(sum_of_squares(&[3.0, -4.0, 0.5]), 25.25);
        // Sixteen lanes and a rest: 1 + 4 + … + 400.
        let values: Vec<f32> = (1..=20).map(|x| x as f32).collect();
        assert_eq!(sum_of_squares(&values), 2870.0);
        assert!(sum_of_squares(&[f32::MAX; 100]).is_finite());
    }

    #[test]
    fn moments_by_hand() {
        assert_eq!(moments(&[]), [0.0; 2]);
        // Sixteen lanes and a rest: 1 − 2 + 3 − … − 20, and 1 + 4 + … + 400.
        let values: Vec<f32> =
            (1..=20).map(|x| if x % 2 == 0 { -x as f32 } else { x as f32 }).collect();
        assert_eq!(moments(&values), [-10.0, 2870.0]);
    }

    #[test]
    fn inner_products_by_hand() {
        assert_eq!(inner_product(&[], &[1.0]), 0.0);
        assert_eq!(inner_product(&[3.0, -4.0, 9.0], &[0.5, 2.0]), -6.5);
        // Sixteen lanes and a rest: (1 + 4 + … + 400) − (1 + 2 + … + 20).
        let values: Vec<f32> = (1..=20).map(|x| x as f32).collect();
        let less: Vec<f32> = values.iter().map(|x| x - 1.0).collect();
        assert_eq!(inner_product(&values, &less), 2870.0 - 210.0);
    }
}
