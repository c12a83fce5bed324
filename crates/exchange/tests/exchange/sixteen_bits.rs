//! Gradients of 16 bits: uncompressed tensors travel in 16 bits, and nothing else changes.

use crate::common::{connected, exchange, gradients, tensors};
use gradwire::{Dtype, Spec, State};
use gradwire_bits::kernels;
use gradwire_exchange::{OnNonFinite, Outcome, Policy, Reducer, ReducerConfig};

const RANKS: usize = 3;
/// A vector and a matrix of 150 rows, which scatter-reduce cuts into three slices.
const SIZES: [usize; 2] = [300, 30_000];
const HALVES: [Dtype; 2] = [Dtype::F16, Dtype::Bf16];

fn narrow(values: &[f32], dtype: Dtype) -> Vec<u16> {
    let mut bits = vec![0; values.len()];
    match dtype {
        Dtype::F16 => kernels::f32_to_f16(values, &mut bits),
        _ => kernels::f32_to_bf16(values, &mut bits),
    }
    bits
}

fn widen(bits: &[u16], dtype: Dtype, wide: &mut Vec<f32>) {
    wide.resize(bits.len(), 0.0);
    match dtype {
        Dtype::F16 => kernels::f16_to_f32(bits, wide),
        _ => kernels::bf16_to_f32(bits, wide),
    }
}

fn config(name: &str, spec: &str) -> ReducerConfig {
    ReducerConfig {
        exchange: exchange(name),
        policy: Policy::new(spec.parse::<Spec>().unwrap()),
        tensors: tensors(&SIZES),
        seed: 3,
        on_non_finite: OnNonFinite::Refuse,
    }
}

/// What a rank has after some steps.
#[derive(Debug, PartialEq)]
struct End {
    /// The means in the type of the gradients.
    means: Vec<Vec<u16>>,
    state: Vec<u8>,
}

/// Three steps with gradients of type `dtype`, which the group's type `formed` must be able to
/// hold; the traffic of all ranks in a step.
fn run(
    config: &ReducerConfig,
    dtype: Dtype,
    formed: Dtype,
    scale: f32,
    saved: Option<&State>,
) -> (Vec<End>, u64) {
    let ends = connected(RANKS, |rank, transport| {
        let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
        reducer
            .restore(saved.cloned().into_iter().collect())
            .unwrap_or_else(|_| assert!(saved.is_none()));
        let names: Vec<_> = config.tensors.iter().map(|tensor| tensor.name()).collect();
        let group = reducer.group_of_type(&names, formed).unwrap();
        let mut means = Vec::new();
        for step in 0..3 {
            let bits = narrow(&gradients(&config.tensors, rank, step).concat(), dtype);
            let mut out = Vec::new();
            let write = |means: &mut [f32]| out = narrow(means, dtype);
            reducer
                .average_converted(group, step, scale, |wide| widen(&bits, dtype, wide), write)
                .unwrap();
            means.push(out);
        }
        let end = End { means, state: reducer.save().to_bytes().unwrap() };
        (end, reducer.report().traffic.bytes_up)
    });
    let bytes = ends.iter().map(|(_, bytes)| bytes).sum();
    (ends.into_iter().map(|(end, _)| end).collect(), bytes)
}

#[test]
fn uncompressed_gradients_take_two_bytes_and_have_the_means_of_32_bits() {
    // Headers of 12 bytes; the lengths of messages, which all-reduce does not send, take three
    // bytes from 16 384 on, two below.
    for (name, bytes) in [
        ("all-reduce", 3 * 4 * 12 + 4 * 60_600),
        ("all-gather", 6 * (12 + 602 + 60_003)),
        ("scatter-reduce", 3 * 4 * 12 + 4 * (602 + 3 * 20_003)),
        ("reduce-scatter", 3 * 2 * 12 + 2 * 3 * (202 + 20_003)),
    ] {
        let config = config(name, "none");
        for dtype in HALVES {
            let (found, sent) = run(&config, dtype, dtype, 1.0, None);
            let (expected, more) = run(&config, dtype, Dtype::F32, 1.0, None);
            assert!(found == expected, "{name}, {dtype:?}");
            assert_eq!(sent, bytes, "{name}, {dtype:?}");
            assert!(more > 2 * sent - 200, "{name}: {more} bytes in 32 bits, {sent} in 16");
        }
    }
}

