//! Shards: their means, bytes and residuals, and their gathering, beside references that know whole
//! tensors only.

use crate::common::{connected, exchange, gradients, specs};
use gradwire::{Decoder, Encoder, Floats, Spec, State, Tensor};
use gradwire_exchange::{
    ExchangeError, HEADER_BYTES, OnNonFinite, Policy, Reducer, ReducerConfig, reshard,
};

const SEED: u64 = 3;

/// Rows that do not divide by two or three, fewer rows than ranks, and a tensor that a vector
/// instruction does not fill.
fn tensors() -> Vec<Tensor> {
    let shapes: [&[usize]; 5] = [&[5, 3, 2], &[7], &[64, 48], &[1, 9], &[200]];
    let tensor = |(at, shape): (usize, &&[usize])| Tensor::new(format!("t{at}.weight"), shape);
    shapes.iter().enumerate().map(tensor).collect()
}

fn model(name: &str, spec: &Spec) -> ReducerConfig {
    let mut policy = Policy::new(spec.clone());
    (policy.raw_vectors, policy.raw_below) = (false, 0);
    ReducerConfig {
        exchange: exchange(name),
        policy,
        tensors: tensors(),
        seed: SEED,
        on_non_finite: OnNonFinite::Refuse,
    }
}

/// The elements of each rank's chunk of a tensor.
fn chunks(tensor: &Tensor, ranks: usize) -> Vec<std::ops::Range<usize>> {
    let (rows, row) = (tensor.shape()[0], tensor.elements() / tensor.shape()[0]);
    let chunk = rows.div_ceil(ranks);
    let bound = |rank: usize| (rank * chunk).min(rows) * row;
    (0..ranks).map(|rank| bound(rank)..bound(rank + 1)).collect()
}

/// A rank's chunk of a tensor, and its elements; `None` if it has no rows.
fn chunk_of(
    tensor: &Tensor,
    ranks: usize,
    owner: usize,
) -> Option<(Tensor, std::ops::Range<usize>)> {
    let range = chunks(tensor, ranks)[owner].clone();
    let mut shape = tensor.shape().to_vec();
    shape[0] = range.len() * tensor.shape()[0] / tensor.elements();
    let name = match range.len() == tensor.elements() {
        true => tensor.name().to_owned(),
        false => format!("{}[{}..{}]", tensor.name(), range.start, range.end),
    };
    (!range.is_empty()).then(|| (Tensor::new(name, &shape), range))
}

/// The values of whole tensors as the shards of all ranks.
fn sharded(values: &[Vec<f32>], ranks: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for rank in 0..ranks {
        for (tensor, values) in tensors().iter().zip(values) {
            let chunks = chunks(tensor, ranks);
            let padding = chunks[0].len() - chunks[rank].len();
            all.extend_from_slice(&values[chunks[rank].clone()]);
            all.extend(std::iter::repeat_n(0.0, padding));
        }
    }
    all
}

/// The chunks of one rank's shard, without padding.
fn unpadded(shard: &[f32], rank: usize, ranks: usize) -> Vec<Vec<f32>> {
    let mut rest = shard;
    let chunk = |tensor: &Tensor| {
        let chunks = chunks(tensor, ranks);
        let (padded, others) = rest.split_at(chunks[0].len());
        rest = others;
        padded[..chunks[rank].len()].to_vec()
    };
    tensors().iter().map(chunk).collect()
}

/// One step of a rank: the means of its chunks.
fn step(reducer: &mut Reducer, rank: usize, ranks: usize, step: u64) -> Vec<Vec<f32>> {
    let names: Vec<_> = tensors().iter().map(|tensor| tensor.name().to_owned()).collect();
    let group = reducer.group_of(&names).unwrap();
    let mut values = sharded(&gradients(&tensors(), rank, step), ranks);
    reducer.average(group, step, &mut values).unwrap();
    let shard = values.len() / ranks;
    unpadded(&values[rank * shard..][..shard], rank, ranks)
}

