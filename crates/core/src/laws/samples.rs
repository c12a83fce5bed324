//! Tensors with edge cases, and functions that encode and decode them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::{Decoder, Encoder, Error, Floats, Rng, Spec, Tensor};

/// The seed of all runs.
pub const SEED: u64 = 11;
/// The rank that sends.
pub const RANK: u32 = 2;

/// Numbers of elements: none, few, an odd number, and more than the largest block, of 65 536.
pub const SIZES: [usize; 9] = [0, 1, 2, 4, 5, 6, 7, 1023, 70_000];

/// A vector, and for some sizes also matrices or tensors of more dimensions, which low-rank methods
/// treat differently.
pub fn shapes(elements: usize) -> Vec<Vec<usize>> {
    let mut shapes = vec![vec![elements]];
    match elements {
        0 => shapes.extend([vec![3, 0], vec![0, usize::MAX, 2]]),
        1023 => shapes.push(vec![33, 31]),
        70_000 => shapes.push(vec![100, 7, 100]),
        _ => {}
    }
    shapes
}

/// Named finite tensors with edge cases. Two steps of `huge` may add up to infinity.
pub fn tensors(elements: usize) -> Vec<(&'static str, Vec<f32>)> {
    let noise = gaussian(elements, elements as u64);
    let map = |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
        noise.iter().enumerate().map(|(i, &x)| f(i, x)).collect()
    };
    vec![
        ("gaussian", noise.clone()),
        ("zeros", vec![0.0; elements]),
        ("negative zeros", map(&|i, _| if i % 2 == 0 { -0.0 } else { 0.0 })),
        ("constant", vec![0.1; elements]),
        ("one hot", map(&|i, _| if i == elements / 2 { -3.0 } else { 0.0 })),
        ("subnormal", map(&|_, x| f32::from_bits((x.abs() * 100.0) as u32).copysign(x))),
        ("huge", map(&|i, x| if i % 3 == 0 { f32::MAX.copysign(x) } else { x * 1e37 })),
        ("sparse", map(&|_, x| if x.abs() > 2.0 { x * 1e-3 } else { 0.0 })),
    ]
}

/// Values by their number and seed.
type Drawn = BTreeMap<(usize, u64), Arc<[f32]>>;

/// Normal values as sums of twelve uniform ones: enough tail for tests, and the same on every
/// machine. Keeps them, because most laws ask for the same again, for each configuration.
pub fn gaussian(elements: usize, seed: u64) -> Vec<f32> {
    static KNOWN: Mutex<Drawn> = Mutex::new(BTreeMap::new());
    let found = KNOWN.lock().unwrap().get(&(elements, seed)).cloned();
    let values = found.unwrap_or_else(|| {
        let values: Arc<[f32]> = drawn(elements, seed).into();
        KNOWN.lock().unwrap().insert((elements, seed), Arc::clone(&values));
        values
    });
    values.to_vec()
}

fn drawn(elements: usize, seed: u64) -> Vec<f32> {
    let mut words = vec![0; 12 * elements];
    Rng::new(seed, 1, 2, 3, 4).fill(&mut words);
    let uniform = |&word: &u32| word as f32 / 4_294_967_296.0;
    words.chunks(12).map(|twelve| twelve.iter().map(uniform).sum::<f32>() - 6.0).collect()
}

/// An encoder of [`RANK`].
pub fn encoder(spec: &Spec) -> Encoder {
    Encoder::new(spec, SEED, RANK)
}

/// The message of a gradient.
///
/// # Errors
/// As for [`Encoder::encode`].
pub fn encode(
    encoder: &mut Encoder,
    tensor: &Tensor,
    step: u64,
    gradient: &[f32],
) -> Result<Vec<u8>, Error> {
    let mut message = Vec::new();
    encoder.encode(tensor, step, Floats::F32(gradient), &mut message)?;
    Ok(message)
}

/// The decoded message of [`RANK`].
///
/// # Errors
/// As for [`Decoder::decode_add`].
pub fn decode(spec: &Spec, tensor: &Tensor, step: u64, message: &[u8]) -> Result<Vec<f32>, Error> {
    let mut out = vec![0.0; tensor.elements()];
    Decoder::new(spec, SEED).decode_add(tensor, step, RANK, message, 1.0, &mut out)?;
    Ok(out)
}

/// For each element, the mean and the variance of the decoded values over this number of steps,
/// without state between steps.
///
/// # Panics
/// If a message is not encoded or decoded.
pub fn means_and_variances(
    spec: &Spec,
    tensor: &Tensor,
    gradient: &[f32],
    draws: u64,
) -> Vec<[f64; 2]> {
    let mut sums = vec![[0f64; 2]; gradient.len()];
    for step in 0..draws {
        let message = encode(&mut encoder(spec), tensor, step, gradient).unwrap();
        for (sums, x) in sums.iter_mut().zip(decode(spec, tensor, step, &message).unwrap()) {
            sums[0] += f64::from(x);
            sums[1] += f64::from(x) * f64::from(x);
        }
    }
    let moments = |[sum, squares]: [f64; 2]| {
        let mean = sum / draws as f64;
        [mean, squares / draws as f64 - mean * mean]
    };
    sums.into_iter().map(moments).collect()
}

/// The bit patterns of values, which distinguish 0 and −0.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}
