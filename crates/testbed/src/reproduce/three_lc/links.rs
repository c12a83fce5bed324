//! Step times over real links, compared with the link model and with Table 1 of the 3LC paper.
//!
//! `benchmarks/mpi-links` makes the runs: MPI jobs with throttled links between ranks. The runs
//! over one link are in a folder named after the link's Mbit/s. This study compares their records.
//! Times and bytes of a step are means over all steps but the first.

use std::fs;
use std::path::{Path, PathBuf};

use gradwire_exchange::Link;
use gradwire_train::RunRecord;

use super::paper::{self, LINKS_MBIT, TABLE_1};
use crate::TestbedError;
use crate::format::{bandwidth, significant, times};
use crate::reproduce::findings::page;
use crate::reproduce::study::{Report, Results, Study};
use crate::results;
use crate::step_time::{Common, mean_step, step_seconds, without_first};
use crate::table::Table;

/// The comparison over real links, whose runs are in the study's folder.
pub(crate) const LINKS: Study = Study {
    id: "3lc-links",
    summary: "step times over throttled links, beside the link model and Table 1 of the 3LC \
        paper; collects the runs of benchmarks/mpi-links",
    citation: paper::CITATION,
    report: |results, _| report(results),
    ..Study::PLAIN
};

fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let links = links_in(results.out)?;
    if links.is_empty() {
        let out = results.out.display();
        return Err(TestbedError::Config(format!(
            "{out} has no runs over links; 'benchmarks/mpi-links {out}' makes them"
        )));
    }
    let mut text = format!(
        "{}.\n\nThe paper measured its speed-ups in another set-up: {}.\n",
        paper::CITATION,
        paper::SETUP
    );
    let mut printed = Vec::new();
    for (mbit, runs) in links {
        let runs = results::read(&runs)?;
        let steps = all(&runs, mbit)?;
        let table = table(&steps);
        let what = runs.first().map_or_else(String::new, |run| {
            format!(
                "{} on {}, {} workers, {}, {} examples per worker and step, {} steps.",
                run.model, run.data, run.workers, run.exchange, run.batch, run.steps
            )
        });
        text.push_str(&format!("\n## {mbit} Mbit/s\n\n{what}\n\n{}", table.markdown()));
        printed.extend([format!("{mbit} Mbit/s").into(), table.into()]);
        if let Some(verdict) = verdict(&steps) {
            text.push_str(&format!("\n{verdict}\n"));
            printed.push(verdict.into());
        }
    }
    Ok(page(results, &text, &Vec::new(), printed))
}

/// The result files of runs over links with the links' Mbit/s, from the slowest; none without such
/// folders.
fn links_in(out: &Path) -> Result<Vec<(f64, PathBuf)>, TestbedError> {
    if !out.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(out).map_err(TestbedError::read(out))?.flatten();
    let links = entries.filter_map(|entry| {
        let mbit: f64 = entry.file_name().to_str()?.parse().ok()?;
        let runs = entry.path().join("runs.jsonl");
        (mbit.is_finite() && mbit > 0.0 && runs.exists()).then_some((mbit, runs))
    });
    let mut links: Vec<_> = links.collect();
    links.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(links)
}

/// The fraction of a throttled link's rate that is payload: `tc` counts whole Ethernet frames of
/// 1514 bytes, with 1448 bytes of TCP payload.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// A link that takes at least this fraction of the modelled time of a step is its bottleneck.
const BOTTLENECK: f64 = 0.5;

/// The measured and the modelled step time of one run.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    /// The compressor's spec.
    compressor: String,
    /// The limit of the links, in megabits per second.
    mbit: f64,
    /// Seconds, on a wall clock.
    seconds: f64,
    /// Seconds, by the link model.
    modelled: f64,
    /// The modelled seconds on the link.
    wire: f64,
}

impl Measured {
    /// The steps of a run over links that `tc` limits to `mbit` megabits per second.
    ///
    /// # Errors
    /// If its record has no wall-clock times.
    fn of(run: &RunRecord, common: Common, mbit: f64) -> Result<Self, TestbedError> {
        let wall = |run: &RunRecord| mean_step(run, |step| step.wall);
        let Some(run) = &without_first(run).filter(|run| wall(run) > 0.0) else {
            return Err(TestbedError::Config(format!(
                "the run of '{}' has no step times; repeat it with at least two steps",
                run.compressor
            )));
        };
        let seconds = wall(run);
        let link = Link::mbit(mbit * PAYLOAD);
        let modelled = step_seconds(run, common, link);
        let unbounded = Link { bits_per_second: f64::INFINITY, ..link };
        let wire = 1.0 - step_seconds(run, common, unbounded) / modelled;
        Ok(Self { compressor: run.compressor.clone(), mbit, seconds, modelled, wire })
    }

    /// The error of the model, as a fraction of the measured time.
    fn error(&self) -> f64 {
        self.modelled / self.seconds - 1.0
    }
}

