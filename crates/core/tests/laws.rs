//! The laws that every compressor obeys, over the whole registry.

mod common;

use common::*;
use gradwire::{
    Decoder, Encoder, Error, Floats, Residual, Rounds, Sent, Spec, State, StateError, Tensor,
};

/// Runs a law over all specs, sizes and kinds of tensor.
fn over_everything(mut law: impl FnMut(&Spec, &Tensor, &[f32], &str)) {
    for spec in specs() {
        for elements in SIZES {
            for (kind, values) in tensors(elements) {
                for shape in shapes(elements) {
                    let case = format!("{spec}, {shape:?}, {kind}");
                    law(&spec, &Tensor::new("layer.weight", &shape), &values, &case);
                }
            }
        }
    }
}

#[test]
fn equal_keys_give_equal_bytes_within_the_bounds() {
    over_everything(|spec, tensor, gradient, case| {
        let (mut a, mut b) = (encoder(spec), encoder(spec));
        for step in 0..2 {
            let message = encode(&mut a, tensor, step, gradient);
            let again = encode(&mut b, tensor, step, gradient);
            let (Ok(message), Ok(again)) = (message, again) else {
                // Only the sum with a residual can overflow.
                assert!(step > 0 && case.ends_with("huge"), "{case}");
                break;
            };
            assert_eq!(message, again, "{case}");
            let compressor = spec.compressor();
            assert!(message.len() <= compressor.max_len(tensor.elements()), "{case}");
            assert!(tensor.elements() <= compressor.max_elements(message.len()), "{case}");
            let decoded = decode(spec, tensor, step, &message).unwrap();
            assert!(decoded.iter().all(|x| x.is_finite()), "{case}");
        }
    });
}

