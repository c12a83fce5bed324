//! A trial of a candidate: the recorded gradients, exchanged between ranks in threads of this
//! process.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use gradwire_exchange::{
    ExchangeError, OnNonFinite, Reducer, ReducerConfig, Result, StepReport, in_process,
};
use serde::Serialize;

use crate::bucket_cost::Growth;
use crate::sums::{Sums, relative};
use crate::{Bucket, BucketCost, Candidate, Recording};

/// The most ranks of a trial. Costs for more ranks are extrapolated.
const MOST_RANKS: usize = 4;
/// Bytes that a rank writes between two steps, as a training step does, so caches do not hold its
/// gradients.
const EVICTED: usize = 32 << 20;
/// The least bytes of gradients that are tried together, except the last ones: the size of a bucket
/// of `DistributedDataParallel`.
const BATCH: usize = 25 << 20;
/// How long a rank waits for another.
const DEADLINE: Duration = Duration::from_secs(600);

/// The cost of a candidate's exchange for one rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    /// The buckets, in the order of the exchange.
    pub buckets: Vec<BucketCost>,
    /// The tensors, in the order of the model.
    pub tensors: Vec<TensorCost>,
    /// The remaining error of the sum of all recorded steps, relative to the sum: ‖sent − true‖ /
    /// ‖true‖.
    pub error: f64,
}

/// The cost of a tensor in one exchange.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorCost {
    /// Bytes of this rank's messages; a message to several ranks counts once.
    pub bytes: f64,
    /// As [`Costs::error`], for this tensor.
    pub error: f64,
}

/// The measurements of a rank in the trial of some buckets.
struct Observed {
    /// For each step, the cost of each bucket.
    steps: Vec<Vec<BucketCost>>,
    /// For each tensor, its place in the model, and the bytes of its messages in the last step.
    bytes: Vec<(usize, usize)>,
    /// For each tensor, its place in the model, and ‖sent − true‖² and ‖true‖² of the sums over
    /// steps.
    squares: Vec<(usize, [f64; 2])>,
}

