//! Compressors over a run, from their text.

use gradwire_exchange::plan::{Course, Plan, PlanError};
use gradwire_exchange::{Policy, Schedule};

use crate::errors::Failure;

/// One compressor, or several one after the other, in a run of so many steps.
pub(crate) fn read(text: &str, steps: Option<u64>) -> Result<Policy, Failure> {
    let plan: Plan = text.parse().map_err(|error: PlanError| Failure::config(error.to_string()))?;
    if steps.is_none() && !plan.is_absolute() {
        return Err(Failure::config(format!(
            "'{plan}' speaks of parts of a run whose length is not known; give total_steps, or numbers of steps as in \
             'none until 100 then topk'"
        )));
    }
    if plan.has_budget() {
        return Err(Failure::config(format!(
            "'{plan}': budgets are the Rust trainer's; leave 'within' out"
        )));
    }
    let course = Course {
        steps: steps.unwrap_or(u64::MAX),
        drops: &[],
        compressed: &[],
        raw: &[],
        sends: 1.0,
        headers: 0,
    };
    let phases = plan.resolve(course).map_err(|error| Failure::config(error.to_string()))?;
    let mut phases = phases.into_iter();
    let push = phases.next().map_or_else(|| plan.first().clone(), |(_, spec)| spec);
    Ok(Policy::new(Schedule { first: push, later: phases.collect() }))
}
