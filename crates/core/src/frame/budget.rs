//! A limit on the size of decoded frames.

use crate::Tensor;
use crate::frame::error::FrameError;
use crate::frame::stored::StoredTensor;

/// The total number of bytes that frames may decode to: 4 per element of a message, and the bytes
/// of stored tensors.
///
/// A frame of a few bytes can hold a tensor of zeros of any size, so an untrusted file gets a limit
/// before memory is allocated for it. Working memory comes on top: up to three times as much
/// (`demo`, and Huffman codes of a byte or two per element), or five times (`sketchml` with
/// sketches as large as the tensor).
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    left: u64,
}

impl Budget {
    /// The smallest [default](Self::for_frames): 256 MiB.
    pub const FLOOR: u64 = 1 << 28;
    /// Bytes that the [default](Self::for_frames) allows per byte of frames.
    pub const FACTOR: u64 = 1024;

    /// A budget of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self { limit: bytes, left: bytes }
    }

    /// The default for frames of `encoded` bytes in total: [`FACTOR`](Self::FACTOR) times as much,
    /// and at least [`FLOOR`](Self::FLOOR).
    pub fn for_frames(encoded: usize) -> Self {
        Self::new((encoded as u64).saturating_mul(Self::FACTOR).max(Self::FLOOR))
    }

    /// Subtracts the bytes of one tensor from the budget, as `f32`.
    ///
    /// # Errors
    /// [`FrameError::OverBudget`] if less is left; the budget is then unchanged.
    pub fn spend(&mut self, tensor: &Tensor) -> Result<(), FrameError> {
        self.subtract(tensor, (tensor.elements() as u64).saturating_mul(4))
    }

    /// Subtracts the bytes of a stored tensor from the budget.
    ///
    /// # Errors
    /// As for [`spend`](Self::spend).
    pub fn spend_stored(&mut self, stored: &StoredTensor<'_>) -> Result<(), FrameError> {
        self.subtract(stored.tensor(), stored.data().len() as u64)
    }

    fn subtract(&mut self, tensor: &Tensor, bytes: u64) -> Result<(), FrameError> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| FrameError::OverBudget {
            tensor: tensor.name().to_owned(),
            bytes,
            left: self.left,
            limit: self.limit,
        })?;
        Ok(())
    }
}
