//! The arithmetic of an all-reduce: terms are combined in the order of ranks, in `f32`.

use gradwire::ReduceOp;

use super::segment::Segment;
use crate::elements;

/// Working memory of the mean.
#[derive(Default)]
pub(super) struct Arithmetic {
    sum: Vec<f32>,
    term: Vec<f32>,
    bits: Vec<u16>,
}

impl Arithmetic {
    /// Combines the terms of a segment, in their order; without `weights`, all have equal weights.
    pub(super) fn combine<'a>(
        &mut self,
        segment: Segment,
        terms: impl ExactSizeIterator<Item = &'a [u8]>,
        weights: &[f32],
        out: &mut [u8],
    ) {
        let Segment { dtype, op, .. } = segment;
        let count = terms.len() as f32;
        for (at, term) in terms.enumerate() {
            let into = if at == 0 { &mut self.sum } else { &mut self.term };
            elements::widen(term, dtype, &mut self.bits, into);
            if let (ReduceOp::Mean, Some(weight)) = (op, weights.get(at)) {
                into.iter_mut().for_each(|term| *term *= weight);
            }
            if at > 0 {
                let pairs = self.sum.iter_mut().zip(&self.term);
                match op {
                    ReduceOp::Max => pairs.for_each(|(sum, term)| *sum = sum.max(*term)),
                    _ => pairs.for_each(|(sum, term)| *sum += term),
                }
            }
        }
        if op == ReduceOp::Mean && weights.is_empty() {
            self.sum.iter_mut().for_each(|sum| *sum /= count);
        }
        elements::narrow(&self.sum, dtype, &mut self.bits, out);
    }
}

#[cfg(test)]
mod tests {
    use gradwire::Dtype;

    use super::*;

    #[test]
    fn sixteen_bit_means_do_not_overflow_and_round_once() {
        let bytes = |bits: &[u16]| bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>();
        // 65504 twice; 1 and 1 + 2^-10, whose mean ties to the even 1.
        let terms = [bytes(&[0x7bff, 0x3c00]), bytes(&[0x7bff, 0x3c01])];
        let mut out = [0; 4];
        let (dtype, op) = (Dtype::F16, ReduceOp::Mean);
        let segment = Segment { tensor: 0, start: 0, end: 4, dtype, op };
        Arithmetic::default().combine(segment, terms.iter().map(Vec::as_slice), &[], &mut out);
        assert_eq!(out, *bytes(&[0x7bff, 0x3c00]));
    }
}
