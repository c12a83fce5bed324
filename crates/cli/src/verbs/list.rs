//! `gradwire list`: the registry.

use clap::Args;
use gradwire::Spec;
use gradwire::parameters::Param;
use gradwire::registry::{PRESETS, REGISTRY};
use gradwire::{Entry, Family};
use gradwire_testbed::table::Table;
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// List the compressors with their parameters, defaults and papers.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print JSON: an array with a row for each compressor
    #[arg(long)]
    json: bool,
}

/// Schedules, which work with every compressor.
const SCHEDULES: [(&str, &str); 2] = [
    (
        "local-steps",
        "exchange what N steps together have changed, as topk:every=10 (federated averaging: none:every=N)",
    ),
    (
        "svrg",
        "send how gradients differ from those at a snapshot that all share, as --svrg 100 beside lpc-svrg",
    ),
];

#[derive(Debug, Serialize)]
struct Row {
    id: &'static str,
    summary: &'static str,
    formula: &'static str,
    family: &'static str,
    aggregation: &'static str,
    error_feedback: bool,
    parameters: Vec<Parameter>,
    payload: &'static str,
    unbiased: bool,
    lossless: bool,
    reference: &'static str,
}

#[derive(Debug, Serialize)]
struct Parameter {
    key: &'static str,
    default: String,
    values: String,
    help: &'static str,
}

impl List {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let rows: Vec<Row> = REGISTRY.iter().map(|entry| Row::of(entry)).collect();
        if self.json {
            return output::line(output::json(&rows));
        }
        output::line(overview(&rows).terminal())?;
        output::line("\nParameters, as in 3lc:s=1.75 or topk:ratio=0.05,select=sampled:\n")?;
        output::line(parameters(&rows).terminal())?;
        output::line("\nPresets, names for compressors with certain parameters:\n")?;
        for preset in PRESETS {
            output::line(format!(" {} = {}:{}", preset.name, preset.id, preset.items))?;
        }
        output::line("\nSchedules, which go with every compressor:\n")?;
        SCHEDULES.iter().try_for_each(|(id, use_)| output::line(format!(" {id}: {use_}")))?;
        output::line(
            "\nFormulas, of x̂ that c, the gradient and its residual, decodes to; u is uniform in [0, 1), and \
             [a < b] is 1 where true, else 0:\n",
        )?;
        rows.iter().try_for_each(|row| output::line(format!(" {}: {}", row.id, row.formula)))?;
        output::line("\nReferences:\n")?;
        rows.iter().try_for_each(|row| output::line(format!(" {}: {}", row.id, row.reference)))
    }
}

impl Row {
    fn of(entry: &'static Entry) -> Self {
        Self {
            id: entry.id,
            summary: entry.summary,
            formula: entry.formula,
            family: match entry.family {
                Family::Baseline => "baseline",
                Family::Quantization => "quantization",
                Family::Sparsification => "sparsification",
                Family::Hybrid => "hybrid",
                Family::LowRank => "low-rank",
            },
            aggregation: entry.compressor().aggregation().name(),
            error_feedback: entry.error_feedback,
            parameters: entry.parameters.iter().map(Parameter::of).collect(),
            payload: entry.payload,
            unbiased: entry.unbiased,
            lossless: entry.lossless,
            reference: entry.reference,
        }
    }
}

impl Parameter {
    fn of(parameter: &Param) -> Self {
        Self {
            key: parameter.key,
            default: parameter.kind.default().to_string(),
            values: parameter.kind.expected(),
            help: parameter.help,
        }
    }
}

fn overview(rows: &[Row]) -> Table {
    Table::of(rows)
        .column("compressor", |row| row.id)
        .column("family", |row| row.family)
        .column("messages", |row| row.aggregation)
        .column("error feedback", |row| if row.error_feedback { "on" } else { "off" })
        .column("payload", |row| row.payload)
        .column("what it does", |row| row.summary)
        .table()
        .left_aligned()
}

fn parameters(rows: &[Row]) -> Table {
    let common: Vec<Parameter> = Spec::common_parameters().iter().map(Parameter::of).collect();
    let of_all = common.iter().map(|parameter| ("all", parameter));
    let own = rows.iter().flat_map(|row| row.parameters.iter().map(|one| (row.id, one)));
    let all: Vec<_> = own.chain(of_all).collect();
    Table::of(&all)
        .column("compressor", |(id, _)| id)
        .column("parameter", |(_, one)| one.key)
        // The default of error feedback is the compressor's own.
        .column("default", |(_, one)| if one.key == "ef" { "see above" } else { &one.default })
        .column("values", |(_, one)| &one.values)
        .column("what it does", |(_, one)| one.help)
        .table()
        .left_aligned()
}
