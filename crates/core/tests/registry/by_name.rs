//! Each tensor of an encoder and a decoder has a compressor of its own.

use crate::common::*;
use gradwire::{Decoder, Encoder, Kept, Spec, State, StateError, Tensor};

fn tensors() -> [Tensor; 3] {
    ["a", "b", "c"].map(|name| Tensor::new(name, &[31, 33]))
}

/// One spec a tensor; the last is the encoder's own.
fn own_specs() -> [Spec; 3] {
    ["dgc:ratio=0.2", "signum:ef=on", "topk:ratio=0.1"].map(|text| text.parse().unwrap())
}

fn mixed() -> Encoder {
    let [a, b, c] = own_specs();
    let mut encoder = encoder(&c);
    encoder.assign("a", &a);
    encoder.assign("b", &b);
    encoder
}

fn step(encoder: &mut Encoder, tensor: &Tensor, step: u64) -> Vec<u8> {
    encode(encoder, tensor, step, &gaussian(1023, step)).unwrap()
}

#[test]
fn each_tensor_is_encoded_and_decoded_as_if_alone() {
    let [a, b, c] = own_specs();
    let (mut mixed, mut decoder) = (mixed(), Decoder::new(&c, SEED));
    decoder.assign("a", &a);
    decoder.assign("b", &b);
    for (tensor, spec) in tensors().iter().zip([a, b, c]) {
        assert_eq!(*mixed.spec_of(tensor.name()), spec);
        let mut alone = encoder(&spec);
        for at in 0..4 {
            let message = step(&mut alone, tensor, at);
            assert_eq!(step(&mut mixed, tensor, at), message, "{spec}");
            let mut out = vec![0.0; 1023];
            decoder.decode_add(tensor, at, RANK, &message, 1.0, &mut out).unwrap();
            assert_eq!(out, decode(&spec, tensor, at, &message).unwrap(), "{spec}");
        }
        assert_eq!(mixed.residual(tensor.name()), alone.residual(tensor.name()));
    }
}

#[test]
fn what_is_kept_stays_when_another_spec_is_assigned() {
    let [first, second] = ["topk:ratio=0.1", "topk:ratio=0.3"].map(|text| text.parse().unwrap());
    let (mut encoder, tensor) = (encoder(&first), &tensors()[0]);
    step(&mut encoder, tensor, 0);
    let kept = encoder.residual("a").unwrap().to_vec();
    encoder.assign("a", &second);
    assert_eq!(encoder.residual("a").unwrap(), kept);
    step(&mut encoder, tensor, 1);
    assert_eq!(encoder.positions().len(), 307);
}

#[test]
fn states_belong_to_names_and_are_restored_all_or_nothing() {
    let mut saved = mixed();
    tensors().iter().for_each(|tensor| drop(step(&mut saved, tensor, 0)));
    let mut state = State::new();
    saved.save("push/", &mut state);
    assert_eq!(state.setting("push/spec/b").unwrap(), "signum:ef=on");
    let arrays: Vec<_> = state.floats_under("push/").map(|(name, _)| name).collect();
    let expected = ["residual/a", "residual/b", "residual/c", "velocity/a", "velocity/b"];
    assert_eq!(arrays, expected);

    // Encoders that have a state already.
    let [mut restored, mut other] = [mixed(), mixed()];
    for used in [&mut restored, &mut other] {
        tensors().iter().for_each(|tensor| drop(step(used, tensor, 7)));
    }
    restored.restore("push/", &state).unwrap();
    for tensor in &tensors() {
        assert_eq!(step(&mut restored, tensor, 1), step(&mut saved, tensor, 1));
    }

    let kept = |encoder: &Encoder| {
        let residuals = ["a", "b", "c"].map(|name| bits(encoder.residual(name).unwrap()));
        let velocities = ["a", "b"].map(|name| bits(encoder.array(name, Kept::Velocity).unwrap()));
        (residuals, velocities)
    };
    let before = kept(&other);
    other.assign("b", &"signum".parse().unwrap());
    let error = other.restore("push/", &state).unwrap_err();
    assert!(matches!(&error, StateError::Mismatch { key, .. } if key.contains("'b'")), "{error}");
    assert_eq!(kept(&other), before);
}

#[test]
fn a_state_from_before_the_first_step_has_no_residuals() {
    let mut state = State::new();
    mixed().save("push/", &mut state);
    let mut used = mixed();
    tensors().iter().for_each(|tensor| drop(step(&mut used, tensor, 0)));
    used.restore("push/", &state).unwrap();
    assert!(["a", "b", "c"].iter().all(|name| used.residual(name).is_none()));
    assert_eq!(used.array("b", Kept::Velocity), None);
}
