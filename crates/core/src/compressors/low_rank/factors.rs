//! What methods with two thin factors share: `C ≈ P·Qᵀ`, `P` all-reduced in a first round, `Q` in a second.
//!
//! The transcript of a tensor that is factored is the mean of `P`, rows × rank, and that of `Q`, columns ×
//! rank, both column by column. Of another tensor it is the mean of the tensor, in one round.

use gradwire_bits::{DecodeError, kernels};

use crate::Context;
use crate::numeric::matrix::{abs_max, dimensions, tiles_of_product};
use crate::rounds::{RoundContext, zero_beyond};

/// How a tensor travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Factors {
    pub(super) dimensions: [usize; 2],
    pub(super) rank: usize,
}

impl Factors {
    /// The factors of a tensor; `None` where it is sent uncompressed.
    pub(super) fn of(shape: &[usize], rank: usize) -> Option<Self> {
        let [rows, columns] = dimensions(shape)?;
        let smaller = (rows + columns).checked_mul(rank)? < rows.checked_mul(columns)?;
        smaller.then_some(Self { dimensions: [rows, columns], rank })
    }

    /// Numbers in the first factor.
    pub(super) fn first(&self) -> usize {
        self.dimensions[0] * self.rank
    }

    /// Numbers in the second.
    pub(super) fn second(&self) -> usize {
        self.dimensions[1] * self.rank
    }

    /// Both factors of a transcript.
    pub(super) fn split<'a>(&self, means: &'a [f32]) -> (&'a [f32], &'a [f32]) {
        means.split_at(self.first())
    }

    /// Refuses factors whose product could overflow; encoders send zeros instead.
    pub(super) fn check(&self, p: &[f32], q: &[f32]) -> Result<(), DecodeError> {
        let fits = abs_max(q) <= self.largest_second(p);
        fits.then_some(()).ok_or(DecodeError::Corrupt("the product of the factors overflows"))
    }

    /// The largest absolute value in a second factor for which no sum of its products with `p` overflows.
    fn largest_second(&self, p: &[f32]) -> f32 {
        f32::MAX / 2.0 / self.rank as f32 / abs_max(p).max(1.0)
    }

    /// Makes a second factor that would overflow zero: nothing is sent then, and all is kept.
    pub(super) fn keep_in_range(&self, p: &[f32], q: &mut [f32]) {
        zero_beyond(self.largest_second(p), q);
    }

    /// Subtracts the product from the gradient.
    pub(super) fn subtract(&self, p: &[f32], q: &[f32], from: &mut [f32]) {
        tiles_of_product(p, q, self.dimensions, |at, tile| {
            kernels::add_scaled(&mut from[at..at + tile.len()], tile, -1.0);
        });
    }

    /// Adds `weight` times the product.
    pub(super) fn add(&self, p: &[f32], q: &[f32], weight: f32, out: &mut [f32]) {
        tiles_of_product(p, q, self.dimensions, |at, tile| {
            kernels::add_scaled(&mut out[at..at + tile.len()], tile, weight);
        });
    }
}

/// Fills columns of zeros, as all are at first, with draws from [−1, 1) that are the same on every rank: a column of
/// zeros would stay zero.
pub(super) fn revive(columns: &mut [f32], rows: usize, context: &Context<'_>) {
    let rng = context.shared_rng(0);
    for (at, column) in columns.chunks_exact_mut(rows).enumerate() {
        if column.iter().all(|&x| x == 0.0) {
            let mut words = vec![0; rows];
            rng.fill_from(at * rows, &mut words);
            for (x, &word) in column.iter_mut().zip(&words) {
                *x = (word as i32 >> 8) as f32 / (1 << 23) as f32;
            }
        }
    }
}

/// Numbers in each rank's addend of a round.
pub(super) fn addend_len(context: &RoundContext<'_>, rank: usize, round: usize) -> Option<usize> {
    match (Factors::of(context.context.shape, rank), round) {
        (Some(factors), 0) => Some(factors.first()),
        (Some(factors), 1) => Some(factors.second()),
        (None, 0) => Some(context.context.shape.iter().product()),
        _ => None,
    }
}

/// The most elements of a matrix whose two factors with `rank` columns take `message_len` bytes: those of a square one.
pub(super) fn max_elements(rank: usize, message_len: usize) -> usize {
    let side = message_len / 4 / rank / 2 + 1;
    side.saturating_mul(side).max(message_len / 4)
}
