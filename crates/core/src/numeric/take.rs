//! Moves elements, and their positions, from a tensor to the workspace: the elements beyond a
//! limit, or at given positions.

use std::ops::Range;

use gradwire_bits::kernels::{self, Side};

use super::selection::{Threshold, kth_largest};
use crate::parts::{cut_mut, part_result};
use crate::{BLOCK, Source, Workspace};

/// Clears the positions and values of the workspace, and reserves memory for `most` of each and a
/// block, because the kernel writes whole registers past the end.
pub(crate) fn clear(most: usize, workspace: &mut Workspace) {
    workspace.positions.clear();
    workspace.positions.reserve(most + BLOCK);
    workspace.values.clear();
    workspace.values.reserve(most + BLOCK);
}

/// Moves exactly the k largest elements to the workspace, and sets them to 0 in the tensor; k is at
/// least 1 unless the tensor is empty.
pub(crate) fn take_largest(source: &mut Source<'_>, k: usize, workspace: &mut Workspace) {
    let threshold = (!source.is_empty()).then(|| kth_largest(source, k, workspace));
    clear(k, workspace);
    if let Some(threshold) = threshold {
        take_exactly(source, Side::Both, threshold, NOTHING, workspace);
    }
}

/// No remainder: moved elements become 0 in the tensor.
pub(crate) const NOTHING: Option<fn(f32) -> f32> = None;

/// Appends the elements that an exact threshold selects on a side to the workspace, and leaves the
/// `remainder` of each in the tensor. The helpers share the work, unless only some of the elements
/// equal to the threshold are selected.
pub(crate) fn take_exactly(
    source: &mut Source<'_>,
    side: Side,
    threshold: Threshold,
    remainder: Option<impl Fn(f32) -> f32 + Sync>,
    workspace: &mut Workspace,
) {
    let Threshold { value, equal, mut ties } = threshold;
    // If the value is zero, the limit is below every absolute value.
    let reaching = if value > 0.0 { value.next_down() } else { -1.0 };
    if ties == 0 || ties == equal {
        let limit = if ties > 0 { reaching } else { value };
        return take_beyond(source, side, limit, remainder, workspace);
    }
    let Workspace { positions, values, .. } = workspace;
    source.take_short_blocks(|offset, block| {
        let start = positions.len();
        let limit = if ties > 0 { reaching } else { value };
        kernels::compact_beyond(block, side, limit, offset as u32, positions, values);
        if ties > 0 {
            put_back(block, offset, start, positions, values, |x| {
                let tie = x.abs() == value;
                let keep = !tie || ties > 0;
                ties -= usize::from(tie && keep);
                keep
            });
        }
        leave(&remainder, block, offset, &positions[start..], &values[start..]);
    });
}

/// Appends the elements of a side whose absolute value is above a limit to the workspace, and
/// leaves the `remainder` of each in the tensor. The helpers share the work.
pub(crate) fn take_beyond(
    source: &mut Source<'_>,
    side: Side,
    limit: f32,
    remainder: Option<impl Fn(f32) -> f32 + Sync>,
    workspace: &mut Workspace,
) {
    take_in_parts(source, workspace, |source, Taken { positions, values }| {
        source.take_short_blocks(|offset, block| {
            let start = positions.len();
            kernels::compact_beyond(block, side, limit, offset as u32, positions, values);
            leave(&remainder, block, offset, &positions[start..], &values[start..]);
        });
    });
}

/// Writes the remainders of moved elements to their places in a block, which begins at `offset`.
fn leave(
    remainder: &Option<impl Fn(f32) -> f32>,
    block: &mut [f32],
    offset: usize,
    positions: &[u32],
    values: &[f32],
) {
    if let Some(remainder) = remainder {
        for (&position, &value) in positions.iter().zip(values) {
            block[position as usize - offset] = remainder(value);
        }
    }
}

/// The elements taken from a tensor or a part of it: increasing positions, and values.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) positions: Vec<u32>,
    pub(crate) values: Vec<f32>,
}

impl Taken {
    /// The lists of a workspace; [`keep_in`](Self::keep_in) returns them.
    pub(crate) fn out_of(workspace: &mut Workspace) -> Self {
        let Workspace { positions, values, .. } = workspace;
        Self { positions: std::mem::take(positions), values: std::mem::take(values) }
    }

    pub(crate) fn keep_in(self, workspace: &mut Workspace) {
        (workspace.positions, workspace.values) = (self.positions, self.values);
    }
}

part_result!(Taken { positions, values });

