//! Laws of encoders: the parts that they send and keep.

use super::formats;
use super::samples::{RANK, SEED, bits, decode, encode, encoder, gaussian, tensors};
use super::subjects::over_tensors;
use crate::{Coverage, Decoder, Dtype, Encoder, Error, Floats, Residual, Spec, State, Tensor};

pub(super) fn is_deterministic_and_bounded(spec: &Spec) {
    let compressor = spec.compressor();
    over_tensors(|tensor, gradient, case| {
        let (mut a, mut b) = (encoder(spec), encoder(spec));
        for step in 0..2 {
            let message = encode(&mut a, tensor, step, gradient);
            let again = encode(&mut b, tensor, step, gradient);
            let (Ok(message), Ok(again)) = (message, again) else {
                // Only the sum with a residual can overflow.
                assert!(step > 0 && case.ends_with("huge"), "{case}");
                break;
            };
            assert_eq!(message, again, "{case}: two encodings differ");
            let (elements, len) = (tensor.elements(), message.len());
            let most = compressor.max_len(elements);
            assert!(len <= most, "{case}: {len} bytes, max_len is {most}");
            let most = compressor.max_elements(len);
            assert!(
                elements <= most,
                "{case}: {elements} elements in {len} bytes, max_elements is {most}"
            );
            let decoded = decode(spec, tensor, step, &message).unwrap();
            let bad = decoded.iter().position(|x| !x.is_finite());
            assert!(bad.is_none(), "{case}: element {bad:?} decodes to what is not finite");
        }
    });
}

/// `corrected == decoded + residual`, for plain residuals. Other memories have separate tests.
pub(super) fn residual_is_what_is_not_sent(spec: &Spec) {
    let Some(Residual { beta, gamma }) = spec.feedback() else { return };
    if spec.own_memory(false).is_some() {
        return;
    }
    over_tensors(|tensor, gradient, case| {
        let mut encoder = encoder(spec);
        for step in 0..3 {
            let before =
                encoder.residual(tensor.name()).map_or(vec![0.0; gradient.len()], <[f32]>::to_vec);
            let message = encode(&mut encoder, tensor, step, gradient);
            if let Err(error) = &message {
                assert!(matches!(error, Error::Overflow { .. }), "{case}: {error}");
            }
            let Ok(message) = message else {
                assert!(step > 0 && case.ends_with("huge"), "{case}");
                assert_eq!(bits(encoder.residual(tensor.name()).unwrap()), bits(&before));
                break;
            };
            let decoded = decode(spec, tensor, step, &message).unwrap();
            let kept = encoder.residual(tensor.name()).unwrap();
            for (i, &g) in gradient.iter().enumerate() {
                let corrected = f64::from(beta * before[i] + gamma * g);
                let (sent, kept) = (f64::from(decoded[i]), f64::from(kept[i]));
                let room = corrected.abs().max(sent.abs()) * f64::from(f32::EPSILON);
                let error = (corrected - (sent + kept)).abs();
                assert!(
                    error <= room,
                    "{case}, step {step}, element {i}: {corrected} = {sent} + {kept}"
                );
            }
        }
    });
}

pub(super) fn nothing_is_kept_without_feedback(spec: &Spec) {
    over_tensors(|tensor, gradient, case| {
        // Multi-round methods may keep starting factors anyway.
        let kept = spec.compressor().rounds().and_then(|rounds| rounds.kept());
        let keeps = kept.is_some_and(|kept| kept.len(tensor.shape()) > 0);
        if spec.feedback().is_none() && !keeps {
            let mut encoder = encoder(spec);
            let first = encode(&mut encoder, tensor, 4, gradient).unwrap();
            assert_eq!(first, encode(&mut encoder, tensor, 4, gradient).unwrap(), "{case}");
            assert!(encoder.residual(tensor.name()).is_none());
        }
    });
}

pub(super) fn lossless_means_every_value(spec: &Spec) {
    if !spec.entry().lossless {
        return;
    }
    for (kind, gradient) in tensors(1023) {
        let tensor = Tensor::new("t", &[1023]);
        let message = encode(&mut encoder(spec), &tensor, 0, &gradient).unwrap();
        assert_eq!(decode(spec, &tensor, 0, &message).unwrap(), gradient, "{kind}");
    }
}

pub(super) fn restored_continues_as_saved(spec: &Spec) {
    let tensors = [Tensor::new("a", &[1023]), Tensor::new("b", &[33, 3])];
    let step = |encoder: &mut Encoder, step: u64| -> Vec<Vec<u8>> {
        let gradient = |tensor: &Tensor| gaussian(tensor.elements(), step);
        tensors.iter().map(|t| encode(encoder, t, step, &gradient(t)).unwrap()).collect()
    };
    let mut saved = encoder(spec);
    step(&mut saved, 0);
    step(&mut saved, 1);
    let mut state = State::new();
    saved.save("rank2/", &mut state);
    let state = State::from_bytes(&state.to_bytes().unwrap()).unwrap();
    let mut restored = encoder(spec);
    restored.restore("rank2/", &state).unwrap();
    for at in 2..4 {
        assert_eq!(step(&mut saved, at), step(&mut restored, at), "step {at}");
    }
}

