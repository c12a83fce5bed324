//! Tensors of the user by their addresses.

use gradwire_delta::{ElementType, InMemory, Memory, Tensor};
use pyo3::prelude::*;

use crate::buffer::Bytes;
use crate::errors::Failure;

/// A tensor in main memory: name, element type as in safetensors files, shape, rows of a shard, and
/// address.
///
/// The Python package checks that the tensor is dense, and keeps it alive while the address is
/// used.
#[derive(FromPyObject)]
pub(super) struct Described(String, String, Vec<u64>, Option<(u64, u64)>, usize);

impl Described {
    fn tensor(self) -> Result<Tensor, Failure> {
        let Self(name, element, shape, rows, _) = self;
        let element = ElementType::from_name(&element).ok_or_else(|| {
            Failure::config(format!(
                "tensor {name:?} has elements of type {element}, which deltas do not know"
            ))
        })?;
        Ok(match rows {
            None => Tensor::new(name, element, shape)?,
            Some((start, end)) => Tensor::shard(name, element, shape, start..end)?,
        })
    }

    /// The tensor and its bytes.
    pub(super) fn whole(self) -> Result<(Tensor, Bytes), Failure> {
        let address = self.4;
        let tensor = self.tensor()?;
        let bytes = Bytes::new(address, tensor.byte_len());
        Ok((tensor, bytes))
    }

    /// The tensor, and the bytes of some of its elements.
    pub(super) fn some(self, elements: usize) -> Result<(Tensor, Bytes), Failure> {
        let address = self.4;
        let tensor = self.tensor()?;
        if elements > tensor.elements() {
            let name = tensor.name();
            let message = format!("tensor {name:?} cannot have {elements} changed elements");
            return Err(Failure::config(message));
        }
        let bytes = Bytes::new(address, elements * tensor.element().width());
        Ok((tensor, bytes))
    }
}

/// Tensors of the user, which updates change in place.
pub(super) type UserTensors = InMemory<Bytes>;

impl Memory for Bytes {}

/// Takes tensors in any order.
pub(super) fn user_tensors(all: Vec<Described>) -> Result<UserTensors, Failure> {
    let pairs = all.into_iter().map(Described::whole).collect::<Result<Vec<_>, _>>()?;
    Ok(UserTensors::new(pairs)?)
}
