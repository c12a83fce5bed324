//! The compressors of a run, from their text.

use gradwire_exchange::{CompressionSchedule, Policy, RunDescription, ScheduleError};

use crate::errors::Failure;

/// Reads a compression schedule for a run of `steps` steps, or of unknown length.
pub(crate) fn read(text: &str, steps: Option<u64>) -> Result<Policy, Failure> {
    let schedule: CompressionSchedule = text.parse().map_err(not_a_schedule)?;
    check_known(&schedule)?;
    if steps.is_none() && !schedule.is_absolute() {
        return Err(Failure::config(format!(
            "'{schedule}' has fractions of a run whose length is not known; give total_steps, or numbers of steps \
             as in 'none until 100 then topk'"
        )));
    }
    let run = RunDescription::of_steps(steps.unwrap_or(u64::MAX));
    Ok(Policy::new(schedule.resolve(run).map_err(Failure::config)?))
}

/// Refuses schedules with conditions that only the Rust trainer can check.
fn check_known(schedule: &CompressionSchedule) -> Result<(), Failure> {
    let reason = if schedule.has_budget() {
        "only the Rust trainer supports budgets; leave 'within' out"
    } else if schedule.has_drop() {
        "only the Rust trainer knows when the learning rate drops; name the step, as in 'none until 1000 then topk'"
    } else {
        return Ok(());
    };
    Err(Failure::config(format!("'{schedule}': {reason}")))
}

/// The error about unreadable text. Its remedies name the schedules that Python supports.
fn not_a_schedule(error: ScheduleError) -> Failure {
    let ScheduleError::Form { text, reason } = error else { return Failure::config(error) };
    Failure::config(format!(
        "'{text}' is not a compression schedule: {reason}; give SPEC, 'SPEC until 0.5 then SPEC', 'SPEC until 100 then SPEC' or \
         'SPEC from KEY=VALUE over 0.05'"
    ))
}
