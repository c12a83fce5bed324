//! One rank's reducer, in a background thread.

mod background;
mod job;
mod plan;
mod progress;

use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gradwire::{Dtype, State, Tensor};
use gradwire_exchange::{
    Column, Exchange, KeptArray, KeptFor, OnNonFinite, ParseExchangeError, Reducer, ReducerConfig,
    ReducerThread, RuleError, Traffic, Transport,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use self::background::{Background, ask};
use self::job::{Job, Output};
use self::plan::{Plan, fewest_bytes, plan};
use crate::buffer::{Buffer, dtype};
use crate::channel::Channel;
use crate::codec;
use crate::device::Device;
use crate::errors::Failure;
use crate::policy;

/// The number of a column and the number of columns; see [`Column`]. For each tensor of the model,
/// the first element of its part, and the part's shape.
type Parts = (usize, usize, Vec<(usize, Vec<usize>)>);

/// Averages groups of tensors over a process group. Python calls a group of tensors a tensor group,
/// because in PyTorch a group is a process group.
#[pyclass(name = "Reducer", module = "gradwire._core", weakref, frozen)]
pub(crate) struct ReducerHandle {
    background: Background,
    /// The tensors of each group.
    groups: Mutex<Vec<Arc<[String]>>>,
    /// The expected element type of each tensor's gradients, in the order of the model.
    dtypes: Mutex<Vec<Dtype>>,
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    /// The exchanges, each with its first step; the first begins at step 0.
    exchanges: Vec<(u64, Exchange)>,
    #[pyo3(get)]
    spec: String,
    /// The longest wait for another rank, in seconds.
    #[pyo3(get)]
    deadline: f64,
    /// For each compressor of the schedule, its first step and the number of steps from one
    /// exchange to the next.
    #[pyo3(get)]
    stages: Vec<(u64, u64)>,
    /// Whether a compressor of the schedule or of a rule averages by votes.
    #[pyo3(get)]
    votes: bool,
    /// The names of the tensors, in the order of the model.
    names: Mutex<Vec<String>>,
    /// The remedy that `wait` adds to the error about a gradient with NaN or infinity.
    nonfinite_remedy: Mutex<String>,
}

#[pymethods]
impl ReducerHandle {
    /// `parts` are the parts of the tensors that ranks average, if they do not average whole ones.
    #[new]
    #[pyo3(signature = (channel, tensors, spec, *, rules, exchange, seed, raw_vectors, raw_below, raw_names, skip, deadline, steps, threads, parts = None))]
    #[expect(clippy::too_many_arguments, reason = "a Python function with keywords")]
    fn new(
        channel: &Bound<'_, PyAny>,
        tensors: Vec<(String, Vec<usize>, String)>,
        spec: &str,
        rules: Vec<String>,
        exchange: &str,
        seed: u64,
        raw_vectors: bool,
        raw_below: usize,
        raw_names: Vec<String>,
        skip: bool,
        deadline: f64,
        steps: Option<u64>,
        threads: usize,
        parts: Option<Parts>,
    ) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(deadline)
            .map_err(|error| Failure::config(format!("deadline={deadline}: {error}")))?;
        let (open, ended) = mpsc::channel();
        let channel = Channel::new(channel, patience, open)?;
        let mut policy = policy::read(spec, steps)?;
        let rules = rules.iter().map(|rule| rule.parse().map_err(Failure::config::<RuleError>));
        policy.rules = rules.collect::<Result<_, _>>()?;
        policy.raw_vectors = raw_vectors;
        (policy.raw_below, policy.raw_names) = (raw_below, raw_names);
        let exchanges = match exchange {
            "auto" => ReducerConfig::suitable_stages(&policy, channel.size()),
            name => vec![(0, name.parse().map_err(Failure::config::<ParseExchangeError>)?)],
        };
        let (exchange, later) = (exchanges[0].1, exchanges[1..].to_vec());
        if exchange == Exchange::GatherShards {
            policy = policy.without_memory();
        }
        let (rank, size) = (channel.rank(), channel.size());
        let dtypes = tensors.iter().map(|(_, _, name)| dtype(name)).collect::<Result<_, _>>()?;
        let tensors =
            tensors.into_iter().map(|(name, shape, _)| Tensor::new(name, &shape)).collect();
        let column = parts.as_ref().map(|&(number, columns, _)| Column { number, columns });
        let tensors = parts_of(tensors, parts)?;
        let names: Vec<_> = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
        let on_non_finite = if skip { OnNonFinite::Skip } else { OnNonFinite::Refuse };
        let config = ReducerConfig { exchange, policy, tensors, seed, on_non_finite };
        let spec = config.policy.push.to_string();
        let stages = config.policy.push.stages();
        let stages = stages.map(|(first, spec)| (first, spec.every())).collect();
        let votes = config.policy.pushes().any(|spec| spec.compressor().votes());
        let reducer = Reducer::staged(Box::new(channel), config, later).map_err(Failure::from)?;
        let mut reducer = reducer.with_threads(threads);
        if let Some(column) = column {
            reducer = reducer.of_column(column);
        }
        let thread = ReducerThread::new("gradwire", reducer).map_err(Failure::from)?;
        Ok(Self {
            background: Background::new(thread, ended),
            groups: Mutex::default(),
            dtypes: Mutex::new(dtypes),
            rank,
            size,
            exchanges,
            spec,
            deadline,
            stages,
            votes,
            names: Mutex::new(names),
            nonfinite_remedy: Mutex::default(),
        })
    }

    /// Whether this process was forked from the reducer's, and so lacks its thread and connections.
    #[getter]
    fn forked(&self) -> bool {
        self.background.forked()
    }

    #[getter]
    fn nonfinite_remedy(&self) -> String {
        lock(&self.nonfinite_remedy).clone()
    }

    #[setter]
    fn set_nonfinite_remedy(&self, remedy: String) {
        *lock(&self.nonfinite_remedy) = remedy;
    }

    /// The exchange of a step.
    fn exchange_at(&self, step: u64) -> String {
        let last = self.exchanges.iter().take_while(|(from, _)| *from <= step).last();
        last.expect("the first exchange begins at step 0").1.to_string()
    }

    /// Whether an average has failed.
    #[getter]
    fn failed(&self) -> bool {
        self.background.failed()
    }

    /// Whether the averages of a step that are done so far were skipped.
    fn skipped(&self, step: u64) -> bool {
        self.background.skipped(step)
    }

    /// The names of the tensors, in the order of the model.
    #[getter]
    fn names(&self) -> Vec<String> {
        lock(&self.names).clone()
    }

    /// Adds tensors, with their names, shapes and element types, after the averages submitted so
    /// far. Tensors that the model has are left out.
    fn add(&self, py: Python<'_>, tensors: Vec<(String, Vec<usize>, String)>) -> PyResult<()> {
        for (name, shape, element_type) in tensors {
            let dtype = dtype(&element_type)?;
            let tensor = Tensor::new(name.clone(), &shape);
            if self.background.ask(py, move |reducer| reducer.add(tensor))? {
                lock(&self.names).push(name);
                lock(&self.dtypes).push(dtype);
            }
        }
        Ok(())
    }

    /// Forgets the residual and everything else that is kept for a tensor. Returns whether
    /// something was kept.
    fn forget(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        self.background.ask(py, move |reducer| reducer.forget(&name))
    }

    /// The number of a group of tensors, given in the order of their values.
    fn tensor_group(&self, names: Vec<String>) -> usize {
        let mut groups = lock(&self.groups);
        let known = groups.iter().position(|group| **group == *names);
        known.unwrap_or_else(|| {
            groups.push(names.into());
            groups.len() - 1
        })
    }

    /// Averages a group's values in place. The background thread calls `ready()` before and
    /// `done()` afterwards.
    ///
    /// Divides the values by `scale` first, and multiplies their mean by it; values of 16 bits that
    /// `none` sends keep it. `ready()` may return the scale, instead of `scale`;
    /// NaN says that the step is not finite. Multiplies the means by `factor`. Writes those from an
    /// element on to another tensor, if `output` has both; then values outside of it stay as they
    /// were, unless it is a part of the tensor.
    #[pyo3(signature = (tensor_group, step, tensor, done = None, *, scale = 1.0, ready = None, factor = 1.0, output = None))]
    #[expect(clippy::too_many_arguments, reason = "a Python function with keywords")]
    fn average(
        &self,
        tensor_group: usize,
        step: u64,
        tensor: Buffer,
        done: Option<Py<PyAny>>,
        scale: f32,
        ready: Option<Py<PyAny>>,
        factor: f32,
        output: Option<(usize, Buffer)>,
    ) -> PyResult<()> {
        let names = self.names_of(tensor_group)?;
        let output = output.map(|(start, part)| Output::new(&tensor, start, part)).transpose()?;
        self.background.average(step, tensor.len(), done, move |reducer| {
            // Without values, this rank cannot send the message that the others wait for.
            let given = ask(ready).inspect_err(|_| reducer.abort())?;
            Job { names, step, tensor, scale: given.unwrap_or(scale), factor, output }.run(reducer)
        })
    }

    /// Averages a group of `elements` gradients of type `element_type` that a device compresses.
    /// The background thread calls the methods of `device`, and `done()` at the end.
    fn average_device(
        &self,
        tensor_group: usize,
        step: u64,
        elements: usize,
        element_type: &str,
        device: Py<PyAny>,
        done: Py<PyAny>,
    ) -> PyResult<()> {
        let (names, dtype) = (self.names_of(tensor_group)?, dtype(element_type)?);
        self.background.average(step, elements, Some(done), move |reducer| {
            let group = reducer.group_of_type(&names, dtype)?;
            Ok(reducer.average_device(group, step, &mut Device::new(device))?)
        })
    }

    /// Calls `callable()` in the background thread after the averages submitted so far; `wait`
    /// waits for it, too.
    fn call_later(&self, callable: Py<PyAny>) -> PyResult<()> {
        self.background.call_later(callable)
    }

    /// The compressor of each tensor at a step, in the order of the model.
    fn specs(&self, py: Python<'_>, step: u64) -> PyResult<Vec<String>> {
        self.background.ask(py, move |reducer| {
            let places = 0..reducer.tensors().len();
            Ok(places.map(|at| reducer.spec_at(at, step).to_string()).collect())
        })
    }

    /// The compressor of each tensor's messages at a step, in the order of the model: as `specs`,
    /// but `fp16` or `bf16` for gradients of 16 bits that `none` sends.
    fn message_specs(&self, py: Python<'_>, step: u64) -> PyResult<Vec<String>> {
        let dtypes = lock(&self.dtypes).clone();
        self.background.ask(py, move |reducer| {
            let spec = |(at, &dtype)| reducer.spec_at(at, step).for_elements(dtype).to_string();
            Ok(dtypes.iter().enumerate().map(spec).collect())
        })
    }

    /// The bytes of a kept array of a tensor or of a slice, `residual` or `velocity`; `None` if
    /// there is none. `averages` means the averages of an owner instead of gradients.
    #[pyo3(signature = (name, kind, *, averages = false))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        name: String,
        kind: &str,
        averages: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (kind, of) = (codec::kept(kind)?, kept_for(averages));
        let array = self.background.ask(py, move |reducer| {
            let array = KeptArray { name: &name, kind, of };
            Ok(reducer.array(array).map(<[f32]>::to_vec))
        })?;
        Ok(array.map(|values| codec::bytes_of(py, &values)))
    }

    /// Replaces a kept array of a tensor or of a slice by a copy of `values`, or removes it; see
    /// `array`.
    #[pyo3(signature = (name, kind, values, *, averages = false))]
    fn set_array(
        &self,
        py: Python<'_>,
        name: String,
        kind: &str,
        values: Option<Buffer>,
        averages: bool,
    ) -> PyResult<()> {
        let (kind, of) = (codec::kept(kind)?, kept_for(averages));
        let values = values.map(|buffer| {
            let mut wide = Vec::new();
            buffer.read(&mut wide);
            wide
        });
        self.background
            .ask(py, move |reducer| reducer.set_array(KeptArray { name: &name, kind, of }, values))
    }

    /// Selects the compressors of a step for the state that is saved next; for averages that a
    /// device makes by itself.
    fn enter(&self, py: Python<'_>, step: u64) -> PyResult<()> {
        self.background.ask(py, move |reducer| reducer.enter(step))
    }

    /// Waits until all averages are done, and all messages of this rank have left.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.background.wait(py, &self.nonfinite_remedy())
    }

    /// The cost of the last step, and of all steps together. `ratio` compares message sizes, each
    /// counted once, not traffic: with all-gather over n ranks, divide it by n / 2 to compare with
    /// an all-reduce.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.background.stats(py)
    }

    /// For each tensor: its name, its number of elements, its compressor at a step, the expected
    /// bytes for normally distributed values, and the bytes of this rank's last messages.
    fn plan(&self, py: Python<'_>, step: u64) -> PyResult<Vec<Plan>> {
        let dtypes = lock(&self.dtypes).clone();
        self.background.ask(py, move |reducer| plan(reducer, &dtypes, step))
    }

    /// The fewest bytes that this rank's messages of a step are expected to take, each counted
    /// once: for normally distributed values, large or small.
    fn fewest_bytes(&self, py: Python<'_>, step: u64) -> PyResult<f64> {
        let dtypes = lock(&self.dtypes).clone();
        self.background.ask(py, move |reducer| fewest_bytes(reducer, &dtypes, step))
    }

    /// This rank's state, if nothing is kept for the next step, such as a residual; else `None`.
    fn save_unless_kept<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let state = self.background.ask(py, |reducer| {
            let state = reducer.save();
            let keeps = state.floats_under("").next().is_some();
            if keeps { Ok(None) } else { Ok(Some(state.to_bytes()?)) }
        })?;
        Ok(state.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// This rank's state, as the bytes of a state file.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let state = self.background.ask(py, |reducer| Ok(reducer.save().to_bytes()?))?;
        Ok(PyBytes::new(py, &state))
    }

    /// The states of all ranks, in rank order. All ranks call it at the same time.
    fn save_all<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let states: Vec<Vec<u8>> = self.background.ask(py, |reducer| {
            let states = reducer.save_all()?;
            // This rank may end now, and the others must have its state.
            reducer.flush()?;
            states.iter().map(|state| Ok(state.to_bytes()?)).collect()
        })?;
        Ok(states.iter().map(|state| PyBytes::new(py, state)).collect())
    }

    /// Restores this rank's state from its own saved state, or from the states of all ranks of a
    /// run with any number of ranks.
    fn load(&self, py: Python<'_>, states: Vec<Vec<u8>>) -> PyResult<()> {
        self.background.ask(py, move |reducer| {
            let states = states.iter().map(|bytes| State::from_bytes(bytes));
            reducer.restore(states.collect::<Result<_, _>>()?)
        })
    }

    /// Restores the state that this worker saved as a rank of another process group, of any size.
    /// Only for all-gather.
    fn adopt(&self, py: Python<'_>, state: Vec<u8>) -> PyResult<()> {
        self.background.ask(py, move |reducer| reducer.adopt(&State::from_bytes(&state)?))
    }

    /// Returns the bytes of all ranks, in rank order, on every rank.
    fn gather<'py>(
        &self,
        py: Python<'py>,
        step: u64,
        own: Vec<u8>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let all = self.background.ask(py, move |reducer| reducer.gather(step, own))?;
        Ok(all.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    /// The counts of the transport since the last average began: bytes sent, bytes received,
    /// messages sent, messages received.
    fn traffic(&self, py: Python<'_>) -> PyResult<[u64; 4]> {
        self.background.ask(py, |reducer| {
            let Traffic { bytes_up, bytes_down, messages_up, messages_down } =
                reducer.report().traffic;
            Ok([bytes_up, bytes_down, messages_up, messages_down])
        })
    }

    /// The positions of the elements of a tensor that its last message carried, as little-endian
    /// `u32`; None for all.
    fn sent<'py>(&self, py: Python<'py>, name: String) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let positions = self.background.ask(py, move |reducer| {
            Ok(reducer
                .sent(&name)
                .map(|sent| sent.iter().flat_map(|at| at.to_le_bytes()).collect()))
        })?;
        Ok(positions.map(|bytes: Vec<u8>| PyBytes::new(py, &bytes)))
    }

    /// Ends the background thread after the submitted averages, and waits for it. Afterwards, other
    /// calls raise `ConfigError`. Does nothing in a forked process.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.background.close(py)
    }

    /// Makes `close` wait for at most a second, because this rank has failed and other ranks may
    /// never answer. The background thread then ends after the submitted averages, or at the
    /// deadline.
    fn hurry(&self) {
        self.background.hurry();
    }

    /// Aborts the exchange on all ranks.
    fn abort(&self) {
        self.background.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kept_for(averages: bool) -> KeptFor {
    if averages { KeptFor::Averages } else { KeptFor::Gradients }
}

/// The tensors, or these parts of them.
fn parts_of(tensors: Vec<Tensor>, parts: Option<Parts>) -> PyResult<Vec<Tensor>> {
    let Some((_, _, parts)) = parts else { return Ok(tensors) };
    let fits = |(tensor, (start, shape)): (&Tensor, &(usize, Vec<usize>))| {
        start.saturating_add(shape.iter().product()) <= tensor.elements()
    };
    if parts.len() != tensors.len() || !tensors.iter().zip(&parts).all(fits) {
        return Err(Failure::config("parts: a tensor does not have these elements").into());
    }
    Ok(tensors.iter().zip(parts).map(|(one, (start, shape))| one.part(start, &shape)).collect())
}

impl ReducerHandle {
    /// The names of the tensors of a group.
    fn names_of(&self, group: usize) -> Result<Arc<[String]>, Failure> {
        lock(&self.groups)
            .get(group)
            .cloned()
            .ok_or_else(|| Failure::config(format!("there is no group {group}")))
    }
}