/// The state of an encoder, as the bytes of a file.
fn saved(encoder: &Encoder) -> Vec<u8> {
    let mut state = State::new();
    encoder.save("", &mut state);
    state.to_bytes().unwrap()
}

pub(super) fn non_finite_is_refused(spec: &Spec) {
    let tensor = Tensor::new("conv1.weight", &[9000]);
    let mut encoder = encoder(spec);
    encode(&mut encoder, &tensor, 0, &gaussian(9000, 1)).unwrap();
    let before = saved(&encoder);
    // The NaN of GPUs has all bits set but the sign.
    let of_gpus = f32::from_bits(0x7fff_ffff);
    let all = [
        (0, f32::NAN),
        (4567, f32::INFINITY),
        (8999, f32::NEG_INFINITY),
        (17, of_gpus),
        (5000, -of_gpus),
    ];
    for (at, bad) in all {
        let mut gradient = gaussian(9000, 2);
        gradient[at] = bad;
        gradient[8999] = bad;
        let mut message = vec![1, 2, 3];
        let error = encoder.encode(&tensor, 1, Floats::F32(&gradient), &mut message).unwrap_err();
        let Error::NonFinite { tensor: name, index, value } = &error else { panic!("{error}") };
        let named = (name.as_str(), *index, value.to_bits());
        assert_eq!(named, (tensor.name(), at, bad.to_bits()));
        assert_eq!(message, [1, 2, 3]);
        assert!(saved(&encoder) == before, "{error}: the encoder has changed");

        let halves: Vec<u16> = gradient.iter().map(|&x| formats::nearest(Dtype::F16, x)).collect();
        let error = encoder.encode(&tensor, 1, Floats::F16(&halves), &mut message).unwrap_err();
        assert!(matches!(error, Error::NonFinite { index, .. } if index == at), "{error}");
        assert!(saved(&encoder) == before, "{error}: the encoder has changed");
    }
    let good = encode(&mut encoder, &tensor, 1, &gaussian(9000, 3)).unwrap();
    assert!(decode(spec, &tensor, 1, &good).is_ok());
}

pub(super) fn sixteen_bits_are_converted(spec: &Spec) {
    for elements in [0, 1, 7, 1023, 9000] {
        let tensor = Tensor::new("t", &[elements]);
        let noise = gaussian(elements, 4);
        for (dtype, scale) in [(Dtype::F16, 1e-4), (Dtype::Bf16, 1.0)] {
            let narrow: Vec<u16> =
                noise.iter().map(|x| formats::nearest(dtype, x * scale)).collect();
            let wide: Vec<f32> =
                narrow.iter().map(|&pattern| formats::value(dtype, pattern)).collect();
            let narrow =
                if dtype == Dtype::F16 { Floats::F16(&narrow) } else { Floats::Bf16(&narrow) };
            let (mut a, mut b) = (encoder(spec), encoder(spec));
            for step in 0..2 {
                let mut message = Vec::new();
                a.encode(&tensor, step, narrow, &mut message).unwrap();
                assert_eq!(message, encode(&mut b, &tensor, step, &wide).unwrap(), "{elements}");
                assert_eq!(a.residual("t").map(bits), b.residual("t").map(bits), "{elements}");
            }
        }
    }
}

/// Whether sent elements arrive unchanged.
fn exact(spec: &Spec) -> bool {
    let plain = spec.compressor().memory().is_none();
    spec.feedback().is_some() && plain && spec.properties().value_bits == Some(32)
}

pub(super) fn positions_are_what_is_carried(spec: &Spec) {
    over_tensors(|tensor, gradient, case| {
        let (mut encoder, mut message) = (encoder(spec), Vec::new());
        let sent = encoder.encode(tensor, 3, Floats::F32(gradient), &mut message).unwrap();
        if sent == Coverage::All {
            return;
        }
        let positions = encoder.positions();
        assert!(positions.is_sorted_by(|a, b| a < b), "{case}");
        assert!(positions.last().is_none_or(|&last| (last as usize) < gradient.len()), "{case}");
        let mut out = vec![0.5; gradient.len()];
        Decoder::new(spec, SEED).decode_add(tensor, 3, RANK, &message, 1.0, &mut out).unwrap();
        let mut carried = vec![false; gradient.len()];
        positions.iter().for_each(|&at| carried[at as usize] = true);
        for (at, (&out, &g)) in out.iter().zip(gradient).enumerate() {
            if !carried[at] {
                assert_eq!(out, 0.5, "{case}, element {at}");
            } else if exact(spec) {
                assert_eq!(out, 0.5 + g, "{case}, element {at}");
            }
        }
    });
}
