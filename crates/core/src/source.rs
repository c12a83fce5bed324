//! The input of a compressor: the gradient corrected by the residual, block by block.
//!
//! Error feedback needs `c = β·m + γ·g`, its statistics, and afterwards `m ← c − decoded`. Writing
//! `c` out first would cost a pass over memory, so the sum exists only a block at a time, in the
//! first-level cache. [`Source::peek`] shows a block and discards it. [`Source::take`] writes it
//! over the residual, and the compressor leaves the error of its message there. A two-pass
//! compressor thus moves 8 + 12 bytes per element, plus its message.
//!
//! With momentum, a velocity `u ← momentum·u + factor·g` replaces the gradient. It is stored as
//! blocks are taken, and adds a read to each pass and a write to the last one. If a compressor only
//! peeks, storing the velocity takes another pass.

mod latest;
mod passes;
mod slice;

use std::ops::Range;

use gradwire_bits::kernels::{self, SignSums};

use self::latest::Latest;
pub use self::latest::Velocity;
pub use self::slice::Residual;
use self::slice::Slice;
use crate::Floats;
use crate::numeric::moments::Moments;
use crate::parts::{BLOCK, SCRATCH, SHORT, cut_mut};
use crate::statistics::{Found, Gathered, Statistics};
use crate::workspace::{Helpers, Workspace};

const KEEPS: &str = "the method keeps a number for each element";

/// A NaN or an infinity instead of a finite number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFinite {
    /// Flat index of the first such element.
    pub index: usize,
    /// The value of the gradient; if the gradient is finite, the overflowing velocity or sum with
    /// the residual.
    pub value: f32,
}

/// A finite tensor to be compressed, corrected by the residual of earlier messages.
pub struct Source<'a> {
    /// All elements, or the elements of a part in its first lane.
    own: Slice<'a>,
    /// The elements of a part in its other lanes.
    others: Vec<Slice<'a>>,
    kept: &'a mut [f32],
    scratch: &'a mut [f32],
    /// Statistics of all elements; of the elements shown so far if they are checked as they are
    /// shown.
    gathered: Gathered,
    plain: bool,
    /// Whether all elements have been checked.
    checked: bool,
    /// How many elements have been taken.
    taken: usize,
}

