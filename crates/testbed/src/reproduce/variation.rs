//! Parts of a study that differ from each other in a few settings.

use gradwire_train::{CompressionSchedule, RunRecord};

use super::study::schedules;
use crate::experiment::Experiment;
use crate::runner::differences;

/// A change of an experiment, with the compressors to run.
pub(super) struct Variation {
    /// The name in tables.
    pub(super) name: &'static str,
    /// The change.
    pub(super) change: fn(&mut Experiment),
    /// The compressors, as their specs print.
    pub(super) specs: &'static [&'static str],
}

/// Compressors from their specs, each once.
pub(super) fn each_once<'a>(
    specs: impl IntoIterator<Item = &'a &'static str>,
) -> Vec<CompressionSchedule> {
    let mut all: Vec<&str> = Vec::new();
    for spec in specs {
        if !all.contains(spec) {
            all.push(spec);
        }
    }
    schedules(all)
}

/// The runs of an experiment with this compressor, of any length and seed. The augmentation of
/// images does not count: it depends on the data if the experiment leaves it open.
pub(super) fn runs_of<'a>(
    runs: &'a [RunRecord],
    experiment: &Experiment,
    spec: &str,
) -> Vec<&'a RunRecord> {
    let settings = experiment.settings();
    let same = |run: &&RunRecord| {
        let mut differences = differences(&settings, &run.settings);
        run.compressor == spec && differences.all(|(setting, ..)| setting.name == "augment")
    };
    runs.iter().filter(same).collect()
}
