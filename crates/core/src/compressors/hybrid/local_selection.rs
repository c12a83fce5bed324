//! `local-selection`: the largest element of each bin; AdaComp without its soft threshold.
//!
//! Like `adacomp`, but each bin sends only the element with the largest |G|, the first of equal
//! ones. The number of sent elements does not adapt to their activity, so residuals of large bins
//! may grow without bound. AdaComp's section "Robustness" compares with it.
//!
//! Message, range and cost are as for `adacomp`.
//!
//! Reference: Chen et al.: "AdaComp", AAAI 2018, figures 4 to 6.

use std::sync::Arc;

use super::bins::{self, Bins, Pick};
use crate::parameters::Parameters;
use crate::{Entry, Family, Guarantee, Properties};

pub(crate) static ENTRY: Entry = Entry {
    id: "local-selection",
    summary: "the largest element of each bin, as a ternary value",
    formula: "x̂ = sign(G)·scale at the largest |G| of each bin, 0 elsewhere; scale = mean of the bins' max|G|",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &["fc=60"],
    reference: "Chen et al., AAAI 2018 (comparator)",
    payload: "code u8, count varint, scale f32, signs, positions",
    properties: |values| {
        let value_bits = bins::value_bits(Params::new(values).records);
        Properties { value_bits, ..Properties::DEFAULT }
    },
    ..Entry::new(
        Params::PARAMETERS,
        |_| Guarantee::Neither("one value for all bins may be far above a sent element"),
        |values| {
            let Params { conv, fc, records } = Params::new(values);
            Arc::new(Bins { conv, fc, records, pick: Pick::Largest })
        },
    )
};

crate::parameters! {
    /// The parameters of [`Bins`] without a threshold.
    struct Params {
        /// bin size in tensors of three or more dimensions, in elements
        conv: usize = bins::CONV,
        /// bin size in other tensors, in elements
        fc: usize = bins::FC,
        /// positions in the shortest code, or in the paper's records of 8 or 16 bits
        records("code"): bool = bins::CODE,
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{Sender, encode, residual, round_trip};

    #[test]
    fn one_of_each_bin_worked_by_hand() {
        // Bins of three with maxima 3 (the first of two), 0 and 4: mean 7/3 = 0x40155555.
        let gradient = [3.0, -3.0, 1.0, 0.0, 0.0, 0.0, -4.0];
        let expected = [0, 2, 0x55, 0x55, 0x15, 0x40, 0b10, 0b100_0001];
        assert_eq!(encode("local-selection:fc=3", &gradient), expected);
        let level = f32::from_bits(0x4015_5555);
        let left = [3.0 - level, -3.0, 1.0, 0.0, 0.0, 0.0, -4.0 + level];
        assert_eq!(residual("local-selection:fc=3", &gradient), left);
    }

    #[test]
    fn one_of_a_bin_that_spans_blocks() {
        let gradient = vec![1.0; 10_000];
        let sent = residual("local-selection:fc=9000", &gradient);
        let at: Vec<usize> = (0..10_000).filter(|&at| sent[at] == 0.0).collect();
        assert_eq!(at, [0, 9000]);
    }

    #[test]
    fn records_worked_by_hand() {
        // Maxima 3, 0 and 3: mean 2. Element 1 of its bin, the last and below zero; nothing;
        // element 0, the last.
        let (spec, gradient) = ("local-selection:fc=2,code=records", [1.0, -3.0, 0.0, 0.0, 3.0]);
        let expected = [0, 0, 0, 0x40, 0b1100_0001, 0b0111_1111, 0b0100_0000];
        assert_eq!(encode(spec, &gradient), expected);
        assert_eq!(round_trip(spec, &gradient), [0.0, -2.0, 0.0, 0.0, 2.0]);
        assert_eq!(residual(spec, &gradient), [1.0, -1.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn what_is_left_counts_in_the_next_bins() {
        // A tensor of three dimensions: bins of two.
        let mut sender = Sender::new("local-selection:conv=2,fc=5", &[1, 1, 5]);
        for (gradient, message, left) in [
            // Mean 2, −3 and 3 are sent.
            (
                [1.0, -3.0, 0.0, 0.0, 3.0],
                [0, 2, 0, 0, 0, 0x40, 0b01, 0b1_0010],
                [1.0, -1.0, 0.0, 0.0, 1.0],
            ),
            // G = (3, −2, 6, 0, 0): maxima 3, 6 and 0, mean 3.
            (
                [2.0, -1.0, 6.0, 0.0, -1.0],
                [0, 2, 0, 0, 0x40, 0x40, 0b00, 0b0_0101],
                [0.0, -2.0, 3.0, 0.0, 0.0],
            ),
        ] {
            assert_eq!(sender.encode(0, &gradient), message);
            assert_eq!(sender.residual(), left);
        }
    }
}
