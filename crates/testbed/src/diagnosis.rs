//! Tables and charts of diagnoses: residuals beside gradients over a run, layer by layer, the distribution of
//! residuals, and how much each kind of layer was compressed (figures 2, 5 and 6 of the AdaComp paper,
//! Chen et al. 2018).

use gradwire_train::{Diagnosis, Layer, LayerDiagnosis, RunRecord};

use crate::format::times;
use crate::plot::{Chart, Point, Scale, Series};
use crate::summary::by_compressor;
use crate::table::Grid;

/// The most layers that a chart shows: the largest.
const LAYERS: usize = 6;

/// Charts of the first seed of each compressor that has diagnoses.
pub fn charts(runs: &[RunRecord]) -> Vec<Chart> {
    let diagnosed = |group: &Vec<&RunRecord>| !group[0].diagnoses.is_empty();
    let groups = by_compressor(runs);
    let of_run = |group: &Vec<&RunRecord>| {
        let run = group[0];
        let kept = run.diagnoses.iter().flat_map(|d| &d.layers).any(|l| l.residual > 0.0);
        let mut charts = vec![rates(run)];
        if kept {
            charts.extend([residuals(run), histogram(run)]);
        }
        charts
    };
    groups.iter().filter(|group| diagnosed(group)).flat_map(of_run).collect()
}

/// The largest layers of a run, with their places.
fn largest(run: &RunRecord) -> Vec<(usize, &Layer)> {
    let mut layers: Vec<(usize, &Layer)> = run.layers.iter().enumerate().collect();
    layers.sort_by_key(|(_, layer)| std::cmp::Reverse(layer.elements()));
    layers.truncate(LAYERS);
    layers.sort_by_key(|(index, _)| *index);
    layers
}

/// A line for each of the largest layers.
fn lines(
    run: &RunRecord,
    value: impl Fn(&Diagnosis, &Layer, &LayerDiagnosis) -> f64,
) -> Vec<Series> {
    let line = |(colour, (index, layer)): (usize, (usize, &Layer))| Series {
        label: layer.name.clone(),
        points: run
            .diagnoses
            .iter()
            .filter_map(|d| Some(Point::new(d.step as f64, value(d, layer, d.layers.get(index)?))))
            .filter(|point| point.y > 0.0)
            .collect(),
        colour: colour + 1,
        dashed: false,
    };
    largest(run).into_iter().enumerate().map(line).collect()
}

/// The 95th percentiles of residuals, solid, and of gradients, dashed (Figure 5).
fn residuals(run: &RunRecord) -> Chart {
    let mut series = lines(run, |_, _, layer| f64::from(layer.residual));
    let gradients = lines(run, |_, _, layer| f64::from(layer.gradient));
    series.extend(gradients.into_iter().map(|line| Series {
        label: String::new(),
        dashed: true,
        ..line
    }));
    Chart {
        title: format!("{}: residual (solid), gradient (dashed)", run.compressor),
        x: ("step".to_owned(), Scale::Linear),
        y: ("95th percentile of absolute values".to_owned(), Scale::Log),
        series,
    }
}

/// How residuals were distributed at the end (Figure 6).
fn histogram(run: &RunRecord) -> Chart {
    let last = run.diagnoses.last();
    let line = |(colour, (index, layer)): (usize, (usize, &Layer))| {
        let histogram = last?.layers.get(index)?.histogram.as_ref()?;
        let cells = histogram.counts.len() as f64;
        let middle =
            |cell: usize| ((2.0 * cell as f64 + 1.0) / cells - 1.0) * f64::from(histogram.largest);
        let counts = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let points = counts.map(|(cell, &count)| Point::new(middle(cell), count as f64));
        let (label, points) = (layer.name.clone(), points.collect());
        Some(Series { label, points, colour: colour + 1, dashed: false })
    };
    Chart {
        title: format!("{}: residuals at the end", run.compressor),
        x: ("residual".to_owned(), Scale::Linear),
        y: ("elements in a cell".to_owned(), Scale::Log),
        series: largest(run).into_iter().enumerate().filter_map(line).collect(),
    }
}

/// How much each layer was compressed since the diagnosis before.
fn rates(run: &RunRecord) -> Chart {
    Chart {
        title: format!("{}: compression of messages", run.compressor),
        x: ("step".to_owned(), Scale::Linear),
        y: ("times smaller than f32".to_owned(), Scale::Log),
        series: lines(run, |diagnosis, layer, look| {
            rate(layer.elements() as f64 * diagnosis.exchanges as f64, look.bytes as f64)
        }),
    }
}

