//! A running sum or mean of gradients.

use gradwire_bits::kernels;

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
    let (own, next) = scratch.split_at_mut(BLOCK);
    let mut bad = None;
    for_blocks(gradient, own, |start, block| {
        let next = &mut next[..block.len()];
        kernels::accumulate_to(next, &velocity[start..][..block.len()], block, momentum, factor);
        // Not finite where u is not, so checking the sum is enough.
        if let Some((Residual { beta, gamma }, v)) = residual {
            kernels::accumulate(next, &v[start..][..block.len()], gamma, beta);
        }
        bad = bad.or_else(|| check(start, block, next).err());
    });
    if let Some(bad) = bad {
        return Err(bad);
    }
    for_blocks(gradient, own, |start, block| {
        kernels::accumulate(&mut velocity[start..][..block.len()], block, momentum, factor);
    });
    Ok(())
}

/// Refuses the first element whose gradient or new value is not finite.
fn check(start: usize, gradient: &[f32], new: &[f32]) -> Result<(), NonFinite> {
    let largest = kernels::abs_max_bits(gradient).max(kernels::abs_max_bits(new));
    if f32::from_bits(largest).is_finite() {
        return Ok(());
    }
    let mut pairs = gradient.iter().zip(new).enumerate();
    let bad = pairs.find(|(_, (g, new))| !(g.is_finite() && new.is_finite()));
    let (at, (&g, &new)) = bad.expect("an element is not finite");
    Err(NonFinite { index: start + at, value: if g.is_finite() { new } else { g } })
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

    #[test]
    fn a_bad_element_of_a_later_block_leaves_the_first_unchanged() {
        let mut scratch = vec![0.0; crate::SCRATCH];
        let (mut u, mut gradient) = (vec![1.0; 3 * BLOCK], vec![2.0; 3 * BLOCK]);
        gradient[BLOCK + 5] = f32::INFINITY;
        gradient[2 * BLOCK] = f32::NAN;
        let bad = accelerate(Floats::F32(&gradient), [0.5, 1.0], &mut u, None, &mut scratch);
        let expected = NonFinite { index: BLOCK + 5, value: f32::INFINITY };
        assert_eq!(bad, Err(expected));
        assert!(u.iter().all(|&u| u == 1.0));
        let halves = vec![0x4000; 3 * BLOCK];
        accelerate(Floats::F16(&halves), [0.5, 1.0], &mut u, None, &mut scratch).unwrap();
        assert!(u.iter().all(|&u| u == 2.5));
    }
}
