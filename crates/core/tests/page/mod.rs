//! The page of compressors.

use std::fmt::Write;

use gradwire::parameters::{Kind, Param};
use gradwire::registry::{PRESETS, REGISTRY};
use gradwire::{Aggregation, Entry, Family, Spec};
use serde_json::Value;

/// The measured rows, from the repository's root.
pub(crate) const MEASURED: &str = "results/bench/zen5-one-core.json";

/// A row of `gradwire bench --json`.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) compressor: String,
    pub(crate) elements: u64,
    pub(crate) compress_gbps: f64,
    pub(crate) decompress_gbps: f64,
    pub(crate) bits_per_element: f64,
}

/// The rows of a file that it wrote.
pub(crate) fn rows(file: &[u8]) -> Vec<Row> {
    let file: Value = serde_json::from_slice(file).expect("measured rows are JSON");
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a row has its numbers");
    let rows = file.as_array().expect("measured rows are an array").iter();
    rows.map(|row| Row {
        compressor: row["compressor"].as_str().expect("a row has a compressor").to_owned(),
        elements: row["elements"].as_u64().expect("a row has a number of elements"),
        compress_gbps: number(row, "compress_gbps"),
        decompress_gbps: number(row, "decompress_gbps"),
        bits_per_element: number(row, "bits_per_element"),
    })
    .collect()
}

const FAMILIES: [(Family, &str, &str); 5] = [
    (Family::Baseline, "Baselines", "Every element, at full or half precision."),
    (Family::Quantization, "Quantization", "Every element, in fewer bits."),
    (Family::Sparsification, "Sparsification", "Few elements, at full precision."),
    (Family::Hybrid, "Hybrid methods", "Few elements, in few bits."),
    (Family::LowRank, "Low rank", "Products of thin matrices."),
];

/// What holds methods below a gigabyte of input a second: they ask for it.
const SLOW: [(&str, &str); 3] = [
    (
        "sketched-sgd",
        "every element is added at random places of every row of a sketch, and looked up there",
    ),
    (
        "sketchml",
        "every element that is not zero is looked up in tables whose entries depend on it, in every row of a sketch",
    ),
    ("atomo", "every matrix is decomposed into its singular values and vectors"),
];

const HEAD: &str = "\
# The compressors

Made by `cargo xtask docs` from the registry and from [measured rows](../MEASURED); a test fails where it is behind them.
Module docs say more of each: its message bit by bit, its ranges and limits, its draws, where it deviates from its paper.
[format.md](format.md) has the messages, [adding-a-compressor.md](adding-a-compressor.md) says how one is added.

**Formulas**: c is the corrected tensor, gradient and residual, of d elements; x̂, or for matrices Ĉ, is what it decodes to. u is
a uniform random number in [0, 1), and [a < b] is 1 where that is true, else 0. Other letters are parameters, or explained beside.

**Exchange**: *linear* messages add, so all-reduce serves; methods in *rounds* are carried out by all ranks together, in rounds of
all-reduce; *gather*ed messages are decoded one by one and averaged; of *votes* the majority decides.

**Error feedback** is what `ef` is unless it is given: on, what a message leaves out is kept and added to the next gradient.

**Measured** on one core of a Zen 5, by `gradwire bench`: gigabytes of gradient a second, compressed and decompressed, at so many
elements; bits an element at the largest size measured. A dash is what has not been measured.
";

/// The page, of the registry and what was measured.
pub(crate) fn page(rows: &[Row]) -> String {
    let mut page = HEAD.replace("MEASURED", MEASURED);
    for (family, title, what) in FAMILIES {
        let entries: Vec<&Entry> =
            REGISTRY.iter().copied().filter(|entry| entry.family == family).collect();
        write!(page, "\n## {title}\n\n{what}\n\n").unwrap();
        overview(&entries, &mut page);
        page.push('\n');
        properties(&entries, &mut page);
        page.push('\n');
        if entries.iter().any(|entry| !entry.parameters.is_empty()) {
            parameters(&entries, &mut page);
            page.push('\n');
        }
        measured(&entries, rows, &mut page);
        slow(&entries, rows, &mut page);
    }
    closing(&mut page);
    page
}

fn overview(entries: &[&Entry], page: &mut String) {
    head(page, ["compressor", "what it sends", "formula", "message", "defined by"]);
    for entry in entries {
        let formula = code(entry.formula);
        row(page, [&code(entry.id), entry.summary, &formula, entry.payload, entry.reference]);
    }
}

fn properties(entries: &[&Entry], page: &mut String) {
    head(page, ["compressor", "exchange", "error feedback", "guarantees"]);
    for entry in entries {
        let exchange = match entry.aggregation() {
            Aggregation::Linear => "linear",
            Aggregation::Rounds => "rounds",
            Aggregation::Gather => "gather",
            Aggregation::Vote => "vote",
        };
        let guarantees = match (entry.guarantees.unbiased, entry.guarantees.lossless) {
            (true, true) => "unbiased, lossless",
            (true, false) => "unbiased",
            (false, true) => "lossless",
            (false, false) => "–",
        };
        let feedback = if entry.error_feedback { "on" } else { "off" };
        row(page, [&code(entry.id), exchange, feedback, guarantees]);
    }
}

