//! The input of a compressor: the gradient corrected by the residual, block by block.
//!
//! Error feedback needs `c = β·m + γ·g`, its statistics, and afterwards `m ← c − decoded`. Writing
//! `c` out first would cost a pass over memory, so the sum exists only a block at a time, in the
//! first-level cache: [`Source::peek`] shows a block and discards it; [`Source::take`] writes it over the residual,
//! where the compressor leaves what its message does not carry. A two-pass compressor thus moves 8 + 12 bytes per
//! element, and its message.

use gradwire_bits::kernels::{self, SignSums};

use crate::Floats;
use crate::numeric::moments::Moments;
use crate::statistics::{Gathered, Statistics};

/// The most elements a block holds: with its scratch copy it fills two thirds of a 48 KiB L1 cache.
pub const BLOCK: usize = 4096;

/// Elements of working memory of a [`Source`]: a block of the sum, and one of the gradient.
pub const SCRATCH: usize = 2 * BLOCK;

/// A NaN or an infinity found where a finite number is required.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFinite {
    /// Flat index of the first such element.
    pub index: usize,
    /// Its value: that of the gradient, or that of the sum with the residual if only the sum overflows.
    pub value: f32,
}

/// The weights of a plain residual m: keep `m ← c − decoded(message)`, and compress `c = β·m + γ·g` instead of the gradient `g`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Weight β of the residual, in \[0, 1\].
    pub beta: f32,
    /// Weight γ of the gradient, positive.
    pub gamma: f32,
}

impl Residual {
    /// The usual residual, β = γ = 1.
    pub const PLAIN: Self = Self { beta: 1.0, gamma: 1.0 };
}

/// A finite tensor to be compressed, corrected by the residual of earlier messages.
pub struct Source<'a> {
    gradient: Floats<'a>,
    feedback: Option<(Residual, &'a mut [f32])>,
    kept: &'a mut [f32],
    scratch: &'a mut [f32],
    /// Of all elements, or of those shown so far if they are checked as they are shown.
    gathered: Gathered,
    plain: bool,
    /// Whether all elements have been checked.
    checked: bool,
}

