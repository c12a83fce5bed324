//! A comparison for programs: its runs, compressors, verdict and failures.

use gradwire_train::VERSION;
use serde::Serialize;

use crate::TestbedError;
use crate::changes::Changed;
use crate::experiment::Experiment;
use crate::rows::{self, rows};
use crate::runner::Outcome;
use crate::summary::{self, Summary, summarize};
use crate::verdict::Verdict;

/// A comparison, as `gradwire compare --json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The version of the gradwire that printed it.
    pub version: &'static str,
    /// A row for each run.
    pub runs: Vec<rows::Row>,
    /// A row for each compressor.
    pub compressors: Vec<Compressor>,
    /// The verdict; `None` without finished runs of `none` and of another compressor.
    pub verdict: Option<Verdict>,
    /// Why runs failed.
    pub failures: Vec<String>,
    /// What changed since an earlier comparison, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Vec<Changed>>,
}

/// A compressor, averaged over its seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compressor {
    /// Its spec.
    pub compressor: String,
    /// The exchange of its runs.
    pub exchange: String,
    /// The number of finished runs.
    pub seeds: usize,
    /// The number of runs that diverged.
    pub diverged: usize,
    /// Mean final quality.
    pub quality: f64,
    /// The sample standard deviation of the quality; 0 for one run.
    pub quality_sd: f64,
    /// Bytes of the baseline over bytes of this compressor, both directions.
    pub ratio: f64,
    /// The modelled step time on each link.
    pub links: Vec<OnLink>,
}

/// A compressor on a link, with all its figures: a line of a file of comma-separated values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line<'a> {
    /// The compressor's spec.
    pub compressor: &'a str,
    /// The exchange of its runs.
    pub exchange: &'a str,
    /// The number of finished runs.
    pub seeds: usize,
    /// The number of runs that diverged.
    pub diverged: usize,
    /// Mean final quality.
    pub quality: f64,
    /// The sample standard deviation of the quality; 0 for one run.
    pub quality_sd: f64,
    /// Bytes of the baseline over bytes of this compressor, both directions.
    pub ratio: f64,
    /// The bandwidth in Mbit/s.
    pub mbit: f64,
    /// The latency of a message in milliseconds.
    pub latency_ms: f64,
    /// Modelled seconds of a step.
    pub step_seconds: f64,
    /// The step time of `none` over this one; `None` without a run of `none`.
    pub speedup: Option<f64>,
}

/// A compressor on a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OnLink {
    /// The bandwidth in Mbit/s.
    pub mbit: f64,
    /// The latency of a message in milliseconds.
    pub latency_ms: f64,
    /// Modelled seconds of a step.
    pub step_seconds: f64,
    /// The step time of `none` over this one; `None` without a run of `none`.
    pub speedup: Option<f64>,
}

impl Comparison {
    /// The comparison of finished runs.
    ///
    /// # Errors
    /// As for [`summarize`].
    pub fn of(experiment: &Experiment, outcome: &Outcome) -> Result<Self, TestbedError> {
        let summary = summarize(&outcome.runs, &experiment.links)?;
        let summary = summary.with_diverged(&outcome.diverged);
        Ok(Self {
            version: VERSION,
            runs: rows(&outcome.runs)?,
            compressors: summary.rows.iter().map(|row| Compressor::of(&summary, row)).collect(),
            verdict: Verdict::of(&summary),
            failures: outcome.failed(),
            changes: None,
        })
    }
}

impl Comparison {
    /// A line for each compressor and link.
    pub fn lines(&self) -> Vec<Line<'_>> {
        self.compressors.iter().flat_map(Compressor::on_links).collect()
    }
}

impl Compressor {
    fn on_links(&self) -> Vec<Line<'_>> {
        let line = |link: &OnLink| Line {
            compressor: &self.compressor,
            exchange: &self.exchange,
            seeds: self.seeds,
            diverged: self.diverged,
            quality: self.quality,
            quality_sd: self.quality_sd,
            ratio: self.ratio,
            mbit: link.mbit,
            latency_ms: link.latency_ms,
            step_seconds: link.step_seconds,
            speedup: link.speedup,
        };
        self.links.iter().map(line).collect()
    }

    fn of(summary: &Summary, row: &summary::Row) -> Self {
        let on_link = |(link, on): (&gradwire_exchange::Link, &summary::OnLink)| OnLink {
            mbit: link.bits_per_second / 1e6,
            latency_ms: link.latency.as_secs_f64() * 1e3,
            step_seconds: on.step,
            speedup: on.speedup,
        };
        Self {
            compressor: row.compressor.clone(),
            exchange: row.exchange.to_string(),
            seeds: row.quality.count,
            diverged: summary.diverged_of(&row.compressor),
            quality: row.quality.mean,
            quality_sd: row.quality.sd,
            ratio: row.ratio,
            links: summary.links.iter().zip(&row.on_links).map(on_link).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use gradwire_exchange::Link;

    use super::*;
    use crate::summary::tables;
    use crate::{results, synthetic};

    #[test]
    fn the_readme_shows_what_compare_printed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut runs = results::read(&root.join("results/compare-default/runs.jsonl")).unwrap();
        let experiment = Experiment::default();
        let order: Vec<_> = experiment.compressors.iter().map(ToString::to_string).collect();
        runs.sort_by_key(|run| order.iter().position(|one| *one == run.compressor));
        let summary = summarize(&runs, &experiment.links).unwrap();
        let table = tables::traffic(&summary).terminal(80);
        // Four rows, and all lines above and below the rows.
        let others = ["terngrad", "onebit", "topk", "3lc:s=1.75"].map(|spec| format!(" {spec}"));
        let lines =
            table.lines().filter(|line| !others.iter().any(|other| line.starts_with(other)));
        let table = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(table.lines().count(), 3 + 4 + 1, "{table}");
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        assert!(readme.contains(&table), "README.md has another table than\n{table}");
    }

    #[test]
    fn programs_get_times_verdict_and_failures() {
        let outcome = Outcome {
            runs: vec![synthetic::run("none", 1), synthetic::run("3lc", 1)],
            failures: vec![synthetic::diverged("3lc", 2).error()],
            diverged: vec![synthetic::diverged("3lc", 2)],
            ..Outcome::default()
        };
        let experiment = Experiment::default().with(|e| e.links = vec![Link::mbit(0.001)]);
        let found = Comparison::of(&experiment, &outcome).unwrap();
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["version"], VERSION);
        assert_eq!(
            (json["runs"].as_array().unwrap().len(), &json["runs"][1]["seed"]),
            (2, &1.into())
        );
        let compressor = &json["compressors"][1];
        assert_eq!(
            (&compressor["exchange"], &compressor["diverged"]),
            (&"server".into(), &1.into())
        );
        let on_link = &compressor["links"][0];
        assert_eq!(on_link["mbit"], 0.001);
        // 4 · (200 + 100 / 2) bytes at a kilobit a second, and milliseconds.
        assert!((on_link["step_seconds"].as_f64().unwrap() - 8.0).abs() < 0.1, "{on_link}");
        assert!((on_link["speedup"].as_f64().unwrap() - 24.0).abs() < 0.1, "{on_link}");
        assert_eq!(json["verdict"]["compressors"][0]["judgement"], "loses");
        let lines = found.lines();
        assert_eq!((lines.len(), lines[1].compressor, lines[1].mbit), (2, "3lc", 0.001));
        assert!(json["failures"][0].as_str().unwrap().contains("3lc, seed 2"));
    }
}