/// The compression rate of `elements` f32 values that took `bytes` bytes; 0 if none were sent.
fn rate(elements: f64, bytes: f64) -> f64 {
    if bytes > 0.0 { 4.0 * elements / bytes } else { 0.0 }
}

/// How much the kernels of convolutions, all other tensors, and all together were compressed over runs,
/// by the bytes of their messages; `None` for what a model does not have, or without diagnoses.
pub fn rates_by_kind(runs: &[&RunRecord]) -> [Option<f64>; 3] {
    let kinds: [fn(&Layer) -> bool; 3] =
        [Layer::is_convolution, |layer| !layer.is_convolution(), |_| true];
    kinds.map(|kind| {
        let (mut elements, mut bytes) = (0.0, 0.0);
        for run in runs {
            for diagnosis in &run.diagnoses {
                for (layer, look) in run.layers.iter().zip(&diagnosis.layers) {
                    if kind(layer) {
                        elements += layer.elements() as f64 * diagnosis.exchanges as f64;
                        bytes += look.bytes as f64;
                    }
                }
            }
        }
        (bytes > 0.0).then(|| rate(elements, bytes))
    })
}

/// The compression of each kind of layer, by compressor; without rows if no run has diagnoses.
pub fn table(runs: &[RunRecord]) -> Grid {
    let mut grid = Grid::new(["compressor", "convolutions", "other layers", "all"]);
    for group in by_compressor(runs) {
        let rates = rates_by_kind(&group);
        if rates[2].is_none() {
            continue;
        }
        let cell = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), times);
        let mut row = vec![group[0].compressor.clone()];
        row.extend(rates.map(cell));
        grid.push(row);
    }
    grid
}

/// The table's caption.
pub const NOTE: &str = "By the messages of the first worker, whole tensors as f32 against the bytes they \
     took, headers around messages apart. Raw tensors count with their layers.";

#[cfg(test)]
mod tests {
    use gradwire_train::Histogram;

    use super::*;
    use crate::synthetic;

    fn diagnosed() -> RunRecord {
        let layer =
            |name: &str, shape: &[usize]| Layer { name: name.to_owned(), shape: shape.to_vec() };
        let look = |bytes, residual| LayerDiagnosis {
            gradient: 0.5,
            residual,
            bytes,
            histogram: Some(Histogram { largest: 2.0, counts: vec![1, 0, 8] }),
        };
        let mut run = synthetic::run("topk", 1);
        run.layers = vec![layer("conv.weight", &[2, 1, 5, 5]), layer("fc.weight", &[10, 20])];
        run.diagnoses = vec![
            Diagnosis { step: 5, exchanges: 5, layers: vec![look(100, 1.0), look(40, 2.0)] },
            Diagnosis { step: 10, exchanges: 5, layers: vec![look(100, 3.0), look(60, 4.0)] },
        ];
        run
    }

    #[test]
    fn kinds_of_layers_have_their_rates() {
        // 50 elements ten times in 200 bytes; 200 ten times in 100; 2500 in 300.
        let rates = rates_by_kind(&[&diagnosed()]).map(Option::unwrap);
        assert_eq!(rates, [10.0, 80.0, 10_000.0 / 300.0]);
        assert_eq!(rates_by_kind(&[&synthetic::run("topk", 1)]), [None; 3]);
        assert!(table(&[synthetic::run("topk", 1)]).is_empty());
    }

    #[test]
    fn charts_show_layers_over_steps() {
        let charts = charts(&[synthetic::run("none", 1), diagnosed()]);
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(titles.len(), 3, "{titles:?}");
        let points = |chart: usize, line: usize| -> Vec<(f64, f64)> {
            charts[chart].series[line].points.iter().map(|p| (p.x, p.y)).collect()
        };
        assert_eq!(points(0, 0), [(5.0, 10.0), (10.0, 10.0)]);
        assert_eq!(points(1, 1), [(5.0, 2.0), (10.0, 4.0)]);
        assert!(charts[1].series[2].dashed && points(1, 2)[0] == (5.0, 0.5));
        // Three cells from −2 to 2: the middles of the outer ones are ∓4/3, and an empty one has no point.
        let histogram = points(2, 0);
        assert!((histogram[0].0 + 4.0 / 3.0).abs() < 1e-12 && histogram[0].1 == 1.0);
        assert_eq!((histogram.len(), histogram[1].1), (2, 8.0));
    }
}
