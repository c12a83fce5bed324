//! Tensors by pointer. Only this module turns an address from Python into a slice.

use std::ops::{Deref, DerefMut};

use gradwire::{Dtype, Floats};
use gradwire_bits::kernels;
use pyo3::prelude::*;

use crate::errors::Failure;

/// A contiguous tensor in main memory, by its address.
///
/// The Python package checks dtype, device, contiguity and length before it passes an address.
/// Until the call or the job ends, it keeps the tensor alive and prevents other writes to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    address: usize,
    elements: usize,
    dtype: Dtype,
}

/// The element type with this name in PyTorch and numpy.
pub(crate) fn dtype(name: &str) -> Result<Dtype, Failure> {
    match name {
        "float32" => Ok(Dtype::F32),
        "float16" => Ok(Dtype::F16),
        "bfloat16" => Ok(Dtype::Bf16),
        _ => Err(Failure::config(format!(
            "elements are of type {name}; give float32, float16 or bfloat16"
        ))),
    }
}

/// The name of an element type.
pub(crate) fn name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::F16 => "float16",
        Dtype::Bf16 => "bfloat16",
    }
}

/// From `(address, elements, dtype)`.
impl<'py> FromPyObject<'_, 'py> for Buffer {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (address, elements, name): (usize, usize, String) = object.extract()?;
        let dtype = dtype(&name)?;
        if elements > 0 && (address == 0 || !address.is_multiple_of(dtype.size())) {
            let message = format!("{address:#x} is not an address of a {name}");
            return Err(Failure::config(message).into());
        }
        Ok(Self { address, elements, dtype })
    }
}

impl Buffer {
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        self.elements
    }

    /// Whether this is a part of another tensor, from its element `start` on.
    pub(crate) fn is_at(&self, whole: &Self, start: usize) -> bool {
        self.address == whole.address + start * whole.dtype.size()
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The tensor as the input of a compressor.
    pub(crate) fn floats(&self) -> Floats<'_> {
        match self.dtype {
            Dtype::F32 => Floats::F32(self.slice()),
            Dtype::F16 => Floats::F16(self.slice()),
            Dtype::Bf16 => Floats::Bf16(self.slice()),
        }
    }

    /// The values in place; `None` unless they are `f32`.
    pub(crate) fn as_f32(&mut self) -> Option<&mut [f32]> {
        (self.dtype == Dtype::F32).then(|| self.slice_mut())
    }

    /// The patterns of the values in place; `None` for `f32`.
    pub(crate) fn as_halves(&mut self) -> Option<&mut [u16]> {
        (self.dtype != Dtype::F32).then(|| self.slice_mut())
    }

    /// Replaces `wide` by the values as `f32`.
    pub(crate) fn read(&self, wide: &mut Vec<f32>) {
        wide.resize(self.elements, 0.0);
        match self.dtype {
            Dtype::F32 => wide.copy_from_slice(self.slice()),
            Dtype::F16 => kernels::f16_to_f32(self.slice(), wide),
            Dtype::Bf16 => kernels::bf16_to_f32(self.slice(), wide),
        }
    }

    /// Writes values, rounded to the tensor's type.
    pub(crate) fn write(&mut self, values: &[f32]) {
        match self.dtype {
            Dtype::F32 => self.slice_mut().copy_from_slice(values),
            Dtype::F16 => write_f16(values, self.slice_mut()),
            Dtype::Bf16 => write_bf16(values, self.slice_mut()),
        }
    }

    fn slice<T: Element>(&self) -> &[T] {
        assert_eq!(size_of::<T>(), self.dtype.size());
        if self.elements == 0 {
            return &[];
        }
        // SAFETY: the address is aligned and not null (checked in `extract`). The Python package
        // guarantees that it points to `elements` elements of this size in one initialised
        // allocation, which stays alive and to which nobody else writes. Every bit pattern is a
        // value of T.
        unsafe { std::slice::from_raw_parts(self.address as *const T, self.elements) }
    }

    fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(size_of::<T>(), self.dtype.size());
        if self.elements == 0 {
            return &mut [];
        }
        // SAFETY: as in `slice`; the Python package also guarantees that nobody else reads the
        // tensor meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut T, self.elements) }
    }
}

/// A NaN in each type of 16 bits. The kernels convert finite numbers only.
const NAN_F16: u16 = 0x7e00;
const NAN_BF16: u16 = 0x7fc0;

fn write_f16(values: &[f32], out: &mut [u16]) {
    kernels::f32_to_f16(values, out);
    write_nan(values, out, NAN_F16);
}

fn write_bf16(values: &[f32], out: &mut [u16]) {
    kernels::f32_to_bf16(values, out);
    write_nan(values, out, NAN_BF16);
}

/// Writes NaN where values are NaN, as in a step that is skipped.
fn write_nan(values: &[f32], out: &mut [u16], nan: u16) {
    if values.iter().any(|value| value.is_nan()) {
        for (value, out) in values.iter().zip(out) {
            if value.is_nan() {
                *out = nan;
            }
        }
    }
}

/// Numbers for which every bit pattern is valid.
trait Element {}
impl Element for f32 {}
impl Element for u16 {}

/// Bytes at an address that nobody else uses: a channel's outgoing or incoming buffer, or a tensor
/// of weights during a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes {
    address: usize,
    len: usize,
}

impl Bytes {
    /// The first `len` bytes at an address that a channel returned for at least `len` bytes, or of
    /// a dense tensor that the Python package keeps alive.
    pub(crate) fn new(address: usize, len: usize) -> Self {
        Self { address, len: if address == 0 { 0 } else { len } }
    }

    /// The bytes.
    pub(crate) fn get(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the tensor has at least `len` bytes and is kept alive, by the channel or by the
        // Python package. Only calls of the channel write to it, and its one user makes them one at
        // a time; nobody writes to a tensor of weights during a call.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }

    /// The same for writing.
    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as in `get`. A message sent from these bytes has left before the channel returns
        // them again.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, self.len) }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.get()
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.get_mut()
    }
}
