//! What messages amount to in the mean: linear ones over ranks, unbiased ones over draws.

mod common;

use common::*;
use gradwire::{Decoder, Element, Encoder, Floats, Spec, Tensor};

/// The elements of a linear message.
fn elements_of(element: Element, message: &[u8]) -> Vec<f32> {
    match element {
        Element::F32 => {
            message.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        }
        Element::F16 => message
            .chunks(2)
            .map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f32())
            .collect(),
        Element::Bf16 => message
            .chunks(2)
            .map(|b| half::bf16::from_le_bytes(b.try_into().unwrap()).to_f32())
            .collect(),
    }
}

/// A linear message of these elements.
fn message_of(element: Element, values: &[f32]) -> Vec<u8> {
    let narrow = |x: &f32| match element {
        Element::F32 => x.to_le_bytes().to_vec(),
        Element::F16 => half::f16::from_f32(*x).to_le_bytes().to_vec(),
        Element::Bf16 => half::bf16::from_f32(*x).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(narrow).collect()
}

#[test]
fn the_mean_of_linear_messages_is_the_message_of_the_mean() {
    for spec in specs() {
        let Some(element) = spec.compressor().linear() else { continue };
        let precision = match element {
            Element::F32 => f32::EPSILON,
            Element::F16 => 2f32.powi(-10),
            Element::Bf16 => 2f32.powi(-7),
        };
        for elements in SIZES {
            let tensor = Tensor::new("t", &[elements]);
            let messages: Vec<Vec<u8>> = (0..3)
                .map(|rank| {
                    let mut message = Vec::new();
                    let gradient = gaussian(elements, u64::from(rank));
                    Encoder::new(&spec, SEED, rank)
                        .encode(&tensor, 5, Floats::F32(&gradient), &mut message)
                        .unwrap();
                    message
                })
                .collect();
            let mut sum = vec![0.0; elements_of(element, &messages[0]).len()];
            let mut separately = vec![0.0; elements];
            let mut largest = 0f32;
            for (rank, message) in (0..).zip(&messages) {
                assert_eq!(message.len(), messages[0].len());
                for (sum, x) in sum.iter_mut().zip(elements_of(element, message)) {
                    *sum += x / 3.0;
                    largest = largest.max(x.abs());
                }
                Decoder::new(&spec, SEED)
                    .decode_add(&tensor, 5, rank, message, 1.0 / 3.0, &mut separately)
                    .unwrap();
            }
            let together = decode(&spec, &tensor, 5, &message_of(element, &sum)).unwrap();
            for (a, b) in together.iter().zip(&separately) {
                assert!((a - b).abs() <= largest * precision, "{spec}: {a} and {b}");
            }
        }
    }
}

#[test]
fn unbiased_messages_have_the_gradient_as_expectation() {
    let gradient = [0.0, 1.0, -0.5, 0.25, 0.125, -0.75, 0.01, -0.9, 0.3, 0.6, -0.2, 0.05];
    let terngrad = |x: f32| x.abs() * (1.0 - x.abs());
    let natural = |x: f32| {
        if x == 0.0 {
            return 0.0;
        }
        let power = x.abs().log2().floor().exp2();
        (x.abs() - power) * (2.0 * power - x.abs())
    };
    let square: f32 = gradient.iter().map(|x| x * x).sum();
    let levels = |x: f32, step: f32| {
        let part = x / step - (x / step).floor();
        step * step * part * (1.0 - part)
    };
    let qsgd = |x: f32| levels(x, square.sqrt() / 3.0);
    let qsgd_max = |x: f32| levels(x, 1.0 / 3.0);
    // The largest is 1: seven steps of three bits and a bit for the sign.
    let lpc = |x: f32| levels(x, 1.0 / 7.0);
    let randomk = |x: f32| (12.0 / 3.0 - 1.0) * x * x;
    // Six in the mean, of which 1, 0.9 and 0.75 are certain: M is a third of the sum of the others.
    let adaptive = |x: f32| x.abs() * (2.035 / 3.0 - x.abs()).max(0.0);
    // One level: the norm, or nothing.
    let qsgd_one = |x: f32| x.abs() * (square.sqrt() - x.abs());
    let none = |_: f32| 0.0;
    let cases: [(&str, &dyn Fn(f32) -> f32); 13] = [
        ("terngrad:clip=0", &terngrad),
        ("natural:ef=off", &natural),
        ("lpc-svrg:w=4", &lpc),
        ("qsgd:s=3", &qsgd),
        ("qsgd:s=3,norm=max,code=elias", &qsgd_max),
        ("randomk:ratio=0.25,unbiased=on,ef=off", &randomk),
        ("randomk:ratio=0.25,unbiased=on,indices=independent,ef=off", &randomk),
        ("adaptive:ratio=0.5", &adaptive),
        ("atomo:atoms=entries,s=6", &adaptive),
        ("atomo:atoms=entries,budget=l2", &qsgd_one),
        ("atomo:atoms=entries,budget=max", &terngrad),
        ("atomo", &none),
        ("none", &none),
    ];
    let draws = 20_000;
    for (text, variance) in cases {
        let spec: Spec = text.parse().unwrap();
        let tensor = Tensor::new("t", &[gradient.len()]);
        let (mut sums, mut squares) = ([0f64; 12], [0f64; 12]);
        for step in 0..draws {
            let message = encode(&mut encoder(&spec), &tensor, step, &gradient).unwrap();
            for (i, x) in decode(&spec, &tensor, step, &message).unwrap().into_iter().enumerate() {
                sums[i] += f64::from(x);
                squares[i] += f64::from(x) * f64::from(x);
            }
        }
        for (i, &x) in gradient.iter().enumerate() {
            let (n, expected) = (draws as f64, f64::from(variance(x)));
            let mean = sums[i] / n;
            let spread = (expected / n).sqrt();
            assert!((mean - f64::from(x)).abs() <= 5.0 * spread + 1e-6, "{text}, {x}: mean {mean}");
            let found = squares[i] / n - mean * mean;
            assert!(
                (found - expected).abs() <= 0.1 * expected + 1e-6,
                "{text}, {x}: variance {found}"
            );
        }
    }
}

#[test]
fn unbiased_entries_are_tested_for_it() {
    // The test above names the specs; whoever registers an unbiased compressor adds it there.
    let claimed: Vec<_> = gradwire::registry::REGISTRY
        .iter()
        .filter(|e| e.guarantees.unbiased)
        .map(|e| e.id)
        .collect();
    assert_eq!(claimed, ["none", "qsgd", "lpc-svrg", "natural", "adaptive", "atomo"]);
}
