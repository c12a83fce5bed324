//! The average of a group of tensors in main memory.

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
}

impl Job {
    pub(super) fn run(&mut self, reducer: &mut Reducer) -> Result<Outcome, Failure> {
        let group = reducer.group_of_type(&self.names, self.tensor.dtype())?;
        let (scale, factor) = (self.scale, self.factor);
        if let Some(values) = self.tensor.as_f32() {
            let outcome = reducer.average_scaled(group, self.step, values, scale)?;
            multiply(values, factor, f32::INFINITY);
            return Ok(outcome);
        }
        if factor == 1.0 && reducer.takes_halves(group, self.step) {
            let halves = self.tensor.as_halves().expect("the group has the tensor's type");
            return Ok(reducer.average_halves(group, self.step, scale, halves)?);
        }
        let most = if self.tensor.dtype() == Dtype::F16 { F16_MAX } else { f32::INFINITY };
        let tensor = std::cell::RefCell::new(&mut self.tensor);
        let outcome = reducer.average_converted(
            group,
            self.step,
            scale,
            |wide| tensor.borrow().read(wide),
            |wide| {
                multiply(wide, factor, most);
                tensor.borrow_mut().write(wide);
            },
        );
        Ok(outcome?)
    }
}

/// The largest number of 16 bits.
const F16_MAX: f32 = 65504.0;

/// Multiplies means by a factor. A product above `most` becomes NaN: written as the largest number,
/// it would hide an overflow from a trainer that scales its losses.
fn multiply(values: &mut [f32], factor: f32, most: f32) {
    if factor == 1.0 {
        return;
    }
    values.iter_mut().for_each(|value| *value *= factor);
    if most.is_finite() {
        let over = |value: &&mut f32| value.abs() > most;
        values.iter_mut().filter(over).for_each(|value| *value = f32::NAN);
    }
}
