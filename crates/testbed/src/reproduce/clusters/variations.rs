//! Nodes with other buckets, and with other figures in place of the guesses.

use gradwire_advice::topology::{Hardware, NODES, Picture};
use gradwire_exchange::Link;

use super::cell::{Cell, cells};
use super::kind::Simulated;
use crate::format::seconds;
use crate::table::Table;

/// The compressors of these tables.
const SPECS: [&str; 4] = ["bf16", "int8", "eden:bits=4", "eden"];

/// A link of 100 Gbit/s between nodes.
fn link(picture: &Picture) -> Link {
    Link { bits_per_second: 100e9, latency: picture.latency }
}

/// A row of steps, with its name.
type Row = (String, Cell);

fn table(head: &str, rows: &[Row]) -> String {
    let mut columns = Table::of(rows)
        .column(head, |(name, _)| name)
        .column("no compression", |(_, cell)| seconds(cell.plain));
    for spec in SPECS {
        columns = columns.column(format!("`{spec}`"), |(_, cell)| seconds(cell.of(spec).seconds));
    }
    columns.table().markdown()
}

/// The largest size of nodes with larger buckets.
pub(super) fn larger_buckets(Simulated { methods, .. }: &Simulated) -> String {
    let of = |mebibytes: usize| {
        let picture = Picture { bucket: mebibytes << 18, ..NODES };
        let cell = cells(&picture, &[[1250, 8]], &[link(&picture)], methods).remove(0);
        (mebibytes.to_string(), cell)
    };
    format!(
        "An all-to-all between 1250 nodes sends 1249 messages a bucket, each with its own cost. Steps of 1250 × 8 ranks at \
         100 Gbit/s with larger buckets, as `bucket_cap_mb` of DistributedDataParallel makes them:\n\n{}",
        table("bucket_cap_mb", &[25, 100, 400].map(of))
    )
}

/// Other figures in place of the guesses, for nodes of two sizes.
pub(super) fn other_guesses(Simulated { methods, .. }: &Simulated) -> String {
    let hardware = Hardware::H200;
    let slower = Hardware { slower: 2.0, ..hardware };
    let messages = Hardware { device_message: 5.0 * hardware.device_message, ..hardware };
    let inside = NODES.inside / 4.0;
    let pictures = [
        ("as above", NODES),
        ("a message takes 10 µs", Picture { hardware: messages, ..NODES }),
        ("latencies between nodes of 100 µs", Picture { latency: 5 * NODES.latency, ..NODES }),
        ("kernels half as fast", Picture { hardware: slower, ..NODES }),
        ("50 GB/s inside", Picture { inside, ..NODES }),
    ];
    let of = |size: [usize; 2]| {
        let row = |(name, picture): (&str, Picture)| {
            let cell = cells(&picture, &[size], &[link(&picture)], methods).remove(0);
            (format!("{} × {}: {name}", size[0], size[1]), cell)
        };
        pictures.map(row)
    };
    let rows: Vec<Row> = [[16, 8], [1250, 8]].into_iter().flat_map(of).collect();
    format!(
        "Steps at 100 Gbit/s, if one of the assumptions is replaced. In 16 nodes none of them changes which compressor is the \
         fastest; in 1250 nodes the guessed time of a message decides whether buckets of 25 MiB are worth compressing.\n\n{}",
        table("nodes × ranks", &rows)
    )
}
