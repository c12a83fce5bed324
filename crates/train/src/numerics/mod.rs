//! Marks: short digests of the results of each part of gradwire in a tiny, fixed example.
//!
//! Two runs with the same settings, data and seed have the same bits if their marks are equal; if
//! their digests differ, the marks that differ say why. A mark depends on the settings of a run
//! only: not on its data or seed, the processor, or the number of threads. It is computed, so
//! nobody has to maintain a version number.
//!
//! | part | what is computed |
//! |---|---|
//! | `model` | parameters, loss and gradients of two steps of the model on generated data, and an evaluation |
//! | `optimizer` | a few updates of fixed parameters with fixed gradients, also with the outer optimizer |
//! | `compressor` | the decoded values and residuals of fixed tensors, with each compressor of the schedule and of the rules |
//! | `wire format` | the bytes of these messages |
//! | `exchange` | the means of fixed tensors over up to four workers, with the first compressor |
//! | `trainer` | the parameters after a few steps of a small network with all other settings of the run: its clipping, local steps, penalties, splits and absences |
//!
//! A mark is a sample: it can miss a change that shows only in larger tensors or batches, or after
//! more steps. Digests of the parameters still show such a change.

mod cache;
mod data;
mod exchange;
mod mark;
mod messages;
mod model;
mod optimizer;
mod trainer;

use std::collections::BTreeMap;

use gradwire_exchange::CompressionSchedule;

use crate::config::RunConfig;
use crate::record::RunRecord;
use crate::settings::TrainingSettings;

/// The marks of runs with these settings and this compressor, by part: 16 hexadecimal digits each.
/// A part has none if it does not repeat its bits, as with asynchronous workers. Takes
/// milliseconds, for models of ImageNet's size seconds; computed once in a process.
pub fn marks(
    settings: &TrainingSettings,
    compressor: &CompressionSchedule,
) -> BTreeMap<String, String> {
    let (values, bytes) = match messages::marks(settings, compressor) {
        Some([values, bytes]) => (Some(values), Some(bytes)),
        None => (None, None),
    };
    let parts = [
        ("model", model::mark(settings)),
        ("optimizer", optimizer::mark(settings)),
        ("compressor", values),
        ("wire format", bytes),
        ("exchange", exchange::mark(settings, compressor)),
        ("trainer", trainer::mark(settings, compressor)),
    ];
    parts.into_iter().filter_map(|(part, mark)| Some((part.to_owned(), mark?))).collect()
}

/// A record with the marks of its run.
pub fn marked(record: RunRecord, config: &RunConfig) -> RunRecord {
    RunRecord { numerics: marks(&config.resolved(), &config.compressor), ..record }
}

/// The parts that both have, but with different marks.
pub fn changed_parts<'a>(
    before: &'a BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Vec<&'a str> {
    let differs = |(part, mark): &(&String, &String)| now.get(*part).is_some_and(|of| of != *mark);
    before.iter().filter(differs).map(|(part, _)| part.as_str()).collect()
}

#[cfg(test)]
mod tests;
