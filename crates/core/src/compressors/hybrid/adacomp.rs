//! `adacomp`: adaptive residual gradient compression: sends the elements close to the largest of
//! their bin as ternary values.
//!
//! - **Selection** (Algorithm 2): the corrected tensor G = m + g, of residual m and gradient g, is
//!   cut into bins of L_T consecutive elements; the last may be shorter. An element is sent if
//!   |m + factor·g| is at least its bin's largest |G|. This soft threshold adapts the number of
//!   sent elements to the activity of the bin. L_T is `conv` for tensors of three or more
//!   dimensions and `fc` for others.
//! - **Value**: ±scale with the sign of G. There is one scale for the tensor: the mean of the bins'
//!   maxima.
//! - **Message** (`code=gaps`): a byte with the code of the positions, their number as varint and,
//!   unless that is 0, the scale as f32, one bit per sign, and the positions in the shorter code,
//!   Rice or bitmap. `code=records` is the paper's form: the scale, then one record per element, of
//!   8 bits if L_T is below 64 and of 16 if it is below 16 Ki. From the lowest bit, a record has
//!   the index in the bin, a mark of the bin's last record, and the sign. The paper does not say
//!   where a bin's records end; here one of its two bits for a ternary value marks the last record,
//!   and an empty bin has a record with all index bits set. An empty tensor has an empty message.
//! - **Range**: L_T at least 1, possibly above the tensor's size; factor from 1 to 10 (the paper:
//!   1.5 to 3); up to 2³² − 1 elements.
//! - **Error feedback**: on; the residual of a sent element is G ∓ scale. Without it, m is 0.
//! - **Deviations**: a bin whose maximum is 0 sends nothing, and an element with G = 0 is not sent:
//!   the inequality of Algorithm 2 holds for it, but its ternary value is 0.
//! - **Cost**: 8 bytes per element for the maximum, 12 to select and update; 8 more for bins above
//!   4096 elements.
//!
//! Reference: Chen, Choi, Brand, Agrawal, Zhang, Gopalakrishnan: "AdaComp: Adaptive Residual
//! Gradient Compression for Data-Parallel Distributed Training", AAAI 2018.

use std::ops::Bound::Included;
use std::sync::Arc;

use super::bins::{self, Bins, Pick};
use crate::parameters::{Parameters, real};
use crate::{Entry, Family, Guarantee, Properties};

pub(crate) static ENTRY: Entry = Entry {
    id: "adacomp",
    summary: "the elements close to the largest of their bin, as ternary values",
    formula: "x̂ = sign(G)·scale where |m + factor·g| ≥ max|G| of the bin, 0 elsewhere; G = m + g, scale = mean of the bins' max|G|",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &["fc=60", "fc=60,code=records", "factor=3,code=records"],
    reference: "Chen et al., AAAI 2018",
    payload: "code u8, count varint, scale f32, signs, positions",
    properties: |values| {
        let value_bits = bins::value_bits(Params::new(values).records);
        Properties { value_bits, ..Properties::DEFAULT }
    },
    ..Entry::new(
        Params::PARAMETERS,
        |_| Guarantee::Neither("one value for all bins may be far above a sent element"),
        |values| {
            let Params { conv, fc, factor, records } = Params::new(values);
            Arc::new(Bins { conv, fc, records, pick: Pick::Near(factor) })
        },
    )
};

crate::parameters! {
    /// The parameters of [`Bins`] with a soft threshold.
    struct Params {
        /// bin size in tensors of three or more dimensions, in elements
        conv: usize = bins::CONV,
        /// bin size in other tensors, in elements
        fc: usize = bins::FC,
        /// weight of the latest gradient in the comparison with the largest element of the bin
        factor: f32 = real(2.0, Included(1.0), Included(10.0)),
        /// positions in the shortest code, or in the paper's records of 8 or 16 bits
        records("code"): bool = bins::CODE,
    }
}

#[cfg(test)]
mod tests {
    use crate::DecodeError;
    use crate::compressors::testing::{Sender, encode, refused, residual, round_trip};

    /// Bins of three: maxima 3, 5 and 4, mean 4.
    const GRADIENT: [f32; 7] = [1.5, -3.0, 1.0, 0.0, 0.0, 5.0, -4.0];

