//! Laws of means: means of linear messages over ranks, and errors of messages over steps.

use super::formats;
use super::samples::{RANK, SEED, SIZES, decode, encode, encoder, gaussian};
use super::subjects::{over_tensors_of, parse};
use crate::parameters::Kind;
use crate::{Decoder, Dtype, Encoder, Entry, Floats, Residual, Spec, SpecError, Tensor};

/// The elements of a linear message.
fn elements_of(dtype: Dtype, message: &[u8]) -> Vec<f32> {
    if dtype == Dtype::F32 {
        return message.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    }
    let patterns = message.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
    patterns.map(|pattern| formats::value(dtype, pattern)).collect()
}

/// A linear message of these elements.
fn message_of(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    if dtype == Dtype::F32 {
        return values.iter().flat_map(|x| x.to_le_bytes()).collect();
    }
    values.iter().flat_map(|&x| formats::nearest(dtype, x).to_le_bytes()).collect()
}

pub(super) fn linear_messages_add(spec: &Spec) {
    let Some(dtype) = spec.compressor().linear() else { return };
    let precision = match dtype {
        Dtype::F32 => f32::EPSILON,
        Dtype::F16 => 2f32.powi(-10),
        Dtype::Bf16 => 2f32.powi(-7),
    };
    for elements in SIZES {
        let tensor = Tensor::new("t", &[elements]);
        let message = |rank: u32| {
            let (gradient, mut message) = (gaussian(elements, rank.into()), Vec::new());
            let mut encoder = Encoder::new(spec, SEED, rank);
            encoder.encode(&tensor, 5, Floats::F32(&gradient), &mut message).unwrap();
            message
        };
        let messages = [0, 1, 2].map(message);
        let mut sum = vec![0.0; elements_of(dtype, &messages[0]).len()];
        let (mut separately, mut largest) = (vec![0.0; elements], 0f32);
        for (rank, message) in (0..).zip(&messages) {
            assert_eq!(message.len(), messages[0].len());
            for (sum, x) in sum.iter_mut().zip(elements_of(dtype, message)) {
                *sum += x / 3.0;
                largest = largest.max(x.abs());
            }
            let mut decoder = Decoder::new(spec, SEED);
            decoder.decode_add(&tensor, 5, rank, message, 1.0 / 3.0, &mut separately).unwrap();
        }
        let together = decode(spec, &tensor, 5, &message_of(dtype, &sum)).unwrap();
        for (a, b) in together.iter().zip(&separately) {
            assert!((a - b).abs() <= largest * precision, "{elements}: {a} and {b}");
        }
    }
}

/// A contractive compressor's squared error, averaged over some draws, is at most the squared norm,
/// even for tensors at the ends of a format's range.
pub(super) fn contractive_messages_help(spec: &Spec) {
    const DRAWS: u64 = 5;
    if !spec.guarantee().is_contractive() {
        return;
    }
    // Some methods choose another scale if a residual keeps the rest.
    let spec = spec.clone().with_feedback(Some(Residual::PLAIN));
    let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let check = |tensor: &Tensor, gradient: &[f32], case: &str| {
        let mut error = 0.0;
        for step in 0..DRAWS {
            let message = encode(&mut encoder(&spec), tensor, step, gradient).unwrap();
            let decoded = decode(&spec, tensor, step, &message).unwrap();
            let pairs = gradient.iter().zip(&decoded);
            error += squares(&mut pairs.map(|(&x, &y)| f64::from(x) - f64::from(y)));
        }
        let norm = squares(&mut gradient.iter().map(|&x| x.into())) * DRAWS as f64;
        assert!(error <= norm * (1.0 + 1e-5), "{case}: an error of {error} for a norm of {norm}");
    };
    over_tensors_of(&[0, 1, 4, 5, 1023], check);
    // Few elements that are far larger than the others.
    for elements in [16, 9000, 100_000] {
        let tensor = Tensor::new("t", &[elements]);
        let mut spike = vec![1.0; elements];
        spike[0] = 1e6;
        check(&tensor, &spike, "one of a million among ones");
        let sixteen = |at: usize| if at % 16 == 15 { 100.0 } else { [0.001, 0.01][at % 2] };
        let sizes: Vec<f32> = (0..elements).map(sixteen).collect();
        check(&tensor, &sizes, "three sizes");
    }
}

