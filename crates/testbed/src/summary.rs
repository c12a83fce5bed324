//! Runs of several compressors and seeds, summarised in a row for each compressor.

pub mod tables;

use std::collections::{BTreeMap, BTreeSet};

use gradwire_exchange::{Exchange, Link};
use gradwire_train::{Metric, RunRecord, StepRecord};

use crate::step_time::{Common, mean_step, step_seconds};
use crate::{DivergedRun, TestbedError};

/// Mean and spread of a figure over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation; 0 for one value.
    pub sd: f64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// The number of values.
    pub count: usize,
}

impl Spread {
    /// The spread of values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mean = mean(values.iter().copied())?;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        Some(Self {
            mean,
            sd: (squares / (values.len().max(2) - 1) as f64).sqrt(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            count: values.len(),
        })
    }

    /// The spread of 1 minus each value: turns the spread of accuracies into the spread of errors.
    pub(crate) fn complement(self) -> Self {
        let (mean, min, max) = (1.0 - self.mean, 1.0 - self.max, 1.0 - self.min);
        Self { mean, min, max, ..self }
    }
}

/// A compressor on one link between each rank and the network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OnLink {
    /// Modelled seconds of one step.
    pub step: f64,
    /// Step time of `none` over this one; `None` without a run of `none`.
    pub speedup: Option<f64>,
}

/// One compressor, averaged over its seeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its spec.
    pub compressor: String,
    /// The exchange of its runs.
    pub exchange: Exchange,
    /// Training steps of each run.
    pub steps: u64,
    /// Final quality, in the summary's metric.
    pub quality: Spread,
    /// Quality minus the quality of the run of `none` with the same seed or, if `none` was not run,
    /// of `none` with the same delay; `None` without either.
    pub difference: Option<Spread>,
    /// Bits per parameter and step, averaged over both directions.
    pub bits_per_parameter: f64,
    /// The same over the tensors that are sent compressed; `None` with exchanges whose cost of raw
    /// tensors is not known.
    pub bits_per_compressed: Option<f64>,
    /// Bits per parameter and step that a worker sent.
    pub bits_up: f64,
    /// Bits per parameter and step that a worker received.
    pub bits_down: f64,
    /// Baseline bytes over this one's, both directions together.
    pub ratio: f64,
    /// Baseline bytes over this one's, sent by a worker.
    pub ratio_up: f64,
    /// Baseline bytes over this one's, received by a worker.
    pub ratio_down: f64,
    /// Bytes a worker sent in a run.
    pub bytes_up: f64,
    /// Bytes a worker received in a run.
    pub bytes_down: f64,
    /// Measured seconds a step of forward and backward passes on a core of their own, as modelled
    /// step times [count them](crate::step_time::Common::compute_of).
    pub compute: f64,
    /// Measured seconds a step of encoding.
    pub compress: f64,
    /// Measured seconds a step of decoding and adding.
    pub decompress: f64,
    /// The fraction of the exchange time that workers spent computing; `None` without overlap.
    pub hidden: Option<f64>,
    /// Step time and speed-up by link, in the order of [`Summary::links`].
    pub on_links: Vec<OnLink>,
}

/// The figures of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// One row a compressor, in the order of first appearance.
    pub rows: Vec<Row>,
    /// The metric of the quality.
    pub metric: Metric,
    /// The links modelled.
    pub links: Vec<Link>,
    /// Whether step times leave out servers, because some runs have not recorded the servers'
    /// times.
    pub lacks_servers: bool,
    /// The number of workers.
    pub workers: usize,
    /// How many runs of each compressor diverged.
    pub diverged: BTreeMap<String, usize>,
    /// The bits per parameter and step that a worker sends in an uncompressed all-reduce.
    pub all_reduce_bits: f64,
}