/// Appends the output of `take` for each part to the positions and values of the workspace. The
/// helpers share the parts.
pub(crate) fn take_in_parts(
    source: &mut Source<'_>,
    workspace: &mut Workspace,
    take: impl Fn(&mut Source<'_>, &mut Taken) + Sync,
) {
    let mut all = Taken::out_of(workspace);
    source.merge_parts(1, workspace, &mut all, take);
    all.keep_in(workspace);
}

/// Moves the elements of a side that reach a sampled threshold, at most the first `most` of them.
/// The helpers share the work.
pub(crate) fn take_reaching(
    source: &mut Source<'_>,
    side: Side,
    threshold: f32,
    most: usize,
    workspace: &mut Workspace,
) {
    let limit = if threshold > 0.0 { threshold.next_down() } else { 0.0 };
    take_in_parts(source, workspace, |source, Taken { positions, values }| {
        source.take_short_blocks(|offset, block| {
            let start = positions.len();
            if start == most {
                return;
            }
            kernels::compact_beyond(block, side, limit, offset as u32, positions, values);
            if positions.len() > most {
                let mut room = most - start;
                put_back(block, offset, start, positions, values, |_| {
                    let keep = room > 0;
                    room -= usize::from(keep);
                    keep
                });
            }
        });
    });
    // Each part returns at most `most` elements; all parts together may return more.
    let Workspace { positions, values, helpers, .. } = workspace;
    if positions.len() > most {
        source.give_back(&positions[most..], &values[most..], helpers);
        positions.truncate(most);
        values.truncate(most);
    }
}

/// Copies the elements at increasing positions, times a factor and limited to finite numbers, to
/// the values of the workspace, and subtracts them from the tensor. The workspace has the
/// positions. The helpers share the work.
pub(crate) fn take_at_positions(source: &mut Source<'_>, factor: f32, workspace: &mut Workspace) {
    let mut taken = Taken::out_of(workspace);
    let Taken { positions, values } = &mut taken;
    values.clear();
    values.resize(positions.len(), 0.0);
    let (mut positions, mut values) = (&positions[..], &mut values[..]);
    let of_part = |part: Range<usize>| {
        let count = positions.partition_point(|&at| (at as usize) < part.end);
        let positions = positions.split_off(..count).expect("there are as many");
        (positions, cut_mut(&mut values, count))
    };
    source.in_parts(workspace, of_part, |source, (positions, values), _| {
        let mut left = positions.iter().zip(values).peekable();
        source.take_short_blocks(|offset, block| {
            while let Some((&at, value)) =
                left.next_if(|(at, _)| (**at as usize) < offset + block.len())
            {
                let element = &mut block[at as usize - offset];
                *value = (*element * factor).clamp(f32::MIN, f32::MAX);
                *element -= *value;
            }
        });
    });
    taken.keep_in(workspace);
}

/// Puts the elements that were moved since index `start` and are not kept back into their block,
/// which begins at `offset`.
fn put_back(
    block: &mut [f32],
    offset: usize,
    start: usize,
    positions: &mut Vec<u32>,
    values: &mut Vec<f32>,
    mut keep: impl FnMut(f32) -> bool,
) {
    let mut kept = start;
    for at in start..positions.len() {
        let (position, value) = (positions[at], values[at]);
        if keep(value) {
            positions[kept] = position;
            values[kept] = value;
            kept += 1;
        } else {
            block[position as usize - offset] = value;
        }
    }
    positions.truncate(kept);
    values.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Floats, Helpers, MIN_DIVIDED, Residual, SCRATCH};

    /// The taken elements of a tensor of several parts, and the rest of the tensor.
    fn taken(
        values: &[f32],
        helpers: usize,
        take: impl FnOnce(&mut Source<'_>, &mut Workspace),
    ) -> (Vec<u32>, Vec<f32>, Vec<f32>) {
        let (mut residual, mut scratch) = (vec![0.0; values.len()], vec![0.0; SCRATCH]);
        let feedback = Some((Residual::PLAIN, &mut residual[..]));
        let mut source = Source::new(Floats::F32(values), feedback, &mut scratch).unwrap();
        let helpers = Helpers::new(helpers);
        let mut workspace = Workspace { helpers, ..Workspace::default() };
        take(&mut source, &mut workspace);
        (workspace.positions, workspace.values, residual)
    }

    #[test]
    fn exact_thresholds_select_the_first_of_equals_on_each_side() {
        let values: Vec<f32> = (0..MIN_DIVIDED + 9).map(|at| (at % 7) as f32 - 3.0).collect();
        for side in [Side::Above, Side::Below, Side::Both] {
            let is_of_side = |x: f32| match side {
                Side::Above => x > 0.0,
                Side::Below => x < 0.0,
                Side::Both => true,
            };
            let equal = values.iter().filter(|x| x.abs() == 2.0 && is_of_side(**x)).count();
            for ties in [0, 1, equal / 2, equal] {
                let (mut left, mut some) = (values.clone(), ties);
                let (mut positions, mut moved) = (Vec::new(), Vec::new());
                for (at, x) in left.iter_mut().enumerate().filter(|(_, x)| is_of_side(**x)) {
                    if x.abs() > 2.0 || (x.abs() == 2.0 && some > 0) {
                        some -= usize::from(x.abs() == 2.0);
                        positions.push(at as u32);
                        moved.push(*x);
                        *x -= 1.5;
                    }
                }
                let threshold = Threshold { value: 2.0, equal, ties };
                for helpers in [0, 2] {
                    let found = taken(&values, helpers, |source, workspace| {
                        let remainder = Some(|x: f32| x - 1.5);
                        take_exactly(source, side, threshold, remainder, workspace);
                    });
                    assert!(found.0 == positions, "{side:?}, {ties}, {helpers} helpers");
                    assert!(found.1 == moved && found.2 == left, "{side:?}, {ties}");
                }
            }
        }
    }

    #[test]
    fn elements_at_positions_are_taken_whatever_the_threads() {
        let values: Vec<f32> = (0..MIN_DIVIDED + 9).map(|at| at as f32 + 1.0).collect();
        let positions: Vec<u32> = (0..values.len() as u32).filter(|at| at % 11 < 2).collect();
        let expected: Vec<f32> = positions.iter().map(|&at| values[at as usize] * 0.5).collect();
        let mut left = values.clone();
        positions.iter().for_each(|&at| left[at as usize] *= 0.5);
        for helpers in [0, 2] {
            let found = taken(&values, helpers, |source, workspace| {
                workspace.positions.clone_from(&positions);
                take_at_positions(source, 0.5, workspace);
            });
            assert!(found == (positions.clone(), expected.clone(), left.clone()), "{helpers}");
        }
    }
}
