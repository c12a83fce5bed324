//! A running sum or mean of gradients.

use crate::source::NonFinite;
use crate::{BLOCK, Floats, Residual};

/// u ← momentum·u + factor·g, unless an element of g, of the new u or of β·v + γ·u is not finite: then nothing changes.
/// Here v is the residual with its weights β and γ; without one that sum is u.
pub(super) fn accelerate(
    gradient: Floats<'_>,
    [momentum, factor]: [f32; 2],
    velocity: &mut [f32],
    residual: Option<(Residual, &[f32])>,
    scratch: &mut [f32],
) -> Result<(), NonFinite> {
    let next = |u: f32, g: f32| momentum * u + factor * g;
    // Not finite where u is not, so checking the sum is enough.
    let sum = |at: usize, u: f32| match residual {
        None => u,
        Some((Residual { beta, gamma }, v)) => beta * v[at] + gamma * u,
    };
    let mut bad = None;
    for_blocks(gradient, scratch, |start, block| {
        let new = |at: usize| sum(start + at, next(velocity[start + at], block[at]));
        if bad.is_none() && !(0..block.len()).fold(true, |finite, at| finite & new(at).is_finite())
        {
            let at = (0..block.len()).find(|&at| !(block[at].is_finite() && new(at).is_finite()));
            bad = at.map(|at| {
                let value = if block[at].is_finite() { new(at) } else { block[at] };
                NonFinite { index: start + at, value }
            });
        }
    });
    if let Some(bad) = bad {
        return Err(bad);
    }
    for_blocks(gradient, scratch, |start, block| {
        for (u, &g) in velocity[start..].iter_mut().zip(block) {
            *u = next(*u, g);
        }
    });
    Ok(())
}

pub(super) fn for_blocks(
    gradient: Floats<'_>,
    scratch: &mut [f32],
    mut look: impl FnMut(usize, &[f32]),
) {
    for start in (0..gradient.len()).step_by(BLOCK) {
        let len = BLOCK.min(gradient.len() - start);
        look(start, gradient.block(start, &mut scratch[..len]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn velocity_gathers_and_errors_change_nothing() {
        let mut scratch = vec![0.0; crate::SCRATCH];
        let (mut u, v) = ([2.0, -2.0], [1.0, 1.0]);
        accelerate(
            Floats::F32(&[1.0, 4.0]),
            [0.5, 2.0],
            &mut u,
            Some((Residual::PLAIN, &v)),
            &mut scratch,
        )
        .unwrap();
        assert_eq!(u, [3.0, 7.0]);
        let bad = accelerate(
            Floats::F32(&[1.0, f32::NAN]),
            [0.5, 1.0],
            &mut u,
            Some((Residual::PLAIN, &v)),
            &mut scratch,
        );
        assert_eq!(bad.unwrap_err().index, 1);
        let full = [f32::MAX; 2];
        let bad = accelerate(
            Floats::F32(&[1e38, 0.0]),
            [0.5, 4.0],
            &mut u,
            Some((Residual::PLAIN, &full)),
            &mut scratch,
        );
        let expected = NonFinite { index: 0, value: f32::INFINITY };
        assert_eq!(bad.unwrap_err(), expected);
        assert_eq!(u, [3.0, 7.0]);
    }
}
