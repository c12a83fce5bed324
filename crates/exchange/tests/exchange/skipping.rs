//! Steps that all ranks skip because a value of one is not finite.

use crate::common::gradients;
use crate::reducer::{bits, model, ranks};
use gradwire::Tensor;
use gradwire_exchange::{ExchangeError, OnNonFinite, Outcome, Reducer, ReducerConfig};

/// A reducer that skips steps, of each exchange and memory, and one that counts senders.
fn skipping() -> impl Iterator<Item = ReducerConfig> {
    let texts = ["topk:ratio=0.1", "topk:ratio=0.1,ef=ef21", "chunk-topk:mean=senders"];
    let models = ["all-gather", "scatter-reduce"].map(|name| texts.map(|text| model(name, text)));
    let skip = |model| ReducerConfig { on_non_finite: OnNonFinite::Skip, ..model };
    models.into_iter().flatten().map(skip)
}

/// A step in two groups of two tensors, with NaN on rank 1 in the tensor `poisoned`: the outcomes
/// and means of both.
fn halves(
    reducer: &mut Reducer,
    rank: usize,
    at: u64,
    poisoned: Option<usize>,
) -> ([Outcome; 2], [Vec<f32>; 2]) {
    let tensors = reducer.tensors().to_vec();
    let names: Vec<_> = tensors.iter().map(Tensor::name).collect();
    let mut gradients = gradients(&tensors, rank, at);
    if let Some(tensor) = poisoned.filter(|_| rank == 1) {
        gradients[tensor][17] = f32::NAN;
    }
    let mut values = [gradients[..2].concat(), gradients[2..].concat()];
    let outcomes = [0, 1].map(|half| {
        let group = reducer.group_of(&names[2 * half..2 * half + 2]).unwrap();
        reducer.average(group, at, &mut values[half]).unwrap()
    });
    (outcomes, values)
}

#[test]
fn a_step_with_nan_is_taken_back_on_all_ranks() {
    for model in skipping() {
        let ends = ranks(vec![model.clone(); 2], |rank, reducer| {
            halves(reducer, rank, 0, None);
            let before = reducer.save();
            let (outcomes, [_, values]) = halves(reducer, rank, 1, Some(2));
            assert_eq!(outcomes, [Outcome::Averaged, Outcome::Skipped]);
            assert!(values.iter().all(|value| value.is_nan()));
            assert!(before == reducer.save(), "{model:?}: the residuals changed");
            bits(&halves(reducer, rank, 2, None).1)
        });
        assert!(ends[0] == ends[1]);
    }
}

#[test]
fn a_step_in_which_one_rank_has_nan_and_another_overflows_is_skipped() {
    for name in ["all-gather", "scatter-reduce", "reduce-scatter"] {
        let model = model(name, "topk:ratio=0.1");
        let model = ReducerConfig { on_non_finite: OnNonFinite::Skip, ..model };
        let tensor = model.tensors[0].name().to_owned();
        let len = model.tensors[0].elements();
        ranks(vec![model; 3], |rank, reducer| {
            let group = reducer.group_of(&[tensor.as_str()]).unwrap();
            let mut average = |at, value: f32| {
                let mut values = vec![value; len];
                reducer.average(group, at, &mut values).unwrap()
            };
            // Most of the large values stay in the residual, which overflows with the next ones.
            let large = 0.9 * f32::MAX;
            assert_eq!(average(0, if rank == 2 { large } else { 0.0 }), Outcome::Averaged);
            let values = [0.0, f32::NAN, large][rank];
            assert_eq!(average(1, values), Outcome::Skipped, "{name}");
            assert_eq!(average(2, 0.0), Outcome::Averaged, "{name}");
        });
    }
}

