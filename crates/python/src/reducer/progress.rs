//! The progress of the reducer's thread, for the caller.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use gradwire_exchange::{Outcome, Reducer, Result, StepReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;

/// Shared by the thread and the caller.
#[derive(Default)]
pub(super) struct Shared {
    progress: Mutex<Progress>,
    pub(super) news: Condvar,
}

#[derive(Default)]
pub(super) struct Progress {
    /// The number of submitted averages that are not done.
    pub(super) pending: usize,
    pub(super) failure: Option<Failure>,
    pub(super) step: Step,
    /// The totals of earlier steps.
    earlier: Total,
}

/// The step in progress.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Step {
    pub(super) step: Option<u64>,
    pub(super) elements: usize,
    pub(super) message_bytes: usize,
    pub(super) skipped: bool,
    pub(super) report: StepReport,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Total {
    pub(super) steps: u64,
    pub(super) skipped: u64,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the end of an average.
    pub(super) fn done(
        &self,
        step: u64,
        elements: usize,
        reducer: &Reducer,
        result: Result<Outcome, Failure>,
    ) {
        let mut progress = self.lock();
        if progress.step.step != Some(step) {
            progress.earlier = progress.total();
            progress.step = Step { step: Some(step), ..Step::default() };
        }
        let now = &mut progress.step;
        now.elements += elements;
        now.message_bytes = reducer.message_bytes();
        now.report = reducer.report();
        now.skipped |= matches!(result, Ok(Outcome::Skipped));
        if let Err(failure) = result {
            progress.failure.get_or_insert(failure);
        }
    }

    /// The cost of the last step, and of all steps together, as a `dict` of numbers.
    pub(super) fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (step, total) = {
            let progress = self.lock();
            (progress.step, progress.total())
        };
        let StepReport { compress, decompress, wire, traffic, .. } = step.report;
        let dict = PyDict::new(py);
        dict.set_item("step", step.step)?;
        dict.set_item("skipped", step.skipped)?;
        dict.set_item("elements", step.elements)?;
        dict.set_item("message_bytes", step.message_bytes)?;
        dict.set_item("ratio", 4.0 * step.elements as f64 / (step.message_bytes as f64).max(1.0))?;
        dict.set_item("bytes_up", traffic.bytes_up)?;
        dict.set_item("bytes_down", traffic.bytes_down)?;
        dict.set_item("messages_up", traffic.messages_up)?;
        dict.set_item("messages_down", traffic.messages_down)?;
        dict.set_item("compress_seconds", compress.as_secs_f64())?;
        dict.set_item("decompress_seconds", decompress.as_secs_f64())?;
        dict.set_item("wire_seconds", wire.as_secs_f64())?;
        dict.set_item("total_steps", total.steps)?;
        dict.set_item("total_skipped", total.skipped)?;
        dict.set_item("total_bytes_up", total.bytes_up)?;
        dict.set_item("total_bytes_down", total.bytes_down)?;
        Ok(dict)
    }
}

/// A submitted average or flush that is not done. It also counts as done if the thread panics or
/// has ended.
pub(super) struct Pending(pub(super) Arc<Shared>);

impl Pending {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.lock().pending += 1;
        Self(Arc::clone(shared))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        progress.pending -= 1;
        if std::thread::panicking() {
            progress.failure.get_or_insert_with(|| {
                Failure::config(
                    "gradwire has a fault: its thread has panicked, with the message above",
                )
            });
        }
        drop(progress);
        self.0.news.notify_all();
    }
}

impl Progress {
    pub(super) fn total(&self) -> Total {
        let Step { step, skipped, report, .. } = self.step;
        let mut total = self.earlier;
        total.steps += u64::from(step.is_some());
        total.skipped += u64::from(skipped);
        total.bytes_up += report.traffic.bytes_up;
        total.bytes_down += report.traffic.bytes_down;
        total
    }
}
