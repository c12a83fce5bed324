//! Selects the gradients among the tensors of a file.

use super::{LeftOut, Named};
use crate::failure::Failure;
use crate::output;

/// Keeps the tensors with finite floats in every step, and names the others. Rounds float64 to
/// float32. All steps have the same tensors.
///
/// # Errors
/// If none is left.
pub(crate) fn retain(steps: &mut [Vec<Named>]) -> Result<(), Failure> {
    for named in steps.iter_mut().flatten() {
        if let Some(rounded) = named.values.rounded() {
            named.values = rounded;
        }
    }
    let mut left_out = LeftOut::default();
    let tensors = steps.first().map_or(0, Vec::len);
    let kept: Vec<bool> = (0..tensors)
        .map(|at| {
            let reason = steps.iter().find_map(|step| unfit(&step[at]));
            if let Some(reason) = &reason {
                left_out.add(steps[0][at].tensor.name(), reason.clone());
            }
            reason.is_none()
        })
        .collect();
    for step in steps {
        let mut kept = kept.iter();
        step.retain(|_| kept.next().copied().unwrap_or_default());
    }
    let Some(left_out) = left_out.text() else { return Ok(()) };
    if kept.contains(&true) {
        let what = "Left out, because they are not finite floats of 16, 32 or 64 bits";
        output::note(format!("{what}: {left_out}."));
        return Ok(());
    }
    Err(Failure::Input(format!(
        "the files have no tensor of finite floats of 16, 32 or 64 bits, only {left_out}; give the gradients of a step"
    )))
}

/// Why a tensor is not a gradient; `None` if it is.
fn unfit(named: &Named) -> Option<String> {
    let Some(values) = named.values.to_f32() else {
        return Some(format!("type {}", named.values.element()));
    };
    values.iter().find(|value| !value.is_finite()).map(|value| format!("with {value}"))
}
