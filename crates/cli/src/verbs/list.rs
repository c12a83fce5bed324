//! `gradwire list`: the registry.

use clap::Args;
use gradwire::Entry;
use gradwire::Spec;
use gradwire::parameters::Param;
use gradwire::registry::{self, PRESETS};
use gradwire_testbed::table::Table;
use serde::Serialize;

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::output;

/// List the compressors, or describe some of them.
///
/// Describes formula, message, parameters and paper.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Compressors to describe, such as 3lc or sbc2 [default: one line for each
    /// compressor]
    #[arg(value_name = "COMPRESSOR")]
    compressors: Vec<Spec>,
    /// Print JSON: an array with a row for each compressor
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
}

/// Ways to train that work with every compressor.
const WITH_ALL: [(&str, &str); 4] = [
    (
        "every=N",
        "local steps: exchange the sum of the changes of N steps, as in topk:every=10 \
         (none:every=N is federated averaging)",
    ),
    ("ef=on, ef=off", "with or without error feedback, as in eden:ef=on"),
    (
        "A until PART then B",
        "change the compressor after a part (0.1) or a number (100) of the steps, as in 'none until 0.1 then 3lc'",
    ),
    (
        "--svrg N",
        "send the difference from the gradients at a shared snapshot, as in --svrg 100 with lpc-svrg",
    ),
];

/// The compressors to try first.
const FIRST: &str = "\
Try first: eden (one bit per element) or int8 for gradients, or 3lc for
gradients of CNNs with momentum. With Adam, error feedback raises the loss of
most methods that need it; docs/choosing.md has measurements.";

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
    guarantee: String,
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
        let all = || rows(registry::all());
        match (&self.compressors[..], self.json) {
            ([], false) => overview(&all(), self.form),
            ([], true) => output::line(output::json(&all())),
            (some, false) => some.iter().try_for_each(|spec| describe(spec, self.form)),
            (some, true) => output::line(output::json(&rows(some.iter().map(Spec::entry)))),
        }
    }
}

fn rows(entries: impl Iterator<Item = &'static Entry>) -> Vec<Row> {
    entries.map(Row::of).collect()
}

/// A line for each compressor, preset and way to train.
fn overview(rows: &[Row], form: Form) -> Result<(), Failure> {
    let compressors = Table::of(rows)
        .column("compressor", |row| row.id)
        .column("family", |row| row.family)
        .column("what it does", |row| row.summary)
        .table();
    form.print(&compressors.left_aligned())?;
    if form.is_csv() {
        return Ok(());
    }
    output::line("\nPresets (compressors with preset parameters):\n")?;
    let presets = Table::of(PRESETS)
        .column("preset", |preset| preset.name)
        .column("compressor", |preset| format!("{}:{}", preset.id, preset.items))
        .table();
    form.print(&presets.left_aligned())?;
    output::line("\nFor every compressor:\n")?;
    let with_all = Table::of(&WITH_ALL)
        .column("way to train", |(name, _)| name)
        .column("what it does", |(_, what)| what)
        .table();
    form.print(&with_all.left_aligned())?;
    output::line(format!("\n{FIRST}"))?;
    output::line("\nParameters, formula, message and paper of one compressor: gradwire list NAME")
}

/// All about one compressor. A preset's parameters are in the first line.
fn describe(spec: &Spec, form: Form) -> Result<(), Failure> {
    let entry = spec.entry();
    let row = Row::of(entry);
    let properties = [
        ("formula", row.formula),
        ("message", row.payload),
        ("reference", row.reference),
        ("family", row.family),
        ("messages", row.aggregation),
        ("guarantee", &spec.guarantee().to_string()),
        (
            "error feedback",
            if row.error_feedback {
                "on, unless ef=off; with Adam it may raise the loss (see docs/choosing.md)"
            } else {
                "off, unless ef=on"
            },
        ),
    ];
    let parameters: Vec<Parameter> = entry.all_parameters().map(Parameter::of).collect();
    let parameters = Table::of(&parameters)
        .column("parameter", |one| one.key)
        .column("default", |one| match (one.key, row.error_feedback) {
            ("ef", true) => "on",
            ("ef", false) => "off",
            _ => &one.default,
        })
        .column("values", |one| &one.values)
        .column("what it does", |one| one.help)
        .table();
    form.text(format!("{spec}: {}\n", row.summary))?;
    let properties = Table::of(&properties)
        .column("property", |(name, _)| name)
        .column("value", |(_, value)| value)
        .table();
    form.print(&properties.left_aligned())?;
    output::line("")?;
    form.print(&parameters.left_aligned())?;
    output::line("")
}

impl Row {
    fn of(entry: &'static Entry) -> Self {
        Self {
            id: entry.id,
            summary: entry.summary,
            formula: entry.formula,
            family: entry.family.name(),
            aggregation: entry.compressor().aggregation().name(),
            error_feedback: entry.error_feedback,
            parameters: entry.parameters.iter().map(Parameter::of).collect(),
            payload: entry.payload,
            unbiased: entry.default_guarantee().is_unbiased(),
            guarantee: entry.default_guarantee().to_string(),
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
