//! Laws of the memories that any compressor can have: `ef=ef21` and `momentum`.

use super::samples::{decode, encode, encoder};
use super::subjects::{over_tensors_of, parse};
use crate::{Encoder, Entry, Spec, State, Tensor};

/// The configurations of an entry with these memories.
pub(super) fn specs(entry: &'static Entry) -> Vec<Spec> {
    let mut all = Vec::new();
    if entry.compressor().memory().is_none() {
        all.extend(["ef=on,momentum=0.5", "ef=off,momentum=0.5"]);
        if entry.default_guarantee().is_contractive() {
            all.extend(["ef=ef21", "ef=ef21,momentum=0.5"]);
        }
    }
    all.into_iter().map(|text| parse(entry, text)).collect()
}

/// `v ← m·v + (1 − m)·g` is compressed; with a plain residual r, `c = v + r` instead, and
/// `r ← c − decoded`; with EF21, `c = v − h`, and `h ← h + decoded`.
pub(super) fn memories_follow_their_formulas(spec: &Spec) {
    // The largest is two blocks, the second not full.
    over_tensors_of(&[0, 1, 5, 1023, 5000], |tensor, gradient, case| {
        if !case.ends_with("huge") {
            follow(spec, tensor, gradient, case);
        }
    });
}

/// Compares steps with changing gradients with the formulas in double precision.
fn follow(spec: &Spec, tensor: &Tensor, gradient: &[f32], case: &str) {
    let (momentum, changes) = (momentum_of(spec), spec.sends_changes());
    let mut sender = encoder(spec);
    let mut before = arrays(&sender, tensor);
    for (step, weight) in (0..).zip([1.0, -0.5, 0.25, 1.0]) {
        let gradient: Vec<f32> = gradient.iter().map(|g| g * weight).collect();
        let message = encode(&mut sender, tensor, step, &gradient).unwrap();
        let decoded = decode(spec, tensor, step, &message).unwrap();
        let after = arrays(&sender, tensor);
        for at in 0..gradient.len() {
            let [g, sent] = [gradient[at], decoded[at]].map(f64::from);
            let [v, kept] = before.each_ref().map(|array| f64::from(array[at]));
            let mean = momentum * v + (1.0 - momentum) * g;
            let left = match (changes, spec.feedback()) {
                (true, _) => kept + sent,
                (false, Some(_)) => mean + kept - sent,
                (false, None) => 0.0,
            };
            let size = [v, g, kept, sent].map(f64::abs).iter().sum::<f64>();
            let room = 8.0 * f64::from(f32::EPSILON) * size + 1e-44;
            let near = |found: f32, expected: f64| (f64::from(found) - expected).abs() <= room;
            let case = format!("{case}, step {step}, element {at}");
            assert!(near(after[1][at], left), "{case}: {} for {left}", after[1][at]);
            let unchanged = after[1][at] == before[1][at];
            assert!(!changes || sent != 0.0 || unchanged, "{case}: an estimate has moved");
            let mean = if momentum > 0.0 { mean } else { 0.0 };
            assert!(near(after[0][at], mean), "{case}: {} for {mean}", after[0][at]);
        }
        before = after;
    }
}

fn momentum_of(spec: &Spec) -> f64 {
    let text = spec.to_string();
    text.split_once("momentum=").map_or(0.0, |(_, value)| value.parse().expect("it comes last"))
}

/// The running mean and the residual or estimate that an encoder keeps; zeros if it keeps none.
fn arrays(encoder: &Encoder, tensor: &Tensor) -> [Vec<f32>; 2] {
    let mut state = State::new();
    encoder.save("", &mut state);
    ["velocity", "residual"].map(|kind| {
        let array = state.floats(&format!("{kind}/{}", tensor.name()));
        array.map_or(vec![0.0; tensor.elements()], <[f32]>::to_vec)
    })
}
