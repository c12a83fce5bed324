//! The survey's figures in numbers.

use super::{FED_BACK, METHODS, both};
use crate::format::{bandwidth, significant, times};
use crate::scaling::Scaled;
use crate::summary::{Row, Summary};
use crate::table::{Grid, difference, quality};

/// Figures 6, 7 and 12 in numbers.
pub(super) fn methods(summary: &Summary, compared: &[String]) -> Grid {
    let mut head = vec![
        "method".to_owned(),
        "compressor".to_owned(),
        summary.metric.name().to_owned(),
        "against none".to_owned(),
        "volume".to_owned(),
    ];
    head.extend(summary.links.iter().map(|link| bandwidth(link.bits_per_second)));
    let mut grid = Grid::new(head);
    for (name, spec) in
        METHODS.into_iter().filter(|(_, spec)| compared.iter().any(|one| one == spec))
    {
        let Some(row) = summary.rows.iter().find(|row| row.compressor == spec) else {
            grid.push(missing(name, spec, grid.head.len()));
            continue;
        };
        let mut cells = vec![
            name.to_owned(),
            spec.to_owned(),
            quality(summary.metric, &row.quality),
            row.difference.map_or_else(String::new, |value| difference(summary.metric, value)),
            format!("{} %", significant(100.0 / row.ratio)),
        ];
        cells.extend(row.on_links.iter().map(|on| on.speedup.map_or_else(String::new, times)));
        grid.push(cells);
    }
    grid
}

/// The row of a method whose run was not made, or ended without a result.
fn missing(name: &str, spec: &str, cells: usize) -> Vec<String> {
    let mut row = vec![name.to_owned(), spec.to_owned(), "no result".to_owned()];
    row.resize(cells, "–".to_owned());
    row
}

/// Section 5.4 in numbers.
pub(super) fn feedback(summary: &Summary) -> Grid {
    let mut grid = Grid::new(["compressor", "with error feedback", "without", "feedback brings"]);
    let find = |spec: &str| summary.rows.iter().find(|row| row.compressor == spec);
    let cell = |row: Option<&Row>| {
        row.map_or_else(|| "–".to_owned(), |row| quality(summary.metric, &row.quality))
    };
    if let Some(none) = find("none") {
        grid.push(vec!["none".to_owned(), "–".to_owned(), cell(Some(none)), "–".to_owned()]);
    }
    for id in FED_BACK {
        let [with, without] = both(id).map(|spec| find(&spec));
        if with.is_none() && without.is_none() {
            continue;
        }
        let brings = with.zip(without).map_or_else(
            || "–".to_owned(),
            |(with, without)| difference(summary.metric, with.quality.mean - without.quality.mean),
        );
        grid.push(vec![id.to_owned(), cell(with), cell(without), brings]);
    }
    grid
}

/// Figure 8 in numbers.
pub(super) fn scaling(all: &[Scaled]) -> Grid {
    let mut grid = Grid::new([
        "method",
        "compressor",
        "workers",
        "examples a second",
        "if compression took no time",
        "against none",
        "compute",
        "compress and decompress",
        "wire",
    ]);
    let seconds = |value: f64| format!("{} ms", significant(value * 1e3));
    for one in all {
        let none =
            all.iter().find(|other| other.compressor == "none" && other.workers == one.workers);
        let method = METHODS.iter().find(|(_, spec)| *spec == one.compressor);
        grid.push(vec![
            method.map_or("", |(name, _)| name).to_owned(),
            one.compressor.clone(),
            one.workers.to_string(),
            significant(one.throughput()),
            significant(one.bound()),
            none.map_or_else(String::new, |none| times(one.throughput() / none.throughput())),
            seconds(one.compute),
            seconds(one.codec),
            seconds(one.wire),
        ]);
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::summarize;
    use crate::synthetic;

    #[test]
    fn feedback_is_set_side_by_side() {
        // Seeds 1 and 3 have 91 and 93 per cent.
        let runs = [
            synthetic::run("none", 1),
            synthetic::run("topk", 3),
            synthetic::run("topk:ef=off", 1),
        ];
        let summary = summarize(&runs, &crate::summary::default_links()).unwrap();
        let text = feedback(&summary).markdown();
        assert!(
            text.contains("topk") && text.contains("93.00") && text.contains("+2.00"),
            "{text}"
        );
        assert!(!text.contains("qsgd"), "{text}");
    }
}
