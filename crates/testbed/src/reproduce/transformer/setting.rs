//! The runs of one setting, compared with the runs of `none`.

use gradwire_train::RunRecord;

use super::families::Family;
use crate::experiment::Experiment;
use crate::format::{bytes, times};
use crate::reproduce::variation::runs_of;
use crate::summary::{Spread, paired};
use crate::table::{Columns, or_dash};

/// The runs of one setting.
pub(super) struct Setting<'a> {
    pub(super) family: &'static Family,
    /// The runs, with the loss on the test text as their quality.
    pub(super) runs: Vec<&'a RunRecord>,
    losses: Spread,
    /// The loss minus the loss of `none` with the same seed.
    pub(super) differences: Option<Spread>,
    /// Bytes that a worker sent.
    pub(super) bytes: f64,
    /// The bytes of `none` over these bytes, if both are known.
    pub(super) ratio: Option<f64>,
}

/// The same run with the loss, ln of the perplexity, as its quality.
pub(super) fn with_loss(run: &RunRecord) -> RunRecord {
    RunRecord { quality: run.quality.ln(), ..run.clone() }
}

impl<'a> Setting<'a> {
    /// The settings of these experiments that have runs, compared with the first one.
    pub(super) fn all<'e>(
        experiments: impl Iterator<Item = (&'static Family, &'e Experiment)>,
        runs: &'a [RunRecord],
    ) -> Vec<Self> {
        let groups: Vec<_> = experiments
            .flat_map(|(family, one)| {
                one.compressors
                    .iter()
                    .map(move |spec| (family, runs_of(runs, one, &spec.to_string())))
            })
            .collect();
        let none = groups.first().map(|(_, runs)| runs.clone()).unwrap_or_default();
        let setting = |(family, runs): (&'static Family, Vec<&'a RunRecord>)| {
            let losses: Vec<f64> = runs.iter().map(|run| run.quality).collect();
            let bytes = runs.iter().map(|run| run.bytes_up).sum::<f64>() / runs.len() as f64;
            Some(Self {
                family,
                losses: Spread::of(&losses)?,
                differences: paired(&runs, &none),
                bytes,
                ratio: none.first().filter(|_| bytes > 0.0).map(|none| none.bytes_up / bytes),
                runs,
            })
        };
        groups.into_iter().filter_map(setting).collect()
    }

    pub(super) fn compressor(&self) -> &str {
        &self.runs[0].compressor
    }

    /// The loss minus the loss of `none`, seed by seed; `None` without a run of `none` to compare
    /// with.
    pub(super) fn above_none(&self) -> Option<f64> {
        self.differences.map(|differences| differences.mean)
    }

    /// Whether it is compared with `none`, and no other compared setting has both a lower loss and
    /// fewer bytes.
    pub(super) fn is_on_front(&self, all: &[Self]) -> bool {
        let Some(above) = self.above_none() else { return false };
        let lower = |other: &Self| other.above_none().is_some_and(|other| other < above);
        !all.iter().any(|other| other.bytes < self.bytes && lower(other))
    }

    /// Adds the columns that every table of settings has; `of` finds the setting of an item.
    pub(super) fn columns<'t, T>(
        columns: Columns<'t, T>,
        of: for<'x> fn(&'x T) -> &'x Self,
    ) -> Columns<'t, T> {
        let spread = |spread: &Spread, mean: String| match spread.count {
            1 => mean,
            _ => format!("{mean} ± {:.3}", spread.sd),
        };
        let loss = |Self { losses, .. }: &Self| spread(losses, format!("{:.3}", losses.mean));
        let difference = |by: Spread| spread(&by, format!("{:+.3}", by.mean));
        columns
            .column("sent", |item| of(item).family.name)
            .column("compressor", |item| of(item).compressor())
            .column("loss", |item| loss(of(item)))
            .column("against none", |item| or_dash(of(item).differences.map(difference)))
            .column("bytes", |item| bytes(of(item).bytes))
            .column("fewer bytes", |item| or_dash(of(item).ratio.map(times)))
            .column("seeds", |item| of(item).runs.len())
    }
}
