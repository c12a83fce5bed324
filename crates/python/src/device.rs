//! A group of tensors on a device, which the Python package compresses.

use std::ops::Range;

use gradwire_exchange::{
    DeviceForms, DeviceGroup, ExchangeError, NonFiniteElement, Result, RoundForm,
};
use pyo3::prelude::*;

use crate::buffer::Bytes;

/// The methods of the package's object: `forms`, `skip`, `inbox`, `add`, `addends` and `add_means`.
pub(crate) struct Device {
    object: Py<PyAny>,
    forms: Option<Forms>,
    /// The result of the last `addends`.
    addends: Bytes,
}

/// The result of `forms`.
struct Forms {
    bytes: Bytes,
    ranges: Vec<Range<usize>>,
    non_finite: Option<NonFiniteElement>,
}

impl Device {
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self { object, forms: None, addends: Bytes::new(0, 0) }
    }

    fn call<R>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> Result<R> {
        let called = Python::try_attach(|py| {
            call(self.object.bind(py)).map_err(|error| {
                let place = error.traceback(py).and_then(|place| place.format().ok());
                let place = place.unwrap_or_default();
                ExchangeError::System(format!("the device failed: {error}\n{place}"))
            })
        });
        called.unwrap_or_else(|| Err(ExchangeError::Ended("the interpreter is ending".to_owned())))
    }

    /// `inbox(length)` returns the address of free main memory; this copies forms to it.
    fn give(&self, forms: &[u8]) -> Result<()> {
        let len = forms.len();
        let address =
            self.call(|device| device.call_method1("inbox", (len,))?.extract::<usize>())?;
        Bytes::new(address, len).get_mut().copy_from_slice(forms);
        Ok(())
    }
}

/// The first and the last byte of each form.
fn pairs(ranges: &[Range<usize>]) -> Vec<(usize, usize)> {
    ranges.iter().map(|range| (range.start, range.end)).collect()
}

impl DeviceGroup for Device {
    /// `forms()` waits for the device. It returns the address of all forms in main memory, the
    /// first and last byte of each, and `None`, or the tensor, index and value of an element that
    /// is not finite; and `None`, or the scale of the loss that ends the exchange.
    fn forms(&mut self) -> Result<DeviceForms<'_>> {
        if self.forms.is_none() {
            type Returned = (usize, Vec<(usize, usize)>, Option<(usize, usize, f32)>, Option<f32>);
            let (address, ranges, bad, refused): Returned =
                self.call(|device| device.call_method0("forms")?.extract())?;
            if let Some(scale) = refused {
                return Err(ExchangeError::Scale(scale));
            }
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

    /// `add(rank, weight, ranges)` adds the forms in the inbox.
    fn add(
        &mut self,
        rank: usize,
        weight: f32,
        forms: &[u8],
        ranges: &[Range<usize>],
    ) -> Result<()> {
        self.give(forms)?;
        self.call(|device| device.call_method1("add", (rank, weight, pairs(ranges))).map(drop))
    }

    /// `addends(round, tensors)` waits for the device, and returns the address of all addends in
    /// main memory. For each tensor, `tensors` has `None`, or the first and last byte of its form
    /// in the inbox and of its addend.
    fn addends(
        &mut self,
        round: usize,
        forms: &[u8],
        tensors: &[Option<RoundForm>],
    ) -> Result<&[u8]> {
        self.give(forms)?;
        let len = tensors.iter().flatten().last().map_or(0, |last| last.addend.end);
        let tensors: Vec<_> = tensors
            .iter()
            .map(|tensor| {
                let RoundForm { form, addend } = tensor.as_ref()?;
                Some((form.start, form.end, addend.start, addend.end))
            })
            .collect();
        let address = self
            .call(|device| device.call_method1("addends", (round, tensors))?.extract::<usize>())?;
        self.addends = Bytes::new(address, len);
        Ok(self.addends.get())
    }

    /// `add_means(ranges)` adds the forms in the inbox.
    fn add_means(&mut self, forms: &[u8], ranges: &[Range<usize>]) -> Result<()> {
        self.give(forms)?;
        self.call(|device| device.call_method1("add_means", (pairs(ranges),)).map(drop))
    }
}