impl<'a> Source<'a> {
    /// Combines a gradient with its residual and their weights (`None`: no error feedback). One pass, which writes
    /// nothing, finds the largest absolute value and refuses NaN and infinity.
    ///
    /// `scratch` holds at least [`SCRATCH`] elements.
    ///
    /// # Panics
    /// If the residual's length is not the gradient's, or the scratch is too short.
    pub fn new(
        gradient: Floats<'a>,
        feedback: Option<(Residual, &'a mut [f32])>,
        scratch: &'a mut [f32],
    ) -> Result<Self, NonFinite> {
        Self::with_statistics(gradient, feedback, scratch, Statistics::Largest)
    }

    /// As [`new`](Self::new); the pass also gathers statistics.
    pub(crate) fn with_statistics(
        gradient: Floats<'a>,
        feedback: Option<(Residual, &'a mut [f32])>,
        scratch: &'a mut [f32],
        statistics: Statistics,
    ) -> Result<Self, NonFinite> {
        assert!(scratch.len() >= SCRATCH);
        if let Some((_, residual)) = &feedback {
            assert_eq!(residual.len(), gradient.len());
        }
        let mut source = Self {
            gradient,
            feedback,
            kept: &mut [],
            scratch,
            gathered: Gathered::new(Statistics::None),
            plain: false,
            checked: true,
        };
        source.gathered = source.gather(statistics);
        source.finish()?;
        Ok(source)
    }

    /// A gradient without residual, whose elements are checked as they are peeked at or taken: for a compressor
    /// that asks for [no statistics](Statistics::None). Call [`finish`](Self::finish) afterwards.
    ///
    /// # Panics
    /// If the scratch is shorter than [`SCRATCH`].
    pub(crate) fn unchecked(gradient: Floats<'a>, scratch: &'a mut [f32]) -> Self {
        assert!(scratch.len() >= SCRATCH);
        let (feedback, kept) = (None, &mut [][..]);
        let gathered = Gathered::new(Statistics::None);
        Self { gradient, feedback, kept, scratch, gathered, plain: false, checked: false }
    }

    /// Checks the elements that were shown.
    pub(crate) fn finish(&mut self) -> Result<(), NonFinite> {
        let finite = f32::from_bits(self.gathered.largest).is_finite();
        if finite { Ok(()) } else { Err(self.first_non_finite()) }
    }

    /// The same source with the values that the method keeps for the tensor in addition to the residual.
    pub fn with_kept(self, kept: &'a mut [f32]) -> Self {
        Self { kept, ..self }
    }

    /// The same source; `plain` says that its values are not gradients
    /// ([plain memory](crate::Encoder::with_plain_memory)).
    pub fn with_plain_memory(self, plain: bool) -> Self {
        Self { plain, ..self }
    }

    /// Whether everything that a message leaves out must be kept, including what the method drops from gradients.
    pub fn has_plain_memory(&self) -> bool {
        self.plain
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.gradient.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest absolute value of the corrected tensor; 0 for an empty one.
    ///
    /// # Panics
    /// Without a residual, if the compressor asks for [no statistics](Statistics::None).
    pub fn abs_max(&self) -> f32 {
        assert!(self.checked, "without statistics the largest value is not known");
        f32::from_bits(self.gathered.largest)
    }

    /// The sum and number of the elements below zero, and the sum of the others. Takes a pass, unless the compressor asks
    /// for [`Statistics::Signs`].
    pub fn sums_by_sign(&mut self) -> SignSums {
        self.gathered(Statistics::Signs).signs
    }

    /// The mean and the standard deviation. Takes a pass, unless the compressor asks for [`Statistics::Moments`].
    pub fn moments(&mut self) -> Moments {
        self.gathered(Statistics::Moments).moments
    }

    /// The least and the greatest element; infinity and its negative of an empty tensor. Takes a pass, unless the compressor
    /// asks for [`Statistics::Extremes`].
    pub fn extremes(&mut self) -> (f32, f32) {
        self.gathered(Statistics::Extremes).extremes
    }

    /// What was gathered if it has these statistics; otherwise takes a pass.
    fn gathered(&mut self, statistics: Statistics) -> Gathered {
        if self.gathered.kind == statistics { self.gathered } else { self.gather(statistics) }
    }

    fn gather(&mut self, statistics: Statistics) -> Gathered {
        let mut gathered = Gathered::new(statistics);
        self.peek_blocks(|_, block| gathered.add(block));
        gathered
    }

    /// Shows the corrected elements `start .. start + len` (at most [`BLOCK`]) and changes nothing.
    pub fn peek<R>(&mut self, start: usize, len: usize, look: impl FnOnce(&[f32]) -> R) -> R {
        let scratch = &mut self.scratch[..len];
        match &self.feedback {
            None => {
                let block = self.gradient.block(start, scratch);
                if !self.checked {
                    self.gathered.add(block);
                }
                look(block)
            }
            Some((Residual { beta, gamma }, residual)) => {
                let memory = &residual[start..start + len];
                if let Floats::F32(gradient) = self.gradient {
                    let gradient = &gradient[start..start + len];
                    kernels::accumulate_to(scratch, memory, gradient, *beta, *gamma);
                } else {
                    self.gradient.block(start, scratch);
                    kernels::accumulate(scratch, memory, *gamma, *beta);
                }
                look(scratch)
            }
        }
    }

    /// Passes the corrected elements `start .. start + len` (at most [`BLOCK`]) to the closure; what it leaves in the
    /// slice becomes the residual. Take every element exactly once, in any order, and do not peek at it afterwards.
    pub fn take<R>(&mut self, start: usize, len: usize, take: impl FnOnce(&mut [f32]) -> R) -> R {
        let scratch = &mut self.scratch[..len];
        match &mut self.feedback {
            None => {
                if let Floats::F32(gradient) = self.gradient {
                    scratch.copy_from_slice(&gradient[start..start + len]);
                } else {
                    self.gradient.block(start, scratch);
                }
                if !self.checked {
                    self.gathered.add(scratch);
                }
                take(scratch)
            }
            Some((Residual { beta, gamma }, residual)) => {
                let memory = &mut residual[start..start + len];
                let gradient = self.gradient.block(start, scratch);
                kernels::accumulate(memory, gradient, *beta, *gamma);
                take(memory)
            }
        }
    }

    /// [`take`](Self::take) for methods that distinguish the latest gradient from the sum: the closure gets both; the
    /// gradient is without its weight γ.
    pub fn take_with_gradient<R>(
        &mut self,
        start: usize,
        len: usize,
        take: impl FnOnce(&mut [f32], &[f32]) -> R,
    ) -> R {
        let (own, sum) = self.scratch.split_at_mut(BLOCK);
        let gradient = self.gradient.block(start, &mut own[..len]);
        match &mut self.feedback {
            None => {
                if !self.checked {
                    self.gathered.add(gradient);
                }
                let sum = &mut sum[..len];
                sum.copy_from_slice(gradient);
                take(sum, gradient)
            }
            Some((Residual { beta, gamma }, residual)) => {
                let memory = &mut residual[start..start + len];
                kernels::accumulate(memory, gradient, *beta, *gamma);
                take(memory, gradient)
            }
        }
    }

    /// [`take`](Self::take) of the whole tensor at once, for methods that read it several times; also returns the
    /// values that the method keeps. `spare` stores the tensor if there is no residual.
    pub fn take_all<'b>(&'b mut self, spare: &'b mut Vec<f32>) -> (&'b mut [f32], &'b mut [f32]) {
        if self.feedback.is_none() {
            spare.resize(self.len(), 0.0);
            self.take_blocks(|start, block| {
                spare[start..start + block.len()].copy_from_slice(block);
            });
            return (spare, self.kept);
        }
        self.take_blocks(|_, _| {});
        let residual = self.feedback.as_mut().map_or(&mut [][..], |(_, residual)| residual);
        (residual, self.kept)
    }

    /// [`take`](Self::take) over the whole tensor in order, for a method that keeps one number an element; the closure
    /// gets the block's numbers, too.
    pub fn take_blocks_with_kept(&mut self, mut take: impl FnMut(usize, &mut [f32], &mut [f32])) {
        let kept = std::mem::take(&mut self.kept);
        self.take_blocks(|start, block| take(start, block, &mut kept[start..start + block.len()]));
        self.kept = kept;
    }

    /// [`peek`](Self::peek) over the whole tensor in order, for a method that keeps one number an element.
    pub fn peek_blocks_with_kept(&mut self, mut look: impl FnMut(&[f32], &[f32])) {
        let kept = std::mem::take(&mut self.kept);
        self.peek_blocks(|start, block| look(block, &kept[start..start + block.len()]));
        self.kept = kept;
    }

    /// Adds `squares`, or without them those of the latest gradient, to what the method keeps, which is one number an
    /// element.
    pub(crate) fn add_squares(&mut self, squares: Option<&[f32]>) {
        if let Some(squares) = squares {
            return add_saturating(squares.iter().copied(), self.kept);
        }
        for start in (0..self.len()).step_by(BLOCK) {
            let len = BLOCK.min(self.len() - start);
            let gradient = self.gradient.block(start, &mut self.scratch[..len]);
            add_saturating(gradient.iter().map(|g| g * g), &mut self.kept[start..start + len]);
        }
    }

    /// The residual, to correct what `take` left of elements; `None` without error feedback.
    pub fn left(&mut self) -> Option<&mut [f32]> {
        self.feedback.as_mut().map(|(_, residual)| &mut **residual)
    }

    /// The weight γ of the latest gradient in the sum; 1 without error feedback.
    pub fn gradient_weight(&self) -> f32 {
        self.feedback.as_ref().map_or(1.0, |(weights, _)| weights.gamma)
    }

    /// [`peek`](Self::peek) over the whole tensor in order; the closure gets each block's offset.
    pub fn peek_blocks(&mut self, mut look: impl FnMut(usize, &[f32])) {
        for start in (0..self.len()).step_by(BLOCK) {
            let len = BLOCK.min(self.len() - start);
            self.peek(start, len, |block| look(start, block));
        }
    }

    /// [`peek`](Self::peek) over the whole tensor in order, without error feedback. The closure returns the bits of its
    /// block's largest absolute value, so that a copy needs no pass of its own to check the elements.
    pub(crate) fn convert_blocks(&mut self, mut convert: impl FnMut(&[f32]) -> u32) {
        debug_assert!(self.feedback.is_none(), "blocks of the gradient lack the residual");
        for start in (0..self.len()).step_by(BLOCK) {
            let len = BLOCK.min(self.len() - start);
            let block = self.gradient.block(start, &mut self.scratch[..len]);
            self.gathered.largest = self.gathered.largest.max(convert(block));
        }
    }

    /// [`take`](Self::take) over the whole tensor in order; the closure gets each block's offset.
    pub fn take_blocks(&mut self, mut take: impl FnMut(usize, &mut [f32])) {
        for start in (0..self.len()).step_by(BLOCK) {
            let len = BLOCK.min(self.len() - start);
            self.take(start, len, |block| take(start, block));
        }
    }

    /// Whether what a message leaves out is kept. If not, encoders can skip computing it.
    pub fn keeps_residual(&self) -> bool {
        self.feedback.is_some()
    }

    fn first_non_finite(&mut self) -> NonFinite {
        let mut first = None;
        self.peek_blocks(|offset, block| {
            if first.is_none() {
                first = block.iter().position(|x| !x.is_finite()).map(|i| (offset + i, block[i]));
            }
        });
        let (index, sum) = first.expect("the scan found a non-finite element");
        let mut own = [0.0];
        let own = self.gradient.block(index, &mut own)[0];
        NonFinite { index, value: if own.is_finite() { sum } else { own } }
    }
}

/// Adds squares to sums, which saturate at the largest finite number.
pub(crate) fn add_saturating(squares: impl Iterator<Item = f32>, sums: &mut [f32]) {
    for (sum, square) in sums.iter_mut().zip(squares) {
        *sum = (*sum + square).min(f32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTED: Residual = Residual { beta: 0.5, gamma: 2.0 };

    const GRADIENT: [f32; 3] = [1.0, -2.0, 3.0];

    /// The residual after a use of a source whose elements β·m + γ·g are 2 + 2, 4 - 4 and -6 + 6.
    fn residual_after(using: impl FnOnce(&mut Source<'_>)) -> [f32; 3] {
        let (mut residual, mut scratch) = ([4.0, 8.0, -12.0], [0.0; SCRATCH]);
        let feedback = Some((WEIGHTED, &mut residual[..]));
        using(&mut Source::new(Floats::F32(&GRADIENT), feedback, &mut scratch).unwrap());
        residual
    }

    #[test]
    fn peeking_shows_the_sum_and_changes_nothing() {
        let residual = residual_after(|source| {
            source.peek(0, 3, |sum| assert_eq!(sum, [4.0, 0.0, 0.0]));
            source.peek(1, 1, |sum| assert_eq!(sum, [0.0]));
            assert_eq!(source.abs_max(), 4.0);
        });
        assert_eq!(residual, [4.0, 8.0, -12.0]);
    }

    #[test]
    fn statistics_are_those_of_the_sum_with_a_pass_of_their_own_or_without() {
        // The sum is 4, 0 and -6, in several blocks.
        let gradient = [1.0, -2.0, 0.0].repeat(BLOCK);
        let blocks = BLOCK as f64;
        let kinds =
            [Statistics::Largest, Statistics::Signs, Statistics::Moments, Statistics::Extremes];
        for kind in kinds {
            let (mut residual, mut scratch) = ([4.0, 8.0, -12.0].repeat(BLOCK), [0.0; SCRATCH]);
            let feedback = Some((WEIGHTED, &mut residual[..]));
            let floats = Floats::F32(&gradient);
            let mut source = Source::with_statistics(floats, feedback, &mut scratch, kind).unwrap();
            assert_eq!(source.abs_max(), 6.0);
            let SignSums { negative_sum, positive_sum, negative_count } = source.sums_by_sign();
            assert_eq!((negative_sum, positive_sum), (-6.0 * blocks, 4.0 * blocks));
            assert_eq!(negative_count, BLOCK as u64);
            assert_eq!(source.extremes(), (-6.0, 4.0));
            assert!((source.moments().mean() + 2.0 / 3.0).abs() < 1e-12);
            let variance = 52.0 / 3.0 - 4.0 / 9.0;
            assert!((source.moments().standard_deviation() - f64::sqrt(variance)).abs() < 1e-12);
        }
    }

    #[test]
    fn statistics_refuse_what_is_not_finite() {
        let gradient = [1.0, f32::NAN, -f32::INFINITY];
        for kind in [Statistics::Signs, Statistics::Moments, Statistics::Extremes] {
            let mut scratch = [0.0; SCRATCH];
            let floats = Floats::F32(&gradient);
            let bad = Source::with_statistics(floats, None, &mut scratch, kind).map(|_| ());
            assert_eq!(bad.unwrap_err().index, 1);
        }
    }

    #[test]
    fn what_taking_leaves_is_the_residual() {
        let residual = residual_after(|source| {
            source.take(0, 2, |sum| {
                assert_eq!(sum, [4.0, 0.0]);
                sum[0] -= 3.0;
            });
            source.take(2, 1, |_| {});
        });
        assert_eq!(residual, [1.0, 0.0, 0.0]);
    }

    #[test]
    fn sum_and_gradient_come_together() {
        let residual = residual_after(|source| {
            assert_eq!(source.gradient_weight(), 2.0);
            source.take_with_gradient(0, 3, |sum, latest| {
                assert_eq!((&*sum, latest), (&[4.0, 0.0, 0.0][..], &GRADIENT[..]));
                sum[1] = 7.0;
            });
        });
        assert_eq!(residual, [4.0, 7.0, 0.0]);
        let mut scratch = [0.0; SCRATCH];
        let mut source = Source::new(Floats::F32(&GRADIENT), None, &mut scratch).unwrap();
        source.take_with_gradient(1, 2, |sum, latest| assert_eq!(&*sum, latest));
    }

    #[test]
    fn bfloat16_is_widened_on_the_way() {
        let (gradient, mut residual) = ([0x3f80, 0xc000], [0.5, 0.5]);
        let mut scratch = [0.0; SCRATCH];
        let floats = Floats::Bf16(&gradient);
        let mut source =
            Source::new(floats, Some((Residual::PLAIN, &mut residual)), &mut scratch).unwrap();
        source.peek(0, 2, |sum| assert_eq!(sum, [1.5, -1.5]));
        source.take(0, 2, |sum| assert_eq!(sum, [1.5, -1.5]));
        assert_eq!(residual, [1.5, -1.5]);
    }

    #[test]
    fn the_first_bad_element_is_found_in_any_block() {
        let mut gradient = vec![0.0; 3 * BLOCK];
        gradient[BLOCK + 7] = f32::NEG_INFINITY;
        gradient[2 * BLOCK] = f32::NAN;
        let mut scratch = [0.0; SCRATCH];
        let floats = Floats::F32(&gradient);
        let bad = Source::new(floats, None, &mut scratch).map(|_| ()).unwrap_err();
        assert_eq!(bad, NonFinite { index: BLOCK + 7, value: f32::NEG_INFINITY });
    }

    #[test]
    fn elements_are_checked_as_they_are_shown() {
        let gradient = [1.0, f32::INFINITY, 2.0, f32::NAN];
        let mut scratch = [0.0; SCRATCH];
        let mut source = Source::unchecked(Floats::F32(&gradient), &mut scratch);
        source.take(0, 1, |block| assert_eq!(block, [1.0]));
        source.peek(2, 1, |block| assert_eq!(block, [2.0]));
        assert_eq!(source.finish(), Ok(()));
        source.take_with_gradient(3, 1, |block, _| assert!(block[0].is_nan()));
        // The first is named, in whatever order they were shown.
        assert_eq!(source.finish(), Err(NonFinite { index: 1, value: f32::INFINITY }));
    }

    #[test]
    fn a_sum_that_overflows_is_refused_with_the_residual_untouched() {
        let (gradient, mut residual) = ([1.0, f32::MAX], [1.0, f32::MAX]);
        let mut scratch = [0.0; SCRATCH];
        let floats = Floats::F32(&gradient);
        let bad = Source::new(floats, Some((Residual::PLAIN, &mut residual)), &mut scratch);
        assert_eq!(bad.map(|_| ()).unwrap_err(), NonFinite { index: 1, value: f32::INFINITY });
        assert_eq!(residual, [1.0, f32::MAX]);
    }
}
