//! The content of a file of tensors.

use gradwire::frame::{ElementType, Metadata, StoredTensor};
use gradwire::{Dtype, Floats, Tensor, printable};
use gradwire_bits::kernels;

/// The content of a file of tensors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contents {
    /// The tensors, by name: a .safetensors file does not keep the model's order.
    pub(crate) tensors: Vec<Named>,
    /// The metadata; a .npy file has none.
    pub(crate) metadata: Option<Metadata>,
}

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
    /// The bytes of elements that no compressor accepts.
    Other(ElementType, Vec<u8>),
}

impl Values {
    /// Converts values to a type, rounding to nearest even. Values beyond its range, and NaN,
    /// become its largest finite value, because a message can decode to slightly more than the
    /// encoded value. An error is a lack of memory.
    pub(crate) fn from_f32(values: Vec<f32>, dtype: Dtype) -> Result<Self, String> {
        Ok(match dtype {
            Dtype::F32 => Values::F32(values),
            Dtype::F16 => Values::F16(narrowed(&values, kernels::f32_to_f16)?),
            Dtype::Bf16 => Values::Bf16(narrowed(&values, kernels::f32_to_bf16)?),
        })
    }

    /// The values as the input of a compressor, if compressors accept such elements.
    pub(crate) fn floats(&self) -> Option<Floats<'_>> {
        match self {
            Values::F32(values) => Some(Floats::F32(values)),
            Values::F16(values) => Some(Floats::F16(values)),
            Values::Bf16(values) => Some(Floats::Bf16(values)),
            Values::Other(..) => None,
        }
    }

    /// Elements of float64 rounded to float32; `None` for other types, and if a value is beyond the
    /// range of float32, infinite or NaN.
    pub(crate) fn rounded(&self) -> Option<Self> {
        let Values::Other(ElementType::F64, bytes) = self else { return None };
        let (words, _) = bytes.as_chunks();
        let values = words.iter().map(|word| f64::from_le_bytes(*word) as f32);
        let values = values.map(|value| value.is_finite().then_some(value)).collect::<Option<_>>();
        values.map(Values::F32)
    }

    /// The type of the elements.
    pub(crate) fn element(&self) -> ElementType {
        match self {
            Values::F32(_) => ElementType::F32,
            Values::F16(_) => ElementType::F16,
            Values::Bf16(_) => ElementType::Bf16,
            Values::Other(element, _) => *element,
        }
    }

    /// The values as binary32, if compressors accept such elements.
    pub(crate) fn to_f32(&self) -> Option<Vec<f32>> {
        match self {
            Values::F32(values) => Some(values.clone()),
            Values::F16(values) => Some(widened(values, kernels::f16_to_f32)),
            Values::Bf16(values) => Some(widened(values, kernels::bf16_to_f32)),
            Values::Other(..) => None,
        }
    }

    /// Elements from little-endian bytes; their number is a multiple of the type's size.
    pub(crate) fn from_bytes(bytes: &[u8], element: ElementType) -> Self {
        let halves = || bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        let word = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        match element {
            ElementType::F32 => Values::F32(bytes.chunks_exact(4).map(word).collect()),
            ElementType::F16 => Values::F16(halves()),
            ElementType::Bf16 => Values::Bf16(halves()),
            other => Values::Other(other, bytes.to_vec()),
        }
    }

    /// The number of bytes that [`append`](Self::append) appends.
    pub(crate) fn size(&self) -> usize {
        match self {
            Values::F32(values) => 4 * values.len(),
            Values::F16(values) | Values::Bf16(values) => 2 * values.len(),
            Values::Other(_, bytes) => bytes.len(),
        }
    }

    /// Appends the elements as little-endian bytes. An error is a lack of memory.
    pub(super) fn append(&self, bytes: &mut Vec<u8>) -> Result<(), String> {
        reserve(bytes, self.size())?;
        match self {
            Values::F32(values) => {
                values.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
            }
            Values::F16(values) | Values::Bf16(values) => {
                values.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
            }
            Values::Other(_, data) => bytes.extend_from_slice(data),
        }
        Ok(())
    }
}

impl Named {
    /// Appends the frame that stores the tensor uncompressed.
    pub(crate) fn store(&self, out: &mut Vec<u8>) -> Result<(), String> {
        let mut data = Vec::new();
        self.values.append(&mut data)?;
        StoredTensor::new(self.tensor.clone(), self.values.element(), &data)
            .and_then(|stored| stored.write(out))
            .map_err(|error| error.to_string())
    }
}

fn narrowed(values: &[f32], convert: fn(&[f32], &mut [u16])) -> Result<Vec<u16>, String> {
    let mut patterns = Vec::new();
    reserve(&mut patterns, values.len())?;
    patterns.resize(values.len(), 0);
    convert(values, &mut patterns);
    Ok(patterns)
}

fn widened(patterns: &[u16], convert: fn(&[u16], &mut [f32])) -> Vec<f32> {
    let mut values = vec![0.0; patterns.len()];
    convert(patterns, &mut values);
    values
}

/// Reserves memory for exactly `len` more elements.
pub(super) fn reserve<T>(list: &mut Vec<T>, len: usize) -> Result<(), String> {
    list.try_reserve_exact(len).map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        format!(
            "there is not enough memory for {bytes} bytes; free some memory, or use a larger machine"
        )
    })
}

/// The tensor of this name and shape, if its elements take exactly this many bytes.
pub(super) fn tensor(
    name: &str,
    shape: &[usize],
    element: ElementType,
    bytes: usize,
) -> Result<Tensor, String> {
    match element.bytes(shape) {
        Some(size) if size == bytes => Ok(Tensor::new(name, shape)),
        _ => Err(format!(
            "tensor '{}' of shape {shape:?} does not fit its {bytes} bytes of data; the file is \
             damaged, copy it again",
            printable(name)
        )),
    }
}
