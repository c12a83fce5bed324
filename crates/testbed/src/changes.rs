//! What changed between an earlier comparison and this one, such as between two versions of
//! gradwire.

use gradwire_train::{Metric, RunRecord};
use serde::Serialize;

use crate::TestbedError;
use crate::format::times;
use crate::runner::differences;
use crate::summary::tables::{difference, quality};
use crate::summary::{Spread, by_compressor, paired};
use crate::table::Table;
use crate::verdict::tolerance;

/// How many times the bytes count as more.
const MORE_BYTES: f64 = 1.01;

/// What changed for a compressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The parameters are equal bit by bit, or the qualities are within the tolerance, and the
    /// bytes are no more than before.
    None,
    /// The quality is better by more than the tolerance.
    Improved,
    /// The quality is worse by more than the tolerance, or there are over 1 % more bytes.
    Regressed,
    /// An end of the tolerance is in the interval of the difference.
    CannotTell,
}

impl Change {
    /// In words.
    fn text(self) -> &'static str {
        match self {
            Self::None => "no change",
            Self::Improved => "improved",
            Self::Regressed => "regressed",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// A compressor now and before, over the seeds of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    /// The compressor's spec.
    pub compressor: String,
    /// The number of seeds of both.
    pub seeds: usize,
    /// What changed.
    pub change: Change,
    /// The mean difference of quality, now minus before.
    pub difference: f64,
    /// Bytes sent and received now over bytes before.
    pub bytes: f64,
    /// Whether all runs ended with the same parameters as before, bit by bit.
    pub same_bits: bool,
    #[serde(skip)]
    shown: Shown,
}

/// The figures of a table's row.
#[derive(Debug, Clone, PartialEq)]
struct Shown {
    metric: Metric,
    before: Spread,
    now: Spread,
    difference: Spread,
}

/// What changed for each compressor that both comparisons have, with the seeds and lengths of both.
///
/// # Errors
/// If runs of a compressor have other settings or data than before, or no run has a partner.
pub fn changes(now: &[RunRecord], before: &[RunRecord]) -> Result<Vec<Changed>, TestbedError> {
    let mut all = Vec::new();
    for group in by_compressor(now) {
        let partner = |run: &&RunRecord| {
            before.iter().find(|other| {
                (&other.compressor, other.seed, other.steps)
                    == (&run.compressor, run.seed, run.steps)
            })
        };
        let with_partner: Vec<&RunRecord> =
            group.into_iter().filter(|run| partner(run).is_some()).collect();
        let partners: Vec<&RunRecord> = with_partner.iter().filter_map(partner).collect();
        for (run, other) in with_partner.iter().zip(&partners) {
            same_setup(run, other)?;
        }
        all.extend(changed(&with_partner, &partners));
    }
    if all.is_empty() {
        return Err(TestbedError::Config(
            "no run has an earlier run with the same compressor, seed and number of steps"
                .to_owned(),
        ));
    }
    Ok(all)
}

/// Refuses an earlier run with another set-up.
fn same_setup(run: &RunRecord, before: &RunRecord) -> Result<(), TestbedError> {
    let other = differences(&run.settings, &before.settings).next();
    let other = other.map(|(setting, now, before)| (setting.title(), now, before));
    let data = (run.data_checksum != before.data_checksum).then(|| {
        ("data checksum".to_owned(), run.data_checksum.clone(), before.data_checksum.clone())
    });
    match data.or(other) {
        None => Ok(()),
        Some((what, now, before)) => Err(TestbedError::Config(format!(
            "{}, seed {}: the earlier run has {what} {before}, but this run has {now}; compare \
             runs with the same settings",
            run.compressor, run.seed
        ))),
    }
}

/// What changed between runs and their partners; `None` without runs.
fn changed(now: &[&RunRecord], before: &[&RunRecord]) -> Option<Changed> {
    let spread =
        |runs: &[&RunRecord]| Spread::of(&runs.iter().map(|run| run.quality).collect::<Vec<_>>());
    let bytes =
        |runs: &[&RunRecord]| -> f64 { runs.iter().map(|run| run.bytes_up + run.bytes_down).sum() };
    let metric = now.first()?.metric;
    let shown = Shown {
        metric,
        before: spread(before)?,
        now: spread(now)?,
        difference: paired(now, before)?,
    };
    let same_bits = now.iter().zip(before).all(|(now, before)| now.digest == before.digest);
    let ratio = bytes(now) / bytes(before);
    let change = match of_quality(&shown) {
        _ if ratio > MORE_BYTES => Change::Regressed,
        _ if same_bits => Change::None,
        change => change,
    };
    Some(Changed {
        compressor: now[0].compressor.clone(),
        seeds: shown.difference.count,
        change,
        difference: shown.difference.mean,
        bytes: ratio,
        same_bits,
        shown,
    })
}

/// What changed in quality, by the 95 % interval of the paired difference, or by the difference of
/// a single seed.
fn of_quality(shown: &Shown) -> Change {
    let Shown { metric, before, difference, .. } = shown;
    let allowed = tolerance(*metric, before.mean);
    let (low, high) = difference.interval().unwrap_or((difference.mean, difference.mean));
    let gained = if metric.is_fraction() { (low, high) } else { (-high, -low) };
    match gained {
        (_, most) if most < -allowed => Change::Regressed,
        (least, _) if least > allowed => Change::Improved,
        (least, most) if least >= -allowed && most <= allowed => Change::None,
        _ => Change::CannotTell,
    }
}

/// A table with a row for each compressor.
pub fn table(all: &[Changed]) -> Table {
    Table::of(all)
        .column("compressor", |one| &one.compressor)
        .column("seeds", |one| one.seeds)
        .column("before", |one| quality(one.shown.metric, &one.shown.before))
        .column("now", |one| quality(one.shown.metric, &one.shown.now))
        .column("difference", |one| difference(one.shown.metric, &one.shown.difference))
        .column("bytes", |one| times(one.bytes))
        .column("bits", |one| if one.same_bits { "the same" } else { "others" })
        .column("verdict", |one| one.change.text())
        .table()
        .with_optional(&["seeds", "bits"])
}

/// The compressors that regressed.
pub fn regressed(all: &[Changed]) -> Vec<&str> {
    let regressed = all.iter().filter(|one| one.change == Change::Regressed);
    regressed.map(|one| one.compressor.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    fn runs(qualities: &[f64]) -> Vec<RunRecord> {
        let run = |(seed, quality): (u64, &f64)| RunRecord {
            quality: *quality,
            digest: quality.to_string(),
            ..synthetic::run("3lc", seed)
        };
        (0..).zip(qualities).map(run).collect()
    }

    #[test]
    fn changes_are_judged_by_bits_interval_and_bytes() {
        let before = runs(&[0.90, 0.92, 0.94]);
        let change = |now: &[RunRecord]| changes(now, &before).unwrap()[0].change;
        assert_eq!(change(&before), Change::None);
        // Differences of −0.1, 0 and 0.1 points: within 0.25 points.
        assert_eq!(change(&runs(&[0.899, 0.92, 0.941])), Change::None);
        assert_eq!(change(&runs(&[0.89, 0.91, 0.93])), Change::Regressed);
        assert_eq!(change(&runs(&[0.91, 0.93, 0.95])), Change::Improved);
        assert_eq!(change(&runs(&[0.88, 0.92, 0.96])), Change::CannotTell);
        // One seed is judged by its difference.
        assert_eq!(change(&runs(&[0.896])), Change::None);
        assert_eq!(change(&runs(&[0.88])), Change::Regressed);
        let mut more = before.clone();
        more.iter_mut().for_each(|run| run.bytes_up *= 1.1);
        let found = changes(&more, &before).unwrap();
        assert_eq!((found[0].change, regressed(&found)), (Change::Regressed, vec!["3lc"]));
        let row = &table(&found).rows[0];
        // (110 + 200) / 300.
        assert_eq!(row[5..], ["1.03×", "the same", "regressed"]);
    }

    #[test]
    fn other_set_ups_are_refused() {
        let before = runs(&[0.9]);
        let mut other = before.clone();
        other[0].batch = 7;
        let error = changes(&other, &before).unwrap_err().to_string();
        assert!(error.contains("has batch 32, but this run has 7"), "{error}");
        other[0].seed = 9;
        assert!(changes(&other, &before).unwrap_err().to_string().contains("no run has"));
    }
}
