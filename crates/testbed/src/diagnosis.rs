//! Tables and charts of diagnoses: residuals and gradients over a run by layer, the distribution of
//! residuals, and the compression rate of each kind of layer (figures 2, 5 and 6 of the AdaComp
//! paper, Chen et al. 2018).

use gradwire_train::{Diagnosis, Layer, LayerDiagnosis, RunRecord};

use crate::figures::STEPS;
use crate::format::times;
use crate::plot::{Chart, Point, Scale, Series};
use crate::summary::by_compressor;
use crate::table::{Table, or_dash};

/// The number of layers that a chart shows, at most: the largest ones.
const LAYERS: usize = 6;

/// Charts of the first seed of each compressor that has diagnoses.
pub fn charts(runs: &[RunRecord]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for run in by_compressor(runs).into_iter().map(|group| group[0]) {
        if !run.diagnoses.is_empty() {
            charts.push(rates(run));
        }
        if run.diagnoses.iter().flat_map(|d| &d.layers).any(|layer| layer.residual > 0.0) {
            charts.extend([residuals(run), histogram(run)]);
        }
    }
    charts
}

/// A line for each of the largest layers of a run, through the points that `points` returns for the
/// layer's index.
fn lines(run: &RunRecord, points: impl Fn(usize, &Layer) -> Option<Vec<Point>>) -> Vec<Series> {
    let mut largest: Vec<(usize, &Layer)> = run.layers.iter().enumerate().collect();
    largest.sort_by_key(|(_, layer)| std::cmp::Reverse(layer.elements()));
    largest.truncate(LAYERS);
    largest.sort_by_key(|(index, _)| *index);
    let lines = largest.into_iter().enumerate().filter_map(|(place, (index, layer))| {
        Some(Series::new(&layer.name, place + 1, points(index, layer)?))
    });
    lines.collect()
}

/// A line for each of the largest layers through a value above 0 of each diagnosis.
fn over_steps(
    run: &RunRecord,
    value: impl Fn(&Diagnosis, &Layer, &LayerDiagnosis) -> f64,
) -> Vec<Series> {
    lines(run, |index, layer| {
        let points = run.diagnoses.iter().filter_map(|diagnosis| {
            let value = value(diagnosis, layer, diagnosis.layers.get(index)?);
            (value > 0.0).then(|| Point::new(diagnosis.step as f64, value))
        });
        Some(points.collect())
    })
}

/// The 95th percentiles of residuals, solid, and of gradients, dashed (Figure 5).
fn residuals(run: &RunRecord) -> Chart {
    let residuals = over_steps(run, |_, _, layer| f64::from(layer.residual));
    let gradients = over_steps(run, |_, _, layer| f64::from(layer.gradient)).into_iter();
    let gradients = gradients.map(|line| Series { label: String::new(), dashed: true, ..line });
    let title = format!("{}: residual (solid), gradient (dashed)", run.compressor);
    let y = ("95th percentile of absolute values", Scale::Log);
    Chart::new(title, STEPS, y, residuals.into_iter().chain(gradients))
}

/// The distribution of residuals at the end (Figure 6).
fn histogram(run: &RunRecord) -> Chart {
    let lines = lines(run, |index, _| {
        let histogram = run.diagnoses.last()?.layers.get(index)?.histogram.as_ref()?;
        let cells = histogram.counts.len() as f64;
        let middle =
            |cell: usize| ((2.0 * cell as f64 + 1.0) / cells - 1.0) * f64::from(histogram.largest);
        let counts = histogram.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Some(counts.map(|(cell, &count)| Point::new(middle(cell), count as f64)).collect())
    });
    let (x, y) = (("residual", Scale::Linear), ("elements in a cell", Scale::Log));
    Chart::new(format!("{}: residuals at the end", run.compressor), x, y, lines)
}

/// The compression rate of each layer since the previous diagnosis.
fn rates(run: &RunRecord) -> Chart {
    let lines = over_steps(run, |diagnosis, layer, look| {
        rate(layer.elements() as f64 * diagnosis.exchanges as f64, look.bytes as f64)
    });
    let title = format!("{}: compression of messages", run.compressor);
    Chart::new(title, STEPS, ("times smaller than f32", Scale::Log), lines)
}