fn parameters(entries: &[&Entry], page: &mut String) {
    head(page, ["compressor", "parameter", "values", "default", "what it does"]);
    for entry in entries {
        entry
            .parameters
            .iter()
            .for_each(|parameter| parameter_row(&code(entry.id), parameter, page));
    }
}

fn parameter_row(of: &str, Param { key, kind, help }: &Param, page: &mut String) {
    let values = match kind {
        Kind::Choice { options, .. } => {
            options.iter().map(|option| code(option)).collect::<Vec<_>>().join(", ")
        }
        numbers => numbers.expected(),
    };
    let default = code(&kind.default().to_string());
    row(page, [of, &code(key), &values, &default, help]);
}

/// A row a configuration that was measured, and one of dashes for a compressor of which none was.
fn measured(entries: &[&Entry], rows: &[Row], page: &mut String) {
    let mut sizes: Vec<u64> = rows.iter().map(|row| row.elements).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let columns = |what| sizes.iter().map(move |size| format!("{what} {}", grouped(*size)));
    let titles = ["spec", "bits an element"].map(str::to_owned).into_iter();
    head(page, titles.chain(columns("compress")).chain(columns("decompress")));
    for entry in entries {
        let mut specs: Vec<&str> = Vec::new();
        let own = rows.iter().map(|row| row.compressor.as_str());
        for spec in own.filter(|spec| spec.split(':').next() == Some(entry.id)) {
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
        if specs.is_empty() {
            specs.push(entry.id);
        }
        specs.into_iter().for_each(|spec| measured_row(spec, rows, &sizes, page));
    }
}

/// Why methods that were measured below 1 GB/s are.
///
/// # Panics
/// If no reason is known for one: make it faster, or say why.
fn slow(entries: &[&Entry], rows: &[Row], page: &mut String) {
    for entry in entries {
        let is_of = |row: &&Row| row.compressor.split(':').next() == Some(entry.id);
        if rows.iter().filter(is_of).all(|row| row.compress_gbps >= 1.0) {
            continue;
        }
        let reason = SLOW.iter().find(|(id, _)| *id == entry.id).map(|(_, reason)| reason);
        let reason = reason.unwrap_or_else(|| {
            panic!("'{}' is slower than 1 GB/s, and nothing says why", entry.id)
        });
        write!(page, "\n`{}` takes in less than 1 GB/s: {reason}.\n", entry.id).unwrap();
    }
}

fn measured_row(spec: &str, rows: &[Row], sizes: &[u64], page: &mut String) {
    let of = |size: &u64| rows.iter().find(|row| row.compressor == spec && row.elements == *size);
    let largest = sizes.iter().rev().find_map(of);
    let bits = largest.map_or("–".to_owned(), |row| format!("{:.3}", row.bits_per_element));
    let speed = |gbps: Option<f64>| match gbps {
        None => "–".to_owned(),
        Some(gbps) if gbps < 1.0 => format!("{gbps:.2}"),
        Some(gbps) => format!("{gbps:.1}"),
    };
    let compress = sizes.iter().map(|size| speed(of(size).map(|row| row.compress_gbps)));
    let decompress = sizes.iter().map(|size| speed(of(size).map(|row| row.decompress_gbps)));
    row(page, [code(spec), bits].into_iter().chain(compress).chain(decompress));
}

fn closing(page: &mut String) {
    page.push_str("\n## Parameters of all\n\nThe default of `ef` is the compressor's own.\n\n");
    head(page, ["compressor", "parameter", "values", "default", "what it does"]);
    for parameter in Spec::common_parameters() {
        parameter_row("all", parameter, page);
    }
    page.push_str("\n## Presets\n\nNames for compressors with certain parameters.\n\n");
    head(page, ["preset", "stands for"]);
    for preset in PRESETS {
        row(page, [code(preset.name), code(&format!("{}:{}", preset.id, preset.items))]);
    }
}

fn head<T: AsRef<str>>(page: &mut String, titles: impl IntoIterator<Item = T>) {
    let before = page.len();
    row(page, titles);
    let columns = page[before..].matches(" | ").count() + 1;
    writeln!(page, "|{}", "---|".repeat(columns)).unwrap();
}

fn row<T: AsRef<str>>(page: &mut String, cells: impl IntoIterator<Item = T>) {
    for cell in cells {
        // A bar in a cell would end it, in code as elsewhere.
        write!(page, "| {} ", cell.as_ref().replace('|', "\\|")).unwrap();
    }
    page.push_str("|\n");
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

/// A whole number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(" ")
}
