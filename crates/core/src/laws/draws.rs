//! Laws of random draws, and of the guarantees: the expectation of unbiased messages, and the size
//! of contractive ones.

use super::samples::{RANK, SEED, gaussian};
use super::subjects::parse;
use crate::{Decoder, Encoder, Entry, Floats, Residual, Spec, Tensor};

/// What differs between two messages of the same gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Over {
    Steps,
    Ranks,
    Tensors,
}

/// The key of a message's draws.
struct Key {
    step: u64,
    rank: u32,
    tensor: Tensor,
}

impl Over {
    /// The key of message `at`; message 0 has the same one for all. Warm-ups are over by then.
    fn key(self, at: u32, shape: &[usize]) -> Key {
        const STEP: u64 = 1 << 20;
        let [mut step, mut rank, mut name] = [STEP, RANK.into(), 0];
        *match self {
            Self::Steps => &mut step,
            Self::Ranks => &mut rank,
            Self::Tensors => &mut name,
        } += u64::from(at);
        Key { step, rank: rank as u32, tensor: Tensor::new(format!("t{name}"), shape) }
    }
}

/// The message of a gradient, and the decoded tensor, without state between steps.
fn sent(spec: &Spec, key: &Key, gradient: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let Key { step, rank, tensor } = key;
    let (mut message, mut out) = (Vec::new(), vec![0.0; gradient.len()]);
    let mut encoder = Encoder::new(spec, SEED, *rank);
    encoder.encode(tensor, *step, Floats::F32(gradient), &mut message).unwrap();
    let mut decoder = Decoder::new(spec, SEED);
    decoder.decode_add(tensor, *step, *rank, &message, 1.0, &mut out).unwrap();
    (message, out)
}

/// Whether all ranks may draw the same numbers: their messages add up, or they send the same
/// positions, so that sums stay sparse.
fn ranks_share(spec: &Spec) -> bool {
    spec.compressor().adds() || spec.properties().draws_positions
}

/// A method that draws has other draws in each step, for each tensor and on each rank. With shared
/// draws the errors of ranks, or of steps, would add up instead of averaging out.
pub(super) fn draws_differ(spec: &Spec) {
    // The draws of rounds are shared, and some are for all steps.
    if spec.compressor().rounds().is_some() {
        return;
    }
    let (spec, shape) = (spec.clone().with_feedback(None), [33, 31]);
    let gradient = gaussian(1023, 5);
    // Some methods draw for few elements, so some messages are equal by chance.
    let differ = |over: Over| {
        let message = |at| sent(&spec, &over.key(at, &shape), &gradient).0;
        let first = message(0);
        (1..8).any(|at| message(at) != first)
    };
    let [steps, ranks, tensors] = [Over::Steps, Over::Ranks, Over::Tensors].map(differ);
    assert_eq!(
        steps, tensors,
        "messages of one gradient differ between steps: {steps}, between tensors: {tensors}; draws \
         come from `context`, which is keyed by both"
    );
    if !ranks_share(&spec) {
        assert_eq!(
            steps, ranks,
            "messages of one gradient differ between steps: {steps}, between ranks: {ranks}; draw \
             from `context.rng`, which is keyed by both"
        );
    }
}

/// The mean of the decoded messages of one gradient over many steps, over many ranks and over many
/// tensors is the gradient.
pub(super) fn expectation_is_the_gradient(spec: &Spec) {
    const DRAWS: u32 = 2000;
    if !spec.guarantee().is_unbiased() {
        return;
    }
    // A matrix with a few atoms shorter than its elements; one element is small, one is 0.
    let mut gradient: Vec<f32> = (0..72).map(|at| (at * at % 23) as f32 / 11.0 - 1.0).collect();
    (gradient[5], gradient[70]) = (0.0, 0.01);
    let spec = spec.clone().with_feedback(None);
    for over in [Over::Steps, Over::Ranks, Over::Tensors] {
        if over == Over::Ranks && ranks_share(&spec) {
            continue;
        }
        let (mut sums, mut largest) = (vec![[0f64; 2]; gradient.len()], 0f64);
        for at in 0..DRAWS {
            let (_, decoded) = sent(&spec, &over.key(at, &[6, 12]), &gradient);
            for ([sum, squares], x) in sums.iter_mut().zip(decoded.into_iter().map(f64::from)) {
                (*sum, *squares) = (*sum + x, *squares + x * x);
                largest = largest.max(x.abs());
            }
        }
        let draws = f64::from(DRAWS);
        for (&x, [sum, squares]) in gradient.iter().zip(sums) {
            let (x, mean) = (f64::from(x), sum / draws);
            let deviation = ((squares / draws - mean * mean).max(0.0) / draws).sqrt();
            // A rarely sent element may never have been sent. If it is sent as the largest value,
            // the chance of this is 1e-3.
            let rare = 7.0 * largest / draws;
            assert!(
                (mean - x).abs() <= 5.0 * deviation + rare,
                "the entry declares an unbiased message, but the mean of {x} over {over:?} is {mean}"
            );
        }
    }
}

/// The decoded tensor of a contractive method is about as large as the part of the tensor that it
/// stands for: no factor would bring it much closer. All elements have one magnitude, which most
/// quantizers represent exactly.
pub(super) fn kept_part_has_its_size(entry: &'static Entry) {
    if !entry.default_guarantee().is_contractive() {
        return;
    }
    let spec = parse(entry, "").with_feedback(Some(Residual::PLAIN));
    let tensor: Vec<f32> = gaussian(1023, 6).iter().map(|x| 0.01f32.copysign(*x)).collect();
    let (_, decoded) = sent(&spec, &Over::Steps.key(0, &[33, 31]), &tensor);
    let product = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>()
    };
    let best = product(&decoded, &tensor) / product(&decoded, &decoded);
    assert!(
        (0.67..=1.5).contains(&best),
        "the decoded tensor would be closest to the tensor if it were multiplied by {best:.3}; does \
         the message carry values, or a part of them?"
    );
}