impl<'a> Source<'a> {
    /// Combines a gradient with its residual and their weights (`None`: no error feedback). A
    /// read-only pass finds the largest absolute value and refuses NaN and infinity.
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
        let source = Self::unchecked(gradient, feedback, scratch);
        source.with_statistics(Statistics::Largest, &mut Helpers::default())
    }

    /// The same source after a pass that checks its elements and gathers statistics. The helpers
    /// share the pass.
    pub(crate) fn with_statistics(
        mut self,
        statistics: Statistics,
        helpers: &mut Helpers,
    ) -> Result<Self, NonFinite> {
        self.gathered = self.gather(statistics, helpers);
        self.finish()?;
        self.checked = true;
        Ok(self)
    }

    /// A source whose elements are checked as they are peeked at or taken. Call
    /// [`finish`](Self::finish) after all elements were shown, but before the first is taken if
    /// there is a residual or velocity, because taking overwrites it.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub(crate) fn unchecked(
        gradient: Floats<'a>,
        feedback: Option<(Residual, &'a mut [f32])>,
        scratch: &'a mut [f32],
    ) -> Self {
        if let Some((_, residual)) = &feedback {
            assert_eq!(residual.len(), gradient.len());
        }
        let latest = Latest { gradient, velocity: None };
        Self::of(Slice::whole(latest, feedback), scratch)
    }

    /// The same source with a velocity in place of the gradient.
    ///
    /// # Panics
    /// If its length is not the gradient's.
    pub(crate) fn with_velocity(mut self, weights: Velocity, velocity: &'a mut [f32]) -> Self {
        assert_eq!(velocity.len(), self.len());
        self.own.latest.velocity = Some((weights, velocity));
        self
    }

    fn of(own: Slice<'a>, scratch: &'a mut [f32]) -> Self {
        assert!(scratch.len() >= SCRATCH);
        let (others, kept) = (Vec::new(), &mut [][..]);
        let gathered = Gathered::new(Statistics::None);
        Self { own, others, kept, scratch, gathered, plain: false, checked: false, taken: 0 }
    }

    /// A source after a search that peeked at every element, with its result.
    pub(crate) fn searched(
        mut self,
        kind: Statistics,
        found: Option<Found>,
    ) -> Result<Self, NonFinite> {
        self.finish()?;
        self.gathered = Gathered { kind, found, ..self.gathered };
        self.checked = true;
        Ok(self)
    }

    /// The result of the search of this kind, if there was one.
    pub(crate) fn found(&self, kind: Statistics) -> Option<Found> {
        self.gathered.found.filter(|_| self.gathered.kind == kind)
    }

    /// Ends the check of elements, for a compressor that has [peeked at](Statistics::Peeked) all of
    /// them. Returns whether all are finite; only then may the compressor take them.
    pub fn ends_check(&mut self) -> bool {
        self.checked = true;
        f32::from_bits(self.gathered.largest).is_finite()
    }

    /// Checks the elements that were shown.
    pub(crate) fn finish(&mut self) -> Result<(), NonFinite> {
        let finite = f32::from_bits(self.gathered.largest).is_finite();
        if finite { Ok(()) } else { Err(self.first_non_finite()) }
    }

    /// Whether a velocity replaces the gradient.
    pub(crate) fn has_velocity(&self) -> bool {
        self.own.latest.velocity.is_some()
    }

    /// Checks, without optimizations, that every element was taken exactly once, or none was.
    pub(crate) fn check_taken(&self) {
        debug_assert!(
            self.taken == 0 || self.taken == self.len(),
            "a compressor takes every element exactly once: {} of {}",
            self.taken,
            self.len(),
        );
    }

    /// Stores the velocity, if there is one, unless it was stored as elements were taken.
    pub(crate) fn store_velocity(&mut self) {
        if !self.has_velocity() || self.taken > 0 {
            return;
        }
        for (start, len) in self.blocks(BLOCK) {
            self.own.latest.take(start, &mut self.scratch[..len]);
        }
    }

    /// The same source with the values that the method keeps for the tensor besides the residual.
    pub fn with_kept(self, kept: &'a mut [f32]) -> Self {
        Self { kept, ..self }
    }

    /// The same source; `plain` says that its values are not gradients
    /// ([plain memory](crate::Encoder::with_plain_memory)).
    pub fn with_plain_memory(self, plain: bool) -> Self {
        Self { plain, ..self }
    }

    /// Whether the values are not gradients, but changes of a model, for example. The compressor
    /// must then keep its whole error in the residual, even errors that it discards for gradients
    /// (such as the rounding of `variance`).
    pub fn has_plain_memory(&self) -> bool {
        self.plain
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.own.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest absolute value of the corrected tensor; 0 for an empty one.
    ///
    /// # Panics
    /// Without a residual, if the compressor asks for [no statistics](Statistics::None); before the
    /// end of its own [check](Statistics::Peeked).
    pub fn abs_max(&self) -> f32 {
        let gathered = self.keeps_residual() || self.gathered.kind != Statistics::None;
        assert!(self.checked && gathered, "without statistics the largest value is not known");
        f32::from_bits(self.gathered.largest)
    }

    /// The sum and number of the elements below zero, and the sum of the others. Takes a pass,
    /// unless the compressor asks for [`Statistics::Signs`].
    pub fn sums_by_sign(&mut self) -> SignSums {
        self.gathered(Statistics::Signs).signs
    }

    /// The mean and the standard deviation. Takes a pass, unless the compressor asks for
    /// [`Statistics::Moments`].
    pub fn moments(&mut self) -> Moments {
        self.gathered(Statistics::Moments).moments
    }

    /// The least and the greatest element; infinity and its negative for an empty tensor. Takes a
    /// pass, unless the compressor asks for [`Statistics::Extremes`].
    pub fn extremes(&mut self) -> (f32, f32) {
        self.gathered(Statistics::Extremes).extremes
    }

    /// The gathered statistics if they are of this kind; otherwise takes a pass.
    fn gathered(&mut self, statistics: Statistics) -> Gathered {
        if self.gathered.kind == statistics {
            return self.gathered;
        }
        self.gather(statistics, &mut Helpers::default())
    }

    /// Shows the corrected elements `start .. start + len` (at most [`BLOCK`]) and changes nothing.
    pub fn peek<R>(&mut self, start: usize, len: usize, look: impl FnOnce(&[f32]) -> R) -> R {
        let (block, gathered, checked) = self.block(start, len);
        if !checked {
            gathered.add(block);
        }
        look(block)
    }

    /// [`peek`](Self::peek) for long work on a block. The closure also gets elements that it should
    /// prefetch, some at a time: the processor cannot wait for a whole block of them at once.
    pub(crate) fn peek_long<R>(
        &mut self,
        start: usize,
        len: usize,
        look: impl FnOnce(&[f32], &[f32]) -> R,
    ) -> R {
        let Self { own, others, scratch, gathered, checked, .. } = self;
        let lane = others.iter().rev().find(|lane| lane.first <= start).unwrap_or(own);
        let block = lane.peek(start, &mut scratch[..len]);
        if !*checked {
            gathered.add(block);
        }
        look(block, lane.ahead(start, len))
    }

    /// [`peek`](Self::peek) at elements again, without another check.
    pub(crate) fn peek_again<R>(
        &mut self,
        start: usize,
        len: usize,
        look: impl FnOnce(&[f32]) -> R,
    ) -> R {
        look(self.block(start, len).0)
    }

    /// The corrected elements `start .. start + len`, the statistics, and whether all elements are
    /// checked.
    fn block(&mut self, start: usize, len: usize) -> (&[f32], &mut Gathered, bool) {
        let Self { own, others, scratch, gathered, checked, .. } = self;
        let lane = others.iter().rev().find(|lane| lane.first <= start).unwrap_or(own);
        lane.prefetch_after(start, len);
        (lane.peek(start, &mut scratch[..len]), gathered, *checked)
    }

    /// Passes the corrected elements `start .. start + len` (at most [`BLOCK`]) to the closure; the
    /// values that it leaves in the slice become the residual. Take every element exactly once, in
    /// any order, and do not peek at it afterwards. A debug build counts the elements that are
    /// taken, and refuses a pass over all elements after the first is taken.
    pub fn take<R>(&mut self, start: usize, len: usize, take: impl FnOnce(&mut [f32]) -> R) -> R {
        let Self { own, others, scratch, gathered, checked, taken, .. } = self;
        *taken += len;
        let lane = others.iter_mut().rev().find(|lane| lane.first <= start).unwrap_or(own);
        lane.prefetch_after(start, len);
        let block = lane.take(start, &mut scratch[..len]);
        if !*checked {
            gathered.add(block);
        }
        take(block)
    }

    /// [`take`](Self::take) for methods that distinguish the latest gradient, or velocity, from the
    /// sum: the closure gets both; the gradient is without its weight γ.
    pub fn take_with_gradient<R>(
        &mut self,
        start: usize,
        len: usize,
        take: impl FnOnce(&mut [f32], &[f32]) -> R,
    ) -> R {
        let Self { own, scratch, gathered, checked, taken, .. } = self;
        *taken += len;
        let (sum, gradient) = own.take_with_gradient(start, len, scratch);
        if !*checked {
            gathered.add(gradient);
        }
        take(sum, gradient)
    }

    /// [`take`](Self::take) of the whole tensor at once, for methods that read it several times;
    /// also returns the values that the method keeps. `spare` stores the tensor if there is no
    /// residual. The helpers share the pass.
    pub fn take_all<'b>(
        &'b mut self,
        spare: &'b mut Vec<f32>,
        workspace: &mut Workspace,
    ) -> (&'b mut [f32], &'b mut [f32]) {
        if self.own.feedback.is_none() {
            spare.resize(self.len(), 0.0);
            let mut rest = &mut spare[..];
            let room = |part: Range<usize>| cut_mut(&mut rest, part.len());
            self.in_parts(workspace, room, |source, mut room, _| {
                source.take_blocks(|_, block| {
                    kernels::copy(block, cut_mut(&mut room, block.len()));
                });
            });
            return (spare, self.kept);
        }
        let none = |_| ();
        self.in_parts(workspace, none, |source, (), _| source.take_blocks(|_, _| {}));
        let residual = self.own.feedback.as_mut().map_or(&mut [][..], |(_, residual)| residual);
        (residual, self.kept)
    }

    /// [`take`](Self::take) over the whole tensor in order, for a method that keeps a number for
    /// each element; the closure gets the block's numbers, too.
    pub fn take_blocks_with_kept(&mut self, mut take: impl FnMut(usize, &mut [f32], &mut [f32])) {
        let kept = std::mem::take(&mut self.kept);
        let mut blocks = kept.chunks_mut(BLOCK);
        self.take_blocks(|start, block| take(start, block, blocks.next().expect(KEEPS)));
        self.kept = kept;
    }

    /// [`peek`](Self::peek) over the whole tensor in order, for a method that keeps a number for
    /// each element.
    pub fn peek_blocks_with_kept(&mut self, mut look: impl FnMut(&[f32], &[f32])) {
        let kept = std::mem::take(&mut self.kept);
        let mut blocks = kept.chunks(BLOCK);
        self.peek_blocks(|_, block| look(block, blocks.next().expect(KEEPS)));
        self.kept = kept;
    }

    /// Adds `squares` to the numbers that the method keeps, one for each element; without them, the
    /// squares of the latest gradient. The helpers share the pass.
    pub(crate) fn add_squares(&mut self, squares: Option<&[f32]>, workspace: &mut Workspace) {
        let of_part = |part: Range<usize>| squares.map(|squares| &squares[part]);
        self.in_parts(workspace, of_part, |source, squares, _| {
            if let Some(squares) = squares {
                return add_saturating(squares.iter().copied(), source.kept);
            }
            let blocks = source.blocks(BLOCK);
            let Source { own, kept, scratch, .. } = source;
            for ((start, len), kept) in blocks.zip(kept.chunks_mut(BLOCK)) {
                let gradient = own.gradient(start, &mut scratch[..len]);
                add_saturating(gradient.iter().map(|g| g * g), kept);
            }
        });
    }

    /// The residual, for corrections after `take`; for a part, the residual of its elements. `None`
    /// without error feedback.
    pub fn left(&mut self) -> Option<&mut [f32]> {
        self.own.feedback.as_mut().map(|(_, residual)| &mut **residual)
    }

    /// The weight γ of the latest gradient in the sum; 1 without error feedback.
    pub fn gradient_weight(&self) -> f32 {
        self.own.feedback.as_ref().map_or(1.0, |(weights, _)| weights.gamma)
    }

    /// [`peek`](Self::peek) over the whole tensor in order; the closure gets each block's offset.
    pub fn peek_blocks(&mut self, look: impl FnMut(usize, &[f32])) {
        self.peek_each(BLOCK, look);
    }

    /// [`peek`](Self::peek) over the whole tensor in order, without error feedback. The closure
    /// returns the bits of its block's largest absolute value, so a copy needs no separate pass to
    /// check the elements.
    pub(crate) fn convert_blocks(&mut self, mut convert: impl FnMut(&[f32]) -> u32) {
        debug_assert!(self.own.feedback.is_none(), "blocks of the gradient lack the residual");
        for (start, len) in self.blocks(BLOCK) {
            let block = self.own.peek(start, &mut self.scratch[..len]);
            self.gathered.largest = self.gathered.largest.max(convert(block));
        }
    }

    /// [`take`](Self::take) over the whole tensor in order; the closure gets each block's offset.
    pub fn take_blocks(&mut self, take: impl FnMut(usize, &mut [f32])) {
        self.take_each(BLOCK, take);
    }

    /// [`peek_blocks`](Self::peek_blocks) in blocks of a quarter of the length: faster from memory,
    /// for a method that does little per element and nothing per block.
    pub fn peek_short_blocks(&mut self, look: impl FnMut(usize, &[f32])) {
        self.peek_each(SHORT, look);
    }

    /// [`take_blocks`](Self::take_blocks) in blocks of a quarter of the length, as
    /// [`peek_short_blocks`](Self::peek_short_blocks).
    pub fn take_short_blocks(&mut self, take: impl FnMut(usize, &mut [f32])) {
        self.take_each(SHORT, take);
    }

    /// The indices of the elements; for a part, the indices in its first lane.
    pub(crate) fn places(&self) -> Range<usize> {
        self.own.first..self.own.first + self.own.len()
    }

    /// [`peek`](Self::peek) over the whole tensor in order, in blocks of at most `most` elements.
    fn peek_each(&mut self, most: usize, mut look: impl FnMut(usize, &[f32])) {
        let overwrites = self.keeps_residual() || self.has_velocity();
        debug_assert!(self.taken == 0 || !overwrites, "elements were taken before this pass");
        for (start, len) in self.blocks(most) {
            self.peek(start, len, |block| look(start, block));
        }
    }

    /// [`take`](Self::take) over the whole tensor in order, in blocks of at most `most` elements.
    fn take_each(&mut self, most: usize, mut take: impl FnMut(usize, &mut [f32])) {
        for (start, len) in self.blocks(most) {
            self.take(start, len, |block| take(start, block));
        }
    }

    /// The blocks of at most `most` elements, as start and length; for a part, the blocks of its
    /// first lane.
    fn blocks(&self, most: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Range { start, end } = self.places();
        (start..end).step_by(most).map(move |start| (start, most.min(end - start)))
    }

    /// Whether the error of a message is kept. If not, encoders need not compute it.
    pub fn keeps_residual(&self) -> bool {
        self.own.feedback.is_some()
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
        let own = self.own.gradient(index, &mut own)[0];
        NonFinite { index, value: if own.is_finite() { sum } else { own } }
    }
}

/// Adds squares to sums that saturate at the largest finite number.
fn add_saturating(squares: impl Iterator<Item = f32>, sums: &mut [f32]) {
    for (sum, square) in sums.iter_mut().zip(squares) {
        *sum = (*sum + square).min(f32::MAX);
    }
}

#[cfg(test)]
mod tests;
