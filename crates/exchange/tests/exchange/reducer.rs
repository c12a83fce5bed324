//! Groups of tensors: averages do not depend on the grouping, and no residual is lost.

use crate::common::{adds, connected, exchange, gradients, suits, tensors};
use gradwire::registry::REGISTRY;
use gradwire::{Spec, State, Tensor};
use gradwire_exchange::{
    ExchangeError, OnNonFinite, Outcome, Policy, Reducer, ReducerConfig, ReducerThread, in_process,
    reshard,
};

const SIZES: [usize; 4] = [300, 7, 20_000, 9000];

pub(super) fn model(name: &str, text: &str) -> ReducerConfig {
    let mut policy = Policy::new(text.parse::<Spec>().unwrap());
    (policy.raw_vectors, policy.raw_below) = (false, 10);
    ReducerConfig {
        exchange: exchange(name),
        policy,
        tensors: tensors(&SIZES),
        seed: 3,
        on_non_finite: OnNonFinite::Refuse,
    }
}

/// Runs `work` as every rank.
pub(super) fn ranks<R: Send>(
    models: Vec<ReducerConfig>,
    work: impl Fn(usize, &mut Reducer) -> R + Sync,
) -> Vec<R> {
    connected(models.len(), |rank, transport| {
        work(rank, &mut Reducer::new(Box::new(transport), models[rank].clone()).unwrap())
    })
}

/// A step in groups of tensors by index: the means of all tensors.
pub(super) fn step(
    reducer: &mut Reducer,
    groups: &[Vec<usize>],
    rank: usize,
    step: u64,
) -> Vec<Vec<f32>> {
    let tensors = reducer.tensors().to_vec();
    let gradients = gradients(&tensors, rank, step);
    let mut means = vec![Vec::new(); tensors.len()];
    for members in groups {
        let names: Vec<_> = members.iter().map(|&at| tensors[at].name()).collect();
        let group = reducer.form(&names).unwrap();
        let mut values = members.iter().flat_map(|&at| gradients[at].clone()).collect::<Vec<_>>();
        assert_eq!(reducer.average(group, step, &mut values).unwrap(), Outcome::Averaged);
        let mut rest = values.as_slice();
        for &at in members {
            let (mean, others) = rest.split_at(tensors[at].elements());
            (means[at], rest) = (mean.to_vec(), others);
        }
    }
    means
}

