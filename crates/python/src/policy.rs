//! The compressors of a run, from their text.

use gradwire_exchange::{CompressionSchedule, Policy, RunDescription};

use crate::errors::Failure;

/// Reads a compression schedule for a run of `steps` steps, or of unknown length.
pub(crate) fn read(text: &str, steps: Option<u64>) -> Result<Policy, Failure> {
    let schedule: CompressionSchedule = text.parse().map_err(Failure::config)?;
    if steps.is_none() && !schedule.is_absolute() {
        return Err(Failure::config(format!(
            "'{schedule}' speaks of parts of a run whose length is not known; give total_steps, or numbers of steps \
             as in 'none until 100 then topk'"
        )));
    }
    if schedule.has_budget() {
        let reason = "only the Rust trainer supports budgets; leave 'within' out";
        return Err(Failure::config(format!("'{schedule}': {reason}")));
    }
    let run = RunDescription::of_steps(steps.unwrap_or(u64::MAX));
    Ok(Policy::new(schedule.resolve(run).map_err(Failure::config)?))
}
