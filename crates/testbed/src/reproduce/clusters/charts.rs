//! The charts of simulated clusters.

use gradwire_advice::topology::Picture;
use gradwire_exchange::Link;

use super::cell::{Cell, cells};
use super::kind::Simulated;
use super::tables::name;
use crate::plot::{Chart, HeatMap, Point, Scale};
use crate::reproduce::study::{Charts, chart};

/// The links of a chart's lines: four a decade, from half of the least bandwidth to twice the
/// greatest.
fn fine(picture: &Picture) -> Vec<Link> {
    let compared = picture.compared();
    let bits = |at: usize| compared[at].bits_per_second;
    let (low, high) = (bits(0) / 2.0, bits(compared.len() - 1) * 2.0);
    let steps = (4.0 * (high / low).log10()).round() as i32;
    let link = |at| Link { bits_per_second: low * 10_f64.powf(f64::from(at) / 4.0), ..compared[0] };
    (0..=steps).map(link).collect()
}

/// A chart's size of a cluster and horizontal axis.
struct Axis {
    title: &'static str,
    size: [usize; 2],
    label: &'static str,
    /// Bits per second of a unit.
    unit: f64,
}

const AXES: [Axis; 3] = [
    Axis { title: "8 GPUs on PCIe", size: [1, 8], label: "GB/s of each rank's link", unit: 8e9 },
    Axis {
        title: "16 nodes of 8 GPUs",
        size: [16, 8],
        label: "Gbit/s of each node's link",
        unit: 1e9,
    },
    Axis {
        title: "16 sites of 64 GPUs",
        size: [16, 64],
        label: "Gbit/s of each site's link",
        unit: 1e9,
    },
];

/// For each kind a chart of its compressors over bandwidth, and for nodes a map of the gain by
/// ranks and bandwidth.
pub(super) fn charts(simulated: &[Simulated]) -> Charts {
    let mut charts = Charts::new();
    for (one, axis) in simulated.iter().zip(AXES) {
        charts.push(chart(format!("{}.svg", one.kind.file), lines(one, &axis)));
    }
    charts.push(chart("nodes-map.svg", map(&simulated[1].cells)));
    charts
}

/// The share of ideal scaling that each compressor reaches over bandwidth.
fn lines(Simulated { kind, methods, .. }: &Simulated, axis: &Axis) -> Chart {
    let picture = &kind.picture;
    let title = format!("{}: share of ideal scaling", axis.title);
    let mut chart = Chart::new(title, (axis.label, Scale::Log), ("% of ideal", Scale::Linear), []);
    for cell in cells(picture, &[axis.size], &fine(picture), methods) {
        let at = cell.link.bits_per_second / axis.unit;
        let share = |seconds: f64| Point::new(at, 100.0 * picture.step_seconds / seconds);
        if picture.sharded {
            chart.add("none", share(cell.plain));
        }
        for one in &cell.all {
            chart.add(&one.spec, share(one.seconds));
        }
    }
    chart
}

/// The gain of the best compressor by ranks and bandwidth.
fn map(cells: &[Cell]) -> HeatMap {
    let (mut rows, mut columns) = (Vec::<String>::new(), Vec::<String>::new());
    let mut values = Vec::<Vec<Option<f64>>>::new();
    for cell in cells {
        let (row, column) = (cell.topology.ranks().to_string(), name(cell.link, false));
        if !columns.contains(&column) {
            columns.push(column);
        }
        if !rows.contains(&row) {
            rows.push(row);
            values.push(Vec::new());
        }
        let last = values.last_mut().expect("a row was added");
        last.push(Some(cell.speedup(cell.best())));
    }
    HeatMap {
        title: "Nodes of 8 GPUs, how much faster the best compressor is".to_owned(),
        columns: ("link of a node".to_owned(), columns),
        rows: ("ranks".to_owned(), rows),
        values,
        show: |value| format!("{value:.1}×"),
    }
}
