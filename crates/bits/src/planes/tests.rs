//! Tests of exact bytes, of sizes against the entropy, and of damaged blocks.

use super::*;
use alloc::vec;
use proptest::prelude::*;

fn encoded(layout: Layout, elements: &[u8]) -> Vec<u8> {
    let mut out = vec![0xee];
    Coder::default().encode(layout, elements, &mut out);
    out.split_off(1)
}

fn decoded(layout: Layout, bytes: &[u8], len: usize) -> Result<(Vec<u8>, usize), DecodeError> {
    // Existing content is overwritten.
    let mut elements = vec![9; len];
    let used = Coder::default().decode(layout, bytes, &mut elements)?;
    Ok((elements, used))
}

fn layouts() -> impl Iterator<Item = Layout> {
    [1, 2, 4, 8].into_iter().flat_map(|width| [Layout::integers(width), Layout::floats(width)])
}

/// Encodes and decodes, also with bytes behind the block; returns the length.
fn round_trip(layout: Layout, elements: &[u8]) -> usize {
    let bytes = encoded(layout, elements);
    assert!(bytes.len() <= layout.max_len(elements.len() / layout.width()));
    let with_more = [&bytes[..], &[0xff; 20]].concat();
    for bytes_or_more in [&bytes, &with_more] {
        let (back, used) = decoded(layout, bytes_or_more, elements.len()).unwrap();
        assert!(back == elements, "{layout:?} of {} bytes", elements.len());
        assert_eq!(used, bytes.len());
    }
    bytes.len()
}

struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn uniform(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A normal number, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (core::f64::consts::TAU * self.uniform()).cos()
    }
}

fn normal(len: usize) -> Vec<f32> {
    let mut random = Random(5);
    (0..len).map(|_| 0.02 * random.normal() as f32).collect()
}

