//! Checkpoints: everything a run needs to resume with the same bits.
//!
//! One state file (safetensors) holds, by name,
//!
//! | entries | content |
//! |---|---|
//! | `config/…` | every setting that a resumed run must repeat |
//! | `step` | steps done |
//! | `parameters/<tensor>` | the workers' common parameters; if workers are asynchronous, the first worker's |
//! | `statistics<r>/<norm>.mean`, `.variance` | the batch-norm statistics of worker r |
//! | `streams<r>/…` | the hidden state of worker r's language model |
//! | `worker<r>/…` | residuals and optimizer of worker r, and its parameters if workers are asynchronous; for worker 0, also the state of the servers |
//! | `worker<r>/step` | steps done when worker r saved its state; equal to `step` |
//! | `worker<r>/snapshot/…`, `shift` | with variance-reduced gradients, the snapshot and its mean gradient |
//! | `worker0/diagnosis/<tensor>` | bytes of the first worker's messages since the last diagnosis |
//! | `worker0/diagnosis exchanges`, `overdue` | exchanges since the last diagnosis; whether one is overdue |
//! | `record` | the trace and evaluations so far, as JSON |
//!
//! A checkpoint is complete if it has the state of each of its workers, all after the same step. An
//! incomplete checkpoint is never written, and counts as damaged when read.
//!
//! The latest checkpoints of a run are [kept](crate::rotation). A run with another number of
//! workers can resume from one. Residuals are redistributed by the rule of
//! [`reshard`](gradwire_exchange::reshard), batch-norm statistics by rank. The order of the data
//! continues as if the new number of workers had taken all steps.

use std::collections::BTreeMap;
use std::path::Path;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::{check_arrays, reshard, saved_as};
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::diagnosis::Diagnosis;
use crate::record::{Evaluation, StepRecord, WorkersChanged};
use crate::rotation;
use crate::settings::MOST_WORKERS;
use gradwire_models::tasks::Replica;

/// The prefix of the entries of a worker.
pub(crate) fn worker_prefix(rank: usize) -> String {
    format!("worker{rank}/")
}

/// The record of a run when it was saved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Wall-clock seconds.
    pub(crate) seconds: f64,
    /// The steps.
    pub(crate) trace: Vec<StepRecord>,
    /// The evaluations.
    pub(crate) evaluations: Vec<Evaluation>,
    /// The diagnoses.
    pub(crate) diagnoses: Vec<Diagnosis>,
    /// The changes of the number of workers.
    pub(crate) changes: Vec<WorkersChanged>,
    /// The digests of the parameters, by steps done.
    pub(crate) digests: BTreeMap<u64, String>,
}

/// A checkpoint that has been read, and that fits the configuration of the resumed run.
#[derive(Debug, Clone)]
pub(crate) struct Checkpoint {
    /// Steps done.
    pub(crate) step: u64,
    /// The record so far.
    pub(crate) record: Record,
    state: State,
    /// Workers of the run that wrote it.
    pub(crate) saved_by: usize,
}

impl Checkpoint {
    /// Reads the newest good checkpoint at a path and compares its configuration. Calls `skipped`
    /// for each newer, damaged checkpoint.
    pub(crate) fn read(
        path: &Path,
        config: &RunConfig,
        skipped: impl FnMut(&Path, &StateError),
    ) -> Result<Self, StateError> {
        let (_, state) = rotation::newest_good(path, check_complete, skipped)?;
        Self::of(state, config)
    }

    /// Interprets a state as a checkpoint of this configuration.
    pub(crate) fn of(state: State, config: &RunConfig) -> Result<Self, StateError> {
        check_complete(&state)?;
        // In a hierarchical exchange only leaders have residuals, so they cannot be redistributed.
        let fixed = config.exchange.leads();
        for (key, value) in
            config.facts_of_result().into_iter().filter(|(key, _)| fixed || key != "workers")
        {
            let compared = state.expect_setting(&format!("config/{key}"), &value);
            compared.map_err(|error| called(&key, error))?;
        }
        let record = serde_json::from_slice(record_of(&state)?)
            .map_err(|error| StateError::Damaged(format!("the record: {error}")))?;
        let step = state.number("step")?;
        if step > config.steps {
            return Err(damaged(&format!("it is from step {step} of {}", config.steps)));
        }
        Ok(Self { step, record, saved_by: saved_by(&state)?, state })
    }

