//! A tensor of a file, with elements of 32 or 16 bits.

use gradwire::{Dtype, Floats, Tensor};
use half::{bf16, f16};

/// A tensor with its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    /// Name and shape.
    pub(crate) tensor: Tensor,
    /// The elements.
    pub(crate) values: Values,
}

/// Elements in the type of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Values {
    /// Binary32.
    F32(Vec<f32>),
    /// Bit patterns of binary16.
    F16(Vec<u16>),
    /// Bit patterns of bfloat16.
    Bf16(Vec<u16>),
}

impl Values {
    /// Converts values to a type, rounding to nearest even. Values beyond its range become its largest finite value,
    /// because a message can decode to slightly more than was encoded.
    pub(crate) fn from_f32(values: Vec<f32>, dtype: Dtype) -> Self {
        let within = |x: f32, max: f32| x.clamp(-max, max);
        let f16 = |x| f16::from_f32(within(x, f16::MAX.to_f32())).to_bits();
        let bf16 = |x| bf16::from_f32(within(x, bf16::MAX.to_f32())).to_bits();
        match dtype {
            Dtype::F32 => Values::F32(values),
            Dtype::F16 => Values::F16(values.into_iter().map(f16).collect()),
            Dtype::Bf16 => Values::Bf16(values.into_iter().map(bf16).collect()),
        }
    }

    /// The values as the input of a compressor.
    pub(crate) fn floats(&self) -> Floats<'_> {
        match self {
            Values::F32(values) => Floats::F32(values),
            Values::F16(values) => Floats::F16(values),
            Values::Bf16(values) => Floats::Bf16(values),
        }
    }

    /// Elements from little-endian bytes, whose number is a multiple of the type's size.
    pub(super) fn from_bytes(bytes: &[u8], dtype: Dtype) -> Self {
        let halves = || bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        let word = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        match dtype {
            Dtype::F32 => Values::F32(bytes.chunks_exact(4).map(word).collect()),
            Dtype::F16 => Values::F16(halves()),
            Dtype::Bf16 => Values::Bf16(halves()),
        }
    }

    /// The elements as little-endian bytes.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Values::F16(values) | Values::Bf16(values) => {
                values.iter().flat_map(|x| x.to_le_bytes()).collect()
            }
        }
    }
}

/// The tensor of this name and shape, if its elements take exactly this many bytes.
pub(super) fn tensor(
    name: &str,
    shape: &[usize],
    dtype: Dtype,
    bytes: usize,
) -> Result<Tensor, String> {
    let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    match elements.and_then(|elements| elements.checked_mul(dtype.size())) {
        Some(size) if size == bytes => Ok(Tensor::new(name, shape)),
        _ => Err(format!(
            "tensor '{name}' of shape {shape:?} does not fit its {bytes} bytes of data; the file is \
             damaged, copy it again"
        )),
    }
}
