//! Self-describing frames: a message with all that decoding it needs.
//!
//! Peers that agreed on a configuration exchange bare messages. Files, and other data that outlives
//! a connection, hold a series of frames. Each has its compressor, its tensor's name and shape, the
//! key of its random draws, and a checksum. Files also hold frames without a message: unencoded
//! tensors ([`StoredTensor`]), and [metadata](Metadata); [`Item`] reads all kinds. `docs/format.md`
//! specifies every byte.

mod budget;
mod element;
mod error;
mod item;
mod metadata;
mod stored;
mod wire;

use gradwire_bits::{DecodeError, varint};

pub use budget::Budget;
pub use element::ElementType;
pub use error::{FrameError, MAGIC, MAX_DIMENSIONS, STORED_VERSION, VERSION};
pub use item::Item;
pub use metadata::Metadata;
pub use stored::StoredTensor;
use wire::{take_array, take_bytes, take_varint, text};

use crate::{Context, DecodeArgs, Dtype, Spec, Tensor, Workspace, registry};

/// One message and its description.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a> {
    /// The compressor's configuration.
    pub spec: Spec,
    /// The tensor's name and shape.
    pub tensor: Tensor,
    /// The element type of the original.
    pub dtype: Dtype,
    /// The seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// The sender.
    pub rank: u32,
    /// The bare message.
    pub message: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// [`FrameError::Dimensions`] for a tensor of more than [`MAX_DIMENSIONS`] dimensions,
    /// [`FrameError::Unregistered`] for a compressor that is not in the [registry].
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        wire::check_dimensions(&self.tensor)?;
        let found = registry::find(self.spec.entry().id);
        if !found.is_some_and(|entry| std::ptr::eq(entry, self.spec.entry())) {
            let (tensor, spec) = (self.tensor.name().to_owned(), self.spec.to_string());
            return Err(FrameError::Unregistered { tensor, spec });
        }
        let start = out.len();
        wire::begin(VERSION, self.dtype as u8, out);
        wire::put_shape(self.tensor.shape(), out);
        wire::put_bytes(self.spec.to_string().as_bytes(), out);
        wire::put_bytes(self.tensor.name().as_bytes(), out);
        out.extend_from_slice(&self.seed.to_le_bytes());
        varint::write(self.step, out);
        varint::write(self.rank.into(), out);
        wire::put_bytes(self.message, out);
        wire::seal(start, out);
        Ok(())
    }

    /// Reads a frame of [`VERSION`].
    fn read_message(input: &mut &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let (header, rest) = wire::checked(input, Header::read)?;
        let frame = header.check()?;
        *input = rest;
        Ok(frame)
    }

    /// The decoded tensor, flattened. Its size is subtracted from the `budget` before memory is
    /// allocated.
    ///
    /// # Errors
    /// [`FrameError::OverBudget`], [`FrameError::OutOfMemory`] or [`FrameError::Message`].
    pub fn decode(&self, budget: &mut Budget) -> Result<Vec<f32>, FrameError> {
        budget.spend(&self.tensor)?;
        let elements = self.tensor.elements();
        let mut values = Vec::new();
        values.try_reserve_exact(elements).map_err(|error| self.failure(error.into()))?;
        values.resize(elements, 0.0);
        let context = Context::new(self.seed, &self.tensor, self.step, self.rank);
        let args = DecodeArgs {
            message: self.message,
            context: &context,
            weight: 1.0,
            workspace: &mut Workspace::default(),
            out: &mut values,
        };
        self.spec.compressor().decode_add(args).map_err(|error| self.failure(error))?;
        Ok(values)
    }

    fn failure(&self, source: DecodeError) -> FrameError {
        let tensor = self.tensor.name().to_owned();
        match source {
            DecodeError::OutOfMemory => {
                FrameError::OutOfMemory { tensor, bytes: 4 * self.tensor.elements() as u64 }
            }
            source => FrameError::Message { tensor, source },
        }
    }
}

/// The fields as they are on the wire.
struct Header<'a> {
    dtype: u8,
    reserved: [u8; 2],
    shape: Vec<u64>,
    spec: &'a [u8],
    name: &'a [u8],
    seed: u64,
    step: u64,
    rank: u64,
    message: &'a [u8],
}

impl<'a> Header<'a> {
    fn read(rest: &mut &'a [u8]) -> Result<Self, FrameError> {
        let [.., dtype, zero, zero_too] = take_array::<8>(rest)?;
        Ok(Header {
            dtype,
            reserved: [zero, zero_too],
            shape: wire::take_shape(rest)?,
            spec: take_bytes(rest)?,
            name: take_bytes(rest)?,
            seed: u64::from_le_bytes(take_array(rest)?),
            step: take_varint(rest)?,
            rank: take_varint(rest)?,
            message: take_bytes(rest)?,
        })
    }

    /// Interprets the fields, whose checksum is verified.
    fn check(self) -> Result<Frame<'a>, FrameError> {
        if self.reserved != [0, 0] {
            return Err(FrameError::Malformed("the reserved bytes are not zero"));
        }
        let name = text(self.name)?.to_owned();
        let spec: Spec = text(self.spec)?.parse()?;
        let shape = wire::shape(&self.shape)?;
        let compressor = spec.compressor();
        let limit = compressor.max_elements(self.message.len());
        let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        match elements {
            Some(0) => {}
            Some(elements) if elements <= limit => {}
            _ => return Err(too_large(&name, &shape, limit)),
        }
        if self.message.len() > compressor.max_len(elements.unwrap_or(0)) {
            return Err(FrameError::Malformed("the message is longer than its tensor allows"));
        }
        Ok(Frame {
            spec,
            tensor: Tensor::new(name, &shape),
            dtype: dtype(self.dtype)?,
            seed: self.seed,
            step: self.step,
            rank: u32::try_from(self.rank)
                .map_err(|_| FrameError::Malformed("the rank exceeds 32 bits"))?,
            message: self.message,
        })
    }
}

fn dtype(tag: u8) -> Result<Dtype, FrameError> {
    [Dtype::F32, Dtype::F16, Dtype::Bf16]
        .into_iter()
        .find(|&dtype| dtype as u8 == tag)
        .ok_or(FrameError::Malformed("the element type is not f32, f16 or bf16"))
}

fn too_large(tensor: &str, shape: &[usize], limit: usize) -> FrameError {
    FrameError::TooLarge { tensor: tensor.to_owned(), shape: shape.to_vec(), limit }
}

#[cfg(test)]
mod tests;
