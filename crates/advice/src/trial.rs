//! A trial of a candidate: the recorded gradients, exchanged between ranks in threads of this process.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use gradwire_exchange::{
    Exchange, ExchangeError, OnNonFinite, Reducer, ReducerConfig, Result, StepReport, in_process,
};
use serde::Serialize;

use crate::{Bucket, Candidate, Recording};

/// The most ranks of a trial. The costs of more are extrapolated.
const MOST_RANKS: usize = 4;
/// Bytes that a rank writes between two steps, as a training step does, so that caches do not hold its gradients.
const EVICTED: usize = 32 << 20;
/// How long a rank waits for another.
const DEADLINE: Duration = Duration::from_secs(600);

/// What a candidate's exchange costs one rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    /// The buckets, in the order of the exchange.
    pub buckets: Vec<BucketCost>,
    /// The tensors, in the order of the model.
    pub tensors: Vec<TensorCost>,
    /// The error that remains of the sum of all recorded steps, relative to that sum: ‖sent − true‖ / ‖true‖.
    pub error: f64,
}

/// What a bucket costs in one exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BucketCost {
    /// Processor seconds of compressing.
    pub compress: f64,
    /// Processor seconds of decompressing and adding.
    pub decompress: f64,
    /// Bytes sent, headers included.
    pub up: f64,
    /// Bytes received, headers included.
    pub down: f64,
    /// Messages to each other rank, one after the other: one with a gather, two with a reduction, more with methods in
    /// rounds.
    pub phases: f64,
}

/// What a tensor costs in one exchange.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorCost {
    /// Bytes of this rank's messages; a message to several ranks counts once.
    pub bytes: f64,
    /// As [`Costs::error`], of this tensor.
    pub error: f64,
}

/// What a rank saw in a trial.
struct Observed {
    /// For each step the cost of each bucket.
    steps: Vec<Vec<BucketCost>>,
    /// For each tensor the bytes of its messages in the last step.
    bytes: Vec<usize>,
    /// For each tensor ‖sent − true‖² and ‖true‖² of the sums over steps.
    squares: Vec<[f64; 2]>,
}

