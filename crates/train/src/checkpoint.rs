//! Checkpoints: all a run needs to go on as if it had never stopped.
//!
//! One state file (safetensors) holds, by name,
//!
//! | entries | what |
//! |---|---|
//! | `config/…` | every setting that must not change |
//! | `step` | steps done |
//! | `parameters/<tensor>` | the workers' parameters, equal on all |
//! | `statistics<r>/<norm>.mean`, `.variance` | the batch-norm statistics of worker r |
//! | `streams<r>/…` | what worker r's language model remembers of the text it reads |
//! | `worker<r>/…` | residuals and optimizer of worker r; the first has the servers' too; its parameters, where workers go at their own pace |
//! | `worker<r>/snapshot/…`, `shift` | of variance-reduced gradients, the snapshot and the mean gradient there |
//! | `worker0/diagnosis/<tensor>` | bytes of the first worker's messages since it was last looked at |
//! | `worker0/diagnosis exchanges`, `overdue` | how many exchanges that was, and whether a look is due |
//! | `record` | the trace and evaluations so far, as JSON |
//!
//! The last few of a run are [kept](crate::kept). A run with another number of workers can go on from it: residuals are
//! handed on by the rule of [`reshard`](gradwire_exchange::reshard), batch-norm statistics by rank, and the data are
//! visited from where as many steps of as many workers would have come to.

use std::path::Path;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::{Overlapped, reshard};
use serde::{Deserialize, Serialize};

use crate::kept;
use crate::run::{Diagnosis, Evaluation, Learner, RunConfig, StepRecord};
use gradwire_models::models::floats_of;

/// Under which keys a worker's exchange keeps its state.
pub(crate) fn worker_prefix(rank: usize) -> String {
    format!("worker{rank}/")
}

/// What was on record when a run was saved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Wall-clock seconds.
    pub(crate) seconds: f64,
    /// The steps.
    pub(crate) trace: Vec<StepRecord>,
    /// The evaluations.
    pub(crate) evaluations: Vec<Evaluation>,
    /// The diagnoses.
    #[serde(default)]
    pub(crate) diagnoses: Vec<Diagnosis>,
}

/// A checkpoint that has been read, of the configuration it is resumed with.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// Steps done.
    pub(crate) step: u64,
    /// What was on record.
    pub(crate) record: Record,
    state: State,
    /// Workers of the run that wrote it.
    saved_by: usize,
    /// Workers of this one, and what states of their exchange say they are of.
    workers: usize,
    exchange: String,
}

impl Checkpoint {
    /// Reads the newest good checkpoint at a path and compares its configuration. `skipped` hears of a newer one that
    /// is not good.
    pub(crate) fn read(
        path: &Path,
        config: &RunConfig,
        skipped: impl FnMut(&Path, &StateError),
    ) -> Result<Self, StateError> {
        let (_, state) = kept::newest_good(path, skipped)?;
        Self::of(state, config)
    }

    /// A checkpoint that is this state, of this configuration.
    pub(crate) fn of(state: State, config: &RunConfig) -> Result<Self, StateError> {
        // Residuals are handed on from rank to rank, and in a hierarchy only leaders have any.
        let fixed = config.exchange.leads();
        for (key, value) in
            config.facts_of_result().into_iter().filter(|(key, _)| fixed || key != "workers")
        {
            state.expect_setting(&format!("config/{key}"), &value)?;
        }
        let damaged =
            || StateError::Damaged("it does not say how many workers wrote it".to_owned());
        let saved_by = state.setting("config/workers")?.parse().ok().filter(|saved| *saved > 0);
        let record = serde_json::from_str(state.setting("record")?)
            .map_err(|error| StateError::Damaged(format!("its record: {error}")))?;
        Ok(Self {
            step: state.number("step")?,
            record,
            state,
            saved_by: saved_by.ok_or_else(damaged)?,
            workers: config.workers,
            exchange: exchange_of(config),
        })
    }

    /// The state, as a file has it.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        self.state.to_bytes()
    }

    /// Puts back what each worker has of its own. Returns the parameters of all.
    pub(crate) fn restore(
        &self,
        learners: &mut [Learner<'_>],
    ) -> Result<Vec<Vec<f32>>, StateError> {
        for learner in &mut *learners {
            learner.restore(&self.state, self.saved_by, self.workers)?;
        }
        parameters(learners[0].tensors(), &self.state)
    }

    /// The state of a worker's exchange; where another number of workers wrote the checkpoint, what this one takes
    /// over of theirs, so that the mean of what is still to be sent stays what it was.
    pub(crate) fn worker(&self, rank: usize) -> State {
        let saved = |rank| self.state.extract(&worker_prefix(rank));
        if self.saved_by == self.workers {
            return saved(rank);
        }
        let all: Vec<State> = (0..self.saved_by).map(saved).collect();
        let mut state = reshard(&all, rank, self.workers);
        state.set_setting("exchange", self.exchange.as_str());
        state
    }
}

/// What a state of a run's exchange says it is of.
fn exchange_of(config: &RunConfig) -> String {
    let (exchange, workers) = (config.exchange, config.workers);
    match config.overlap {
        true => Overlapped::saved_as(exchange, workers),
        false => format!("{exchange} with {workers} workers"),
    }
}

/// The parameters in a state.
pub(crate) fn parameters(tensors: &[Tensor], state: &State) -> Result<Vec<Vec<f32>>, StateError> {
    let entry = |tensor: &Tensor| format!("parameters/{}", tensor.name());
    tensors.iter().map(|tensor| floats_of(state, entry(tensor), tensor.elements())).collect()
}

/// Adds the workers' parameters.
pub(crate) fn save_parameters(tensors: &[Tensor], parameters: &[Vec<f32>], state: &mut State) {
    for (tensor, values) in tensors.iter().zip(parameters) {
        state.set_floats(&format!("parameters/{}", tensor.name()), values.clone());
    }
}

/// Completes the workers' merged states and writes them, beside the `keep` − 1 latest before.
pub(crate) fn write(
    (path, keep): (&Path, usize),
    mut state: State,
    config: &RunConfig,
    step: u64,
    record: &Record,
) -> Result<(), StateError> {
    for (key, value) in config.facts_of_result() {
        state.set_setting(&format!("config/{key}"), value);
    }
    state.set_number("step", step);
    let record = serde_json::to_string(record)
        .map_err(|error| StateError::Damaged(format!("the record: {error}")))?;
    state.set_setting("record", record);
    kept::write(path, keep, &state)
}

/// What must be equal on all ranks of a run, a fact a line.
pub(crate) fn facts(config: &RunConfig) -> String {
    let line = |(name, value): (String, String)| format!("{name} {value}\n");
    let version = format!("gradwire {}\n", env!("CARGO_PKG_VERSION"));
    version + &config.facts_of_ranks().into_iter().map(line).collect::<String>()
}