impl Summary {
    /// The row of the compressor whose printed spec is `spec`.
    pub fn row(&self, spec: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.compressor == spec)
    }

    /// The largest number of seeds of a row.
    pub fn seeds(&self) -> usize {
        self.rows.iter().map(|row| row.quality.count).max().unwrap_or(0)
    }

    /// The rows with fewer seeds than others, because runs failed or are not finished. The
    /// remaining runs may be the better ones.
    pub fn incomplete(&self) -> impl Iterator<Item = &Row> {
        let seeds = self.seeds();
        self.rows.iter().filter(move |row| row.quality.count < seeds)
    }

    /// The same summary with these runs, which diverged.
    pub fn with_diverged(mut self, runs: &[DivergedRun]) -> Self {
        for run in runs {
            *self.diverged.entry(run.compressor.clone()).or_default() += 1;
        }
        self
    }

    /// How many runs of a compressor diverged.
    pub fn diverged_of(&self, compressor: &str) -> usize {
        self.diverged.get(compressor).copied().unwrap_or(0)
    }

    /// Whether compressors have different exchanges.
    pub fn has_exchanges(&self) -> bool {
        self.rows.iter().any(|row| row.exchange != self.rows[0].exchange)
    }

    /// The row of `none`: ratios are relative to its bytes, including message headers. Without it,
    /// they are relative to 32 bits per parameter, step and direction.
    pub fn baseline(&self) -> Option<&Row> {
        self.row("none")
    }
}

/// Summarises runs that differ only in compressor, seed, and perhaps exchange.
///
/// # Errors
/// If there are no runs.
pub fn summarize(runs: &[RunRecord], links: &[Link]) -> Result<Summary, TestbedError> {
    let common = Common::of(runs);
    let groups = by_compressor(runs);
    if groups.is_empty() {
        return Err(TestbedError::Config("there are no runs to summarise".to_owned()));
    }
    let mut rows: Vec<Row> = groups.iter().map(|group| row(group, common, links)).collect();
    let baseline = rows.iter().find(|row| row.compressor == "none").cloned();
    let parameters = groups[0][0].parameters as f64;
    for (row, group) in rows.iter_mut().zip(&groups) {
        compare(row, baseline.as_ref(), parameters);
        row.difference = uncompressed(&groups, group).and_then(|none| paired(group, none));
    }
    Ok(Summary {
        rows,
        metric: runs[0].metric,
        links: links.to_vec(),
        lacks_servers: !common.servers,
        workers: runs[0].workers,
        diverged: BTreeMap::new(),
        all_reduce_bits: 32.0 * Exchange::AllReduce.receivers(runs[0].workers),
    })
}