pub(super) fn bits(means: &[Vec<f32>]) -> Vec<u32> {
    means.iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn averages_do_not_depend_on_the_groups() {
    let (one, two) = (vec![vec![0, 1, 2, 3]], vec![vec![3, 1], vec![2, 0]]);
    for name in ["all-reduce", "all-gather", "scatter-reduce"] {
        for text in [
            "none",
            "fp16:ef=on",
            "3lc",
            "topk:ratio=0.05",
            "topk:ratio=0.05,ef=ef21,momentum=0.5",
            "dgc",
            "powersgd",
            "randomk",
        ] {
            if name == "all-reduce" && !adds(&text.parse::<Spec>().unwrap()) {
                continue;
            }
            let run = |switch: u64| {
                ranks(vec![model(name, text); 3], |rank, reducer| {
                    (0..6)
                        .map(|at| step(reducer, if at < switch { &one } else { &two }, rank, at))
                        .map(|means| bits(&means))
                        .collect::<Vec<_>>()
                })
            };
            let same = run(6);
            assert!(same.iter().all(|means| *means == same[0]), "{name}, {text}: ranks differ");
            // Grouped anew after two steps: residuals follow their tensors.
            assert!(run(2) == same, "{name}, {text}");
        }
    }
}

#[test]
fn ranks_may_differ_in_their_threads() {
    // So many elements that threads share the work.
    let sizes = [100_000, 7, 60_000, 9000];
    for (entry, name) in
        REGISTRY.iter().flat_map(|e| ["all-gather", "scatter-reduce"].map(|n| (e, n)))
    {
        let model = ReducerConfig { tensors: tensors(&sizes), ..model(name, entry.id) };
        let run = |threads: [usize; 2]| {
            connected(2, |rank, transport| {
                let reducer = Reducer::new(Box::new(transport), model.clone()).unwrap();
                let mut reducer = reducer.with_threads(threads[rank]);
                let groups = [vec![0, 1, 2], vec![3]];
                let means = (0..2).map(|at| bits(&step(&mut reducer, &groups, rank, at)));
                let means = means.collect::<Vec<_>>();
                let carried = (0..4).map(|at| reducer.message_bytes_of(at)).collect::<Vec<_>>();
                (means, carried, reducer.save().to_bytes().unwrap())
            })
        };
        assert!(run([3, 2]) == run([1, 1]), "{}, {name}", entry.id);
    }
}

#[test]
fn ranks_may_differ_in_the_threads_that_share_a_large_tensor() {
    // A tensor, and with scatter-reduce each rank's slice of it, is so large that threads share it.
    for (name, text, elements) in [
        ("all-reduce", "powersgd", 520 * 521),
        ("all-reduce", "thc", 520 * 521),
        ("all-reduce", "fp16:ef=on", 520 * 521),
        ("scatter-reduce", "3lc", 740 * 741),
    ] {
        let model = ReducerConfig { tensors: tensors(&[elements, 30]), ..model(name, text) };
        let run = |threads: [usize; 2]| {
            connected(2, |rank, transport| {
                let reducer = Reducer::new(Box::new(transport), model.clone()).unwrap();
                let mut reducer = reducer.with_threads(threads[rank]);
                let means = (0..2).map(|at| bits(&step(&mut reducer, &[vec![0, 1]], rank, at)));
                (means.collect::<Vec<_>>(), reducer.save().to_bytes().unwrap())
            })
        };
        assert!(run([3, 2]) == run([1, 1]), "{text}, {name}");
    }
}

/// The plain mean over `ranks` of all tensors' gradients, in double precision.
fn mean(tensors: &[Tensor], ranks: usize, step: u64) -> Vec<f64> {
    let mut mean = Vec::new();
    for rank in 0..ranks {
        let values = gradients(tensors, rank, step).concat();
        mean.resize(values.len(), 0.0);
        mean.iter_mut().zip(values).for_each(|(m, v)| *m += f64::from(v) / ranks as f64);
    }
    mean
}

#[test]
fn no_gradient_is_lost_when_the_number_of_ranks_changes() {
    let tensors = tensors(&SIZES);
    let groups = vec![vec![2, 0], vec![1, 3]];
    for (before, after) in [
        (("all-gather", 3), ("all-gather", 2)),
        (("all-gather", 2), ("all-gather", 4)),
        (("scatter-reduce", 3), ("scatter-reduce", 2)),
        (("scatter-reduce", 2), ("all-gather", 3)),
        (("all-gather", 4), ("scatter-reduce", 4)),
    ] {
        let run = |(name, n): (&str, usize), steps: std::ops::Range<u64>, states: &[State]| {
            let mut ends = ranks(vec![model(name, "topk:ratio=0.02"); n], |rank, reducer| {
                if !states.is_empty() {
                    reducer.restore(states.to_vec()).unwrap();
                }
                let means: Vec<_> =
                    steps.clone().map(|at| step(reducer, &groups, rank, at).concat()).collect();
                (means, reducer.save_all().unwrap())
            });
            ends.pop().unwrap()
        };
        let (first, states) = run(before, 0..4, &[]);
        let (second, last) = run(after, 4..7, &states);
        let left = reshard(&last, 0, 1);
        let mut start = 0;
        for tensor in &tensors {
            let residual = left.floats(&format!("push/residual/{}", tensor.name()));
            for at in 0..tensor.elements() {
                let sum = |steps: &[Vec<f32>]| -> f64 {
                    steps.iter().map(|means| f64::from(means[start + at])).sum()
                };
                let arrived = sum(&first) + sum(&second);
                let left = residual.as_ref().map_or(0.0, |values| f64::from(values[at]));
                let owed: f64 = (0..7)
                    .map(|s| {
                        mean(&tensors[..], if s < 4 { before.1 } else { after.1 }, s)[start + at]
                    })
                    .take(if at % 500 == 0 { 7 } else { 0 })
                    .sum();
                if at % 500 == 0 {
                    assert!((arrived + left - owed).abs() < 1e-4, "{before:?}, {after:?}, {at}");
                }
            }
            start += tensor.elements();
        }
    }
}

#[test]
fn ranks_that_had_a_basis_each_have_one_together_when_they_reduce() {
    let text = "gradiveq:slice=8,keep=2,refresh=50";
    let groups = [vec![2, 0], vec![1, 3]];
    let mut ends = ranks(vec![model("all-gather", text); 3], |rank, reducer| {
        (0..3).for_each(|at| drop(step(reducer, &groups, rank, at)));
        reducer.save_all().unwrap()
    });
    let states = ends.pop().unwrap();
    let after = ranks(vec![model("all-reduce", text); 3], |rank, reducer| {
        reducer.restore(states.clone()).unwrap();
        (3..5).map(|at| bits(&step(reducer, &groups, rank, at))).collect::<Vec<_>>()
    });
    assert!(after.iter().all(|means| *means == after[0]), "ranks differ");
}

#[test]
fn a_resumed_rank_goes_on_bit_for_bit() {
    let texts = ["3lc", "topk:ratio=0.1,ef=ef21,momentum=0.5"];
    for (name, text) in
        ["all-gather", "scatter-reduce"].into_iter().flat_map(|name| texts.map(|text| (name, text)))
    {
        let groups = [vec![2, 0], vec![1, 3]];
        let whole = ranks(vec![model(name, text); 2], |rank, reducer| {
            (0..6).map(|at| bits(&step(reducer, &groups, rank, at))).collect::<Vec<_>>()
        });
        let half = ranks(vec![model(name, text); 2], |rank, reducer| {
            (0..3).for_each(|at| drop(step(reducer, &groups, rank, at)));
            reducer.save()
        });
        let resumed = ranks(vec![model(name, text); 2], |rank, reducer| {
            reducer.restore(vec![half[rank].clone()]).unwrap();
            (3..6).map(|at| bits(&step(reducer, &[vec![0, 1, 2, 3]], rank, at))).collect::<Vec<_>>()
        });
        assert!(resumed[0] == whole[0][3..] && resumed[1] == whole[1][3..], "{name}, {text}");
    }
}

#[test]
fn a_survivor_keeps_its_residual_in_a_smaller_group() {
    let groups = [vec![2, 0], vec![1, 3]];
    let text = "topk:ratio=0.02";
    let three = ranks(vec![model("all-gather", text); 3], |rank, reducer| {
        (0..3).for_each(|at| drop(step(reducer, &groups, rank, at)));
        reducer.save()
    });
    // Rank 1 is lost; rank 2 becomes rank 1.
    let two = ranks(vec![model("all-gather", text); 2], |rank, reducer| {
        reducer.adopt(&three[2 * rank]).unwrap();
        reducer.save()
    });
    for (rank, adopted) in two.iter().enumerate() {
        let residual = |state: &State| -> Vec<Vec<f32>> {
            let of = |tensor: &Tensor| format!("push/residual/{}", tensor.name());
            // The smallest tensor is sent whole and has none.
            let found = tensors(&SIZES).into_iter().map(|tensor| state.floats(&of(&tensor)));
            found.filter_map(Result::ok).map(<[f32]>::to_vec).collect()
        };
        let kept = residual(&three[2 * rank]);
        assert_eq!(kept.len(), SIZES.len() - 1);
        assert!(kept.iter().flatten().any(|&value| value != 0.0));
        assert!(residual(adopted) == kept, "rank {rank}");
    }
    for (from, to) in [("all-gather", "scatter-reduce"), ("scatter-reduce", "all-gather")] {
        let saved = ranks(vec![model(from, text); 2], |_, reducer| reducer.save());
        for error in ranks(vec![model(to, text); 2], |_, reducer| reducer.adopt(&saved[0])) {
            let error = error.unwrap_err().to_string();
            assert!(
                error.contains("scatter-reduce") && error.contains("use all-gather"),
                "{error}"
            );
        }
    }
}

#[test]
fn multiples_are_the_means_times_the_factor() {
    // Of messages with other weights, of values in place, and by a pass of its own: after votes,
    // sums of changes, rounds, and sums that count their senders.
    let texts = ["none", "fp16", "eden", "topk:ratio=0.1", "chunk-topk:mean=senders"];
    let texts = texts.into_iter().chain(["topk:ratio=0.1,ef=ef21", "signsgd", "powersgd:rank=1"]);
    let names = ["all-reduce", "all-gather", "scatter-reduce"];
    for (name, text) in texts.flat_map(|text| names.map(|name| (name, text))) {
        if !suits(name, &text.parse::<Spec>().unwrap()) {
            continue;
        }
        let run = |factor: f32| {
            ranks(vec![model(name, text); 3], |rank, reducer| {
                reducer.multiply_by(factor);
                let means = (0..2).map(|at| step(reducer, &[vec![0, 1, 2, 3]], rank, at).concat());
                (means.collect::<Vec<_>>().concat(), reducer.save())
            })
        };
        let means = run(1.0);
        // Divided by the number of ranks, the last but one becomes 0, and the last stays a number.
        for factor in [3.0, 0.0, f32::NAN, f32::INFINITY, 1e-45, 1e-44] {
            let (case, multiples) = (format!("{name}, {text}, {factor}"), run(factor));
            let first: Vec<u32> = multiples[0].0.iter().map(|value| value.to_bits()).collect();
            for ((means, state), (multiples, other)) in means.iter().zip(multiples) {
                assert!(*state == other, "{case}: the factor changed what is kept");
                assert!(multiples.iter().map(|value| value.to_bits()).eq(first.iter().copied()));
                for (mean, multiple) in means.iter().zip(multiples) {
                    let expected = factor * mean;
                    let near = (expected - multiple).abs() <= 1e-5 * (1.0 + multiple.abs());
                    let same = expected == multiple || (expected.is_nan() && multiple.is_nan());
                    assert!(near || same, "{case}: {multiple} of {mean}");
                }
            }
        }
    }
}

#[test]
fn groups_and_buffers_that_are_not_there_are_refused() {
    for (group, length, says) in [
        (0, 299, "the tensors of group 0 have 300 values, but 299 were given"),
        (0, 301, "the tensors of group 0 have 300 values, but 301 were given"),
        (9, 300, "there is no group 9"),
    ] {
        ranks(vec![model("all-gather", "3lc")], |_, reducer| {
            reducer.form(&["t0.weight"]).unwrap();
            let error = reducer.average(group, 0, &mut vec![0.0; length]).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        });
    }
}

#[test]
fn tensors_whose_positions_do_not_fit_32_bits_are_not_cut() {
    for name in ["scatter-reduce", "reduce-scatter", "gather-shards"] {
        let formed = |shape: &[usize]| {
            let (exchange, tensors) = (exchange(name), vec![Tensor::new("t", shape)]);
            let model = ReducerConfig { exchange, tensors, ..model("all-gather", "none") };
            let transport = in_process::connect(1, in_process::Options::default()).remove(0);
            Reducer::new(Box::new(transport), model).map(drop)
        };
        // (2¹⁶ − 1)·(2¹⁶ + 1) = 2³² − 1.
        formed(&[65_535, 65_537]).unwrap();
        let error = formed(&[65_536, 65_536]).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} takes at most 4294967295")), "{error}");
    }
}

