//! The traffic estimate by equation 1 of the SBC paper, compared with the bytes that the transport
//! counted.

use gradwire_train::{RunRecord, TrafficEstimate};

use crate::format::{bytes, significant};
use crate::summary::by_compressor;
use crate::table::Table;

/// The factors of equation 1 for each compressor's first seed, their product, and the counted
/// bytes. Leaves out compressors whose elements differ in their number of bits.
pub fn table(runs: &[RunRecord]) -> Table {
    let firsts = by_compressor(runs).into_iter().map(|group| group[0]);
    let estimated: Vec<(&RunRecord, TrafficEstimate)> =
        firsts.filter_map(|run| Some((run, run.traffic_estimate()?))).collect();
    Table::of(&estimated)
        .column("compressor", |(run, _)| &run.compressor)
        .column("iterations", |(_, factors)| factors.iterations)
        .column("frequency", |(_, factors)| significant(factors.frequency))
        .column("non-zeros", |(_, factors)| format!("{:.0}", factors.nonzeros))
        .column("position bits", |(_, factors)| significant(factors.position_bits))
        .column("value bits", |(_, factors)| significant(factors.value_bits))
        .column("receivers", |(_, factors)| significant(factors.receivers))
        .column("product", |(_, factors)| bytes(factors.bytes()))
        .column("counted", |(run, _)| bytes(run.bytes_up))
        .column("framing", |(run, factors)| {
            format!("{:+.1} %", (run.bytes_up / factors.bytes() - 1.0) * 100.0)
        })
        .table()
}

/// The table's heading.
pub const HEADING: &str = "Bytes sent: equation 1, and counted";

/// The table's caption.
pub const NOTE: &str = "Equation 1: iterations × frequency × non-zeros per exchange × (position bits + value bits) × \
    receivers. Position bits come from equation 5, for the density of each message. The product leaves out the fields \
    of each tensor (means, lengths) and the headers of messages. Framing is the difference between the counted bytes \
    and the product; it is negative if the code of the positions is shorter than independent positions allow.";

#[cfg(test)]
mod tests {
    use gradwire_train::SentCounts;

    use super::*;
    use crate::synthetic;

    #[test]
    fn the_product_stands_beside_what_was_counted() {
        // Ten exchanges of 20 positions of 5 bits with 32 bits each: 92.5 bytes; 100 were counted.
        let mut run = synthetic::run("topk", 1);
        run.sent = SentCounts { sparse: 200.0, position_bits: 1000.0, ..SentCounts::default() };
        let table = table(&[run, synthetic::run("none", 1)]);
        assert_eq!(table.rows.len(), 1, "none has counted nothing");
        let expected =
            ["topk", "10", "1.00", "20", "5.00", "32.0", "1.00", "925 B", "1.00 kB", "+8.1 %"];
        assert_eq!(table.rows[0], expected);
    }
}
