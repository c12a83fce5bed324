//! The law of states that no encoder wrote, such as a damaged checkpoint's.

use super::samples::{decode, encode, encoder, gaussian};
use crate::{Encoder, Rng, Spec, State, Tensor};

/// Numbers that states may have in wrong places, and some that belong nowhere.
const NUMBERS: [f32; 14] = [
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MAX,
    f32::MIN,
    1e30,
    1e19,
    2.5,
    0.5,
    0.0,
    -1.0,
    1e-20,
    1e-40,
    -1e-45,
];

/// A state is refused, or the decoder accepts every message that an encoder makes from it.
pub(super) fn messages_of_any_state_decode(spec: &Spec) {
    for shape in [&[7][..], &[33, 31]] {
        let tensor = Tensor::new("layer.weight", shape);
        let gradient = gaussian(tensor.elements(), 5);
        let mut sender = encoder(spec);
        for step in 0..2 {
            encode(&mut sender, &tensor, step, &gradient).expect("the gradient is finite");
        }
        let mut whole = State::new();
        sender.save("", &mut whole);
        for kind in Encoder::KINDS {
            let name = format!("{kind}/{}", tensor.name());
            let Ok(values) = whole.floats(&name) else { continue };
            for (case, values) in changed(values) {
                let mut state = whole.clone();
                state.set_floats(&name, values);
                follow(spec, &tensor, &gradient, &state, &format!("{shape:?}, {kind}: {case}"));
            }
        }
    }
}

/// Two steps from a state.
fn follow(spec: &Spec, tensor: &Tensor, gradient: &[f32], state: &State, case: &str) {
    let mut sender = encoder(spec);
    if sender.restore("", state).is_err() {
        return;
    }
    for step in 2..4 {
        let Ok(message) = encode(&mut sender, tensor, step, gradient) else { return };
        if let Err(error) = decode(spec, tensor, step, &message) {
            panic!("{case}, step {step}: {error}");
        }
    }
}

/// Copies of an array with another number in all elements, in the last, or in one inside; and a
/// copy of random patterns.
fn changed(values: &[f32]) -> Vec<(String, Vec<f32>)> {
    let mut all = Vec::new();
    for x in NUMBERS {
        all.push((format!("all {x}"), vec![x; values.len()]));
        for at in [values.len() / 3, values.len() - 1] {
            let mut values = values.to_vec();
            values[at] = x;
            all.push((format!("{x} at {at}"), values));
        }
    }
    let mut words = vec![0; values.len()];
    Rng::new(1, 2, 3, 4, 5).fill(&mut words);
    all.push(("random bits".to_owned(), words.into_iter().map(f32::from_bits).collect()));
    let scaled = values.iter().map(|x| x * 1e25).collect();
    all.push(("scaled by 1e25".to_owned(), scaled));
    all
}
