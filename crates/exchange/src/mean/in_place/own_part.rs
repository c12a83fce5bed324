//! The part of the values that this rank averages.

use bytemuck::{cast_slice, cast_slice_mut};
use gradwire::Dtype;
use gradwire_bits::kernels;

use crate::{Arrival, elements};

/// Sums, for reuse.
#[derive(Default)]
pub(super) struct Sum {
    /// With `f32` the sums over the ranks before this one, if there are several; with 16 bits the
    /// sums over the ranks so far.
    sums: Vec<f32>,
    bits: Vec<u16>,
}

/// The part of the values that this rank averages. It holds this rank's values, and afterwards the
/// means.
///
/// Numbers are added in `f32`, in the order of ranks. A mean is rounded once, and −0 becomes 0.
pub(super) struct OwnPart<'a> {
    rank: usize,
    ranks: usize,
    dtype: Dtype,
    /// What sums are divided by.
    divisor: u32,
    values: &'a mut [u8],
    sum: &'a mut Sum,
}

impl<'a> OwnPart<'a> {
    /// The part of `rank` with its values, little-endian elements.
    pub(super) fn new(
        rank: usize,
        ranks: usize,
        dtype: Dtype,
        values: &'a mut [u8],
        sum: &'a mut Sum,
    ) -> Self {
        sum.sums.clear();
        if ranks == 1 {
            without_negative_zeros(values, dtype);
        }
        Self { rank, ranks, dtype, divisor: ranks as u32, values, sum }
    }

    /// The same part with another divisor than the number of ranks.
    pub(super) fn divided_by(mut self, divisor: u32) -> Self {
        self.divisor = divisor;
        self
    }

    /// Adds another rank's version of some values. Ranks follow each other in order.
    pub(super) fn add(&mut self, term: Arrival<'_>) {
        match self.dtype {
            Dtype::F32 => self.add_single(term),
            _ => self.add_half(term),
        }
    }

    fn is_last(&self, from: usize) -> bool {
        let last = self.ranks - 1;
        from == if self.rank == last { last - 1 } else { last }
    }

    /// From this rank's turn on, the sums are in place of the values.
    fn add_single(&mut self, Arrival { from, at, bytes }: Arrival<'_>) {
        let is_last = self.is_last(from);
        let Self { rank, divisor, values, sum: Sum { sums: before, .. }, .. } = self;
        let place = at / 4..(at + bytes.len()) / 4;
        let mut term = bytes;
        if from < *rank && *rank > 1 {
            before.resize(before.len().max(place.end), 0.0);
            kernels::f32_add(bytes, 1.0, &mut before[place.clone()]);
            if from + 1 < *rank {
                return;
            }
            term = cast_slice(&before[place]);
        }
        // The sum of two numbers does not depend on their order.
        let out = cast_slice_mut(&mut values[at..at + bytes.len()]);
        match is_last {
            true => kernels::f32_mean(term, *divisor, out),
            false => kernels::f32_add(term, 1.0, out),
        }
    }

    fn add_half(&mut self, Arrival { from, at, bytes }: Arrival<'_>) {
        let is_last = self.is_last(from);
        let Self { rank, ranks, dtype, divisor, values, sum: Sum { sums, bits } } = self;
        let add = match dtype {
            Dtype::F16 => kernels::f16_add,
            _ => kernels::bf16_add,
        };
        let values = &mut values[at..at + bytes.len()];
        // A piece of the only other rank needs sums for itself alone.
        let start = if *ranks == 2 { 0 } else { at / 2 };
        let place = start..start + bytes.len() / 2;
        if *ranks == 2 {
            sums.clear();
        }
        sums.resize(sums.len().max(place.end), 0.0);
        let sums = &mut sums[place];
        if *rank == 0 && from == 1 {
            add(values, 1.0, sums);
        }
        add(bytes, 1.0, sums);
        if *rank == from + 1 {
            add(values, 1.0, sums);
        }
        if is_last {
            sums.iter_mut().for_each(|sum| *sum /= *divisor as f32);
            elements::narrow(sums, *dtype, bits, values);
            without_negative_zeros(values, *dtype);
        }
    }
}

/// Writes the means of another part to their place.
pub(super) fn read(means: &[u8], dtype: Dtype, out: &mut [u8]) {
    if dtype == Dtype::F32 {
        return kernels::f32_read(means, cast_slice_mut(out));
    }
    out.copy_from_slice(means);
    without_negative_zeros(out, dtype);
}

/// Replaces −0 by 0.
fn without_negative_zeros(values: &mut [u8], dtype: Dtype) {
    if dtype == Dtype::F32 {
        let values: &mut [f32] = cast_slice_mut(values);
        return values.iter_mut().for_each(|value| *value += 0.0);
    }
    for half in values.as_chunks_mut::<2>().0 {
        if u16::from_le_bytes(*half) == 0x8000 {
            *half = [0, 0];
        }
    }
}
