//! A group of tensors on a device, which the Python package compresses.

use std::ops::Range;

use gradwire_exchange::{DeviceForms, DeviceGroup, ExchangeError, NonFiniteElement, Result};
use pyo3::prelude::*;

use crate::buffer::Bytes;

/// The methods of the package's object: `forms`, `skip`, `inbox` and `add`.
pub(crate) struct Device {
    object: Py<PyAny>,
    forms: Option<Forms>,
}

/// What `forms` returned.
struct Forms {
    bytes: Bytes,
    ranges: Vec<Range<usize>>,
    non_finite: Option<NonFiniteElement>,
}

impl Device {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self { object, forms: None }
    }

    fn call<R>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> Result<R> {
        let called = Python::try_attach(|py| {
            call(self.object.bind(py))
                .map_err(|error| ExchangeError::config(format!("the device failed: {error}")))
        });
        called.unwrap_or_else(|| Err(ExchangeError::config("the interpreter is ending")))
    }
}

impl DeviceGroup for Device {
    /// `forms()` waits for the device, and returns the address of all forms in main memory, the first and last byte of each,
    /// and tensor, index and value of an element that is not finite, or `None`.
    fn forms(&mut self) -> Result<DeviceForms<'_>> {
        if self.forms.is_none() {
            type Returned = (usize, Vec<(usize, usize)>, Option<(usize, usize, f32)>);
            let (address, ranges, bad): Returned =
                self.call(|device| device.call_method0("forms")?.extract())?;
            let len = ranges.iter().map(|(_, end)| *end).max().unwrap_or(0);
            let non_finite =
                bad.map(|(tensor, index, value)| NonFiniteElement { tensor, index, value });
            let ranges = ranges.into_iter().map(|(start, end)| start..end).collect();
            self.forms = Some(Forms { bytes: Bytes::new(address, len), ranges, non_finite });
        }
        let Forms { bytes, ranges, non_finite } = self.forms.as_ref().expect("it was set");
        Ok(DeviceForms { bytes: bytes.get(), ranges, non_finite: *non_finite })
    }

    /// `skip()`.
    fn skip(&mut self) -> Result<()> {
        self.call(|device| device.call_method0("skip").map(drop))
    }

    /// `inbox(rank, length)` returns the address of free main memory; `add(rank, weight, ranges)` adds the forms there.
    fn add(
        &mut self,
        rank: usize,
        weight: f32,
        forms: &[u8],
        ranges: &[Range<usize>],
    ) -> Result<()> {
        let len = forms.len();
        let address =
            self.call(|device| device.call_method1("inbox", (rank, len))?.extract::<usize>())?;
        Bytes::new(address, len).get_mut().copy_from_slice(forms);
        let ranges: Vec<(usize, usize)> =
            ranges.iter().map(|range| (range.start, range.end)).collect();
        self.call(|device| device.call_method1("add", (rank, weight, ranges)).map(drop))
    }
}
