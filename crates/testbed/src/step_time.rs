//! Modelled step times: the measured times of a step, plus the link model's time for its measured
//! bytes.

use gradwire_exchange::{Exchange, Link, StepBytes};
use gradwire_train::{RunRecord, StepRecord};

/// The common values of the modelled step times of one comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Common {
    /// The seconds of the forward and backward passes of a step, the same for all runs whose
    /// compressor does not change them: the median over these runs of the mean over a run's steps.
    /// A median over runs leaves out a run that the machine disturbed; a mean over steps includes
    /// rare work, such as the passes of a snapshot (SVRG).
    pub compute: f64,
    /// Whether the times of servers count. They count only if all runs with servers have recorded
    /// them.
    pub servers: bool,
}

impl Common {
    /// The common values of these runs.
    pub fn of(runs: &[RunRecord]) -> Self {
        let known = |run: &RunRecord| run.exchange.servers() == 0 || run.server.is_some();
        Self { compute: common_compute(runs), servers: runs.iter().all(known) }
    }

    /// The seconds of the forward and backward passes of a step of `run`: its own, if its
    /// compressor needs gradients in several parts.
    pub fn compute_of(&self, run: &RunRecord) -> f64 {
        if computes_parts(run) { own_compute(run) } else { self.compute }
    }
}

/// Whether a run computes the gradient of a batch in parts because its compressor needs their
/// squares.
fn computes_parts(run: &RunRecord) -> bool {
    run.facts().computes_parts
}

fn own_compute(run: &RunRecord) -> f64 {
    mean_step(run, |step| step.compute)
}

fn common_compute(runs: &[RunRecord]) -> f64 {
    let common = runs.iter().filter(|run| !run.trace.is_empty() && !computes_parts(run));
    let mut times: Vec<f64> = common.map(own_compute).collect();
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => 0.0,
        count => times[(count - 1) / 2].midpoint(times[count / 2]),
    }
}

/// Modelled seconds of one step of `run` on `link`: its measured times, the common times of the
/// compared runs, and the link model's time for its bytes. The parts follow one another without
/// overlap. With local steps, the mean over steps with and without an exchange.
pub fn step_seconds(run: &RunRecord, common: Common, link: Link) -> f64 {
    let own = mean_step(run, |step| step.compress + step.decompress + step.update);
    let server = run.server.filter(|_| common.servers).unwrap_or(0.0);
    common.compute_of(run) + own + server + wire_seconds(run, link)
}

/// The seconds per step of a run's exchanges on `link` by the link model, for the bytes of the
/// busiest worker if they are recorded.
pub(crate) fn wire_seconds(run: &RunRecord, link: Link) -> f64 {
    let (steps, rounds) = (run.steps.max(1) as f64, run.rounds.max(1) as f64);
    let busiest = match run.exchange {
        // The link model takes the mean over workers.
        Exchange::ParameterServer { .. } | Exchange::SparseAllReduce => 0.0,
        _ => mean_step(run, |step| step.bytes_busiest) * steps,
    };
    let bytes = StepBytes {
        up: run.bytes_up.max(busiest) / rounds,
        down: run.bytes_down.max(busiest) / rounds,
        largest_share: run.largest_tensor as f64 / run.parameters.max(1) as f64,
        uncompressed: 4.0 * run.parameters as f64,
    };
    link.step_time(run.exchange, run.workers, bytes).as_secs_f64() * rounds / steps
}

/// The mean of a figure over the steps of a run; 0 without a trace. In a thinned trace each entry
/// is the mean of the steps since the previous entry.
pub(crate) fn mean_step(run: &RunRecord, figure: impl Fn(&StepRecord) -> f64) -> f64 {
    let (mut done, mut sum) = (0, 0.0);
    for step in &run.trace {
        sum += figure(step) * (step.step + 1).saturating_sub(done) as f64;
        done = step.step + 1;
    }
    if done == 0 { 0.0 } else { sum / done as f64 }
}