#[test]
fn ranks_tell_of_nan_without_messages_of_its_own() {
    for name in ["all-gather", "scatter-reduce"] {
        let messages = |on_non_finite| {
            let model = ReducerConfig { on_non_finite, ..model(name, "3lc") };
            ranks(vec![model; 3], |rank, reducer| {
                let (outcomes, _) = halves(reducer, rank, 0, None);
                assert_eq!(outcomes, [Outcome::Averaged; 2]);
                let messages = reducer.report().traffic.messages_up;
                if on_non_finite == OnNonFinite::Skip {
                    let (outcomes, _) = halves(reducer, rank, 1, Some(0));
                    assert_eq!(outcomes, [Outcome::Skipped; 2], "{name}");
                }
                messages
            })
        };
        assert_eq!(messages(OnNonFinite::Skip), messages(OnNonFinite::Refuse), "{name}");
    }
}

#[test]
fn a_scale_that_divides_nothing_skips_the_step_even_without_elements() {
    let scales = [f32::NAN, 0.0, f32::INFINITY, f32::NEG_INFINITY];
    for (bad, tensors) in scales.into_iter().flat_map(|bad| [0, 1].map(|tensors| (bad, tensors))) {
        for model in skipping() {
            ranks(vec![model; 2], |rank, reducer| {
                halves(reducer, rank, 0, None);
                let before = reducer.save();
                let first = reducer.tensors()[..tensors].to_vec();
                let names: Vec<_> = first.iter().map(Tensor::name).collect();
                let group = reducer.group_of(&names).unwrap();
                let mut values = vec![1.0; first.iter().map(Tensor::elements).sum()];
                let scale = if rank == 1 { bad } else { 1.0 };
                let outcome = reducer.average_scaled(group, 1, &mut values, scale).unwrap();
                assert!(outcome == Outcome::Skipped && before == reducer.save(), "{bad}");
                assert!(values.iter().all(|value| value.is_nan()), "{bad}");
                assert_eq!(halves(reducer, rank, 1, None).0, [Outcome::Skipped; 2]);
                assert_eq!(halves(reducer, rank, 2, None).0, [Outcome::Averaged; 2]);
            });
        }
    }
}

#[test]
fn a_scale_that_divides_nothing_is_named_if_steps_are_not_skipped() {
    for bad in [f32::NAN, 0.0, f32::INFINITY, f32::NEG_INFINITY] {
        for name in ["all-gather", "scatter-reduce"] {
            ranks(vec![model(name, "topk:ratio=0.1"); 2], |rank, reducer| {
                halves(reducer, rank, 0, None);
                let before = reducer.save();
                let tensor = reducer.tensors()[0].clone();
                let group = reducer.group_of(&[tensor.name()]).unwrap();
                let mut values = vec![1.0; tensor.elements()];
                let scale = if rank == 1 { bad } else { 1.0 };
                let error = reducer.average_scaled(group, 1, &mut values, scale).unwrap_err();
                if rank == 1 {
                    assert!(matches!(error, ExchangeError::Scale(_)), "{error}");
                    assert!(error.to_string().contains(&format!("the loss is {bad},")), "{error}");
                    assert!(values.iter().all(|&value| value == 1.0), "{bad}");
                    assert!(before == reducer.save(), "{bad}: the residuals changed");
                } else {
                    assert!(matches!(error, ExchangeError::PeerLost { peer: 1, .. }), "{error}");
                }
            });
        }
    }
}

#[test]
fn groups_after_one_with_nan_are_skipped_too() {
    for model in skipping() {
        let run = |poisoned: bool| {
            ranks(vec![model.clone(); 2], |rank, reducer| {
                halves(reducer, rank, 0, None);
                if poisoned {
                    let before = reducer.save();
                    let (outcomes, values) = halves(reducer, rank, 1, Some(0));
                    assert_eq!(outcomes, [Outcome::Skipped; 2]);
                    assert!(values.iter().flatten().all(|value| value.is_nan()));
                    assert!(before == reducer.save(), "{model:?}: the residuals changed");
                }
                bits(&halves(reducer, rank, 2, None).1)
            })
        };
        assert!(run(true) == run(false), "{model:?}");
    }
}
