//! The encoder and decoder of single tensors.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gradwire::{Decoder, Encoder, Kept, Spec, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Buffer;
use crate::errors::Failure;

/// One rank's encoder and decoder of one compressor, without frames.
#[pyclass(module = "gradwire._core")]
pub(crate) struct Codec(Mutex<Ends>);

struct Ends {
    encoder: Encoder,
    decoder: Decoder,
}

impl Codec {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Codec {
    #[new]
    #[pyo3(signature = (spec, seed, rank, ranks = 1))]
    fn new(spec: &str, seed: u64, rank: u32, ranks: u32) -> PyResult<Self> {
        let spec: Spec = spec.parse().map_err(Failure::config)?;
        let encoder = Encoder::new(&spec, seed, rank).with_ranks(ranks);
        let decoder = Decoder::new(&spec, seed);
        Ok(Self(Mutex::new(Ends { encoder, decoder })))
    }

    /// The message of a tensor; the rest is kept as the residual.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        name: String,
        shape: Vec<usize>,
        step: u64,
        tensor: Buffer,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut message = Vec::new();
        let described = Tensor::new(name, &shape);
        self.ends()
            .encoder
            .encode(&described, step, tensor.floats(), &mut message)
            .map_err(Failure::from)?;
        Ok(PyBytes::new(py, &message))
    }

    /// Adds `weight`, a finite number, times a message of `rank` to a tensor of float32.
    #[expect(clippy::too_many_arguments, reason = "a Python method")]
    fn decode_add(
        &self,
        name: String,
        shape: Vec<usize>,
        step: u64,
        rank: u32,
        message: &[u8],
        weight: f32,
        mut tensor: Buffer,
    ) -> PyResult<()> {
        if !weight.is_finite() {
            return Err(
                Failure::config(format!("the weight is {weight}; give a finite one")).into()
            );
        }
        let out = tensor.as_f32().ok_or_else(|| Failure::config("the sum is not float32"))?;
        let described = Tensor::new(name, &shape);
        let added = self.ends().decoder.decode_add(&described, step, rank, message, weight, out);
        Ok(added.map_err(Failure::from)?)
    }

    /// Turns the weighted mean of all messages into the gradient of the step, in place: the result
    /// of a vote, or the mean.
    fn aggregate(&self, name: &str, mut tensor: Buffer) -> PyResult<()> {
        let mean = tensor.as_f32().ok_or_else(|| Failure::config("the mean is not float32"))?;
        self.ends().decoder.compressor_of(name).aggregate(mean);
        Ok(())
    }

    /// The message of a device form.
    fn pack<'py>(
        &self,
        py: Python<'py>,
        name: String,
        shape: Vec<usize>,
        step: u64,
        form: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut message = Vec::new();
        let described = Tensor::new(name, &shape);
        self.ends().encoder.pack(&described, step, form, &mut message).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &message))
    }

    /// The device form of a message of `rank`.
    fn unpack<'py>(
        &self,
        py: Python<'py>,
        name: String,
        shape: Vec<usize>,
        step: u64,
        rank: u32,
        message: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let described = Tensor::new(name, &shape);
        let unpack = || {
            let mut form = Vec::new();
            let unpacked = self.ends().decoder.unpack(&described, step, rank, message, &mut form);
            unpacked.map(|()| form)
        };
        let form = py.detach(unpack).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &form))
    }

    /// The bytes of a kept array of a tensor, `residual` or `velocity`; `None` if there is none.
    fn array<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        kind: &str,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let ends = self.ends();
        let array = ends.encoder.array(name, kept(kind)?);
        Ok(array.map(|values| bytes_of(py, values)))
    }
}

/// The kind of array with this name.
pub(crate) fn kept(name: &str) -> Result<Kept, Failure> {
    match name {
        "residual" => Ok(Kept::Residual),
        "velocity" => Ok(Kept::Velocity),
        _ => Err(Failure::config(format!(
            "there is no array {name}; residual and velocity are kept"
        ))),
    }
}

/// Numbers as bytes.
pub(crate) fn bytes_of<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    PyBytes::new(py, &bytes)
}
