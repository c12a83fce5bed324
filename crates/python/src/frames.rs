//! Encoding of tensors to frames, and decoding.

use gradwire::frame;
use gradwire::{Encoder, Spec, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{self, Buffer};
use crate::errors::Failure;

/// Encodes a tensor as a frame: a message with everything that decoding needs.
#[pyfunction]
#[pyo3(signature = (tensor, shape, spec, name, step, seed, rank))]
#[expect(clippy::too_many_arguments, reason = "a Python function with keywords")]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    tensor: Buffer,
    shape: Vec<usize>,
    spec: &str,
    name: String,
    step: u64,
    seed: u64,
    rank: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let frame = py.detach(move || -> Result<Vec<u8>, Failure> {
        let spec: Spec = spec.parse()?;
        let described = Tensor::new(name, &shape);
        let mut message = Vec::new();
        Encoder::new(&spec, seed, rank).encode(&described, step, tensor.floats(), &mut message)?;
        let mut frame = Vec::with_capacity(message.len() + 128);
        let dtype = tensor.dtype();
        frame::Frame { spec, tensor: described, dtype, seed, step, rank, message: &message }
            .write(&mut frame);
        Ok(frame)
    })?;
    Ok(PyBytes::new(py, &frame))
}

/// A frame that has been read and not decoded yet.
#[pyclass(module = "gradwire._core")]
pub(crate) struct Frame {
    bytes: Py<PyBytes>,
    /// The byte after the frame, where the next frame would begin.
    #[pyo3(get)]
    end: usize,
    #[pyo3(get)]
    spec: String,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    shape: Vec<usize>,
    #[pyo3(get)]
    dtype: &'static str,
    #[pyo3(get)]
    step: u64,
    #[pyo3(get)]
    seed: u64,
    #[pyo3(get)]
    rank: u32,
}

#[pymethods]
impl Frame {
    /// Reads and checks the frame at byte `at`.
    #[new]
    #[pyo3(signature = (bytes, at = 0))]
    fn new(bytes: Bound<'_, PyBytes>, at: usize) -> PyResult<Self> {
        let all = bytes.as_bytes();
        let mut rest = all.get(at..).unwrap_or_default();
        let frame = frame::Frame::read(&mut rest).map_err(Failure::from)?;
        let end = all.len() - rest.len();
        Ok(Self {
            end,
            spec: frame.spec.to_string(),
            name: frame.tensor.name().to_owned(),
            shape: frame.tensor.shape().to_vec(),
            dtype: buffer::name(frame.dtype),
            step: frame.step,
            seed: frame.seed,
            rank: frame.rank,
            bytes: slice(bytes.clone(), at, end),
        })
    }

    /// Decodes into a tensor of the frame's shape.
    fn decode(&self, py: Python<'_>, mut tensor: Buffer) -> PyResult<()> {
        let bytes = self.bytes.bind(py).as_bytes();
        py.detach(move || -> Result<(), Failure> {
            let values = frame::Frame::read(&mut &*bytes)?.decode(tensor.len())?;
            tensor.write(&values);
            Ok(())
        })?;
        Ok(())
    }
}

/// A part of `bytes` as an object of its own.
fn slice(bytes: Bound<'_, PyBytes>, from: usize, to: usize) -> Py<PyBytes> {
    if (from, to) == (0, bytes.as_bytes().len()) {
        return bytes.unbind();
    }
    PyBytes::new(bytes.py(), &bytes.as_bytes()[from..to]).unbind()
}