impl Costs {
    /// Tries a candidate on a recording. Rank `r` begins with the recorded step `r`, so that ranks differ as they do with
    /// other data. Takes about `4 · (3 · min(ranks, 4) + 2)` bytes an element beside the recording.
    ///
    /// With more than four ranks, four take part, and bytes and times are extrapolated: with a gather each
    /// rank receives and decodes `n − 1` messages; otherwise its bytes grow as `(n − 1)/n`.
    ///
    /// # Errors
    /// `Config` where the recording is inconsistent, there is only one rank, or the candidate cannot work, with the reason.
    pub fn measure(recording: &Recording, candidate: &Candidate, ranks: usize) -> Result<Self> {
        recording.check()?;
        if ranks < 2 {
            return Err(ExchangeError::config(
                "one rank alone exchanges nothing; give the number of ranks of the run",
            ));
        }
        let exchange = candidate.exchange(ranks);
        let config = ReducerConfig {
            exchange,
            policy: candidate.policy(),
            tensors: recording.tensors.clone(),
            seed: 0,
            on_non_finite: OnNonFinite::Refuse,
        };
        let buckets = recording.buckets();
        let tried = ranks.min(MOST_RANKS);
        let options = in_process::Options { deadline: DEADLINE, link: None };
        let observed = thread::scope(|scope| {
            let (config, buckets) = (&config, &buckets);
            let start = |(rank, end)| {
                scope.spawn(move || observe(Box::new(end), rank, config, buckets, recording, tried))
            };
            let threads: Vec<_> =
                in_process::connect(tried, options).into_iter().enumerate().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Observed>>| {
                thread.join().expect("ranks do not panic")
            };
            // All ranks fail together; the first error is that of the lowest rank.
            threads.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let first = &observed[0];
        let grown = Growth::of(exchange, tried, ranks);
        let total: [f64; 2] =
            first.squares.iter().fold([0.0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
        Ok(Self {
            buckets: typical(&observed).into_iter().map(|cost| grown.apply(cost)).collect(),
            tensors: first
                .bytes
                .iter()
                .zip(&first.squares)
                .map(|(&bytes, &squares)| TensorCost {
                    bytes: bytes as f64,
                    error: relative(squares),
                })
                .collect(),
            error: relative(total),
        })
    }

    /// Processor seconds of compressing and decompressing in one exchange.
    pub fn codec(&self) -> f64 {
        self.buckets.iter().map(|cost| cost.compress + cost.decompress).sum()
    }

    /// The bytes of one rank's messages in one exchange; a message to several ranks counts once.
    pub fn message_bytes(&self) -> f64 {
        self.tensors.iter().map(|cost| cost.bytes).sum()
    }
}

/// What one rank sees.
fn observe(
    transport: Box<in_process::InProcess>,
    rank: usize,
    config: &ReducerConfig,
    buckets: &[Bucket],
    recording: &Recording,
    ranks: usize,
) -> Result<Observed> {
    let mut reducer = Reducer::new(transport, config.clone())?;
    for bucket in buckets {
        let names = bucket.tensors.iter().map(|&at| recording.tensors[at].name());
        reducer.form(&names.collect::<Vec<_>>())?;
    }
    let recorded =
        |step: usize, rank: usize| &recording.gradients[(step + rank) % recording.gradients.len()];
    let mut sums = (rank == 0).then(|| Sums::of(recording));
    let (mut values, mut steps) = (Vec::new(), Vec::new());
    // At least one step after the first, in which memory is new.
    for step in 0..recording.gradients.len().max(2) {
        black_box(vec![step as u8; EVICTED]);
        let mut before = StepReport::default();
        let mut costs = Vec::with_capacity(buckets.len());
        for (group, bucket) in buckets.iter().enumerate() {
            values.clear();
            let own = recorded(step, rank);
            bucket.tensors.iter().for_each(|&at| values.extend_from_slice(&own[at]));
            reducer.average(group, step as u64, &mut values)?;
            let after = reducer.report();
            costs.push(BucketCost::between(&before, &after, ranks));
            before = after;
            if let Some(sums) = &mut sums {
                let all = (0..ranks).map(|rank| recorded(step, rank)).collect::<Vec<_>>();
                sums.add(bucket, &values, &all);
            }
        }
        steps.push(costs);
    }
    // The others may still wait for this rank's last messages.
    reducer.flush()?;
    Ok(Observed {
        steps,
        bytes: (0..recording.tensors.len()).map(|at| reducer.message_bytes_of(at)).collect(),
        squares: sums.map_or_else(Vec::new, |sums| sums.squares()),
    })
}

impl BucketCost {
    fn between(before: &StepReport, after: &StepReport, ranks: usize) -> Self {
        let traffic = after.traffic - before.traffic;
        Self {
            compress: (after.compress - before.compress).as_secs_f64(),
            decompress: (after.decompress - before.decompress).as_secs_f64(),
            up: traffic.bytes_up as f64,
            down: traffic.bytes_down as f64,
            phases: traffic.messages_up as f64 / (ranks - 1) as f64,
        }
    }
}

/// Sums over steps, tensor by tensor.
struct Sums {
    /// What was sent minus the true mean.
    error: Vec<Vec<f32>>,
    /// The true mean.
    truth: Vec<Vec<f32>>,
}

impl Sums {
    fn of(recording: &Recording) -> Self {
        let zeros: Vec<Vec<f32>> =
            recording.tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect();
        Self { error: zeros.clone(), truth: zeros }
    }

    /// Adds a bucket: the mean that was exchanged, and the gradients of all ranks.
    fn add(&mut self, bucket: &Bucket, mut exchanged: &[f32], gradients: &[&Vec<Vec<f32>>]) {
        for &at in &bucket.tensors {
            let (error, truth) = (&mut self.error[at], &mut self.truth[at]);
            let sent;
            (sent, exchanged) = exchanged.split_at(error.len());
            error.iter_mut().zip(sent).for_each(|(error, sent)| *error += sent);
            for gradient in gradients {
                let scale = 1.0 / gradients.len() as f32;
                for ((error, truth), value) in error.iter_mut().zip(&mut *truth).zip(&gradient[at])
                {
                    *error -= scale * value;
                    *truth += scale * value;
                }
            }
        }
    }

    fn squares(&self) -> Vec<[f64; 2]> {
        let square = |values: &[f32]| values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        self.error.iter().zip(&self.truth).map(|(e, t)| [square(e), square(t)]).collect()
    }
}

/// ‖error‖ / ‖truth‖ from their squares.
fn relative([error, truth]: [f64; 2]) -> f64 {
    if error == 0.0 { 0.0 } else { (error / truth).sqrt() }
}

/// Medians over ranks and steps without the first step; of bytes, too, which differ from rank to rank.
fn typical(observed: &[Observed]) -> Vec<BucketCost> {
    let buckets = observed[0].steps[0].len();
    let of = |bucket: usize, field: fn(&BucketCost) -> f64| {
        let steps = observed.iter().flat_map(|rank| &rank.steps[1..]);
        let mut values: Vec<f64> = steps.map(|costs| field(&costs[bucket])).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let cost = |bucket| BucketCost {
        compress: of(bucket, |cost| cost.compress),
        decompress: of(bucket, |cost| cost.decompress),
        up: of(bucket, |cost| cost.up),
        down: of(bucket, |cost| cost.down),
        phases: of(bucket, |cost| cost.phases),
    };
    (0..buckets).map(cost).collect()
}

/// By what bytes and decoding grow from the ranks of the trial to those of the run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Growth {
    bytes: f64,
    decompress: f64,
}

impl Growth {
    fn of(exchange: Exchange, tried: usize, ranks: usize) -> Self {
        let (k, n) = (tried as f64, ranks as f64);
        match exchange {
            Exchange::AllGather => Self { bytes: (n - 1.0) / (k - 1.0), decompress: n / k },
            _ => Self { bytes: (1.0 - 1.0 / n) / (1.0 - 1.0 / k), decompress: 1.0 },
        }
    }

    fn apply(self, cost: BucketCost) -> BucketCost {
        BucketCost {
            decompress: self.decompress * cost.decompress,
            up: self.bytes * cost.up,
            down: self.bytes * cost.down,
            ..cost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::{Rng, Tensor};

    fn recording(steps: usize) -> Recording {
        let tensors = vec![Tensor::new("first", &[64, 96]), Tensor::new("second", &[96, 10])];
        let step = |step: usize| {
            let values = |(at, tensor): (usize, &Tensor)| {
                let mut rng = Rng::new(7, at as u64, 0, step as u64, 0);
                (0..tensor.elements()).map(|_| rng.normal()).collect()
            };
            tensors.iter().enumerate().map(values).collect()
        };
        let gradients = (0..steps).map(step).collect();
        Recording::untimed(tensors.clone(), gradients, 0.01, 0.005)
    }

    fn costs(spec: &str, ranks: usize) -> Costs {
        let candidate = Candidate::new(spec.parse().unwrap());
        Costs::measure(&recording(4), &candidate, ranks).unwrap()
    }

    #[test]
    fn what_is_sent_whole_leaves_no_error_and_has_the_bytes_of_an_all_reduce() {
        let found = costs("none", 2);
        // Sums in another order differ in the last bit.
        assert!(found.error < 1e-6, "{}", found.error);
        // 2 (n − 1)/n of four bytes an element, and headers.
        let up: f64 = found.buckets.iter().map(|cost| cost.up).sum();
        assert!((28_416.0..28_600.0).contains(&up), "{up}");
        let phases = |spec| costs(spec, 3).buckets[0].phases;
        // PowerSGD reduces two factors.
        assert_eq!((phases("none"), phases("3lc"), phases("powersgd")), (2.0, 1.0, 4.0));
    }

    #[test]
    fn errors_are_those_of_what_was_left_out() {
        // Of a normal distribution, the tenth with the largest magnitude has 44 % of the squares: 0.75 of the norm is left
        // of a single step, and less with feedback over four.
        let with = costs("topk:ratio=0.1,select=exact", 2);
        let without = costs("topk:ratio=0.1,select=exact,ef=off", 2);
        assert!(
            with.error < without.error && without.error > 0.5,
            "{} {}",
            with.error,
            without.error
        );
        assert!(with.tensors.iter().all(|cost| cost.error < 1.0 && cost.error > 0.1));
    }

    #[test]
    fn more_ranks_are_extrapolated_by_the_formulas_of_the_exchanges() {
        let up = |costs: &Costs| costs.buckets.iter().map(|cost| cost.up).sum::<f64>();
        let (four, ten) = (costs("none", 4), costs("none", 10));
        assert!((up(&ten) / up(&four) - 0.9 / 0.75).abs() < 1e-9);
        // The trial with two ranks, extrapolated by hand, agrees with that of four.
        let grown = Growth::of(Exchange::AllGather, 2, 4);
        let (two, four) = (costs("3lc", 2), costs("3lc", 4));
        let off = grown.bytes * up(&two) / up(&four) - 1.0;
        assert!(off.abs() < 0.05, "{off}");
    }

    #[test]
    fn growth_by_hand() {
        // 9 instead of 3 other ranks, 10 messages instead of 4.
        let gathered = Growth { bytes: 3.0, decompress: 2.5 };
        assert_eq!(Growth::of(Exchange::AllGather, 4, 10), gathered);
        // Nine tenths instead of three quarters.
        let reduced = Growth::of(Exchange::AllReduce, 4, 10);
        assert!((reduced.bytes - 1.2).abs() < 1e-12 && reduced.decompress == 1.0, "{reduced:?}");
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let candidate = |spec: &str| Candidate::new(spec.parse().unwrap());
        let alone = Costs::measure(&recording(2), &candidate("none"), 1).unwrap_err();
        assert!(alone.to_string().contains("number of ranks"), "{alone}");
        let gather = Candidate { exchange: Some(Exchange::AllReduce), ..candidate("3lc") };
        let refused = Costs::measure(&recording(2), &gather, 2).unwrap_err();
        assert!(refused.to_string().contains("all-reduce"), "{refused}");
    }
}
