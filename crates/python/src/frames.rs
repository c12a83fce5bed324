//! Encoding of tensors to frames, and decoding.

use gradwire::frame::{self, Budget, Item, StoredTensor};
use gradwire::{Encoder, Spec, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{self, Buffer};
use crate::errors::{self, Failure};

/// Encodes a tensor as a frame: a message with all that decoding needs.
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
    let frame = errors::detached(py, move || {
        let spec = spec.parse::<Spec>()?.without_history();
        let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        if elements != Some(tensor.len()) {
            let message = format!("shape {shape:?} does not have {} elements", tensor.len());
            return Err(Failure::config(message));
        }
        let described = Tensor::new(name, &shape);
        let mut message = Vec::new();
        Encoder::new(&spec, seed, rank)
            .encode(&described, step, tensor.floats(), &mut message)
            .map_err(Failure::of_array)?;
        let mut frame = Vec::with_capacity(message.len() + 128);
        let dtype = tensor.dtype();
        frame::Frame { spec, tensor: described, dtype, seed, step, rank, message: &message }
            .write(&mut frame)?;
        Ok(frame)
    })?;
    Ok(PyBytes::new(py, &frame))
}

/// A frame of a tensor that has been read, but not decoded.
#[pyclass(module = "gradwire._core")]
pub(crate) struct Frame {
    bytes: Py<PyBytes>,
    /// The byte after the frame, where the next frame would begin.
    #[pyo3(get)]
    end: usize,
    #[pyo3(get)]
    spec: Option<String>,
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
    /// The elements, if the frame stores the tensor as it is. The frame then has no spec, and
    /// `dtype` is the format's name.
    #[pyo3(get)]
    stored: Option<Py<PyBytes>>,
}

#[pymethods]
impl Frame {
    /// Reads and checks the frame at byte `at`. It may decode to at most `max_bytes` bytes,
    /// counting a stored tensor as it is, and decoded elements as float32.
    #[new]
    #[pyo3(signature = (bytes, at = 0, max_bytes = None))]
    fn new(bytes: Bound<'_, PyBytes>, at: usize, max_bytes: Option<u64>) -> PyResult<Self> {
        let all = bytes.as_bytes();
        let mut rest = all.get(at..).unwrap_or_default();
        let mut whole = rest;
        let item = Item::read(&mut rest).map_err(Failure::from)?;
        let end = all.len() - rest.len();
        let default = || Budget::for_frames(all.len());
        let mut budget = max_bytes.map_or_else(default, Budget::new);
        let frame = match item {
            Item::Message(frame) => frame,
            Item::Stored(stored) => {
                budget.spend_stored(&stored).map_err(Failure::from)?;
                return Ok(Self::of_stored(bytes.py(), &stored, end));
            }
            // The error says what it is.
            _ => frame::Frame::read(&mut whole).map_err(Failure::from)?,
        };
        budget.spend(&frame.tensor).map_err(Failure::from)?;
        Ok(Self {
            end,
            spec: Some(frame.spec.to_string()),
            name: frame.tensor.name().to_owned(),
            shape: frame.tensor.shape().to_vec(),
            dtype: buffer::name(frame.dtype),
            step: frame.step,
            seed: frame.seed,
            rank: frame.rank,
            stored: None,
            bytes: slice(bytes.clone(), at, end),
        })
    }

    /// Decodes a message into a tensor of the frame's shape.
    fn decode(&self, py: Python<'_>, mut tensor: Buffer) -> PyResult<()> {
        let bytes = self.bytes.bind(py).as_bytes();
        Ok(errors::detached(py, move || {
            let mut budget = Budget::new(4 * tensor.len() as u64);
            let values = frame::Frame::read(&mut &*bytes)?.decode(&mut budget)?;
            tensor.write(&values);
            Ok(())
        })?)
    }
}

impl Frame {
    /// A frame that stores a tensor as it is.
    fn of_stored(py: Python<'_>, stored: &StoredTensor<'_>, end: usize) -> Self {
        Self {
            end,
            spec: None,
            name: stored.tensor().name().to_owned(),
            shape: stored.tensor().shape().to_vec(),
            dtype: stored.element().name(),
            step: 0,
            seed: 0,
            rank: 0,
            stored: Some(PyBytes::new(py, stored.data()).unbind()),
            bytes: PyBytes::new(py, b"").unbind(),
        }
    }
}

/// A part of `bytes` as a separate object.
fn slice(bytes: Bound<'_, PyBytes>, from: usize, to: usize) -> Py<PyBytes> {
    if (from, to) == (0, bytes.as_bytes().len()) {
        return bytes.unbind();
    }
    PyBytes::new(bytes.py(), &bytes.as_bytes()[from..to]).unbind()
}
