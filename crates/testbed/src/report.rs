//! The report of a comparison: one HTML file.

use gradwire_exchange::Link;
use gradwire_train::{Metric, RunRecord};

use crate::format::{bandwidth, seconds, significant};
use crate::page::Page;
use crate::plot::{Chart, Figure};
use crate::summary::{Row, Summary, summarize};
use crate::{TestbedError, accounting, diagnosis, figures, table};

/// Where a comparison comes from, so that it can be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// The command that made it.
    pub command: String,
    /// The experiment as TOML.
    pub experiment: String,
    /// Whether it was stopped before all runs were done.
    pub interrupted: bool,
}

/// The report of `runs`, which differ in compressor and seed only, as an HTML page that needs
/// nothing but itself.
pub fn html(
    runs: &[RunRecord],
    links: &[Link],
    provenance: &Provenance,
) -> Result<String, TestbedError> {
    let summary = summarize(runs, links)?;
    let first = &runs[0];
    let mut page = Page::new(&format!("{} on {}", first.model, first.data));
    page.facts(facts(runs));
    if provenance.interrupted {
        page.paragraph("The comparison was stopped before all of its runs were done.");
    }
    if let [what, lines @ ..] = verdict(&summary).as_slice() {
        page.paragraph(what).list(lines);
    }
    page.section("Quality and traffic").grid(&table::traffic(&summary));
    page.section("Time a step").grid(&table::time(&summary)).notes(&table::notes(&summary));

    let mut over_time = Vec::new();
    for &link in links {
        over_time.push(figures::quality_over_time(runs, link));
    }
    let heading = format!("Training time against {}", first.metric.name());
    page.section(&heading).charts(over_time.iter().map(figure));
    let over_bytes = figures::quality_over_bytes(runs);
    let over_steps =
        [figures::loss(runs), figures::quality(runs), over_bytes, figures::bits_per_value(runs)];
    page.section("Over the steps of training").charts(over_steps.iter().map(figure));
    let accounting = accounting::table(runs);
    if !accounting.is_empty() {
        let heading = "Bytes sent, by equation 1 and counted";
        page.section(heading).grid(&accounting).notes(&[accounting::NOTE.to_owned()]);
    }
    let rates = diagnosis::table(runs);
    if !rates.is_empty() {
        let charts = diagnosis::charts(runs);
        page.section("Layer by layer")
            .grid(&rates)
            .notes(&[diagnosis::NOTE.to_owned()])
            .charts(charts.iter().map(figure));
    }
    page.section("To repeat it").code(&provenance.command).code(&provenance.experiment).paragraph(
        &format!(
            "gradwire {}; {}, {} build; data {} with SHA-256 {}.",
            first.version,
            std::env::consts::ARCH,
            if cfg!(debug_assertions) { "debug" } else { "release" },
            first.data,
            first.data_checksum,
        ),
    );
    Ok(page.html())
}

fn figure(chart: &Chart) -> &dyn Figure {
    chart
}

/// The verdict: for each link, the fastest of the compressors that keep quality. Empty without a run of `none`.
pub fn verdict(summary: &Summary) -> Vec<String> {
    let Some(none) = summary.rows.iter().find(|row| row.compressor == "none") else {
        return Vec::new();
    };
    let (allowed, within) = tolerance(summary.metric, none);
    let kept = || {
        summary.rows.iter().filter(|row| match summary.metric {
            Metric::Accuracy | Metric::Iou | Metric::HitRate => {
                row.quality.mean >= none.quality.mean - allowed
            }
            Metric::Perplexity => row.quality.mean <= none.quality.mean + allowed,
        })
    };
    let mut lines =
        vec![format!("Fastest that keep the quality of none, within {within}; modelled:")];
    for (at, link) in summary.links.iter().enumerate() {
        let best = kept().min_by(|a, b| a.on_links[at].step.total_cmp(&b.on_links[at].step));
        let pays = best.and_then(|row| Some((row, row.on_links[at].speedup?)));
        lines.push(match pays.filter(|(_, speedup)| *speedup >= WORTHWHILE) {
            Some((row, speedup)) => format!(
                "at {}: {}, {speedup:.1} times the speed of none",
                bandwidth(link.bits_per_second),
                row.compressor
            ),
            None => format!("at {}: none, nothing else pays", bandwidth(link.bits_per_second)),
        });
    }
    lines
}