    #[test]
    fn a_first_message_worked_by_hand() {
        // H = 2g: 3, −6, 2 against 3; 0, 0, 10 against 5; −8 against 4: elements 0, 1, 5, 6,
        // scale 4. Bitmap 0b110_0011, signs + − + −.
        let expected = [0, 4, 0, 0, 0x80, 0x40, 0b1010, 0b110_0011];
        assert_eq!(encode("adacomp:fc=3", &GRADIENT), expected);
        let decoded = [4.0, -4.0, 0.0, 0.0, 0.0, 4.0, -4.0];
        assert_eq!(round_trip("adacomp:fc=3", &GRADIENT), decoded);
        assert_eq!(residual("adacomp:fc=3", &GRADIENT), [-2.5, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
        // With a factor of 1, only the largest of each bin.
        assert_eq!(encode("adacomp:fc=3,factor=1", &GRADIENT)[1], 3);
    }

    #[test]
    fn records_worked_by_hand() {
        let expected = [
            0,
            0,
            0x80,
            0x40,        // 4
            0,           // bin 0: index 0, more follow, above zero
            0b1100_0001, // index 1, last, below zero
            0b0100_0010, // bin 1: index 2, last
            0b1100_0000, // bin 2: index 0, last, below zero
        ];
        assert_eq!(encode("adacomp:fc=3,code=records", &GRADIENT), expected);
        let decoded = round_trip("adacomp:fc=3,code=records", &GRADIENT);
        assert_eq!(decoded, round_trip("adacomp:fc=3", &GRADIENT));
        // Two bins of 64, the first of zeros: 16 bits each, scale (0 + 1) / 2.
        let mut gradient = [0.0; 70];
        gradient[65] = 1.0;
        let expected = [0, 0, 0, 0x3f, 0xff, 0x7f, 1, 0x40];
        assert_eq!(encode("adacomp:fc=64,code=records", &gradient), expected);
    }

    #[test]
    fn the_latest_gradient_counts_twice_and_the_residual_once() {
        let mut sender = Sender::new("adacomp:fc=4", &[4]);
        let mut step = |step, gradient: [f32; 4]| {
            sender.encode(step, &gradient);
            (sender.encoder.positions().to_vec(), sender.residual().to_vec())
        };
        assert_eq!(step(0, [8.0, 3.0, 3.5, 1.0]), (vec![0], vec![0.0, 3.0, 3.5, 1.0]));
        // G = 0, 4, 3.5, 3; H = 0, 5, 3.5, 5 against 4: elements 1 and 3, which grow, are sent.
        assert_eq!(step(1, [0.0, 1.0, 0.0, 2.0]), (vec![1, 3], vec![0.0, 0.0, 3.5, -1.0]));
    }

    #[test]
    fn convolutions_have_bins_of_their_own() {
        let sent = |shape: &[usize]| {
            let mut sender = Sender::new("adacomp:conv=2,fc=4", shape);
            sender.encode(0, &[1.0, 0.1, 9.0, 0.1]);
            sender.encoder.positions().to_vec()
        };
        assert_eq!(sent(&[2, 2]), [2]);
        assert_eq!(sent(&[2, 2, 1, 1]), [0, 2]);
    }

    #[test]
    fn a_bin_larger_than_a_block_is_one_bin() {
        let mut gradient = vec![0.5; 9000];
        (gradient[4999], gradient[5000]) = (8.0, 6.0);
        // Bins of 5000: 8 and 6, mean 7; the others' H is 1.
        let decoded = round_trip("adacomp:fc=5000", &gradient);
        let sent: Vec<usize> = (0..9000).filter(|&at| decoded[at] != 0.0).collect();
        assert_eq!((sent, decoded[4999]), (vec![4999, 5000], 7.0));
    }

    #[test]
    fn malformed_records_are_refused() {
        let refused = |records: &[u8]| {
            refused("adacomp:fc=3,code=records", 4, &[&[0, 0, 0x80, 0x3f], records].concat())
        };
        let order = DecodeError::Corrupt("the indices of a bin do not increase within it");
        assert_eq!(refused(&[1, 0b0100_0001, 0x7f]), order);
        assert_eq!(refused(&[0b0100_0011, 0x7f]), order);
        assert_eq!(refused(&[0x7f, 0b0100_0001]), order);
        assert_eq!(refused(&[0, 0x7f]), order);
        assert_eq!(refused(&[0x7f]), DecodeError::Truncated);
        assert_eq!(refused(&[0x7f, 0x7f, 0]), DecodeError::Trailing { extra: 1 });
    }
}
