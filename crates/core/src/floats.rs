//! Borrowed tensors in the floating-point types that training uses.

use gradwire_bits::kernels;

/// The element type of a tensor at the edge of the library, and of
/// [linear](crate::Aggregation::Linear) messages; inside, everything is `f32`.
///
/// The discriminants are the tags in [frames](crate::frame).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32 = 0,
    /// IEEE 754 binary16.
    F16 = 1,
    /// bfloat16: the upper half of a binary32.
    Bf16 = 2,
}

impl Dtype {
    /// Bytes per element.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        }
    }
}

/// A borrowed, flattened tensor. The 16-bit types are given as their bit patterns.
#[derive(Debug, Clone, Copy)]
pub enum Floats<'a> {
    /// `f32` values.
    F32(&'a [f32]),
    /// Bit patterns of IEEE binary16 values.
    F16(&'a [u16]),
    /// Bit patterns of bfloat16 values.
    Bf16(&'a [u16]),
}

impl<'a> Floats<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Floats::F32(x) => x.len(),
            Floats::F16(x) | Floats::Bf16(x) => x.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements before index `at`, and the others.
    pub(crate) fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Floats::F32(x) => (Floats::F32(&x[..at]), Floats::F32(&x[at..])),
            Floats::F16(x) => (Floats::F16(&x[..at]), Floats::F16(&x[at..])),
            Floats::Bf16(x) => (Floats::Bf16(&x[..at]), Floats::Bf16(&x[at..])),
        }
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        match self {
            Floats::F32(_) => Dtype::F32,
            Floats::F16(_) => Dtype::F16,
            Floats::Bf16(_) => Dtype::Bf16,
        }
    }

    /// Appends all elements, as `f32`, to `wide`.
    pub fn append_to(&self, wide: &mut Vec<f32>) {
        let start = wide.len();
        match self {
            Floats::F32(x) => wide.extend_from_slice(x),
            Floats::F16(x) => {
                wide.resize(start + x.len(), 0.0);
                kernels::f16_to_f32(x, &mut wide[start..]);
            }
            Floats::Bf16(x) => {
                wide.resize(start + x.len(), 0.0);
                kernels::bf16_to_f32(x, &mut wide[start..]);
            }
        }
    }

    /// Elements `start .. start + scratch.len()` as `f32`: borrowed if they are already `f32`, else
    /// converted into `scratch`.
    pub(crate) fn block<'b>(&self, start: usize, scratch: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        let range = start..start + scratch.len();
        match self {
            Floats::F32(x) => &x[range],
            Floats::F16(x) => {
                kernels::f16_to_f32(&x[range], scratch);
                scratch
            }
            Floats::Bf16(x) => {
                kernels::bf16_to_f32(&x[range], scratch);
                scratch
            }
        }
    }
}