#[test]
fn errors_name_tensors_ranks_and_both_configurations() {
    let ends = ranks(vec![model("all-gather", "3lc"); 2], |rank, reducer| {
        let group = reducer.form(&["t0.weight"]).unwrap();
        let mut values = vec![0.5; 300];
        values[7] = if rank == 1 { f32::INFINITY } else { 1.0 };
        let error = reducer.average(group, 0, &mut values).unwrap_err();
        let again = reducer.average(group, 1, &mut values).unwrap_err();
        assert!(again.to_string().contains("has ended"), "{again}");
        error
    });
    assert!(matches!(ends[0], ExchangeError::PeerLost { peer: 1, .. }), "{}", ends[0]);
    assert!(ends[1].to_string().contains("'t0.weight' has inf at element 7"), "{}", ends[1]);

    let ends =
        ranks(vec![model("all-gather", "3lc"), model("all-gather", "topk")], |_, reducer| {
            reducer.form(&["t0.weight"]).unwrap_err().to_string()
        });
    assert!(ends.iter().all(|text| text.contains("compressor topk") && text.contains("3lc")));

    let refuses = model("all-gather", "3lc");
    let skips = ReducerConfig { on_non_finite: OnNonFinite::Skip, ..refuses.clone() };
    for text in ranks(vec![refuses, skips], |_, reducer| {
        reducer.form(&["t0.weight"]).unwrap_err().to_string()
    }) {
        let both = "started with on_nonfinite 'skip', rank 0 with on_nonfinite 'error'";
        assert!(text.contains(both), "{text}");
    }

    let foreign = ranks(vec![model("all-gather", "3lc")], |_, reducer| {
        let mut state = reducer.save();
        state.set_floats("push/residual/other", vec![1.0]);
        let other = reducer.restore(vec![state]).unwrap_err().to_string();
        let mut state = reducer.save();
        state.set_floats("push/residual/t0.weight", vec![1.0]);
        let short = reducer.restore(vec![state]).unwrap_err().to_string();
        let mut state = reducer.save();
        state.set_number("workers", 3);
        state.set_floats("push/residual/t0.weight", vec![1.0; 300]);
        (other, short, reducer.restore(vec![state]).unwrap_err().to_string())
    });
    let incomplete = ranks(vec![model("all-gather", "3lc"); 2], |rank, reducer| {
        let mut state = reducer.save();
        state.set_number("rank", 0);
        // Where nothing is kept, the state of any rank is enough.
        reducer.restore(vec![state.clone()]).unwrap();
        state.set_floats("push/residual/t0.weight", vec![1.0; 300]);
        state.set_setting("push/spec/t0.weight", "3lc");
        let own = reducer.restore(vec![state.clone()]).err().map(|error| error.to_string());
        assert_eq!(own.is_some(), rank == 1);
        state.set_setting("exchange", "scatter-reduce");
        let other = reducer.restore(vec![state.clone()]).unwrap_err().to_string();
        // The cause that no other exchange, and no further state, would remove.
        for name in ["t0.weight", "t0.weight[0..150]"] {
            let mut state = state.clone();
            state.retain(|key| !key.starts_with("push/"));
            state.set_setting(&format!("push/spec/{name}"), "topk");
            state.set_floats(
                &format!("push/residual/{name}"),
                vec![1.0; if name.len() > 9 { 150 } else { 300 }],
            );
            let error = reducer.restore(vec![state]).unwrap_err().to_string();
            assert!(error.contains("compressor of tensor 't0.weight' = topk"), "{error}");
        }
        (own, other)
    });
    let (own, other_exchange) = &incomplete[1];
    let own = own.as_deref().unwrap_or_default();
    assert!(own.contains("of rank 0, but rank 1 needs its own"), "{own}");
    assert!(!own.contains("use the exchange"), "{own}");
    assert!(other_exchange.contains("or use the exchange of the state"), "{other_exchange}");
    let (other, short, alone) = &foreign[0];
    assert!(
        other.contains("another model") && short.contains("instead of 300"),
        "{other}, {short}"
    );
    assert!(alone.contains("states of all 3 ranks"), "{alone}");
}

#[test]
fn a_background_thread_averages_in_order() {
    let ends = connected(2, |rank, transport| {
        let reducer = Reducer::new(Box::new(transport), model("all-reduce", "none")).unwrap();
        let background = ReducerThread::new("averages", reducer).unwrap();
        let (sender, results) = std::sync::mpsc::channel();
        for at in 0..4u64 {
            let sender = sender.clone();
            background.submit(move |reducer| {
                let group = reducer.form(&["t1.weight"]).unwrap();
                let mut values = vec![(at as f32) + rank as f32; 7];
                reducer.average(group, at, &mut values).unwrap();
                sender.send(values[0]).unwrap();
            });
        }
        let sent = background.ask(|reducer| reducer.report().traffic.messages_up);
        assert!(sent.unwrap() > 0);
        results.into_iter().take(4).collect::<Vec<_>>()
    });
    assert_eq!(ends, [[0.5, 1.5, 2.5, 3.5]; 2]);
}
