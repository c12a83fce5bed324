//! Files of tensors: `.npy` holds one, `.safetensors` any number.

mod npy;
mod safetensors;

use std::path::Path;

use gradwire::{Dtype, Floats, Tensor};
use half::{bf16, f16};

use crate::failure::Failure;

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

/// The formats, told apart by the file's ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Safetensors,
}

impl Format {
    /// The format of a path.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Format::Npy),
            Some("safetensors") => Ok(Format::Safetensors),
            _ => Err(Failure::Input(format!(
                "'{}' is of no format that tensors are kept in; give a .npy or a .safetensors file",
                path.display()
            ))),
        }
    }

    /// Whether a file of this format can hold elements of this type.
    pub(crate) fn holds(self, dtype: Dtype) -> bool {
        self == Format::Safetensors || dtype != Dtype::Bf16
    }
}

impl Values {
    /// Values of a type, rounded to nearest even from `f32` where it is a smaller one.
    pub(crate) fn from_f32(values: Vec<f32>, dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Values::F32(values),
            Dtype::F16 => {
                Values::F16(values.into_iter().map(|x| f16::from_f32(x).to_bits()).collect())
            }
            Dtype::Bf16 => {
                Values::Bf16(values.into_iter().map(|x| bf16::from_f32(x).to_bits()).collect())
            }
        }
    }

    /// As a compressor takes them.
    pub(crate) fn floats(&self) -> Floats<'_> {
        match self {
            Values::F32(values) => Floats::F32(values),
            Values::F16(values) => Floats::F16(values),
            Values::Bf16(values) => Floats::Bf16(values),
        }
    }

    /// Elements from little-endian bytes, whose number is a multiple of the type's size.
    fn from_bytes(bytes: &[u8], dtype: Dtype) -> Self {
        let halves = || bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        let word = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        match dtype {
            Dtype::F32 => Values::F32(bytes.chunks_exact(4).map(word).collect()),
            Dtype::F16 => Values::F16(halves()),
            Dtype::Bf16 => Values::Bf16(halves()),
        }
    }

    /// The elements as little-endian bytes.
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(values) => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Values::F16(values) | Values::Bf16(values) => {
                values.iter().flat_map(|x| x.to_le_bytes()).collect()
            }
        }
    }
}

/// Reads all tensors of a file, in the file's order.
pub(crate) fn read(path: &Path) -> Result<Vec<Named>, Failure> {
    let format = Format::of(path)?;
    let bytes = read_bytes(path)?;
    let tensors = match format {
        Format::Npy => npy::read(&bytes, stem(path)).map(|tensor| vec![tensor]),
        Format::Safetensors => safetensors::read(&bytes),
    };
    tensors.map_err(|message| Failure::Input(format!("'{}': {message}", path.display())))
}

/// The bytes of a file of this format.
pub(crate) fn write(format: Format, tensors: &[Named]) -> Result<Vec<u8>, Failure> {
    match (format, tensors) {
        (Format::Npy, [tensor]) => Ok(npy::write(tensor)),
        (Format::Npy, _) => Err(Failure::Input(format!(
            "a .npy file holds one tensor, and there are {}; write to a .safetensors file",
            tensors.len()
        ))),
        (Format::Safetensors, _) => safetensors::write(tensors).map_err(Failure::Input),
    }
}

/// The whole of a file.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        Failure::Input(format!("cannot read '{}': {error}; check the path", path.display()))
    })
}

/// A `.npy` file does not name its tensor; its own name does.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("tensor")
}

/// The shape as a tensor, unless it stands for more elements than there are bytes.
fn tensor(name: &str, shape: &[usize], dtype: Dtype, bytes: usize) -> Result<Tensor, String> {
    let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
    match elements.and_then(|elements| elements.checked_mul(dtype.size())) {
        Some(size) if size == bytes => Ok(Tensor::new(name, shape)),
        _ => Err(format!(
            "tensor '{name}' of shape {shape:?} does not fit its {bytes} bytes of data; the file is \
             damaged, copy it again"
        )),
    }
}
