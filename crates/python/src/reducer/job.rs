//! The average of a group of tensors in main memory.

use std::sync::Arc;

use gradwire_exchange::{Outcome, Reducer, Result};

use crate::buffer::Buffer;
use crate::errors::Failure;

/// One average.
pub(super) struct Job {
    pub(super) names: Arc<[String]>,
    pub(super) step: u64,
    pub(super) tensor: Buffer,
    pub(super) scale: f32,
}

impl Job {
    pub(super) fn run(&mut self, reducer: &mut Reducer) -> Result<Outcome, Failure> {
        let group = reducer.group_of(&self.names)?;
        let scale = self.scale;
        let divide = |values: &mut [f32]| {
            if scale != 1.0 {
                values.iter_mut().for_each(|value| *value /= scale);
            }
        };
        let multiply = |values: &mut [f32]| {
            if scale != 1.0 {
                values.iter_mut().for_each(|value| *value *= scale);
            }
        };
        if let Some(values) = self.tensor.as_f32() {
            divide(values);
            let outcome = reducer.average(group, self.step, values);
            multiply(values);
            return Ok(outcome?);
        }
        let tensor = std::cell::RefCell::new(&mut self.tensor);
        let outcome = reducer.average_converted(
            group,
            self.step,
            |wide| {
                tensor.borrow().read(wide);
                divide(wide);
            },
            |wide| {
                multiply(wide);
                tensor.borrow_mut().write(wide);
            },
        );
        Ok(outcome?)
    }
}
