//! Sizes and states that encoders and decoders refuse, and shares that they send.

use crate::common::*;
use gradwire::{Decoder, Encoder, Error, Spec, State, StateError, Tensor};

#[test]
fn state_of_another_configuration_or_model_is_refused() {
    let (spec, other): (Spec, Spec) = ("3lc".parse().unwrap(), "3lc:s=1.5".parse().unwrap());
    let mut first = encoder(&spec);
    encode(&mut first, &Tensor::new("t", &[10]), 0, &[1.0; 10]).unwrap();
    let mut state = State::new();
    first.save("", &mut state);

    let mismatch = encoder(&other).restore("", &state).unwrap_err();
    let mismatch = mismatch.to_string();
    assert!(
        ["tensor 't'", "= 3lc,", "3lc:s=1.5"].iter().all(|text| mismatch.contains(text)),
        "{mismatch}"
    );
    let mut without_spec = State::new();
    without_spec.set_number("encoder", 1);
    without_spec.set_floats("residual/t", vec![0.0; 10]);
    let missing = encoder(&spec).restore("", &without_spec);
    assert!(matches!(missing, Err(StateError::Missing(key)) if key == "spec/t"));

    assert_eq!(["", "rank0"].map(|prefix| Encoder::was_saved(prefix, &state)), [true, false]);
    let mut restored = encoder(&spec);
    let wrong_prefix = restored.restore("rank0", &state);
    assert!(matches!(wrong_prefix, Err(StateError::Missing(key)) if key == "rank0encoder"));
    restored.restore("", &state).unwrap();
    let error = encode(&mut restored, &Tensor::new("t", &[12]), 1, &[1.0; 12]).unwrap_err();
    let Error::State(StateError::WrongSize { entry, found: 10, expected: 12 }) = error else {
        panic!("{error}");
    };
    assert_eq!(entry, "residual/t");
}

#[test]
fn ratios_send_the_share_they_name() {
    let tensor = Tensor::new("t", &[100_000]);
    for (text, expected) in [
        ("topk", 1_000..=1_000),
        ("topk:ratio=0.25", 25_000..=25_000),
        ("randomk", 1_000..=1_000),
        ("randomk:indices=independent", 1_000..=1_000),
        ("topk:select=sampled", 700..=1_300),
        ("topk:ratio=0.25,select=sampled", 23_000..=27_000),
        ("gradient-dropping", 100..=100),
        ("dgc:ratio=0.01", 800..=1_250),
        ("sgc:ratio=0.01", 800..=1_250),
        ("qsparse-local", 1_000..=1_000),
        ("qsparse-local:select=randomk", 1_000..=1_000),
        // Five standard deviations of a sum of draws, of which hardly any is certain.
        ("adaptive", 842..=1_158),
        ("sbc", 1_000..=1_000),
        ("sbc:select=sampled", 700..=1_300),
    ] {
        let mut encoder = encoder(&text.parse().unwrap());
        encode(&mut encoder, &tensor, 0, &gaussian(100_000, 0)).unwrap();
        let sent = encoder.positions().len();
        assert!(expected.contains(&sent), "{text}: {sent}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let spec: Spec = "topk".parse().unwrap();
    let small = Tensor::new("fc", &[3]);
    let error = encode(&mut encoder(&spec), &small, 0, &[1.0; 2]).unwrap_err();
    assert!(matches!(error, Error::WrongLength { expected: 3, found: 2, .. }));
    let error =
        Decoder::new(&spec, 0).decode_add(&small, 0, 0, &[], 1.0, &mut [0.0; 4]).unwrap_err();
    assert!(matches!(error, Error::WrongLength { expected: 3, found: 4, .. }));

    let huge = Tensor::new("embedding", &[1 << 17, 1 << 16]);
    for id in ["topk", "topk:select=sampled", "randomk", "threshold", "dgc", "sgc", "sbc", "strom"]
    {
        let spec: Spec = id.parse().unwrap();
        let error = encode(&mut encoder(&spec), &huge, 0, &[]).unwrap_err();
        let Error::TooLarge { limit: 0xffff_ffff, .. } = error else { panic!("{error}") };
        assert!(error.to_string().contains("embedding"));
        let result = Decoder::new(&spec, 0).decode_add(&huge, 0, 0, &[], 1.0, &mut []);
        assert!(matches!(result, Err(Error::TooLarge { .. })));
    }
}
