//! Tests of `eden`.

use super::*;
use crate::compressors::testing::{encode, refused, residual, round_trip};

/// A few large values among many small ones.
pub(crate) fn skewed(elements: usize) -> Vec<f32> {
    let mut rng = crate::Rng::new(1, 2, 3, 4, 5);
    (0..elements).map(|_| (rng.uniform() - 0.5) / rng.uniform().max(0.01).powi(2)).collect()
}

pub(crate) fn square(values: impl IntoIterator<Item = f32>) -> f64 {
    values.into_iter().map(|x| f64::from(x) * f64::from(x)).sum()
}

/// The squared error of a decoded tensor over its square.
fn error(spec: &str, gradient: &[f32]) -> f64 {
    let decoded = round_trip(spec, gradient);
    square(gradient.iter().zip(decoded).map(|(x, y)| x - y)) / square(gradient.iter().copied())
}

#[test]
fn errors_are_those_of_the_paper() {
    let gradient = skewed(40 * BLOCK);
    // Half of the elements have 2 bits, half 1: the captured share is the mean.
    let captured = |error: f64| 1.0 / (1.0 + error);
    let half = 1.0 / (0.5 * (captured(0.571) + captured(0.133))) - 1.0;
    for (bits, expected) in
        [("1", 0.571), ("2", 0.133), ("3", 0.0358), ("4", 0.00959), ("1.5", half)]
    {
        let found = error(&format!("eden:bits={bits}"), &gradient);
        assert!((found / expected - 1.0).abs() < 0.02, "{bits} bits: {found}, not {expected}");
    }
    // The scale with error feedback leaves the least error.
    for (bits, expected) in [("1", 0.3634), ("2", 0.1175), ("4", 0.0095)] {
        let left = residual(&format!("eden:bits={bits},ef=on"), &gradient);
        let found = square(left) / square(gradient.iter().copied());
        assert!((found / expected - 1.0).abs() < 0.02, "{bits} bits: {found}, not {expected}");
    }
}

#[test]
fn the_component_along_the_gradient_is_exact() {
    for (spec, elements) in [("eden", 5000), ("eden:bits=1.1", 5000), ("eden:bits=2.5", 70)] {
        let gradient = skewed(elements);
        let decoded = round_trip(spec, &gradient);
        let along: f64 =
            gradient.iter().zip(&decoded).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        let whole = square(gradient.iter().copied());
        assert!((along / whole - 1.0).abs() < 1e-5, "{spec}: {along} of {whole}");
    }
}

#[test]
fn the_mean_over_steps_or_ranks_is_near_the_gradient() {
    let (gradient, messages) = (skewed(BLOCK), 400u16);
    let spec: crate::Spec = "eden".parse().unwrap();
    let tensor = crate::Tensor::new("t", &[BLOCK]);
    let mut decoder = crate::Decoder::new(&spec, 1);
    for by_rank in [false, true] {
        let mut mean = vec![0.0; BLOCK];
        for at in 0..messages.into() {
            let (step, rank) = if by_rank { (0, at) } else { (at.into(), 0) };
            let mut message = Vec::new();
            let input = crate::Floats::F32(&gradient);
            let mut encoder = crate::Encoder::new(&spec, 1, rank);
            encoder.encode(&tensor, step, input, &mut message).unwrap();
            let weight = 1.0 / f32::from(messages);
            decoder.decode_add(&tensor, step, rank, &message, weight, &mut mean).unwrap();
        }
        let error = square(gradient.iter().zip(mean).map(|(x, y)| x - y));
        let found = error / square(gradient.iter().copied());
        let expected = 0.571 / f64::from(messages);
        assert!((found / expected - 1.0).abs() < 0.1, "{found}, not {expected}, {by_rank}");
    }
}

#[test]
fn two_large_elements_stay_of_their_size() {
    for spec in ["eden", "eden:bits=1.5", "eden:bits=4"] {
        for distance in [1, 64, 2048] {
            let mut gradient = vec![0.0; BLOCK];
            (gradient[7], gradient[7 + distance]) = (1.0, 0.99);
            let decoded = round_trip(spec, &gradient);
            assert!(decoded.iter().all(|x| x.abs() < 2.5), "{spec}, {distance}: {decoded:?}");
        }
    }
}

#[test]
fn messages_by_hand() {
    // One element: the transform is itself, up to its sign; 3 = a·1 and back.
    let message = encode("eden", &[3.0]);
    assert_eq!((message.len(), round_trip("eden", &[3.0])), (5, vec![3.0]));
    assert_eq!(f32::from_le_bytes(*message.first_chunk().unwrap()), 3.0);
    // If one element is non-zero, all rotated elements have the same magnitude.
    let mut one = [0.0; 64];
    one[5] = -2.0;
    let decoded = round_trip("eden", &one);
    assert!(decoded.iter().zip(&one).all(|(x, y)| (x - y).abs() < 1e-6), "{decoded:?}");
    assert!(encode("eden", &[]).is_empty());
    assert_eq!(round_trip("eden:bits=3", &[0.0; 70]), [0.0; 70]);
    // 4096 elements of 1 bit; 100 of 1.3 bits, in two pieces of 64: 38 elements of 2 bits and 90 of
    // 1.
    assert_eq!(encode("eden", &skewed(4096)).len(), 4 + 512);
    assert_eq!(encode("eden:bits=1.3", &skewed(100)).len(), 8 + 10 + 12);
    let bits = |spec: &str| 8.0 * encode(spec, &skewed(40 * BLOCK)).len() as f64 / 163_840.0;
    assert!((bits("eden:bits=2.5") - 2.508).abs() < 0.001);
    let coded = bits("eden:bits=4,code=huffman");
    assert!((3.80..3.83).contains(&coded), "{coded}");
    let coded = bits("eden:bits=2,code=huffman");
    // The entropy of four Lloyd–Max levels is 1.911 bits; scales take 1/128.
    assert!((1.918..1.93).contains(&coded), "{coded}");
}

#[test]
fn extremes_stay_finite() {
    for spec in ["eden", "eden:bits=1.1", "eden:bits=8", "eden:ef=on"] {
        let decoded = round_trip(spec, &[f32::MAX, -f32::MAX, f32::MAX, 0.0, 1.0]);
        assert!(decoded.iter().all(|x| x.is_finite()), "{spec}: {decoded:?}");
        let decoded = round_trip(spec, &[f32::from_bits(1); 9]);
        assert_eq!(decoded, [0.0; 9], "{spec}");
    }
}

#[test]
fn malformed_messages_are_refused() {
    let good = encode("eden:bits=2", &[1.0, -2.0, 3.0]);
    assert_eq!(good.len(), 5);
    assert_eq!(refused("eden:bits=2", 3, &good[..4]), DecodeError::Truncated);
    assert_eq!(refused("eden:bits=2", 5, &good), DecodeError::Truncated);
    let long = [&good[..], &[0]].concat();
    assert_eq!(refused("eden:bits=2", 3, &long), DecodeError::Trailing { extra: 1 });
    for scale in [-1.0, f32::NAN, f32::INFINITY] {
        let bad = [&f32::to_le_bytes(scale)[..], &good[4..]].concat();
        assert!(matches!(refused("eden:bits=2", 3, &bad), DecodeError::Corrupt(_)));
    }
}