/// Runs `work` as every rank of `ranks`.
fn run<R: Send>(
    ranks: usize,
    config: &ReducerConfig,
    work: impl Fn(usize, &mut Reducer) -> R + Sync,
) -> Vec<R> {
    connected(ranks, |rank, transport| {
        work(rank, &mut Reducer::new(Box::new(transport), config.clone()).unwrap())
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The means of the chunks of `owner` at each step, from an encoder a rank and a decoder, without
/// any exchange.
fn reference(spec: &Spec, ranks: usize, owner: usize, steps: u64) -> Vec<Vec<Vec<f32>>> {
    let encoder = |rank| Encoder::new(spec, SEED, rank as u32).with_ranks(ranks as u32);
    let mut encoders: Vec<Encoder> = (0..ranks).map(encoder).collect();
    let mut decoder = Decoder::new(spec, SEED);
    let mut mean = |tensor: &Tensor, at: usize, step: u64, encoders: &mut [Encoder]| {
        let Some((chunk, range)) = chunk_of(tensor, ranks, owner) else { return Vec::new() };
        let (mut mean, mut sums, mut message) = (vec![0.0; range.len()], Vec::new(), Vec::new());
        for (rank, encoder) in encoders.iter_mut().enumerate() {
            let gradient = &gradients(&tensors(), rank, step)[at][range.clone()];
            message.clear();
            encoder.encode(&chunk, step, Floats::F32(gradient), &mut message).unwrap();
            let (from, weight) = ((step, rank as u32), 1.0 / ranks as f32);
            decoder.accumulate(&chunk, from, &message, weight, &mut sums, &mut mean).unwrap();
        }
        decoder.finish(&chunk, step, &mut sums, &mut mean).unwrap();
        decoder.compressor_of(chunk.name()).aggregate(&mut mean);
        mean
    };
    let tensors = tensors();
    (0..steps)
        .map(|step| {
            let means = tensors.iter().enumerate();
            means.map(|(at, tensor)| mean(tensor, at, step, &mut encoders)).collect()
        })
        .collect()
}

#[test]
fn every_compressor_gives_the_mean_of_what_ranks_send_for_a_chunk() {
    let ranks = 3;
    for spec in specs().iter().filter(|spec| !spec.sends_changes()) {
        let found = run(ranks, &model("reduce-scatter", spec), |rank, reducer| {
            (0..3).map(|at| step(reducer, rank, ranks, at)).collect::<Vec<_>>()
        });
        for (owner, found) in found.iter().enumerate() {
            let expected = reference(spec, ranks, owner, 3);
            for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
                for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                    let equal = bits(found) == bits(expected);
                    assert!(equal, "{spec}, rank {owner}, step {step}, tensor {at}");
                }
            }
        }
    }
}

#[test]
fn every_compressor_gives_all_ranks_what_the_owner_of_a_chunk_sent() {
    let ranks = 3;
    for spec in specs().iter().filter(|spec| !spec.sends_changes()) {
        let spec = &spec.clone().with_feedback(None);
        let found = run(ranks, &model("gather-shards", spec), |rank, reducer| {
            let names: Vec<_> = tensors().iter().map(|tensor| tensor.name().to_owned()).collect();
            let group = reducer.form(&names).unwrap();
            let mut values = sharded(&gradients(&tensors(), rank, 5), ranks);
            let shard = values.len() / ranks;
            reducer.average(group, 5, &mut values).unwrap();
            let shards =
                (0..ranks).map(|rank| unpadded(&values[rank * shard..][..shard], rank, ranks));
            shards.collect::<Vec<_>>()
        });
        assert!(found.iter().all(|other| *other == found[0]), "{spec}: ranks differ");
        for (owner, chunks) in found[0].iter().enumerate() {
            let mut encoder = Encoder::new(spec, SEED, owner as u32).with_ranks(ranks as u32);
            let mut decoder = Decoder::new(spec, SEED);
            for (at, tensor) in tensors().iter().enumerate() {
                let Some((chunk, range)) = chunk_of(tensor, ranks, owner) else { continue };
                let values = &gradients(&tensors(), owner, 5)[at][range];
                let (mut message, mut expected) = (Vec::new(), vec![0.0; values.len()]);
                encoder.encode(&chunk, 5, Floats::F32(values), &mut message).unwrap();
                decoder.decode_add(&chunk, 5, owner as u32, &message, 1.0, &mut expected).unwrap();
                assert!(bits(&chunks[at]) == bits(&expected), "{spec}, rank {owner}, tensor {at}");
            }
        }
    }
}

#[test]
fn without_compression_it_is_the_mean_for_half_the_bytes_of_an_all_reduce() {
    let ranks = 2;
    let spec = "none".parse().unwrap();
    let traffic = |name: &str| {
        run(ranks, &model(name, &spec), |rank, reducer| {
            let names: Vec<_> = tensors().iter().map(|tensor| tensor.name().to_owned()).collect();
            let group = reducer.group_of(&names).unwrap();
            let gradients = gradients(&tensors(), rank, 0);
            let mut values = match name {
                "reduce-scatter" => sharded(&gradients, ranks),
                _ => gradients.concat(),
            };
            reducer.average(group, 0, &mut values).unwrap();
            reducer.report().traffic.bytes_up as usize
        })
    };
    // What each rank owns of the 5, 64 and 1 rows, and of 7 and 200 elements, and a length for each
    // of five messages.
    let owned = [3 * 6 + 4 + 32 * 48 + 9 + 100, 2 * 6 + 3 + 32 * 48 + 100];
    let [first, second] = traffic("reduce-scatter")[..] else { panic!("two ranks") };
    let overhead = HEADER_BYTES..HEADER_BYTES + 4 * 5;
    assert!(overhead.contains(&(first - 4 * owned[1])), "{first}");
    assert!(overhead.contains(&(second - 4 * owned[0])), "{second}");
    let reduced = traffic("all-reduce");
    assert!(reduced.iter().all(|&bytes| bytes > 2 * first.min(second) - 100), "{reduced:?}");

    let means = run(ranks, &model("reduce-scatter", &spec), |rank, reducer| {
        step(reducer, rank, ranks, 0).concat()
    });
    let all: Vec<_> = (0..ranks).map(|rank| gradients(&tensors(), rank, 0)).collect();
    for (rank, means) in means.iter().enumerate() {
        let expected = tensors().into_iter().enumerate().flat_map(|(at, tensor)| {
            let (one, two) = (all[0][at].clone(), all[1][at].clone());
            chunks(&tensor, ranks)[rank].clone().map(move |i| 0.5 * one[i] + 0.5 * two[i])
        });
        assert_eq!(*means, expected.collect::<Vec<_>>());
    }
}

#[test]
fn no_gradient_is_lost_when_the_number_of_ranks_changes() {
    let config = model("reduce-scatter", &"topk:ratio=0.1".parse().unwrap());
    // What has arrived of each tensor, and the states at the end.
    let train = |ranks: usize, steps: std::ops::Range<u64>, states: &[State]| {
        let mut ends = run(ranks, &config, |rank, reducer| {
            if !states.is_empty() {
                reducer.restore(states.to_vec()).unwrap();
            }
            let means: Vec<_> = steps.clone().map(|at| step(reducer, rank, ranks, at)).collect();
            (means, reducer.save_all().unwrap())
        });
        let mut arrived = crate::common::zeros(&tensors());
        for (rank, (means, _)) in ends.iter().enumerate() {
            for (at, tensor) in tensors().iter().enumerate() {
                for means in means {
                    let whole = &mut arrived[at][chunks(tensor, ranks)[rank].clone()];
                    whole.iter_mut().zip(&means[at]).for_each(|(sum, mean)| *sum += mean);
                }
            }
        }
        (arrived, ends.pop().unwrap().1)
    };
    let (first, states) = train(3, 0..4, &[]);
    let (second, last) = train(2, 4..7, &states);
    let left = reshard(&last, 0, 1);
    for (at, tensor) in tensors().iter().enumerate() {
        let residual = left.floats(&format!("push/residual/{}", tensor.name())).unwrap();
        for element in 0..tensor.elements() {
            let owed: f64 = (0..7)
                .flat_map(|step| {
                    let ranks = if step < 4 { 3 } else { 2 };
                    (0..ranks).map(move |rank| (step, rank, ranks))
                })
                .map(|(step, rank, ranks)| {
                    f64::from(gradients(&tensors()[at..=at], rank, step)[0][element]) / ranks as f64
                })
                .sum();
            let sent = first[at][element] + second[at][element] + residual[element];
            assert!((f64::from(sent) - owed).abs() < 1e-4, "{at}, {element}: {sent}, {owed}");
        }
    }
}

#[test]
fn a_resumed_rank_goes_on_bit_for_bit() {
    let config = model("reduce-scatter", &"3lc".parse().unwrap());
    let whole = run(2, &config, |rank, reducer| {
        (0..6).map(|at| bits(&step(reducer, rank, 2, at).concat())).collect::<Vec<_>>()
    });
    let half = run(2, &config, |rank, reducer| {
        (0..3).for_each(|at| drop(step(reducer, rank, 2, at)));
        reducer.save()
    });
    let resumed = run(2, &config, |rank, reducer| {
        reducer.restore(vec![half[rank].clone()]).unwrap();
        (3..6).map(|at| bits(&step(reducer, rank, 2, at).concat())).collect::<Vec<_>>()
    });
    assert!(resumed[0] == whole[0][3..] && resumed[1] == whole[1][3..]);
}

#[test]
fn what_cannot_work_is_refused() {
    let refused = |name: &str, spec: &str| {
        let config = model(name, &spec.parse().unwrap());
        let mut errors = connected(2, |_, transport| {
            let reducer = Reducer::new(Box::new(transport), config.clone());
            reducer.err().map(|error: ExchangeError| error.to_string())
        });
        errors.pop().unwrap().expect("it is refused")
    };
    let error = refused("reduce-scatter", "topk:ef=ef21");
    assert!(error.contains("ranks have shards") && error.contains("ef=on"), "{error}");
    let error = refused("gather-shards", "3lc");
    assert!(error.contains("sends whole parameters") && error.contains("ef=off"), "{error}");

    let wrong = run(2, &model("reduce-scatter", &"none".parse().unwrap()), |_, reducer| {
        let group = reducer.form(&["t1.weight"]).unwrap();
        reducer.average(group, 0, &mut [0.0; 7]).unwrap_err().to_string()
    });
    // Seven rows are two chunks of four.
    assert!(
        wrong.iter().all(|error| error.contains("have 8 values, but 7 were given")),
        "{wrong:?}"
    );
}

#[test]
fn ranks_at_groups_of_the_same_size_notice_it() {
    for name in ["reduce-scatter", "gather-shards"] {
        let tensors = ["first", "second"].map(|name| Tensor::new(name, &[4, 2]));
        let spec = "none".parse().unwrap();
        let config = ReducerConfig { tensors: tensors.to_vec(), ..model(name, &spec) };
        let errors = run(2, &config, |rank, reducer| {
            let groups = ["first", "second"].map(|name| reducer.form(&[name]).unwrap());
            reducer.average(groups[rank], 0, &mut [0.0; 8]).unwrap_err().to_string()
        });
        let own = ["of 'first' at step 0", "of 'second' at step 0"];
        assert!(errors[0].contains(own[0]) || errors[1].contains(own[1]), "{errors:?}");
        assert!(errors.iter().any(|error| error.contains("in the same order")), "{errors:?}");
    }
}

#[test]
fn ranks_may_differ_in_their_threads() {
    // So many elements that threads share the work, and rows that two ranks share without padding.
    let tensors = [Tensor::new("big", &[600, 300]), Tensor::new("small", &[70])];
    for (name, text) in [
        ("reduce-scatter", "3lc"),
        ("reduce-scatter", "topk:ratio=0.01"),
        ("reduce-scatter", "demo"),
        ("gather-shards", "int8:ef=off"),
        ("gather-shards", "chunk-topk:ef=off"),
    ] {
        let spec = text.parse::<Spec>().unwrap();
        let config = ReducerConfig { tensors: tensors.to_vec(), ..model(name, &spec) };
        let run = |threads: [usize; 2]| {
            connected(2, |rank, transport| {
                let reducer = Reducer::new(Box::new(transport), config.clone()).unwrap();
                let mut reducer = reducer.with_threads(threads[rank]);
                let group = reducer.form(&["big", "small"]).unwrap();
                let average = |step| {
                    let mut values = gradients(&tensors, rank, step).concat();
                    reducer.average(group, step, &mut values).unwrap();
                    let shard = values.len() / 2;
                    let known = if name == "gather-shards" { 0..2 } else { rank..rank + 1 };
                    bits(&values[known.start * shard..known.end * shard])
                };
                let means = (0..2).map(average).collect::<Vec<_>>();
                (means, reducer.save().to_bytes().unwrap())
            })
        };
        assert!(run([3, 2]) == run([1, 1]), "{name}, {text}");
    }
}