/// How much worse than the baseline a quality may be and still count as kept, as a number and in words.
fn tolerance(metric: Metric, none: &Row) -> (f64, String) {
    match metric {
        Metric::Accuracy | Metric::Iou | Metric::HitRate => {
            let allowed = none.quality.sd.max(TOLERANCE);
            let within = format!(
                "{:.2} points (its spread over seeds, at least half a point)",
                allowed * 100.0
            );
            (allowed, within)
        }
        Metric::Perplexity => {
            let allowed = none.quality.sd.max(RELATIVE_TOLERANCE * none.quality.mean);
            let within = format!(
                "a perplexity of {} more (its spread over seeds, at least one in a hundred)",
                significant(allowed)
            );
            (allowed, within)
        }
    }
}

/// The least speed-up that is worth another compressor.
const WORTHWHILE: f64 = 1.05;

/// How far below the baseline an accuracy may lie, where the spread over seeds is less or not known:
/// half a point of a per cent.
const TOLERANCE: f64 = 0.005;

/// How far above the baseline a perplexity may lie there, as a part of the baseline.
const RELATIVE_TOLERANCE: f64 = 0.01;

fn facts(runs: &[RunRecord]) -> Vec<(&'static str, String)> {
    let run = &runs[0];
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let mut facts = vec![
        ("parameters", format!("{} in {} tensors", run.parameters, run.tensors)),
        ("compressed", format!("{} parameters", run.compressed_parameters)),
        ("workers", run.workers.to_string()),
        ("exchange", run.exchange.to_string()),
        ("steps", run.steps.to_string()),
        ("batch per worker", run.batch.to_string()),
        ("optimizer", run.optimizer.to_string()),
        ("learning rate", run.learning_rate.to_string()),
        ("weight decay", run.weight_decay.to_string()),
        ("norm of gradients", run.clip.map_or("any".to_owned(), |norm| format!("at most {norm}"))),
        ("crop and flip", if run.augment == Some(true) { "yes" } else { "no" }.to_owned()),
        ("seeds", seeds.join(", ")),
        ("time it took", seconds(runs.iter().map(|run| run.seconds).sum())),
    ];
    if run.overlap {
        facts.push(("overlap", "gradients travel while others are computed".to_owned()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::default_links;
    use crate::synthetic;

    fn provenance() -> Provenance {
        Provenance {
            command: "gradwire compare --data 'a & b'".to_owned(),
            experiment: "model = \"lenet5\"\n".to_owned(),
            interrupted: false,
        }
    }

    #[test]
    fn the_report_holds_tables_charts_and_how_to_repeat_it() {
        let runs = [synthetic::run("none", 1), synthetic::run("3lc:s=1.5", 1)];
        let html = html(&runs, &default_links(), &provenance()).unwrap();
        assert_eq!(html.matches("<svg").count(), 8);
        assert_eq!(html.matches("<table").count(), 2);
        assert!(html.contains("gradwire compare --data 'a &amp; b'"));
        assert!(html.contains("3lc:s=1.5") && html.contains("modelled"));
        assert!(!html.contains("http://") || !html.contains("href"));
        assert!(!html.contains("stopped before"));
    }

    #[test]
    fn the_verdict_is_the_fastest_that_keeps_quality() {
        let mut runs =
            vec![synthetic::run("none", 1), synthetic::run("3lc", 1), synthetic::run("onebit", 1)];
        runs[2].bytes_up = 1.0;
        runs[2].bytes_down = 1.0;
        let says = |runs: &[RunRecord]| {
            verdict(&summarize(runs, &[Link::mbit(0.1), Link::mbit(1e9)]).unwrap())
        };
        assert!(says(&runs)[1].contains("onebit"));
        assert!(says(&runs)[2].contains("nothing else pays"));
        runs[2].quality -= 0.02;
        assert!(says(&runs)[1].contains("3lc"));
        assert!(says(&runs[1..]).is_empty());
    }

    #[test]
    fn less_perplexity_is_better() {
        let runs =
            |other: f64| [synthetic::text_run("none", 4.0), synthetic::text_run("3lc", other)];
        let says = |other| verdict(&summarize(&runs(other), &[Link::mbit(0.1)]).unwrap());
        assert!(says(3.0)[1].contains("3lc") && says(4.03)[1].contains("3lc"));
        assert!(says(4.05)[1].contains("nothing else pays"));
        assert!(says(4.0)[0].contains("0.0400 more"), "{:?}", says(4.0));
        let html = html(&runs(4.25), &default_links(), &provenance()).unwrap();
        assert!(html.contains("4.250") && html.contains("+0.250"));
        assert!(!html.contains("accuracy") && !html.contains("425"));
    }
}