fn as_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Rounded to bfloat16.
fn as_bf16(values: &[f32]) -> Vec<u8> {
    let pattern = |x: &f32| ((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16) as u16;
    values.iter().flat_map(|x| pattern(x).to_le_bytes()).collect()
}

/// Rounded down to E4M3, the largest to 448.
fn as_e4m3(values: &[f32]) -> Vec<u8> {
    let scale = 448.0 / values.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let pattern = |x: &f32| {
        let (scaled, sign) = ((x * scale).abs(), u8::from(*x < 0.0) << 7);
        // The exponent of the least normal number is -6; subnormal numbers have the same unit.
        let exponent = (scaled.max(1e-30).log2().floor() as i32).max(-6);
        let units = (scaled / 2f32.powi(exponent - 3)) as i32;
        sign | (8 * (exponent + 6) + units) as u8
    };
    values.iter().map(pattern).collect()
}

#[test]
fn constant_planes_by_hand() {
    // 1 is 0x3f80_0000; with the sign at the end 0x7f00_0000.
    let ones = as_f32(&[1.0; 3]);
    assert_eq!(encoded(Layout::floats(4), &ones), [0b0101_0101, 0, 0, 0, 0x7f]);
    assert_eq!(encoded(Layout::integers(4), &ones), [0b0101_0101, 0, 0, 0x80, 0x3f]);
    assert_eq!(encoded(Layout::floats(8), &[0; 800]), [0x55, 0x55, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encoded(Layout::floats(2), &[]), [0; 0]);
}

#[test]
fn raw_and_huffman_planes_by_hand() {
    // The lower plane is random, the upper one has 7 and 8 with one bit each. Code lengths: seven
    // symbols without a code 110 00111, length 1 as 111 10000, the same 0, 247 without 110 0000000
    // 1 1110111. Then the symbols.
    let lower = [0x11, 0x5d, 0xc2, 0x84, 0x3e, 0xf0, 0x77, 0xa9, 0xb4, 0x6a, 0x08, 0x99];
    let upper = [8, 7, 7, 8, 7, 8, 8, 8, 8, 7, 7, 7];
    let elements: Vec<u8> = lower.iter().zip(upper).flat_map(|(&low, up)| [low, up]).collect();
    let mut expected = vec![0b1000];
    expected.extend(lower);
    expected.extend([0b1110_0011, 0b1111, 0b0110, 0b0111_1000, 0b111, 0b1110_1001, 1]);
    assert_eq!(encoded(Layout::integers(2), &elements), expected);
    assert_eq!(round_trip(Layout::integers(2), &elements), 20);
    // Short planes are not longer than raw ones.
    assert_eq!(encoded(Layout::integers(1), &[1, 2, 1]), [0, 1, 2, 1]);
}

#[test]
fn every_pattern_of_every_length_returns() {
    let mut random = Random(1);
    let lengths = (0..40).chain([63, 64, 65, 1000, 2047, 2048, 2049, 4095, 4096, 4097, 20_003]);
    for (len, layout) in lengths.flat_map(|len| layouts().map(move |layout| (len, layout))) {
        let bytes = len * layout.width();
        let patterns: [Vec<u8>; 6] = [
            vec![0; bytes],
            (0..bytes).map(|_| random.word() as u8).collect(),
            // Mostly zeros: tANS.
            (0..bytes).map(|_| random.word() as u8 & (random.word() % 20 / 19) as u8).collect(),
            (0..bytes).map(|at| (at / layout.width()) as u8).collect(),
            // The least and the largest byte.
            (0..bytes).map(|at| [0, 255, 1][at % 3]).collect(),
            (0..bytes).map(|_| 100 + (random.word() % 7 * (random.word() % 7)) as u8).collect(),
        ];
        patterns.iter().for_each(|elements| _ = round_trip(layout, elements));
    }
}

#[test]
fn special_floats_return() {
    let special = [
        0,
        0x8000_0000,
        1,
        0x807f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_1234,
        0xff81_2345,
        0x7f7f_ffff,
        0x3f80_0000,
    ];
    let mut random = Random(2);
    for len in [2, 10, 5000, 70_000] {
        let pattern = |_| special[random.word() as usize % special.len()];
        let elements: Vec<u32> = (0..len).map(pattern).collect();
        let bytes: Vec<u8> = elements.iter().flat_map(|pattern| pattern.to_le_bytes()).collect();
        layouts().for_each(|layout| _ = round_trip(layout, &bytes));
    }
}

/// The entropy of the numbers, in bits each.
fn entropy(numbers: impl Iterator<Item = u32>) -> f64 {
    let mut counts = alloc::collections::BTreeMap::new();
    numbers.for_each(|number| *counts.entry(number).or_insert(0.0) += 1.0);
    let total: f64 = counts.values().sum();
    counts.values().map(|count| -count / total * (count / total).log2()).sum()
}

#[test]
fn normal_weights_are_close_to_their_entropy() {
    let values = normal(1 << 18);
    let len = values.len() as f64;
    let exponents = entropy(values.iter().map(|x| x.to_bits() >> 23 & 0xff));
    let bits = |layout, elements: &[u8]| 8.0 * round_trip(layout, elements) as f64 / len;
    let bf16 = bits(Layout::floats(2), &as_bf16(&values));
    assert!(bf16 > 8.0 + exponents - 0.01 && bf16 < 8.0 + exponents * 1.025, "{bf16}");
    assert!(bf16 < 0.665 * 16.0, "{bf16}");
    let f32 = bits(Layout::floats(4), &as_f32(&values));
    assert!(f32 > 24.0 + exponents && f32 < 24.0 + exponents * 1.025, "{f32}");
    assert!(f32 < 0.832 * 32.0, "{f32}");
    let e4m3 = as_e4m3(&values);
    let least = entropy(e4m3.iter().map(|&byte| byte.into()));
    let fp8 = bits(Layout::floats(1), &e4m3);
    assert!(fp8 > least && fp8 < 1.01 * least && fp8 < 0.825 * 8.0, "{fp8}, entropy {least}");
}

#[test]
fn small_integers_in_wide_elements_take_few_bits() {
    let mut random = Random(3);
    let numbers: Vec<u32> = (0..1 << 16).map(|_| (random.normal() * 20.0) as i32 as u32).collect();
    let least = entropy(numbers.iter().copied());
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let bits = 8.0 * round_trip(Layout::integers(4), &bytes) as f64 / numbers.len() as f64;
    // Each of the three upper planes tells the sign again.
    assert!(bits > least && bits < least + 3.1, "{bits}, entropy {least}");
}

#[test]
fn frequent_bytes_take_less_than_a_bit() {
    let mut random = Random(4);
    let bytes: Vec<u8> = (0..1 << 16).map(|_| u8::from(random.word().is_multiple_of(50))).collect();
    let least = entropy(bytes.iter().map(|&byte| byte.into()));
    let bits = 8.0 * round_trip(Layout::integers(1), &bytes) as f64 / bytes.len() as f64;
    assert!(bits > least && bits < 1.03 * least, "{bits}, entropy {least}");
}

#[test]
fn blocks_that_end_early_are_refused() {
    for layout in [Layout::floats(2), Layout::floats(4), Layout::integers(8), Layout::floats(1)] {
        for len in [500, 5000] {
            let elements = match layout.width() {
                1 => as_e4m3(&normal(len)),
                2 => as_bf16(&normal(len)),
                4 => as_f32(&normal(len)),
                _ => (0..len).flat_map(|at| ((at * at) as u64).to_le_bytes()).collect(),
            };
            let bytes = encoded(layout, &elements);
            for end in (0..bytes.len()).rev().step_by(1 + len / 700) {
                let result = decoded(layout, &bytes[..end], elements.len());
                assert_eq!(result, Err(DecodeError::Truncated), "{layout:?} {end}");
            }
        }
    }
}

#[test]
fn impossible_forms_are_refused() {
    let missing = DecodeError::Corrupt("a form stands for a plane that does not exist");
    assert_eq!(decoded(Layout::integers(2), &[0x10, 1, 1, 1, 1, 1, 1, 1], 4), Err(missing));
}

#[test]
#[should_panic(expected = "elements are complete")]
fn incomplete_elements_are_refused() {
    encoded(Layout::floats(4), &[0; 7]);
}

proptest! {
    #[test]
    fn damaged_blocks_decode_or_fail(
        len in 1usize..9000, seed: u64, width in 0usize..4, at: prop::sample::Index, bit in 0u8..8, cut in 0usize..20,
    ) {
        let layout = Layout::floats(1 << width);
        let mut random = Random(seed);
        let elements: Vec<u8> = (0..len << width).map(|_| (random.word() % 9 * (random.word() % 5)) as u8).collect();
        let mut bytes = encoded(layout, &elements);
        *at.get_mut(&mut bytes) ^= 1 << bit;
        bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(10)));
        if let Ok((_, used)) = decoded(layout, &bytes, elements.len()) {
            prop_assert!(used <= bytes.len());
        }
    }

    #[test]
    fn random_bytes_decode_or_fail(noise: Vec<u8>, len in 0usize..400, width in 0usize..4) {
        if let Ok((_, used)) = decoded(Layout::integers(1 << width), &noise, len << width) {
            prop_assert!(used <= noise.len());
        }
    }
}