/// The run from the second entry of its trace on, as if it had begun there; `None` if there is
/// none. In the first steps caches are cold.
pub(crate) fn without_first(run: &RunRecord) -> Option<RunRecord> {
    let (first, rest @ [_, ..]) = run.trace.split_first()? else { return None };
    let skipped = first.step + 1;
    let renumbered = |step: &StepRecord| StepRecord { step: step.step - skipped, ..*step };
    let mut without = RunRecord {
        rounds: run.rounds.saturating_sub(skipped / run.facts().every),
        bytes_up: run.bytes_up - first.bytes_up * skipped as f64,
        bytes_down: run.bytes_down - first.bytes_down * skipped as f64,
        trace: rest.iter().map(renumbered).collect(),
        ..run.clone()
    };
    without.steps -= skipped;
    Some(without)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::results::thin;
    use crate::summary::summarize;
    use crate::synthetic;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1e-9)
    }

    #[test]
    fn a_servers_time_is_part_of_a_step() {
        let mut runs = [synthetic::run("none", 1), synthetic::run("3lc", 1)];
        let link = Link::mbit(100.0);
        assert!(summarize(&runs, &[link]).unwrap().lacks_servers);
        let step = |runs: &[RunRecord]| step_seconds(&runs[1], Common::of(runs), link);
        let before = step(&runs);
        // Only when all of them are known.
        runs[1].server = Some(0.25);
        assert!(near(step(&runs), before) && summarize(&runs, &[link]).unwrap().lacks_servers);
        runs[0].server = Some(0.5);
        assert!(near(step(&runs), before + 0.25));
        assert!(!summarize(&runs, &[link]).unwrap().lacks_servers);
        runs.iter_mut().for_each(|run| (run.server, run.exchange) = (None, Exchange::AllGather));
        assert!(!summarize(&runs, &[link]).unwrap().lacks_servers);
    }

    #[test]
    fn compute_is_the_median_of_the_means_of_runs() {
        let run = |compressor: &str, compute: &[f64]| {
            let mut run = synthetic::run(compressor, 1);
            run.trace.truncate(compute.len());
            run.trace.iter_mut().zip(compute).for_each(|(step, &compute)| step.compute = compute);
            run
        };
        // A snapshot in every third step: means of 5, 6 and 20.
        let runs = [
            run("none", &[1.0, 1.0, 13.0]),
            run("3lc", &[20.0, 20.0, 20.0]),
            run("topk", &[2.0, 2.0, 14.0]),
        ];
        let compute = |runs: &[RunRecord]| Common::of(runs).compute;
        assert!(near(compute(&runs), 6.0) && near(compute(&runs[..2]), 12.5));
        assert_eq!((compute(&runs[..0]), compute(&[run("none", &[])])), (0.0, 0.0));
        // Entries of a thinned trace count as many steps as they stand for.
        assert!(near(compute(&[thin(&runs[0], 2)]), 5.0));
    }

    #[test]
    fn runs_that_compute_gradients_in_parts_have_a_time_of_their_own() {
        let of = |compressor: &str, compute: f64| {
            let mut run = synthetic::run(compressor, 1);
            run.trace.iter_mut().for_each(|step| step.compute = compute);
            run
        };
        let runs = [
            of("none", 1.0),
            of("variance", 4.0),
            of("none until 5 then variance:alpha=2", 3.0),
            of("3lc", 1.0),
        ];
        let common = Common::of(&runs);
        assert!(near(common.compute, 1.0));
        let seconds = runs.each_ref().map(|run| common.compute_of(run));
        let expected = [1.0, 4.0, 3.0, 1.0];
        assert!(seconds.iter().zip(expected).all(|(&found, expected)| near(found, expected)));
        let step = |run| step_seconds(run, common, Link::mbit(100.0));
        assert!(near(step(&runs[1]) - step(&runs[3]), 3.0));
        let summary = summarize(&runs, &[Link::mbit(100.0)]).unwrap();
        assert!(near(summary.rows[1].compute, 4.0) && near(summary.rows[3].compute, 1.0));
    }

    #[test]
    fn latency_is_charged_once_a_round() {
        let mut run = synthetic::run("none:every=4", 1);
        (run.exchange, run.trace, run.rounds) = (Exchange::AllGather, Vec::new(), 3);
        (run.bytes_up, run.bytes_down) = (5000.0, 5000.0);
        let link = Link { latency: Duration::from_secs(2), ..Link::mbit(0.008) };
        let common = Common { compute: 0.0, servers: false };
        // In ten steps 5000 bytes, a second for each 1000, and three exchanges of one phase.
        assert!(near(step_seconds(&run, common, link), 0.5 + 0.6));
    }

    #[test]
    fn the_busiest_worker_decides() {
        let mut run = synthetic::run("none:every=5", 1);
        (run.exchange, run.rounds, run.bytes_up, run.bytes_down) =
            (Exchange::AllGather, 2, 2000.0, 2000.0);
        // One of four workers sends 3000 bytes after five steps and 5000 after ten.
        (run.trace[4].bytes_busiest, run.trace[9].bytes_busiest) = (3000.0, 5000.0);
        let common = Common { compute: 0.0, servers: false };
        run.trace.iter_mut().for_each(|step| {
            (step.compress, step.decompress, step.update) = (0.0, 0.0, 0.0);
        });
        let link = Link::mbit(0.008);
        assert!(near(step_seconds(&run, common, link), 0.8));
        // A server's link carries the bytes of all four; half of them are one tensor, which is
        // pulled last.
        run.exchange = Exchange::default();
        assert!(near(step_seconds(&run, common, link), 4.0 * 0.2 * 1.5));
        // If they were not recorded, the mean counts.
        run.exchange = Exchange::AllGather;
        run.trace.iter_mut().for_each(|step| step.bytes_busiest = 0.0);
        assert!(near(step_seconds(&run, common, link), 0.2));
    }

    #[test]
    fn each_step_after_the_first_entry_counts_once() {
        // Ten steps: the first takes 9 seconds to compress, and the second 2.
        let mut run = synthetic::run("3lc", 1);
        (run.trace[0].compress, run.trace[1].compress) = (9.0, 2.0);
        (run.trace[0].bytes_up, run.bytes_up) = (1000.0, 1900.0);
        let compress = |run: &RunRecord| mean_step(run, |step| step.compress);
        let rest = without_first(&run).unwrap();
        assert_eq!((rest.steps, rest.trace.len(), rest.trace[0].step), (9, 9, 0));
        assert_eq!(rest.rounds, 9);
        assert!(near(compress(&rest), (2.0 + 8.0 * 0.001) / 9.0), "{}", compress(&rest));
        assert_eq!((rest.bytes_up, rest.bytes_down), (900.0, 1800.0));
        // Thinned to entries of two steps: the third and fourth come first.
        let rest = without_first(&thin(&run, 5)).unwrap();
        assert_eq!((rest.steps, rest.trace.len(), rest.bytes_up), (8, 4, 800.0));
        assert!(near(compress(&rest), 0.001), "{}", compress(&rest));
        // Local steps end with exchanges, the first of them after four.
        (run.compressor, run.rounds) = ("3lc:every=4".to_owned(), 3);
        assert_eq!(without_first(&run).unwrap().rounds, 3);
        assert_eq!(without_first(&thin(&run, 2)).unwrap().rounds, 2);
        run.trace.truncate(1);
        assert_eq!(without_first(&run), None);
    }
}