/// The means of some steps, of values in place, or converted and then encoded as messages.
fn means_of(ranks: usize, dtype: Dtype, in_place: bool) -> Vec<Vec<u16>> {
    let config = config("all-reduce", "none");
    connected(ranks, |rank, transport| {
        let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
        let names: Vec<_> = config.tensors.iter().map(|tensor| tensor.name()).collect();
        let group = reducer.form_of(&names, dtype).unwrap();
        let mut bits = narrow(&gradients(&config.tensors, rank, 0).concat(), dtype);
        // A mean of -0, of small numbers of which one rank's is 0, and of the largest ones.
        bits[..4].copy_from_slice(&[0x8000, 0x8001 * u16::from(rank > 0), 1, 0x7bff]);
        for step in 0..2 {
            assert!(reducer.takes_halves(group, step));
            if in_place {
                reducer.average_halves(group, step, 1.0, &mut bits).unwrap();
                continue;
            }
            let mut out = Vec::new();
            let write = |means: &mut [f32]| out = narrow(means, dtype);
            let read = |wide: &mut Vec<f32>| widen(&bits, dtype, wide);
            reducer.average_converted(group, step, 1.0, read, write).unwrap();
            bits = out;
        }
        bits
    })
}

#[test]
fn means_in_place_are_those_of_converted_values() {
    for ranks in 1..=4 {
        for dtype in HALVES {
            assert!(
                means_of(ranks, dtype, true) == means_of(ranks, dtype, false),
                "{ranks} ranks, {dtype:?}"
            );
        }
    }
}

#[test]
fn values_in_place_are_checked() {
    let expected = |skip: bool, dtype: Dtype| {
        let on_non_finite = if skip { OnNonFinite::Skip } else { OnNonFinite::Refuse };
        let config = ReducerConfig { on_non_finite, ..config("all-reduce", "none") };
        connected(2, |rank, transport| {
            let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
            let group = reducer.form_of(&["t0.weight", "t1.weight"], dtype).unwrap();
            let mut bits = vec![0; 30_300];
            if rank == 1 {
                bits[307] = 0xff80;
            }
            let averaged = reducer.average_halves(group, 0, 1.0, &mut bits);
            (averaged.map_err(|error| error.to_string()), bits)
        })
    };
    for dtype in HALVES {
        let [zero, one] = expected(false, dtype).try_into().unwrap();
        let error = one.0.unwrap_err();
        assert!(
            zero.0.is_err() && error.contains("'t1.weight' has") && error.contains("element 7"),
            "{error}"
        );
        for (outcome, bits) in expected(true, dtype) {
            assert_eq!(outcome, Ok(Outcome::Skipped));
            let mut wide = Vec::new();
            widen(&bits, dtype, &mut wide);
            assert!(wide.iter().all(|value| value.is_nan()));
        }
    }
}

#[test]
fn a_scale_that_divides_nothing_is_refused_in_place_too() {
    let config = config("all-reduce", "none");
    let errors = connected(2, |_, transport| {
        let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
        let group = reducer.form_of(&["t0.weight"], Dtype::Bf16).unwrap();
        reducer.average_halves(group, 0, f32::INFINITY, &mut [0; 300]).unwrap_err().to_string()
    });
    let named = |error: &String| error.contains("the scale of the loss is inf");
    assert!(errors.iter().any(named), "{errors:?}");
}

#[test]
fn an_exchange_that_needs_messages_takes_no_values_in_place() {
    let config = config("all-gather", "none");
    let errors = connected(2, |_, transport| {
        let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
        let group = reducer.form_of(&["t0.weight"], Dtype::Bf16).unwrap();
        reducer.average_halves(group, 0, 1.0, &mut [0; 300]).unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("use average_converted")), "{errors:?}");
}

#[test]
fn gathered_shards_take_two_bytes() {
    let config = config("gather-shards", "none");
    let names: Vec<_> = config.tensors.iter().map(|tensor| tensor.name()).collect();
    let sent = connected(RANKS, |rank, transport| {
        let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
        let group = reducer.form_of(&names, Dtype::Bf16).unwrap();
        let mut values: Vec<f32> = (0..30_300).map(|at| (at / 10_100 + 1) as f32).collect();
        let expected = values.clone();
        values[..10_100 * rank].fill(0.0);
        values[10_100 * (rank + 1)..].fill(0.0);
        reducer.average(group, 0, &mut values).unwrap();
        assert!(values == expected);
        reducer.report().traffic.bytes_up
    });
    assert_eq!(sent, [2 * (12 + 202 + 20_003); RANKS]);
}

