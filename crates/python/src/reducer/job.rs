//! The average of a group of tensors in main memory.

use std::ops::Range;
use std::sync::Arc;

use gradwire::Dtype;
use gradwire_exchange::{Outcome, Reducer, Result};

use crate::buffer::Buffer;
use crate::errors::Failure;

/// One average.
pub(super) struct Job {
    pub(super) names: Arc<[String]>,
    pub(super) step: u64,
    pub(super) tensor: Buffer,
    pub(super) scale: f32,
    /// Multiplies the means: the number of ranks for sums, otherwise 1.
    pub(super) factor: f32,
    /// Receives the means; `None` for the tensor itself.
    pub(super) output: Option<Output>,
}

/// A tensor that receives a part of the means.
pub(super) struct Output {
    part: Buffer,
    /// Its elements among the means.
    range: Range<usize>,
    /// Whether it is this part of the averaged tensor.
    in_place: bool,
}

impl Output {
    /// `part` receives the means of `tensor` from the element `start` on.
    pub(super) fn new(tensor: &Buffer, start: usize, part: Buffer) -> Result<Self, Failure> {
        let range = start..start.saturating_add(part.len());
        if range.end > tensor.len() || part.dtype() != tensor.dtype() {
            return Err(Failure::config("the output is no part of the tensor"));
        }
        Ok(Self { range, in_place: part.is_at(tensor, start), part })
    }
}

impl Job {
    pub(super) fn run(&mut self, reducer: &mut Reducer) -> Result<Outcome, Failure> {
        let group = reducer.group_of_type(&self.names, self.tensor.dtype())?;
        let (scale, factor) = (self.scale, self.factor);
        let in_place = self.output.as_ref().is_none_or(|output| output.in_place);
        reducer.multiply_by(factor);
        if let Some(values) = self.tensor.as_f32().filter(|_| in_place) {
            return Ok(reducer.average_scaled(group, self.step, values, scale)?);
        }
        if self.output.is_none() && reducer.takes_halves(group, self.step) {
            let halves = self.tensor.as_halves().expect("the group has the tensor's type");
            return Ok(reducer.average_halves(group, self.step, scale, halves)?);
        }
        let range = self.output.as_ref().map_or(0..self.tensor.len(), |one| one.range.clone());
        let may_overflow = factor != 1.0 && self.tensor.dtype() == Dtype::F16;
        let mut out = self.output.as_ref().map_or(self.tensor, |output| output.part);
        let outcome = reducer.average_converted(
            group,
            self.step,
            scale,
            |wide| self.tensor.read(wide),
            |wide| {
                let means = &mut wide[range];
                if may_overflow {
                    mark_overflow(means);
                }
                out.write(means);
            },
        );
        Ok(outcome?)
    }
}

/// The largest number of 16 bits.
const F16_MAX: f32 = 65504.0;

/// Replaces products that 16 bits do not hold by NaN: written as the largest number, they would
/// hide an overflow from a trainer that scales its losses.
fn mark_overflow(values: &mut [f32]) {
    let over = |value: &&mut f32| value.abs() > F16_MAX;
    values.iter_mut().filter(over).for_each(|value| *value = f32::NAN);
}