    /// The state as the bytes of a file.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        self.state.to_bytes()
    }

    /// Checks the sizes of all workers' residuals, and restores the state of each replica in a run
    /// of `workers` workers. Returns the common parameters.
    pub(crate) fn restore(
        &self,
        replicas: &mut [Box<dyn Replica + '_>],
        workers: usize,
    ) -> Result<Vec<Vec<f32>>, StateError> {
        for rank in 0..self.saved_by {
            check_arrays(&self.state, &worker_prefix(rank), replicas[0].tensors())?;
        }
        for replica in &mut *replicas {
            replica.restore(&self.state, self.saved_by, workers)?;
        }
        values_of(PARAMETERS, replicas[0].tensors(), &self.state)
    }

    /// The state of a worker in a run of this configuration. If another number of workers wrote the
    /// checkpoint, their residuals are redistributed such that their mean stays the same.
    pub(crate) fn worker(&self, rank: usize, config: &RunConfig) -> State {
        let saved = |rank| self.state.extract(&worker_prefix(rank));
        if self.saved_by == config.workers {
            return saved(rank);
        }
        let all: Vec<State> = (0..self.saved_by).map(saved).collect();
        let mut state = reshard(&all, rank, config.workers);
        let exchange = saved_as(config.exchange, config.workers, config.overlap);
        state.set_setting("exchange", exchange);
        state
    }
}

/// The error of a setting, with the name that users know.
fn called(name: &str, error: StateError) -> StateError {
    match error {
        StateError::Mismatch { found, expected, .. } => {
            StateError::Mismatch { key: name.to_owned(), found, expected }
        }
        other => other,
    }
}

/// Whether a run of this configuration can resume from the checkpoint at a path: it exists, is
/// intact, and has the settings that a resumed run must repeat. Reads the whole file.
pub fn can_resume(path: &Path, config: &RunConfig) -> bool {
    Checkpoint::read(path, config, |_, _| {}).is_ok()
}

/// The key of the number of steps after which a worker's state was saved. It shows whether a
/// checkpoint is complete.
pub(crate) fn saved_at(rank: usize) -> String {
    format!("{}step", worker_prefix(rank))
}

/// Workers of the run that wrote a checkpoint.
fn saved_by(state: &State) -> Result<usize, StateError> {
    let workers = state.setting("config/workers").ok().and_then(|workers| workers.parse().ok());
    workers
        .filter(|workers| (1..=MOST_WORKERS).contains(workers))
        .ok_or_else(|| damaged("it does not say how many workers wrote it"))
}

/// Refuses a checkpoint without its step, its record, or the state of one of its workers after that
/// step.
fn check_complete(state: &State) -> Result<(), StateError> {
    let workers = saved_by(state)?;
    let step = state.number("step").map_err(|_| damaged("it does not say its step"))?;
    record_of(state)?;
    for rank in 0..workers {
        // Every exchange saves this entry.
        let there = state.setting(&format!("{}exchange", worker_prefix(rank))).is_ok();
        let reason = match state.number(&saved_at(rank)) {
            Ok(at) if there && at == step => continue,
            Ok(at) if there => {
                format!("it is from step {step}, but the state of worker {rank} is from step {at}")
            }
            _ => format!("it is incomplete: the state of worker {rank} of {workers} is missing"),
        };
        return Err(damaged(&reason));
    }
    Ok(())
}

/// The record, as JSON.
fn record_of(state: &State) -> Result<&[u8], StateError> {
    state.bytes("record").map_err(|_| damaged("it has no record"))
}

fn damaged(reason: &str) -> StateError {
    StateError::Damaged(reason.to_owned())
}

/// The entry of each tensor under `prefix`.
pub(crate) fn values_of(
    prefix: &str,
    tensors: &[Tensor],
    state: &State,
) -> Result<Vec<Vec<f32>>, StateError> {
    let read = |t: &Tensor| {
        state.floats_of(&format!("{prefix}/{}", t.name()), t.elements()).map(<[f32]>::to_vec)
    };
    tensors.iter().map(read).collect()
}

/// Adds an entry of each tensor under `prefix`.
pub(crate) fn save_values(
    prefix: &str,
    tensors: &[Tensor],
    values: &[Vec<f32>],
    state: &mut State,
) {
    for (tensor, values) in tensors.iter().zip(values) {
        state.set_floats(&format!("{prefix}/{}", tensor.name()), values.clone());
    }
}

/// The prefix of the parameters.
pub(crate) const PARAMETERS: &str = "parameters";

/// Adds configuration, step and record to the workers' merged states.
///
/// # Errors
/// If a worker's state is missing.
pub(crate) fn complete(
    mut state: State,
    config: &RunConfig,
    step: u64,
    record: &Record,
) -> Result<State, StateError> {
    for (key, value) in config.facts_of_result() {
        state.set_setting(&format!("config/{key}"), value);
    }
    state.set_number("step", step);
    let record = serde_json::to_vec(record)
        .map_err(|error| StateError::Damaged(format!("the record: {error}")))?;
    state.set_bytes("record", record);
    check_complete(&state)?;
    Ok(state)
}
