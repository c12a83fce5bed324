//! Studies that are no tables of a paper's runs: each measures or collects by itself, and writes its own page.

use std::fs;
use std::path::{Path, PathBuf};

use gradwire_testbed::files::write_atomic;
use gradwire_testbed::latency::{self, Latency};
use gradwire_testbed::plot::{Chart, Figure};
use gradwire_testbed::reproduce::{grace, paper};
use gradwire_testbed::runner::{Outcome, run_all};
use gradwire_testbed::{exchange_scaling, measured, results};
use gradwire_train::run::{RunConfig, RunRecord};

use crate::failure::Failure;
use crate::progress::Bars;
use crate::settings::{Settings, command_line};
use crate::verbs::compare::conclude;
use crate::{engine, interrupt, output};

/// Their names, and what they are in a line.
pub(super) const NAMES: [(&str, &str); 3] = [
    (latency::ID, latency::SUMMARY),
    (measured::ID, measured::SUMMARY),
    (exchange_scaling::ID, exchange_scaling::SUMMARY),
];

type Study = fn(&Settings, &Path) -> Result<(), Failure>;

/// The one of this name.
pub(super) fn find(name: &str) -> Option<Study> {
    match name {
        latency::ID => Some(time_compressors),
        measured::ID => Some(collect_links),
        exchange_scaling::ID => Some(scale_exchanges),
        _ => None,
    }
}

/// Refuses settings of training for a study that trains nothing.
fn refuse_settings(id: &str, settings: &Settings) -> Result<(), Failure> {
    if *settings == Settings::default() {
        return Ok(());
    }
    Err(Failure::Input(format!("{id} trains nothing; leave all settings but --out off")))
}

/// Times compressors alone, which needs no runs.
fn time_compressors(settings: &Settings, out: &Path) -> Result<(), Failure> {
    refuse_settings(latency::ID, settings)?;
    interrupt::listen();
    let specs = grace::specs();
    let mut all = Vec::new();
    for elements in latency::ELEMENTS {
        for spec in &specs {
            if interrupt::asked() {
                let done = format!("{} measurements are done", all.len());
                return Err(Failure::Interrupted(done));
            }
            output::note(format!("{spec}, {elements} elements"));
            all.push(Latency::measure(spec, elements, latency::REPETITIONS)?);
        }
    }
    let grid = latency::grid(&all);
    let text = format!(
        "{}.\n\nMedian of {} repetitions [least–greatest], fewer where they would take more than {} seconds, on one core.\n\n{}",
        grace::CITATION,
        latency::REPETITIONS,
        latency::ENOUGH,
        grid.markdown(),
    );
    let charts = [("latency.svg".to_owned(), latency::chart(&all))];
    write_page(out, (latency::ID, latency::SUMMARY), &text, &charts)?;
    output::line(grid.terminal())
}

/// Compares what runs over real links took with the link model. The runs lie in folders called by the link's Mbit/s.
fn collect_links(settings: &Settings, out: &Path) -> Result<(), Failure> {
    refuse_settings(measured::ID, settings)?;
    let links = links_in(out)?;
    if links.is_empty() {
        return Err(Failure::Input(format!(
            "{} holds no runs over links; 'benchmarks/mpi-links {}' makes them",
            out.display(),
            out.display()
        )));
    }
    let mut text = format!(
        "{}.\n\nThe paper's speed-ups are of another set-up: {}.\n",
        paper::CITATION,
        paper::SETUP
    );
    for (mbit, runs) in links {
        let runs = results::read(&runs)?;
        let steps = measured::all(&runs, mbit)?;
        let grid = measured::grid(&steps);
        let what = runs.first().map_or_else(String::new, |run| {
            format!(
                "{} on {}, {} workers, {}, {} examples a worker and step, {} steps.",
                run.model, run.data, run.workers, run.exchange, run.batch, run.steps
            )
        });
        text.push_str(&format!("\n## {mbit} Mbit/s\n\n{what}\n\n{}", grid.markdown()));
        output::line(format!("{mbit} Mbit/s"))?;
        output::line(grid.terminal())?;
        if let Some(verdict) = measured::verdict(&steps) {
            text.push_str(&format!("\n{verdict}\n"));
            output::line(verdict)?;
        }
    }
    write_page(out, (measured::ID, measured::SUMMARY), &text, &[])
}