/// The steps of all `runs` over links that `tc` limits to `mbit` megabits per second.
///
/// # Errors
/// As for [`Measured::of`].
fn all(runs: &[RunRecord], mbit: f64) -> Result<Vec<Measured>, TestbedError> {
    let warm: Vec<RunRecord> = runs.iter().filter_map(without_first).collect();
    let common = Common::of(&warm);
    runs.iter().map(|run| Measured::of(run, common, mbit)).collect()
}

/// Measured and modelled steps over one link; speed-ups over `none`, if it was run.
fn table(steps: &[Measured]) -> Table {
    let none = steps.iter().find(|one| one.compressor == "none");
    let speedup = |one: &Measured, seconds: fn(&Measured) -> f64| {
        none.map_or_else(String::new, |none| times(seconds(none) / seconds(one)))
    };
    let milliseconds = |seconds: f64| format!("{} ms", significant(1e3 * seconds));
    Table::of(steps)
        .column("compressor", |one| &one.compressor)
        .column("measured", |one| milliseconds(one.seconds))
        .column("modelled", |one| milliseconds(one.modelled))
        .column("error", |one| format!("{:+.0} %", 100.0 * one.error()))
        .column("of that on the link", |one| format!("{:.0} %", 100.0 * one.wire))
        .column("speed-up measured", |one| speedup(one, |one| one.seconds))
        .column("speed-up modelled", |one| speedup(one, |one| one.modelled))
        .column("3LC paper", |one| paper(one).map_or_else(String::new, times))
        .table()
}

/// The speed-up that the paper measured.
fn paper(one: &Measured) -> Option<f64> {
    let at = LINKS_MBIT.iter().position(|mbit| *mbit == one.mbit)?;
    let design = TABLE_1.iter().find(|(_, spec, ..)| *spec == one.compressor);
    design.map(|(_, _, speedup, _)| speedup[at])
}

/// A line on the model's error in steps whose bottleneck is the link; `None` without such steps.
fn verdict(steps: &[Measured]) -> Option<String> {
    let bound = steps.iter().filter(|one| one.wire >= BOTTLENECK).map(Measured::error);
    let bound: Vec<f64> = bound.collect();
    let worst = bound.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
    Some(format!(
        "At {} the link takes half of a step or more with {} compressors; for these, the model is \
         off by at most {:+.0} %.",
        bandwidth(1e6 * steps[0].mbit),
        bound.len(),
        100.0 * worst
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    /// A run with a step for each of these times.
    fn run(compressor: &str, walls: &[f64]) -> RunRecord {
        let mut run = synthetic::run(compressor, 1);
        run.trace.truncate(walls.len());
        run.trace.iter_mut().zip(walls).for_each(|(step, wall)| step.wall = *wall);
        run.bytes_up = run.trace.iter().map(|step| step.bytes_up).sum();
        run.bytes_down = run.trace.iter().map(|step| step.bytes_down).sum();
        run.steps = walls.len() as u64;
        run
    }

    #[test]
    fn the_first_step_does_not_count() {
        let runs = [run("none", &[9.0, 2.0, 1.0, 1.5]), run("3lc", &[9.0, 0.5, 0.125, 0.125])];
        let found = all(&runs, 1e-3).unwrap();
        assert_eq!((found[0].seconds, found[1].seconds), (1.5, 0.25));
        // A step of `none` takes 192 seconds at 1 kbit/s for its bytes, and 200.75 with frame
        // headers.
        assert!((found[0].modelled - 200.75).abs() < 0.1);
        assert!(found[0].wire > 0.999);
        assert!((found[0].error() - 132.83).abs() < 0.1);
        assert!(verdict(&found).unwrap().contains("2 compressors"));
        // 10 ms of compute and 3.5 ms of other work in each, and 2 ms more in the second of four.
        let mut slow = runs.clone();
        slow[1].trace[1].compress += 0.002;
        let fast = all(&slow, 1e9).unwrap();
        assert!((fast[1].modelled - (0.0135 + 0.002 / 3.0)).abs() < 1e-6);
        assert!(fast[0].wire < BOTTLENECK && verdict(&fast).is_none());
    }

    #[test]
    fn the_papers_speedups_stand_beside_the_measured_ones() {
        let runs = [run("none", &[9.0, 1.0, 1.0]), run("3lc", &[9.0, 0.25, 0.25])];
        let text = table(&all(&runs, 10.0).unwrap()).markdown();
        assert!(text.contains("4.00×") && text.contains("15.9×"), "{text}");
        let other = table(&all(&runs, 20.0).unwrap()).markdown();
        assert!(!other.contains("15.9×"), "{other}");
    }

    #[test]
    fn records_without_times_are_refused() {
        let error = all(&[run("3lc", &[0.0, 0.0])], 10.0).unwrap_err().to_string();
        assert!(error.contains("'3lc'") && error.contains("repeat"), "{error}");
    }
}