/// The compression rate of `elements` f32 values that took `bytes` bytes; 0 if none were sent.
fn rate(elements: f64, bytes: f64) -> f64 {
    if bytes > 0.0 { 4.0 * elements / bytes } else { 0.0 }
}

/// The compression rates over runs, by the bytes of messages: of convolution kernels, of the
/// matrices of other layers, and of all tensors. `None` if a model has no such tensors, or without
/// diagnoses. Vectors count only among all tensors: biases of convolutions belong to neither of the
/// two groups, and uncompressed they take most bytes.
pub fn rates_by_kind(runs: &[&RunRecord]) -> [Option<f64>; 3] {
    let kinds: [fn(&Layer) -> bool; 3] =
        [Layer::is_convolution, |layer| layer.shape.len() == 2, |_| true];
    kinds.map(|kind| {
        let (mut elements, mut bytes) = (0.0, 0.0);
        for run in runs {
            for diagnosis in &run.diagnoses {
                let layers = run.layers.iter().zip(&diagnosis.layers);
                for (layer, look) in layers.filter(|(layer, _)| kind(layer)) {
                    elements += layer.elements() as f64 * diagnosis.exchanges as f64;
                    bytes += look.bytes as f64;
                }
            }
        }
        (bytes > 0.0).then(|| rate(elements, bytes))
    })
}

/// The compression of each kind of layer, by compressor; without rows if no run has diagnoses.
pub fn table(runs: &[RunRecord]) -> Table {
    let groups = by_compressor(runs).into_iter();
    let all = groups.map(|group| (&group[0].compressor, rates_by_kind(&group)));
    let diagnosed: Vec<_> = all.filter(|(_, rates)| rates[2].is_some()).collect();
    let cell = |rate: Option<f64>| or_dash(rate.map(times));
    Table::of(&diagnosed)
        .column("compressor", |(compressor, _)| compressor)
        .column("convolutions", |(_, rates)| cell(rates[0]))
        .column("other layers", |(_, rates)| cell(rates[1]))
        .column("all", |(_, rates)| cell(rates[2]))
        .table()
}

/// The table's caption.
pub const NOTE: &str = "Compression is the size of whole tensors as f32, divided by the bytes of \
    the messages of the first worker, without headers around messages. Uncompressed weights count \
    with their layers; vectors, such as biases, count only among all tensors.";

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
        let layers =
            [("conv.weight", &[2, 1, 5, 5][..]), ("fc.weight", &[10, 20]), ("conv.bias", &[2])];
        run.layers = layers.map(|(name, shape)| layer(name, shape)).to_vec();
        let looks = |conv, fc| vec![conv, fc, look(40, 0.0)];
        run.diagnoses = vec![
            Diagnosis { step: 5, exchanges: 5, layers: looks(look(100, 1.0), look(40, 2.0)) },
            Diagnosis { step: 10, exchanges: 5, layers: looks(look(100, 3.0), look(60, 4.0)) },
        ];
        run
    }

    #[test]
    fn kinds_of_layers_have_their_rates() {
        // 50 elements ten times in 200 bytes; 200 ten times in 100; with 2 of a bias ten times in
        // 80, 2520 in 380.
        let rates = rates_by_kind(&[&diagnosed()]).map(Option::unwrap);
        assert_eq!(rates, [10.0, 80.0, 10_080.0 / 380.0]);
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
        assert!(charts[1].series[3].dashed && points(1, 3)[0] == (5.0, 0.5));
        // Three cells from −2 to 2: the middles of the outer ones are ∓4/3, and an empty one has no
        // point.
        let histogram = points(2, 0);
        assert!((histogram[0].0 + 4.0 / 3.0).abs() < 1e-12 && histogram[0].1 == 1.0);
        assert_eq!((histogram.len(), histogram[1].1), (2, 8.0));
    }
}
