//! Tensors of the user by their addresses.

use std::ops::Range;

use gradwire_delta::{Buffer, ElementType, Error, Source, Tensor, Tensors, order_of};
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

/// Tensors at addresses, in order of their names.
#[derive(Debug)]
pub(super) struct Memory {
    tensors: Vec<Tensor>,
    bytes: Vec<Bytes>,
}

impl Memory {
    /// Takes tensors in any order.
    pub(super) fn new(all: Vec<Described>) -> Result<Self, Failure> {
        let (tensors, bytes) = all
            .into_iter()
            .map(Described::whole)
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .unzip::<_, _, Vec<_>, Vec<_>>();
        let order = order_of(&tensors)?;
        Ok(Self {
            tensors: order.iter().map(|&at| tensors[at].clone()).collect(),
            bytes: order.iter().map(|&at| bytes[at]).collect(),
        })
    }
}

impl Source for Memory {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        _: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        Ok(&self.bytes[tensor].get()[bytes])
    }
}

impl Tensors for Memory {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        Ok(self.bytes.iter_mut().map(Bytes::get_mut).collect())
    }
}
