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
        let group = reducer.group_of_type(&self.names, self.tensor.dtype())?;
        let scale = self.scale;
        if let Some(values) = self.tensor.as_f32() {
            return Ok(reducer.average_scaled(group, self.step, values, scale)?);
        }
        let tensor = std::cell::RefCell::new(&mut self.tensor);
        let outcome = reducer.average_converted(
            group,
            self.step,
            scale,
            |wide| tensor.borrow().read(wide),
            |wide| tensor.borrow_mut().write(wide),
        );
        Ok(outcome?)
    }
}
