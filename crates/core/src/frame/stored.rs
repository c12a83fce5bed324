//! Tensors that are stored bit for bit.

use super::element::ElementType;
use super::error::{FrameError, STORED_VERSION};
use super::wire;
use crate::Tensor;
use gradwire_bits::varint;

/// The byte after the version in a frame of a stored tensor.
pub(super) const KIND: u8 = 0;
/// The coding of the data: none. Other codings are reserved.
const AS_IT_IS: u8 = 0;

/// A tensor of any element type, stored without a compressor and restored bit for bit.
///
/// Files have such frames for tensors that no compressor accepts: integers, masks with infinities,
/// floats of other widths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTensor<'a> {
    tensor: Tensor,
    element: ElementType,
    data: &'a [u8],
}

impl<'a> StoredTensor<'a> {
    /// A tensor with its elements in row-major order, little-endian; elements of less than a byte
    /// are packed as in safetensors.
    ///
    /// # Errors
    /// [`FrameError::StoredLength`] if the data is longer or shorter than the elements.
    pub fn new(tensor: Tensor, element: ElementType, data: &'a [u8]) -> Result<Self, FrameError> {
        if element.bytes(tensor.shape()) != Some(data.len()) {
            return Err(FrameError::StoredLength {
                tensor: tensor.name().to_owned(),
                shape: tensor.shape().to_vec(),
                element,
                bytes: data.len(),
            });
        }
        Ok(Self { tensor, element, data })
    }

    /// The tensor's name and shape.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The elements, as given to [`new`](Self::new).
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// [`FrameError::Dimensions`] for a tensor of more than
    /// [`MAX_DIMENSIONS`](super::MAX_DIMENSIONS) dimensions.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        wire::check_dimensions(&self.tensor)?;
        let mut head = vec![self.element.code(), AS_IT_IS];
        wire::put_shape(self.tensor.shape(), &mut head);
        wire::put_bytes(self.tensor.name().as_bytes(), &mut head);
        let start = out.len();
        wire::begin(STORED_VERSION, KIND, out);
        varint::write((head.len() + self.data.len()) as u64, out);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.data);
        wire::seal(start, out);
        Ok(())
    }

    /// Interprets the body of a frame, whose checksum is verified.
    pub(super) fn of_body(mut body: &'a [u8]) -> Result<Self, FrameError> {
        let [code, coding] = wire::take_array(&mut body)?;
        let element = ElementType::of_code(code)
            .ok_or(FrameError::Malformed("this version does not know the element type"))?;
        if coding != AS_IT_IS {
            return Err(FrameError::Malformed("the data of a stored tensor is encoded"));
        }
        let shape = wire::shape(&wire::take_shape(&mut body)?)?;
        let name = wire::text(wire::take_bytes(&mut body)?)?.to_owned();
        if element.bytes(&shape) != Some(body.len()) {
            return Err(FrameError::Malformed("a stored tensor's length and shape do not match"));
        }
        Ok(Self { tensor: Tensor::new(name, &shape), element, data: body })
    }
}
