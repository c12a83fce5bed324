//! The tables of simulated clusters.

use gradwire_advice::topology::Picture;
use gradwire_exchange::Link;

use super::cell::{Cell, Timed};
use super::kind::Kind;
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