/// Runs grouped by compressor, in the order of first appearance.
pub fn by_compressor(runs: &[RunRecord]) -> Vec<Vec<&RunRecord>> {
    let mut groups: Vec<Vec<&RunRecord>> = Vec::new();
    for run in runs {
        match groups.iter_mut().find(|group| group[0].compressor == run.compressor) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

/// The number of seeds that each compressor of these runs has, in words: `3`, or `1 to 3`.
pub fn seeds_of_each(runs: &[RunRecord]) -> String {
    let seeds =
        |group: &Vec<&RunRecord>| group.iter().map(|run| run.seed).collect::<BTreeSet<u64>>().len();
    let counts: BTreeSet<usize> = by_compressor(runs).iter().map(seeds).collect();
    match (counts.first(), counts.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.copied().unwrap_or(0).to_string(),
    }
}

fn row(runs: &[&RunRecord], common: Common, links: &[Link]) -> Row {
    let over = |figure: &dyn Fn(&RunRecord) -> f64| {
        mean(runs.iter().map(|run| figure(run))).expect("a group has a run")
    };
    let over_steps = |field: fn(&StepRecord) -> f64| over(&|run| mean_step(run, field));
    let qualities: Vec<f64> = runs.iter().map(|run| run.quality).collect();
    let on_link = |&link| {
        let seconds = runs.iter().map(|run| step_seconds(run, common, link) / runs.len() as f64);
        OnLink { step: seconds.sum(), speedup: None }
    };
    Row {
        compressor: runs[0].compressor.clone(),
        exchange: runs[0].exchange,
        steps: runs[0].steps,
        quality: Spread::of(&qualities).expect("a group has a run"),
        difference: None,
        bits_per_parameter: over(&RunRecord::bits_per_parameter),
        bits_per_compressed: bits_per_compressed(runs),
        bits_up: over(&RunRecord::bits_up),
        bits_down: over(&RunRecord::bits_down),
        ratio: 0.0,
        ratio_up: 0.0,
        ratio_down: 0.0,
        bytes_up: over(&|run| run.bytes_up),
        bytes_down: over(&|run| run.bytes_down),
        compute: over(&|run| common.compute_of(run)),
        compress: over_steps(|s| s.compress),
        decompress: over_steps(|s| s.decompress),
        hidden: mean(runs.iter().filter_map(|run| run.hidden())),
        on_links: links.iter().map(on_link).collect(),
    }
}

/// The runs of `none`, or else of `none` with the delay of `group`.
fn uncompressed<'a, 'b>(
    groups: &'a [Vec<&'b RunRecord>],
    group: &[&RunRecord],
) -> Option<&'a Vec<&'b RunRecord>> {
    let of = |spec: &str| groups.iter().find(|group| group[0].compressor == spec);
    of("none").or_else(|| of(&format!("none:every={}", group[0].facts().every)))
}

/// The differences of quality between runs with the same seed and length. Equal seeds have the same
/// initial parameters and data, so the spread is the spread of the compressor's effect.
pub(crate) fn paired(runs: &[&RunRecord], others: &[&RunRecord]) -> Option<Spread> {
    let other = |run: &RunRecord| {
        others.iter().find(|other| (other.seed, other.steps) == (run.seed, run.steps))
    };
    let pairs = runs.iter().filter_map(|run| Some(run.quality - other(run)?.quality));
    Spread::of(&pairs.collect::<Vec<_>>())
}

/// Computes the values of a row that are relative to the baseline.
fn compare(row: &mut Row, baseline: Option<&Row>, parameters: f64) {
    let steps = row.steps as f64;
    let (up, down) = match baseline {
        Some(none) => {
            let scale = steps / none.steps as f64;
            (none.bytes_up * scale, none.bytes_down * scale)
        }
        None => (4.0 * parameters * steps, 4.0 * parameters * steps),
    };
    row.ratio_up = up / row.bytes_up;
    row.ratio_down = down / row.bytes_down;
    row.ratio = (up + down) / (row.bytes_up + row.bytes_down);
    if let Some(none) = baseline {
        for (here, there) in row.on_links.iter_mut().zip(&none.on_links) {
            here.speedup = Some(there.step / here.step);
        }
    }
}

/// Bits per parameter of the tensors that are sent compressed: with a parameter server, raw tensors
/// cost 32 bits a parameter each way in each exchange. Message headers are included.
fn bits_per_compressed(runs: &[&RunRecord]) -> Option<f64> {
    let first = runs[0];
    if !matches!(first.exchange, Exchange::ParameterServer { .. })
        || first.compressed_parameters == 0
    {
        return None;
    }
    let raw = (first.parameters - first.compressed_parameters) as f64;
    let exchanges = first.rounds as f64;
    let bits = runs.iter().map(|run| {
        let both = (run.bytes_up + run.bytes_down) / 2.0 * 8.0 - 32.0 * raw * exchanges;
        both / (run.compressed_parameters as f64 * run.steps as f64)
    });
    mean(bits)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1e-9)
    }

    #[test]
    fn spread_by_hand() {
        let spread = Spread::of(&[1.0, 2.0, 6.0]).unwrap();
        assert!(near(spread.mean, 3.0));
        // (4 + 1 + 9) / 2 = 7
        assert!(near(spread.sd, 7f64.sqrt()));
        assert_eq!((spread.min, spread.max, spread.count), (1.0, 6.0, 3));
        let complement = Spread { mean: -2.0, min: -5.0, max: 0.0, ..spread };
        assert_eq!(spread.complement(), complement);
        assert_eq!(Spread::of(&[0.5]).unwrap().sd, 0.0);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_relative_to_the_measured_baseline() {
        let runs = [("none", 1), ("none", 2), ("3lc", 1), ("3lc", 2)];
        let runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        let summary = synthetic::summary(&runs);
        assert!(summary.baseline().is_some());
        assert_eq!(summary.rows.len(), 2);
        let row = &summary.rows[1];
        assert_eq!(row.quality.count, 2);
        assert!(near(row.quality.mean, 0.915));
        // 0.91 and 0.92 both times.
        let difference = row.difference.unwrap();
        assert!(difference.mean.abs() < 1e-12 && difference.sd < 1e-12 && difference.count == 2);
        // 4000 bytes against 100 up and 200 down; 1000 parameters.
        assert!(near(row.ratio_up, 40.0));
        assert!(near(row.ratio_down, 20.0));
        assert!(near(row.ratio, 8000.0 / 300.0));
        assert!(near(row.bits_up, 0.8));
        assert!(near(row.bits_down, 1.6));
        assert!(near(row.bits_per_parameter, 1.2));
        // Of 32000 bits a step, 100 raw parameters take 3200; the rest over 900 parameters.
        assert!(near(summary.rows[0].bits_per_compressed.unwrap(), 32.0));
    }

    #[test]
    fn raw_tensors_are_sent_in_each_round() {
        let mut run = synthetic::run("none:every=2", 1);
        (run.bytes_up, run.bytes_down) = (20_000.0, 20_000.0);
        run.rounds = 5;
        let bits = synthetic::summary(&[run]).rows[0].bits_per_compressed.unwrap();
        // Of 160 000 bits, 100 raw parameters take 3200 in each of five rounds; the rest over 900
        // parameters and ten steps.
        assert!(near(bits, 16.0), "{bits}");
    }

    #[test]
    fn differences_are_paired_by_seed() {
        let mut runs = [("none", 1), ("none", 2), ("3lc", 2), ("3lc", 1), ("3lc", 3)]
            .map(|(compressor, seed)| synthetic::run(compressor, seed));
        (runs[2].quality, runs[3].quality) = (0.90, 0.87);
        // 0.90 − 0.92 and 0.87 − 0.91; seed 3 has no partner.
        let difference = synthetic::summary(&runs).rows[1].difference.unwrap();
        assert!(near(difference.mean, -0.03) && near(difference.sd, 0.02 / 2f64.sqrt()));
        assert_eq!(difference.count, 2);
    }

    #[test]
    fn seeds_are_those_that_the_runs_have() {
        let runs = [("none", 1), ("none", 2), ("3lc", 2)];
        let runs = runs.map(|(compressor, seed)| synthetic::run(compressor, seed));
        assert_eq!(seeds_of_each(&runs), "1 to 2");
        assert_eq!(seeds_of_each(&runs[..2]), "2");
    }

    #[test]
    fn quality_is_compared_with_delayed_messages_of_none_where_there_are_no_others() {
        let specs = ["none:every=600", "3lc:every=600", "3lc:every=10"];
        let mut runs = specs.map(|spec| synthetic::run(spec, 1));
        (runs[0].quality, runs[1].quality) = (0.9, 0.92);
        let summary = synthetic::summary(&runs);
        assert!(near(summary.rows[1].difference.unwrap().mean, 0.02));
        assert_eq!(summary.rows[2].difference, None);
        let all = [synthetic::run("none:every=600", 1), synthetic::run("none", 1), runs[1].clone()];
        let against = synthetic::summary(&all).rows[2].difference.unwrap().mean;
        assert!(near(against, 0.92 - all[1].quality));
    }

    #[test]
    fn without_a_baseline_ratios_are_computed_from_32_bits() {
        let summary = synthetic::summary(&[synthetic::run("3lc", 1)]);
        assert!(summary.baseline().is_none());
        assert!(near(summary.rows[0].ratio_up, 40.0));
        assert_eq!(summary.rows[0].difference, None);
        assert_eq!(summary.rows[0].on_links[0].speedup, None);
    }

    #[test]
    fn a_slow_link_is_bound_by_bytes_and_a_fast_one_by_compute() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let links = [Link::mbit(0.001), Link::mbit(1e9)];
        let rows = summarize(&runs, &links).unwrap().rows;
        // At 1 kbit/s only bytes matter. Four workers share the server's link, and half the model
        // is one tensor: 4 · (4000 + 4000 / 2) bytes against 4 · (200 + 100 / 2).
        let slow = rows[1].on_links[0].speedup.unwrap();
        assert!((slow - 24.0).abs() < 0.1, "{slow}");
        assert!((rows[0].on_links[0].step - 192.0).abs() < 0.1);
        let fast = rows[1].on_links[1];
        assert!(near(fast.speedup.unwrap(), 1.0));
        // 10 ms compute, 1 compress, 2 decompress, half a millisecond of update.
        assert!((fast.step - 0.0135).abs() < 1e-6, "{}", fast.step);
    }

    #[test]
    fn a_run_is_shown_by_a_program_without_its_compressor() {
        let known = [synthetic::run("none:every=2", 1), synthetic::run("topk:every=2", 1)];
        let mut unknown = known.clone();
        unknown[1].compressor_facts = Some(known[1].facts());
        unknown[1].compressor = "acme/largest:k=3,every=2".to_owned();
        let [known, unknown] =
            [known, unknown].map(|runs| synthetic::summary(&runs).rows.remove(1));
        assert_eq!(unknown.compressor, "acme/largest:k=3,every=2");
        assert_eq!(Row { compressor: known.compressor.clone(), ..unknown }, known);
        assert!(known.difference.is_some());
    }

    #[test]
    fn no_runs_is_an_error() {
        assert!(summarize(&[], &[]).is_err());
    }
}