#[test]
fn what_is_not_sent_is_kept() {
    over_everything(|spec, tensor, gradient, case| {
        let Some(Residual { beta, gamma }) = spec.memory() else { return };
        // Memories of a method's own have laws of their own, in `memories.rs`.
        if spec.compressor().memory().is_some() {
            return;
        }
        let mut encoder = encoder(spec);
        for step in 0..3 {
            let before =
                encoder.residual(tensor.name()).map_or(vec![0.0; gradient.len()], <[f32]>::to_vec);
            let Ok(message) = encode(&mut encoder, tensor, step, gradient) else {
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

#[test]
fn without_error_feedback_nothing_is_kept() {
    over_everything(|spec, tensor, gradient, case| {
        // Factors to start from are kept all the same.
        let keeps = |rounds: &dyn Rounds| rounds.kept_len(tensor.shape()) > 0;
        if spec.memory().is_none() && !spec.compressor().rounds().is_some_and(keeps) {
            let mut encoder = encoder(spec);
            let first = encode(&mut encoder, tensor, 4, gradient).unwrap();
            assert_eq!(first, encode(&mut encoder, tensor, 4, gradient).unwrap(), "{case}");
            assert!(encoder.residual(tensor.name()).is_none());
        }
    });
}

#[test]
fn lossless_means_every_value() {
    for spec in specs().iter().filter(|spec| spec.entry().guarantees.lossless) {
        for (kind, gradient) in tensors(1023) {
            let tensor = Tensor::new("t", &[1023]);
            let message = encode(&mut encoder(spec), &tensor, 0, &gradient).unwrap();
            assert_eq!(decode(spec, &tensor, 0, &message).unwrap(), gradient, "{kind}");
        }
    }
}

#[test]
fn a_restored_encoder_goes_on_as_the_saved_one() {
    let tensors = [Tensor::new("a", &[1023]), Tensor::new("b", &[33, 3])];
    for spec in specs() {
        let mut saved = encoder(&spec);
        let step = |encoder: &mut Encoder, step: u64| -> Vec<Vec<u8>> {
            let gradient = |tensor: &Tensor| gaussian(tensor.elements(), step);
            tensors.iter().map(|t| encode(encoder, t, step, &gradient(t)).unwrap()).collect()
        };
        step(&mut saved, 0);
        step(&mut saved, 1);
        let mut state = State::new();
        saved.save("rank2/", &mut state);
        let state = State::from_bytes(&state.to_bytes().unwrap()).unwrap();
        let mut restored = encoder(&spec);
        restored.restore("rank2/", &state).unwrap();
        for at in 2..4 {
            assert_eq!(step(&mut saved, at), step(&mut restored, at), "{spec}");
        }
    }
}

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
    without_spec.set_floats("residual/t", vec![0.0; 10]);
    assert!(matches!(encoder(&spec).restore("", &without_spec), Err(StateError::Missing(_))));

    let mut restored = encoder(&spec);
    restored.restore("", &state).unwrap();
    let error = encode(&mut restored, &Tensor::new("t", &[12]), 1, &[1.0; 12]).unwrap_err();
    let Error::State(StateError::WrongSize { entry, found: 10, expected: 12 }) = error else {
        panic!("{error}");
    };
    assert_eq!(entry, "residual/t");
}

/// All that an encoder keeps, as a file has it.
fn saved(encoder: &Encoder) -> Vec<u8> {
    let mut state = State::new();
    encoder.save("", &mut state);
    state.to_bytes().unwrap()
}

#[test]
fn non_finite_input_is_named_and_changes_nothing() {
    let tensor = Tensor::new("conv1.weight", &[9000]);
    for spec in specs() {
        let mut encoder = encoder(&spec);
        encode(&mut encoder, &tensor, 0, &gaussian(9000, 1)).unwrap();
        let before = saved(&encoder);
        for (at, bad) in [(0, f32::NAN), (4567, f32::INFINITY), (8999, f32::NEG_INFINITY)] {
            let mut gradient = gaussian(9000, 2);
            gradient[at] = bad;
            gradient[8999] = bad;
            let mut message = vec![1, 2, 3];
            let error =
                encoder.encode(&tensor, 1, Floats::F32(&gradient), &mut message).unwrap_err();
            let Error::NonFinite { tensor: name, index, value } = &error else { panic!("{error}") };
            assert_eq!(
                (name.as_str(), *index, value.to_bits()),
                (tensor.name(), at, bad.to_bits())
            );
            assert_eq!(message, [1, 2, 3]);
            assert!(saved(&encoder) == before, "{spec}");

            let halves: Vec<u16> =
                gradient.iter().map(|&x| half::f16::from_f32(x).to_bits()).collect();
            let error = encoder.encode(&tensor, 1, Floats::F16(&halves), &mut message).unwrap_err();
            assert!(matches!(error, Error::NonFinite { index, .. } if index == at));
            assert!(saved(&encoder) == before, "{spec}");
        }
        let good = encode(&mut encoder, &tensor, 1, &gaussian(9000, 3)).unwrap();
        assert!(decode(&spec, &tensor, 1, &good).is_ok());
    }
}

/// Decodes into a marked buffer; on an error the marks must stand.
fn decode_untrusted(decoder: &mut Decoder, tensor: &Tensor, message: &[u8]) -> Result<(), Error> {
    let mut out = vec![-7.25; tensor.elements()];
    let result = decoder.decode_add(tensor, 3, RANK, message, 1.0, &mut out);
    if result.is_err() {
        assert!(out.iter().all(|&x| x == -7.25), "a refused message was added in part");
    }
    result
}

#[test]
fn every_truncation_is_an_error_and_adds_nothing() {
    for spec in specs() {
        let mut decoder = Decoder::new(&spec, SEED);
        for elements in [1, 2, 4, 5, 6, 7, 1023] {
            for (kind, gradient) in tensors(elements) {
                let tensor = Tensor::new("t", &[elements]);
                let message = encode(&mut encoder(&spec), &tensor, 3, &gradient).unwrap();
                decode_untrusted(&mut decoder, &tensor, &message).unwrap();
                for len in 0..message.len() {
                    let result = decode_untrusted(&mut decoder, &tensor, &message[..len]);
                    assert!(result.is_err(), "{spec}, {elements} {kind}, cut at {len}");
                }
                let longer = [&message[..], &[0]].concat();
                let result = decode_untrusted(&mut decoder, &tensor, &longer);
                assert!(result.is_err(), "{spec}, {elements} {kind}, a byte too long");
            }
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic_and_add_all_or_nothing() {
    let mut words = vec![0; 300];
    for spec in specs() {
        let mut decoder = Decoder::new(&spec, SEED);
        for elements in [0, 1, 7, 33, 1023] {
            let tensor = Tensor::new("t", &[elements]);
            let valid = encode(&mut encoder(&spec), &tensor, 3, &gaussian(elements, 9)).unwrap();
            let mut rng = gradwire::Rng::new(3, 0, 0, elements as u64, 0);
            for _ in 0..300 {
                rng.fill(&mut words);
                let noise: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let len = rng.below(noise.len() as u64) as usize;
                let _ = decode_untrusted(&mut decoder, &tensor, &noise[..len]);
                // Of the right length, so that more than the length check is reached.
                let _ =
                    decode_untrusted(&mut decoder, &tensor, &noise[..valid.len().min(noise.len())]);
                let mut changed = valid.clone();
                if !changed.is_empty() {
                    let at = rng.below(changed.len().min(40) as u64) as usize;
                    changed[at] ^= 1 << rng.below(8);
                    let _ = decode_untrusted(&mut decoder, &tensor, &changed);
                }
            }
        }
    }
}

#[test]
fn sixteen_bit_input_is_its_exact_conversion() {
    for spec in specs() {
        for elements in [0, 1, 7, 1023, 9000] {
            let tensor = Tensor::new("t", &[elements]);
            let noise = gaussian(elements, 4);
            let f16: Vec<half::f16> =
                noise.iter().map(|&x| half::f16::from_f32(x * 1e-4)).collect();
            let bf16: Vec<half::bf16> = noise.iter().map(|&x| half::bf16::from_f32(x)).collect();
            let patterns16: Vec<u16> = f16.iter().map(|x| x.to_bits()).collect();
            let patterns_b16: Vec<u16> = bf16.iter().map(|x| x.to_bits()).collect();
            let wide16: Vec<f32> = f16.iter().map(|x| x.to_f32()).collect();
            let wide_b16: Vec<f32> = bf16.iter().map(|x| x.to_f32()).collect();
            for (narrow, wide) in
                [(Floats::F16(&patterns16), &wide16), (Floats::Bf16(&patterns_b16), &wide_b16)]
            {
                let (mut a, mut b) = (encoder(&spec), encoder(&spec));
                for step in 0..2 {
                    let mut message = Vec::new();
                    a.encode(&tensor, step, narrow, &mut message).unwrap();
                    assert_eq!(message, encode(&mut b, &tensor, step, wide).unwrap(), "{spec}");
                    assert_eq!(a.residual("t").map(bits), b.residual("t").map(bits), "{spec}");
                }
            }
        }
    }
}

#[test]
fn decoding_is_linear_in_the_weight_and_adds() {
    for spec in specs() {
        let tensor = Tensor::new("t", &[1023]);
        let message = encode(&mut encoder(&spec), &tensor, 3, &gaussian(1023, 8)).unwrap();
        let whole = decode(&spec, &tensor, 3, &message).unwrap();
        let mut decoder = Decoder::new(&spec, SEED);
        let mut out = vec![0.0; 1023];
        decoder.decode_add(&tensor, 3, RANK, &message, 0.25, &mut out).unwrap();
        let quarter: Vec<f32> = whole.iter().map(|x| 0.25 * x).collect();
        assert!(out == quarter, "{spec}");
        decoder.decode_add(&tensor, 3, RANK, &message, 0.25, &mut out).unwrap();
        decoder.decode_add(&tensor, 3, RANK, &message, -0.5, &mut out).unwrap();
        assert!(out.iter().all(|&x| x == 0.0), "{spec}");
    }
}

/// Whether sent elements arrive as they are.
fn exact(spec: &Spec) -> bool {
    let compressor = spec.compressor();
    let plain = spec.memory().is_some() && compressor.memory().is_none();
    plain && compressor.value_bits() == Some(32)
}

#[test]
fn sparse_messages_tell_what_they_carried() {
    over_everything(|spec, tensor, gradient, case| {
        let (mut encoder, mut message) = (encoder(spec), Vec::new());
        let sent = encoder.encode(tensor, 3, Floats::F32(gradient), &mut message).unwrap();
        if sent == Sent::All {
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