#[test]
fn only_plain_tensors_of_a_compressed_run_are_narrowed_and_states_are_those_of_32_bits() {
    for (name, spec) in
        [("all-gather", "3lc"), ("scatter-reduce", "int8:ef=on"), ("all-reduce", "powersgd:rank=1")]
    {
        let config = config(name, spec);
        let (found, sent) = run(&config, Dtype::Bf16, Dtype::Bf16, 1.0, None);
        let (expected, more) = run(&config, Dtype::Bf16, Dtype::F32, 1.0, None);
        assert!(found == expected, "{spec}");
        // A vector of 300 elements, from every rank to all others, or to one and back.
        let receivers = if name == "all-gather" { 6 } else { 4 };
        assert_eq!(more - sent, receivers * 600, "{spec}");
        let saved = State::from_bytes(&expected[0].state).unwrap();
        if name == "all-reduce" {
            // The factors are the same on all ranks.
            assert!(saved.setting("push/spec/t0.weight").unwrap() == "none");
        }
    }
    // Their values may have more than 16 bits.
    for spec in ["none:ef=on", "none:momentum=0.9"] {
        let config = config("all-gather", spec);
        let policy = Policy { raw_vectors: false, ..config.policy.clone() };
        let config = ReducerConfig { policy, ..config };
        let [narrow, wide] =
            [Dtype::F16, Dtype::F32].map(|of| run(&config, Dtype::F16, of, 1.0, None));
        assert!(narrow == wide, "{spec}");
    }
}

#[test]
fn states_of_one_type_continue_with_another() {
    let config = config("all-gather", "none");
    let (ends, _) = run(&config, Dtype::F16, Dtype::F16, 1.0, None);
    let state = State::from_bytes(&ends[0].state).unwrap();
    let (others, _) = run(&config, Dtype::F16, Dtype::F32, 1.0, Some(&state));
    assert!(ends == others);
}

#[test]
fn gradients_that_are_sent_as_they_are_keep_the_factor_of_the_loss() {
    // With the factor taken out the gradients are no numbers of 16 bits: 3 is no power of two, and
    // 2^40 leaves less than the smallest number of binary16.
    for scale in [3.0, 2f32.powi(40)] {
        for name in ["all-reduce", "all-gather", "scatter-reduce", "reduce-scatter"] {
            let config = config(name, "none");
            let (found, _) = run(&config, Dtype::F16, Dtype::F16, scale, None);
            let (expected, _) = run(&config, Dtype::F16, Dtype::F16, 1.0, None);
            assert!(found == expected, "{name}, {scale}");
        }
        // Compressors see gradients without it, and residuals do not depend on it.
        for name in ["all-gather", "reduce-scatter"] {
            let config = config(name, "3lc");
            let (found, _) = run(&config, Dtype::F16, Dtype::F16, scale, None);
            let (wide, _) = run(&config, Dtype::F16, Dtype::F32, scale, None);
            for (found, wide) in found.iter().zip(wide) {
                assert!(found.state == wide.state, "{name}, {scale}");
                if name == "all-gather" {
                    assert!(found.means.iter().zip(&wide.means).all(|(a, b)| a[300..] == b[300..]));
                }
            }
        }
    }
}

#[test]
fn means_are_rounded_once_to_the_even_number() {
    // In binary16, with an owner who sends the mean: (1 + 1 + (1 + 2^-10) + (1 + 2^-10)) / 4 lies
    // between 1 and 1 + 2^-10, and ties to 1. The sum of four times 65 504 fits.
    for name in ["all-reduce", "all-gather", "scatter-reduce"] {
        let config = ReducerConfig { tensors: tensors(&[2]), ..config(name, "none") };
        let ends = connected(4, |rank, transport| {
            let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
            let group = reducer.form_of(&["t0.weight"], Dtype::F16).unwrap();
            let one = if rank < 2 { 1.0 } else { 1.0 + 2f32.powi(-10) };
            let mut out = Vec::new();
            let read = |wide: &mut Vec<f32>| *wide = vec![one, 65_504.0];
            let write = |means: &mut [f32]| out = narrow(means, Dtype::F16);
            reducer.average_converted(group, 0, 1.0, read, write).unwrap();
            out
        });
        assert_eq!(ends, vec![vec![0x3c00, 0x7bff]; 4], "{name}");
    }
}

#[test]
fn ranks_with_different_types_are_told() {
    let config = config("all-reduce", "none");
    let told = connected(2, |rank, transport| {
        let mut reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
        reducer.form_of(&["t0.weight"], [Dtype::F16, Dtype::F32][rank]).unwrap_err().to_string()
    });
    for text in told {
        assert!(text.contains("element type of gradients F32") && text.contains("F16"), "{text}");
    }
}