impl Costs {
    /// Tries a candidate on a recording. Rank `r` begins with the recorded step `r`, so ranks
    /// differ as with different data. Buckets are tried one after the other, each in all recorded
    /// steps. So residuals and sums take memory for one bucket, not for the whole model: about
    /// `4 · (3 · min(ranks, 4) + 2)` bytes for each of its elements. A bucket has 25 MiB of
    /// gradients, or one larger tensor.
    ///
    /// With more than four ranks, four take part, and bytes and times are extrapolated. With a
    /// gather, each rank receives and decodes `n − 1` messages. Otherwise its bytes grow as
    /// `(n − 1)/n`.
    ///
    /// # Errors
    /// `Config` if the recording is inconsistent, there is only one rank, or the candidate cannot
    /// work, with the reason.
    pub fn measure(recording: &Recording<'_>, candidate: &Candidate, ranks: usize) -> Result<Self> {
        Self::watched(recording, candidate, ranks, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`measure`](Self::measure). `watch` receives the number of elements of the buckets that
    /// were tried, and may end the trial.
    pub(crate) fn watched(
        recording: &Recording<'_>,
        candidate: &Candidate,
        ranks: usize,
        watch: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Self> {
        recording.check()?;
        if ranks < 2 {
            return Err(ExchangeError::config(
                "a single rank exchanges nothing; give the number of ranks of the run",
            ));
        }
        let exchange = candidate.exchange(ranks);
        let trial = Trial {
            recording,
            config: ReducerConfig {
                exchange,
                policy: candidate.policy(),
                tensors: recording.tensors.clone(),
                seed: 0,
                on_non_finite: OnNonFinite::Refuse,
            },
            ranks: ranks.min(MOST_RANKS),
        };
        let grown = Growth::of(exchange, trial.ranks, ranks);
        let mut costs = Vec::new();
        let (mut bytes, mut squares) =
            (vec![0; recording.tensors.len()], vec![[0.0; 2]; recording.tensors.len()]);
        for buckets in batches(&recording.buckets(), recording) {
            let observed = trial.run(&buckets)?;
            costs.extend(typical(&observed).into_iter().map(|cost| grown.apply(cost)));
            observed[0].bytes.iter().for_each(|&(at, sent)| bytes[at] = sent);
            observed[0].squares.iter().for_each(|&(at, sums)| squares[at] = sums);
            if watch(elements(&buckets, recording)).is_break() {
                return Err(ExchangeError::Ended("the trial was stopped".to_owned()));
            }
        }
        let total = squares.iter().fold([0.0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
        let tensor = |(&bytes, &squares): (&usize, &[f64; 2])| TensorCost {
            bytes: bytes as f64,
            error: relative(squares),
        };
        Ok(Self {
            buckets: costs,
            tensors: bytes.iter().zip(&squares).map(tensor).collect(),
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

/// Consecutive buckets that are tried together.
fn batches(buckets: &[Bucket], recording: &Recording<'_>) -> Vec<Vec<Bucket>> {
    let (mut batches, mut bytes) = (Vec::<Vec<Bucket>>::new(), usize::MAX);
    for bucket in buckets {
        if bytes >= BATCH {
            batches.push(Vec::new());
            bytes = 0;
        }
        bytes += 4 * elements(std::slice::from_ref(bucket), recording);
        batches.last_mut().expect("the first bucket opens a batch").push(bucket.clone());
    }
    batches
}

/// The number of elements of some buckets.
fn elements(buckets: &[Bucket], recording: &Recording<'_>) -> usize {
    let tensors = buckets.iter().flat_map(|bucket| &bucket.tensors);
    tensors.map(|&at| recording.tensors[at].elements()).sum()
}

/// The ranks of a trial.
struct Trial<'a> {
    recording: &'a Recording<'a>,
    config: ReducerConfig,
    ranks: usize,
}

impl Trial<'_> {
    /// Exchanges some buckets in all recorded steps; returns each rank's measurements.
    fn run(&self, buckets: &[Bucket]) -> Result<Vec<Observed>> {
        let options = in_process::Options { deadline: DEADLINE, link: None };
        thread::scope(|scope| {
            let start =
                |(rank, end)| scope.spawn(move || self.observe(Box::new(end), rank, buckets));
            let ends = in_process::connect(self.ranks, options).into_iter().enumerate();
            let threads: Vec<_> = ends.map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Observed>>| {
                thread.join().expect("ranks do not panic")
            };
            // All ranks fail together; the first error is the error of the lowest rank.
            threads.into_iter().map(join).collect()
        })
    }

    /// The measurements of one rank.
    fn observe(
        &self,
        transport: Box<in_process::InProcess>,
        rank: usize,
        buckets: &[Bucket],
    ) -> Result<Observed> {
        let recording = self.recording;
        let mut reducer = Reducer::new(transport, self.config.clone())?;
        for bucket in buckets {
            let names = bucket.tensors.iter().map(|&at| recording.tensors[at].name());
            reducer.form_of(&names.collect::<Vec<_>>(), bucket.dtype)?;
        }
        let recorded = |step: usize, rank: usize| {
            &recording.gradients[(step + rank) % recording.gradients.len()]
        };
        let mut sums = (rank == 0).then(|| Sums::of(buckets, recording));
        let (mut values, mut steps) = (Vec::new(), Vec::new());
        let mut evicting = vec![0; EVICTED];
        // At least one step after the first, which allocates its memory.
        for step in 0..recording.gradients.len().max(2) {
            evicting.fill(step as u8);
            black_box(&mut evicting);
            let mut before = StepReport::default();
            let mut costs = Vec::with_capacity(buckets.len());
            for (group, bucket) in buckets.iter().enumerate() {
                values.clear();
                let own = recorded(step, rank);
                bucket.tensors.iter().for_each(|&at| own[at].append_to(&mut values));
                reducer.average(group, step as u64, &mut values)?;
                let after = reducer.report();
                costs.push(BucketCost::between(&before, &after, self.ranks));
                before = after;
                if let Some(sums) = &mut sums {
                    let all = (0..self.ranks).map(|rank| &recorded(step, rank)[..]);
                    sums.add(bucket, &values, &all.collect::<Vec<_>>());
                }
            }
            steps.push(costs);
        }
        // The others may still wait for this rank's last messages.
        reducer.flush()?;
        let tensors = buckets.iter().flat_map(|bucket| &bucket.tensors);
        Ok(Observed {
            steps,
            bytes: tensors.map(|&at| (at, reducer.message_bytes_of(at))).collect(),
            squares: sums.map_or_else(Vec::new, |sums| sums.squares()),
        })
    }
}

/// Medians over ranks and over all steps but the first. Bytes are medians, too, because they differ
/// between ranks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::{Floats, Rng, Tensor};
    use gradwire_exchange::Exchange;

    fn recording(steps: usize) -> Recording<'static> {
        let tensors = vec![Tensor::new("first", &[64, 96]), Tensor::new("second", &[96, 10])];
        let gradients = (0..steps).map(|step| drawn(&tensors, step)).collect();
        Recording::untimed(tensors, gradients, 0.01, 0.005)
    }

    /// Normally distributed gradients of a step.
    fn drawn(tensors: &[Tensor], step: usize) -> Vec<Floats<'static>> {
        let values = |(at, tensor): (usize, &Tensor)| {
            let mut rng = Rng::new(7, at as u64, 0, step as u64, 0);
            let values = (0..tensor.elements()).map(|_| rng.normal()).collect::<Vec<f32>>();
            Floats::F32(values.leak())
        };
        tensors.iter().enumerate().map(values).collect()
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
        // In a normal distribution, the tenth with the largest magnitude has 44 % of the squares. A
        // single step leaves 0.75 of the norm; four steps with feedback leave less.
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

    /// Elements of three tensors. The first and the second are in two batches, and the third is in
    /// the second's batch.
    const BATCHED: [usize; 3] = [300, 25 << 18, 1 << 10];

    #[test]
    fn buckets_that_are_tried_apart_have_the_bytes_and_errors_of_a_single_exchange() {
        let tensors = BATCHED.map(|n| Tensor::new(format!("t{n}"), &[n / 2, 2])).to_vec();
        let gradients: Vec<_> = (0..2).map(|step| drawn(&tensors, step)).collect();
        let whole = Recording::untimed(tensors.clone(), gradients.clone(), 0.01, 0.005);
        let batches: Vec<_> = batches(&whole.buckets(), &whole)
            .iter()
            .map(|batch| batch.iter().flat_map(|bucket| bucket.tensors.clone()).collect::<Vec<_>>())
            .collect();
        assert_eq!(batches, [vec![2, 1], vec![0]]);
        for spec in ["3lc", "eden", "topk:ratio=0.01"] {
            let candidate = Candidate::new(spec.parse().unwrap());
            let mut tried = Vec::new();
            let found = Costs::watched(&whole, &candidate, 2, &mut |elements| {
                tried.push(elements);
                ControlFlow::Continue(())
            });
            let found = found.unwrap();
            assert_eq!(tried, [(25 << 18) + (1 << 10), 300]);
            // A trial of a single tensor has the same random draws, which are keyed by names.
            for at in 0..3 {
                let alone = gradients.iter().map(|step| vec![step[at]]).collect();
                let alone = Recording::untimed(vec![tensors[at].clone()], alone, 0.01, 0.005);
                let alone = Costs::measure(&alone, &candidate, 2).unwrap();
                assert_eq!(found.tensors[at], alone.tensors[0], "{spec} {at}");
            }
        }
    }

    #[test]
    fn sixteen_bits_give_the_bytes_and_errors_of_the_same_values_in_32() {
        // 1.0 and -2.0 in bfloat16.
        let bits: Vec<u16> = (0..4096).map(|at| [0x3f80, 0xc000][at % 2]).collect();
        let wide: Vec<f32> = (0..4096).map(|at| [1.0, -2.0][at % 2]).collect();
        let costs = |gradient| {
            let tensors = vec![Tensor::new("t", &[64, 64])];
            let recording = Recording::untimed(tensors, vec![vec![gradient]; 2], 0.01, 0.005);
            Costs::measure(&recording, &Candidate::new("topk:ratio=0.01".parse().unwrap()), 2)
                .unwrap()
        };
        let (narrow, wide) = (costs(Floats::Bf16(&bits)), costs(Floats::F32(&wide)));
        assert_eq!(narrow.tensors, wide.tensors);
        assert!(narrow.error > 0.0);
    }

    #[test]
    fn a_trial_ends_where_its_watcher_says_so() {
        let candidate = Candidate::new("none".parse().unwrap());
        let stopped = Costs::watched(&recording(2), &candidate, 2, &mut |_| ControlFlow::Break(()));
        assert!(matches!(stopped, Err(ExchangeError::Ended(_))));
    }

    #[test]
    fn more_ranks_are_extrapolated_by_the_formulas_of_the_exchanges() {
        let up = |costs: &Costs| costs.buckets.iter().map(|cost| cost.up).sum::<f64>();
        let (four, ten) = (costs("none", 4), costs("none", 10));
        assert!((up(&ten) / up(&four) - 0.9 / 0.75).abs() < 1e-9);
        // The trial with two ranks, extrapolated by hand, agrees with the trial with four.
        let grown = Growth::of(Exchange::AllGather, 2, 4);
        let (two, four) = (costs("3lc", 2), costs("3lc", 4));
        let off = grown.bytes * up(&two) / up(&four) - 1.0;
        assert!(off.abs() < 0.05, "{off}");
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