/// The links that runs lie under, from the slowest.
fn links_in(out: &Path) -> Result<Vec<(f64, PathBuf)>, Failure> {
    let failed = |error| Failure::Input(format!("{}: {error}", out.display()));
    let mut links = Vec::new();
    if !out.exists() {
        return Ok(links);
    }
    for entry in fs::read_dir(out).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let mbit = entry.file_name().to_str().and_then(|name| name.parse::<f64>().ok());
        let runs = entry.path().join("runs.jsonl");
        if let Some(mbit) = mbit.filter(|mbit| mbit.is_finite() && *mbit > 0.0 && runs.exists()) {
            links.push((mbit, runs));
        }
    }
    links.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(links)
}

/// Exchanges one model by several strategies, among more and more workers.
fn scale_exchanges(settings: &Settings, out: &Path) -> Result<(), Failure> {
    let experiment = settings.experiment(exchange_scaling::experiment())?;
    experiment.check()?;
    let data = experiment.load_data()?;
    let workers = settings.workers.or_else(engine::processes);
    let variants = exchange_scaling::variants(&experiment, workers);
    let runs: Vec<Vec<RunConfig>> = variants.iter().map(|variant| variant.runs(&data)).collect();
    let started = engine::start(&runs.concat())?;
    interrupt::listen();
    let bars = Bars::new(started.reports);
    let kept = out.join("runs.jsonl");
    let mut outcome = Outcome::default();
    for (variant, runs) in variants.iter().zip(&runs) {
        let exchange = variant.exchange.to_string();
        let all = results::read(&kept)?;
        let is_of = |run: &RunRecord| (run.workers, &run.exchange) == (variant.workers, &exchange);
        let (mine, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_of);
        let keep = |mine: &[RunRecord]| results::write(&kept, &[&others, mine].concat());
        let one = run_all(runs, &mine, started.engine(), &bars, keep);
        bars.clear();
        outcome.add(one?);
    }
    // Also those of other jobs, which had more or fewer processes.
    let mut all = results::read(&kept)?;
    let first = &runs[0][0];
    all.retain(|run| {
        (run.steps, run.seed, &run.model) == (first.steps, first.seed, &first.model.to_string())
            && run.data_checksum == first.data.checksum
    });
    if started.reports && !all.is_empty() {
        write_atomic(&out.join("experiment.toml"), experiment.to_toml().as_bytes())?;
        let links = experiment.links();
        let grid = exchange_scaling::grid(&all, &links)?;
        let crossings = exchange_scaling::crossings(&all, &links)?;
        let lines: String = crossings.iter().map(|line| format!("- {line}\n")).collect();
        let text = format!(
            "{} with {} parameters. By the formula: of docs/exchanges.md, for messages as long as those between the fewest \
             workers; with more, gradients differ, and a scatter-reduce compresses slices, each with a scale of its own. Time: \
             the processor time of compressing and decompressing, and the link model's for the bytes; without the first \
             step.\n\n{}\n{lines}",
            all[0].model,
            all[0].parameters,
            grid.markdown(),
        );
        let charts = exchange_scaling::charts(&all, &links)?;
        write_page(out, (exchange_scaling::ID, exchange_scaling::SUMMARY), &text, &charts)?;
        output::line(grid.terminal())?;
        output::line(lines)?;
    }
    conclude(outcome, runs.iter().map(Vec::len).sum())
}

/// Writes a study's page and charts.
fn write_page(
    out: &Path,
    (id, summary): (&str, &str),
    text: &str,
    charts: &[(String, Chart)],
) -> Result<(), Failure> {
    let shown: String =
        charts.iter().map(|(name, chart)| format!("![{}]({name})\n", chart.title())).collect();
    let page = format!(
        "# {id}: {summary}\n\n{text}\n{shown}\n## To repeat it\n\n```\n{}\n```\n",
        command_line()
    );
    write_atomic(&out.join("README.md"), page.as_bytes())?;
    for (name, chart) in charts {
        write_atomic(&out.join(name), chart.svg_file().as_bytes())?;
    }
    Ok(())
}
