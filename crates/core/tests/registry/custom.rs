//! Memories of a compressor's own.

use crate::common::custom::{MOMENTUM, masked, momenta, plain, steep};
use crate::common::*;
use gradwire::frame::Frame;
use gradwire::{Decoder, Dtype, Encoder, Error, Floats, Spec, State, Tensor};

fn tensor() -> Tensor {
    Tensor::new("t", &[33, 31])
}

fn residual(encoder: &Encoder) -> &[f32] {
    encoder.residual("t").unwrap()
}

#[test]
fn the_defaults_are_the_plain_residual_to_the_bit() {
    for (text, custom) in plain() {
        let (mut own, mut built_in) = (encoder(&custom), encoder(&text.parse().unwrap()));
        for step in 0..5 {
            let gradient = gaussian(1023, step);
            let bfloats: Vec<u16> = gradient.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
            for floats in [Floats::F32(&gradient), Floats::Bf16(&bfloats)] {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                own.encode(&tensor(), step, floats, &mut a).unwrap();
                built_in.encode(&tensor(), step, floats, &mut b).unwrap();
                assert_eq!(a, b, "{text}, step {step}");
                assert_eq!(bits(residual(&own)), bits(residual(&built_in)), "{text}, step {step}");
            }
        }
    }
}

#[test]
fn no_frame_has_a_compressor_that_nobody_could_find() {
    let mut written = Vec::new();
    for (id, spec) in plain() {
        let frame = Frame {
            spec,
            tensor: tensor(),
            dtype: Dtype::F32,
            seed: 0,
            step: 0,
            rank: 0,
            message: &[],
        };
        let error = frame.write(&mut written).unwrap_err().to_string();
        assert!(error.contains(id) && error.contains("registry"), "{error}");
    }
    assert!(written.is_empty());
}

#[test]
fn threads_may_share_encoders_and_decoders() {
    fn shared<T: Send + Sync>() {}
    shared::<Encoder>();
    shared::<Decoder>();
}

#[test]
fn a_momentum_of_its_own_follows_a_scalar_reference() {
    for (spec, room) in momenta().iter().zip([0.0, 1e-6]) {
        let (mut encoder, mut memory) = (encoder(spec), vec![0f32; 1023]);
        for step in 0..6 {
            let gradient = gaussian(1023, step);
            let message = encode(&mut encoder, &tensor(), step, &gradient).unwrap();
            let decoded = decode(spec, &tensor(), step, &message).unwrap();
            for (at, m) in memory.iter_mut().enumerate() {
                let compensated = *m + 1.0 / (step + 1) as f32 * gradient[at];
                let (left, found) = (compensated - decoded[at], residual(&encoder)[at]);
                *m = left + MOMENTUM * decoded[at];
                assert!((found - *m).abs() <= room * m.abs().max(1.0), "{spec}: {found} for {m}");
            }
            // Rounding of one step must not look like an error of the next.
            memory.copy_from_slice(residual(&encoder));
        }
    }
}

#[test]
fn it_is_saved_and_restored_and_taken_back() {
    for spec in momenta() {
        let step = |encoder: &mut Encoder, step: u64| {
            encode(encoder, &tensor(), step, &gaussian(1023, step)).unwrap()
        };
        let mut whole = encoder(&spec);
        let messages: Vec<_> = (0..5).map(|at| step(&mut whole, at)).collect();

        let mut saved = encoder(&spec);
        (0..2).for_each(|at| drop(step(&mut saved, at)));
        let mut state = State::new();
        saved.save("rank0/", &mut state);
        assert_eq!(state.floats("rank0/residual/t").unwrap(), residual(&saved));
        let mut restored = encoder(&spec);
        let state = State::from_bytes(&state.to_bytes().unwrap()).unwrap();
        restored.restore("rank0/", &state).unwrap();

        restored.checkpoint();
        step(&mut restored, 9);
        restored.rollback();
        for at in 2..5 {
            assert_eq!(step(&mut restored, at), messages[at as usize], "{spec}, step {at}");
        }
        assert_eq!(bits(residual(&restored)), bits(residual(&whole)));
    }
}

#[test]
fn updates_know_what_was_carried_and_what_was_given() {
    let (mut encoder, gradient) = (encoder(&masked()), gaussian(1023, 3));
    encode(&mut encoder, &tensor(), 0, &gradient).unwrap();
    let carried = encoder.positions();
    assert!(!carried.is_empty());
    for (at, (&m, &g)) in residual(&encoder).iter().zip(&gradient).enumerate() {
        let expected = if carried.contains(&(at as u32)) { 0.0 } else { g + g };
        assert_eq!(m, expected, "element {at}");
    }
}

#[test]
fn what_is_not_finite_changes_nothing() {
    let (spec, small) = (steep(), vec![0.5; 1023]);
    let with = |value: f32| {
        let mut gradient = small.clone();
        gradient[700] = value;
        gradient
    };
    let mut encoder = encoder(&spec);
    let mut message = vec![7];
    let mut refused = |encoder: &mut Encoder, gradient: &[f32]| {
        let error = encoder.encode(&tensor(), 1, Floats::F32(gradient), &mut message).unwrap_err();
        let finite = gradient[700].is_finite();
        assert_eq!(matches!(error, Error::Overflow { .. }), finite, "{error}");
        assert_eq!(matches!(error, Error::NonFinite { .. }), !finite, "{error}");
        assert!(error.to_string().contains("700"));
        assert_eq!(message, [7]);
    };
    // Of the gradient, or of the memory that would come next.
    for value in [f32::NAN, f32::INFINITY, 2.0] {
        refused(&mut encoder, &with(value));
        assert!(encoder.residual("t").is_none(), "{value}");
    }
    encode(&mut encoder, &tensor(), 0, &small).unwrap();
    let state = |encoder: &Encoder| {
        let mut state = State::new();
        encoder.save("", &mut state);
        state
    };
    let before = state(&encoder);
    // Of what φ makes of both: the memory is half of what is finite.
    for value in [f32::NEG_INFINITY, 2.0, f32::MAX] {
        refused(&mut encoder, &with(value));
        assert_eq!(state(&encoder), before, "{value}");
    }
}

#[test]
fn without_error_feedback_and_on_the_way_back_it_is_not_there() {
    let [topk, _] = momenta();
    let gradients = [gaussian(1023, 1), gaussian(1023, 2)];
    let messages = |encoder: &mut Encoder| {
        let step = |gradient: &Vec<f32>| encode(encoder, &tensor(), 4, gradient).unwrap();
        gradients.iter().map(step).collect::<Vec<_>>()
    };
    let registered = |text: &str| encoder(&text.parse::<Spec>().unwrap());

    let mut off = encoder(&topk.clone().with_feedback(None));
    assert_eq!(messages(&mut off), messages(&mut registered("topk:ratio=0.1,ef=off")));
    assert!(off.residual("t").is_none());

    let (mut back, mut residuals) =
        (encoder(&topk).with_plain_memory(), registered("topk:ratio=0.1"));
    assert_eq!(messages(&mut back), messages(&mut residuals));
    assert_eq!(bits(residual(&back)), bits(residual(&residuals)));
}

#[test]
fn rounds_are_not_played_with_it() {
    let (_, powersgd) = plain().pop().unwrap();
    assert!(!encoder(&powersgd).has_rounds("t"));
    assert!(encoder(&powersgd).with_plain_memory().has_rounds("t"));
    assert!(encoder(&powersgd.with_feedback(None)).has_rounds("t"));
}
