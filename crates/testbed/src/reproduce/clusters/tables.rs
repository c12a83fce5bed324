//! The tables of simulated clusters.

use gradwire_advice::topology::Picture;
use gradwire_exchange::Link;

use super::cell::{Cell, Timed, cells};
use super::kind::{Kind, Simulated};
use crate::format::{bandwidth, seconds, times};
use crate::table::Table;

/// The name of a link: inside a machine in gigabytes, as PCIe is described.
pub(super) fn name(link: Link, inside: bool) -> String {
    if inside {
        format!("{} GB/s", link.bits_per_second / 8e9)
    } else {
        bandwidth(link.bits_per_second)
    }
}

/// The ranks of a cell in words.
fn ranks(cell: &Cell) -> String {
    let (nodes, each) = (cell.topology.nodes, cell.topology.ranks_per_node);
    if nodes == 1 { each.to_string() } else { format!("{nodes} × {each} = {}", nodes * each) }
}

/// A compressor as code; `none` in words.
fn best(one: &Timed) -> String {
    if one.is_none() { "**none wins**".to_owned() } else { format!("`{}`", one.spec) }
}

/// A row for each size and link.
pub(super) fn table(kind: &Kind, cells: &[Cell]) -> Table {
    let picture = &kind.picture;
    let single = cells.iter().all(|cell| cell.topology.nodes == 1);
    let owner = if picture.sharded {
        "site"
    } else if single {
        "rank"
    } else {
        "node"
    };
    let mut columns = Table::of(cells)
        .column("ranks", ranks)
        .column(format!("link of a {owner}"), |cell| name(cell.link, single))
        .column("no compression", |cell| seconds(cell.plain));
    for spec in kind.columns {
        columns = columns.column(format!("`{spec}`"), |cell| seconds(cell.of(spec).seconds));
    }
    let ideal = |cell: &Cell| 100.0 * picture.step_seconds / cell.best().seconds;
    columns
        .column("best", |cell| best(cell.best()))
        .column("by", |cell| cell.best().way())
        .column("step", |cell| seconds(cell.best().seconds))
        .column("faster", |cell| times(cell.speedup(cell.best())))
        .column("of ideal", |cell| format!("{:.0} %", ideal(cell)))
        .table()
        .left_aligned()
}

/// The largest size of nodes with larger buckets, with a sentence.
pub(super) fn larger_buckets(Simulated { kind, methods, .. }: &Simulated) -> String {
    let picture = &kind.picture;
    let size = picture.sizes[picture.sizes.len() - 1];
    let link = Link { bits_per_second: 100e9, ..picture.compared()[0] };
    let of = |mebibytes: usize| {
        let picture = Picture { bucket: mebibytes << 18, ..*picture };
        (mebibytes, cells(&picture, &[size], &[link], methods).remove(0))
    };
    let rows = [25, 100, 400].map(of);
    let mut columns = Table::of(&rows)
        .column("bucket_cap_mb", |(mebibytes, _)| mebibytes)
        .column("no compression", |(_, cell)| seconds(cell.plain));
    for spec in ["bf16", "int8", "eden:bits=4", "eden"] {
        columns = columns.column(format!("`{spec}`"), |(_, cell)| seconds(cell.of(spec).seconds));
    }
    format!(
        "An all-to-all between 1250 nodes sends 1249 messages a bucket, each with its own cost. Steps of {} × {} ranks at \
         {} with larger buckets, as `bucket_cap_mb` of DistributedDataParallel makes them:\n\n{}",
        size[0],
        size[1],
        bandwidth(link.bits_per_second),
        columns.table().markdown()
    )
}

/// Sentences about where no compression wins.
pub(super) fn summary(picture: &Picture, cells: &[Cell]) -> String {
    let none = cells.iter().filter(|cell| cell.best().is_none()).count();
    let all = cells.len();
    let every = if picture.sharded {
        "Without compression ranks exchange at every step, in the other columns after a round of local steps, which changes \
         training. "
    } else {
        ""
    };
    format!(
        "{every}No compression wins in {none} of {all} rows. \"Best\" has the smallest error of the compressors within 5 % of \
         the fastest; \"of ideal\" is the time of a step without communication divided by the best."
    )
}
