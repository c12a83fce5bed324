//! Statistics of a whole tensor that a compressor needs before it writes the first element.

use std::ops::AddAssign;

use gradwire_bits::kernels::{self, Side, SignSums};

use crate::numeric::moments::Moments;

/// The statistics of a whole tensor that a compressor needs before it writes the first element of
/// its message.
///
/// The pass that checks the elements gathers the statistics, so they need no separate pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistics {
    /// Nothing. Without a residual or a velocity there is no pass before the encoding: elements are
    /// checked as the compressor [peeks at](crate::Source::peek) or [takes](crate::Source::take)
    /// them, and it must do so with every element. It must not ask for the
    /// [largest](crate::Source::abs_max). It may receive NaN and infinity, and must not panic; the
    /// encoder then discards the message. It must leave the arrays that it keeps, other than the
    /// residual, unchanged.
    None,
    /// Nothing. The compressor's own first pass, which peeks at every element before it takes any,
    /// checks them. After this pass it calls [`ends_check`](crate::Source::ends_check), and returns
    /// if the result is false; the encoder then discards the message. NaN and infinity must not
    /// make it panic.
    Peeked,
    /// The [largest absolute value](crate::Source::abs_max); all of the following include it.
    Largest,
    /// The [sums by sign](crate::Source::sums_by_sign).
    Signs,
    /// The [mean and standard deviation](crate::Source::moments).
    Moments,
    /// The [least and the greatest element](crate::Source::extremes).
    Extremes,
    /// The k-th largest absolute value, for this k, at least 1: for a
    /// [selection](crate::tools::Selection::Largest) of k elements.
    KthLargest(usize),
    /// The k largest and the k smallest elements, for this k, at least 1.
    Tails(usize),
}

/// The threshold that separates the k largest absolute values from the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold {
    /// The k-th largest absolute value. All elements above it are among the k largest.
    pub value: f32,
    /// The number of elements with exactly this absolute value.
    pub equal: usize,
    /// The number of these elements among the k largest.
    pub ties: usize,
}

/// The end of a tensor's distribution on one side of zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail {
    /// Above or below zero.
    pub side: Side,
    /// The absolute value that separates the tail from the rest, and the number of elements with
    /// exactly this value that belong to it.
    pub threshold: Threshold,
    /// The number of elements: k, or all of the sign if there are fewer.
    pub count: usize,
    /// The mean of their absolute values, summed in order; 0 for an empty tail.
    pub mean: f32,
}

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Found {
    Threshold(Threshold),
    Tails([Tail; 2]),
}

/// Statistics of the elements seen so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gathered {
    pub(crate) kind: Statistics,
    /// The bits of the largest absolute value; with [`Statistics::None`] of the gradient's largest,
    /// which suffices to check the velocity. At least the bits of infinity if an element is not
    /// finite.
    pub(crate) largest: u32,
    pub(crate) signs: SignSums,
    pub(crate) moments: Moments,
    pub(crate) extremes: (f32, f32),
    /// With [`Statistics::KthLargest`] or [`Statistics::Tails`].
    pub(crate) found: Option<Found>,
}

impl Gathered {
    pub(crate) fn new(kind: Statistics) -> Self {
        Self {
            kind,
            largest: 0,
            signs: SignSums::default(),
            moments: Moments::default(),
            extremes: (f32::INFINITY, f32::NEG_INFINITY),
            found: None,
        }
    }

    /// Adds a block. It is in the first-level cache, so a kernel per statistic costs no second
    /// pass.
    pub(crate) fn add(&mut self, block: &[f32]) {
        self.largest = self.largest.max(kernels::abs_max_bits(block));
        match self.kind {
            // Searched statistics have their own pass.
            Statistics::None
            | Statistics::Peeked
            | Statistics::Largest
            | Statistics::KthLargest(_)
            | Statistics::Tails(_) => {}
            Statistics::Signs => self.signs += kernels::sums_by_sign(block),
            Statistics::Moments => self.moments.add(block),
            Statistics::Extremes => {
                let (least, greatest) = kernels::extremes(block);
                self.extremes = (self.extremes.0.min(least), self.extremes.1.max(greatest));
            }
        }
    }
}

impl AddAssign for Gathered {
    /// Adds the statistics of the next elements.
    fn add_assign(&mut self, next: Self) {
        self.largest = self.largest.max(next.largest);
        self.signs += next.signs;
        self.moments += next.moments;
        let (least, greatest) = next.extremes;
        self.extremes = (self.extremes.0.min(least), self.extremes.1.max(greatest));
    }
}