/// A small gradient of 120 elements, as a matrix: far from the ends of formats' ranges, and so few
/// elements that all are soon sent.
fn small() -> (Tensor, Vec<f32>) {
    let gradient = gaussian(120, 8).into_iter().map(|x| 2e-4 * x).collect();
    (Tensor::new("t", &[12, 10]), gradient)
}

/// With `ef=ef21`, receivers know a small constant gradient after some hundred steps.
pub(super) fn estimates_converge(spec: &Spec) {
    if !spec.guarantee().is_contractive() || spec.compressor().memory().is_some() {
        return;
    }
    let text = spec.to_string();
    let own = text.split_once(':').map_or("", |(_, items)| items).split(',');
    let common = |item: &&str| {
        Spec::common_parameters().iter().any(|p| item.starts_with(&format!("{}=", p.key)))
    };
    let items: Vec<&str> = own.filter(|item| !common(item)).chain(["ef=ef21"]).collect();
    let (spec, (tensor, gradient)) = (parse(spec.entry(), &items.join(",")), small());
    let (mut sender, mut decoder) = (encoder(&spec), Decoder::new(&spec, SEED));
    let mut estimate = vec![0.0; gradient.len()];
    for step in 0..400 {
        let message = encode(&mut sender, &tensor, step, &gradient).unwrap();
        decoder.decode_add(&tensor, step, RANK, &message, 1.0, &mut estimate).unwrap();
    }
    let square = |x: f32| f64::from(x) * f64::from(x);
    let norm: f64 = gradient.iter().map(|&x| square(x)).sum();
    let error: f64 = gradient.iter().zip(&estimate).map(|(&x, &y)| square(x - y)).sum();
    assert!(error <= 0.1 * norm, "{spec}: a squared error of {} of the norm", error / norm);
}

/// For methods with error feedback by default: the residuals of a constant gradient stay bounded,
/// with the defaults and with each word of a parameter.
pub(super) fn residuals_stay_bounded(entry: &'static Entry) {
    let words = entry.parameters.iter().flat_map(|parameter| {
        let options: &[&str] = match parameter.kind {
            Kind::Choice { options } => options,
            _ => &[],
        };
        options.iter().map(move |option| format!("{}={option}", parameter.key))
    });
    let (tensor, gradient) = small();
    let largest = gradient.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    for text in words.chain([String::new()]) {
        let spec = match Spec::with_parameters(entry, &text) {
            Err(SpecError::Feedback { .. }) => continue,
            parsed => parsed.unwrap_or_else(|error| panic!("{error}")),
        };
        let mut sender = encoder(&spec);
        for step in 0..1000 {
            encode(&mut sender, &tensor, step, &gradient).unwrap();
        }
        let kept = sender.residual(tensor.name()).unwrap_or_default();
        let worst = kept.iter().fold(0f32, |worst, x| worst.max(x.abs()));
        // If nothing was ever sent, it is the sum of a thousand gradients.
        assert!(
            worst <= 2000.0 * largest,
            "{spec}: a residual of {worst} of gradients up to {largest}"
        );
    }
}

/// If two ranks send the same message, the accumulated result equals the single decoded message.
pub(super) fn accumulated_messages_decode(spec: &Spec) {
    if spec.compressor().accumulator().is_none() {
        return;
    }
    over_tensors_of(&[0, 1, 4, 5, 1023], |tensor, gradient, case| {
        let message = encode(&mut encoder(spec), tensor, 3, gradient).unwrap();
        let expected = decode(spec, tensor, 3, &message).unwrap();
        let (mut decoder, mut sums) = (Decoder::new(spec, SEED), Vec::new());
        let mut found = vec![0.0; gradient.len()];
        for weight in [0.25, 0.75] {
            let (at, sums) = ((3, RANK), &mut sums);
            decoder.accumulate(tensor, at, &message, weight, sums, &mut found).unwrap();
        }
        let before = sums.clone();
        let truncated = &message[..message.len().saturating_sub(1)];
        let refused = decoder.accumulate(tensor, (3, RANK), truncated, 1.0, &mut sums, &mut found);
        assert!(message.is_empty() || refused.is_err() && sums == before, "{case}");
        decoder.finish(tensor, 3, &mut sums, &mut found).unwrap();
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-5 * b.abs() + 1e-6, "{case}: {a} for {b}");
        }
    });
}
