//! Checks of committed runs: each is repeated with the settings of its record and compared with it.

mod committed;
mod repeat;
mod standing;
mod verdict;

pub use committed::{Committed, Found, find};
pub use repeat::{Checked, check};
pub use standing::standing;
pub use verdict::{Figures, Verdict};

use crate::format::bytes;
use crate::table::Table;

/// A table with a row for each checked run.
pub fn table(all: &[Checked]) -> Table {
    let mut table =
        Table::new(["run", "digest", "now", "quality", "now", "bytes", "now", "verdict"])
            .left_aligned();
    for Checked { committed, before, now, verdict } in all {
        let quality = |figures: &Figures| {
            figures.quality.map_or_else(dash, |quality| committed.record.metric.show(quality))
        };
        let sum = |figures: &Figures| figures.bytes.map_or_else(dash, bytes);
        let of_now = |show: &dyn Fn(&Figures) -> String| now.as_ref().map_or_else(dash, show);
        table.push([
            committed.title(),
            before.digest.clone(),
            of_now(&|now| now.digest.clone()),
            quality(before),
            of_now(&quality),
            sum(before),
            of_now(&sum),
            verdict.to_string(),
        ]);
    }
    table
}

fn dash() -> String {
    "–".to_owned()
}

/// How many runs have each verdict, as a sentence.
pub fn summary(all: &[Checked]) -> String {
    let count = |is: fn(&Verdict) -> bool| all.iter().filter(|one| is(&one.verdict)).count();
    format!(
        "{} identical, {} with other bytes, {} with the same figures but other bits, {} that differ, {} not checked.",
        count(|verdict| matches!(verdict, Verdict::Identical)),
        count(|verdict| matches!(verdict, Verdict::OtherBytes(_))),
        count(|verdict| matches!(verdict, Verdict::SameFigures(_))),
        count(Verdict::is_failure),
        count(|verdict| matches!(verdict, Verdict::NotChecked(_))),
    )
}
