//! The traffic estimate by equation 1 of the SBC paper, beside the bytes that the transport counted.

use gradwire_train::RunRecord;

use crate::format::{bytes, significant};
use crate::summary::by_compressor;
use crate::table::Grid;

/// The factors of equation 1 for each compressor's first seed, their product, and the bytes counted.
/// Compressors whose elements take different numbers of bits are left out.
pub fn table(runs: &[RunRecord]) -> Grid {
    let mut grid = Grid::new([
        "compressor",
        "iterations",
        "frequency",
        "non-zeros",
        "position bits",
        "value bits",
        "receivers",
        "product",
        "counted",
        "framing",
    ]);
    for group in by_compressor(runs) {
        let run = group[0];
        let Some(factors) = run.traffic_estimate() else { continue };
        let product = factors.bytes();
        grid.push(vec![
            run.compressor.clone(),
            factors.iterations.to_string(),
            significant(factors.frequency),
            format!("{:.0}", factors.nonzeros),
            significant(factors.position_bits),
            significant(factors.value_bits),
            significant(factors.receivers),
            bytes(product),
            bytes(run.bytes_up),
            format!("{:+.1} %", (run.bytes_up / product - 1.0) * 100.0),
        ]);
    }
    grid
}

/// The table's caption.
pub const NOTE: &str = "Equation 1: iterations × frequency × non-zeros an exchange × (position bits + \
     value bits) × receivers. Position bits are those equation 5 gives for the density each message \
     had. The product leaves out what is sent once a tensor (means, lengths) and once a message \
     (headers); framing is how much more was counted, or less, where positions are coded shorter \
     than independent ones can be.";

#[cfg(test)]
mod tests {
    use gradwire_train::Sent;

    use super::*;
    use crate::synthetic;

    #[test]
    fn the_product_stands_beside_what_was_counted() {
        // Ten exchanges of 20 positions of 5 bits with 32 bits each: 92.5 bytes; 100 were counted.
        let mut run = synthetic::run("topk", 1);
        run.sent = Sent { sparse: 200.0, position_bits: 1000.0, ..Sent::default() };
        let grid = table(&[run, synthetic::run("none", 1)]);
        assert_eq!(grid.rows.len(), 1, "none has counted nothing");
        let expected =
            ["topk", "10", "1.00", "20", "5.00", "32.0", "1.00", "925 B", "1.00 kB", "+8.1 %"];
        assert_eq!(grid.rows[0], expected);
    }
}
