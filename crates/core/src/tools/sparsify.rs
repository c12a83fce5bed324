//! Selection of few elements of a tensor.

use gradwire_bits::kernels::Side;

use crate::numeric::take;
use crate::{Helpers, Source, Workspace};

/// Which elements are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// This number of elements with the largest absolute values; the first of equal ones.
    Largest(usize),
    /// The elements whose absolute value is above this number.
    Above(f32),
}

/// Moves the selected elements to the workspace, as increasing positions and values, and sets them
/// to 0 in the tensor. All others stay in the residual.
///
/// The compressor must then return [`Coverage::Positions`](crate::Coverage::Positions).
///
/// Cost: 12 bytes per element, plus 8 for [`Selection::Largest`], unless the compressor asks for
/// [`Statistics::KthLargest`](crate::Statistics::KthLargest).
pub fn sparsify(source: &mut Source<'_>, selection: Selection, workspace: &mut Workspace) {
    let above = match selection {
        // No finite value is above the largest one.
        Selection::Largest(0) => f32::MAX,
        Selection::Largest(k) => return take::take_largest(source, k.min(source.len()), workspace),
        Selection::Above(above) => above,
    };
    workspace.positions.clear();
    workspace.values.clear();
    take::take_beyond(source, Side::Both, above, take::NOTHING, workspace);
}

/// Writes the unsent part of sparsified values back to their increasing positions. The helpers of
/// the workspace share the work.
pub fn give_back(
    source: &mut Source<'_>,
    positions: &[u32],
    values: &[f32],
    helpers: &mut Helpers,
) {
    source.give_back(positions, values, helpers);
}

/// Adds `weight` times each value to the element of `out` at its position. Threads share the work
/// of [`Helpers::add_at`](crate::Helpers::add_at), which needs increasing positions.
///
/// # Panics
/// If a position is out of range; [`unpack_positions`](super::unpack_positions) prevents this.
pub fn desparsify(positions: &[u32], values: &[f32], weight: f32, out: &mut [f32]) {
    positions.iter().zip(values).for_each(|(&at, &value)| out[at as usize] += weight * value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Floats, Residual, SCRATCH};

    fn sparsified(gradient: &[f32], selection: Selection) -> (Vec<u32>, Vec<f32>, Vec<f32>) {
        let (mut residual, mut scratch) = (vec![0.0; gradient.len()], [0.0; SCRATCH]);
        let floats = Floats::F32(gradient);
        let mut source =
            Source::new(floats, Some((Residual::PLAIN, &mut residual)), &mut scratch).unwrap();
        // The earlier content does not count.
        let mut workspace =
            Workspace { positions: vec![9], values: vec![9.0], ..Workspace::default() };
        sparsify(&mut source, selection, &mut workspace);
        (workspace.positions, workspace.values, residual)
    }

    #[test]
    fn selections_worked_by_hand() {
        let gradient = [1.0, -3.0, 0.0, 2.0, -2.0];
        let kept = |positions: &[u32], values: &[f32], left: &[f32]| {
            (positions.to_vec(), values.to_vec(), left.to_vec())
        };
        let two = kept(&[1, 3], &[-3.0, 2.0], &[1.0, 0.0, 0.0, 0.0, -2.0]);
        assert_eq!(sparsified(&gradient, Selection::Largest(2)), two);
        let three = kept(&[1, 3, 4], &[-3.0, 2.0, -2.0], &[1.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(sparsified(&gradient, Selection::Above(1.0)), three);
        let all = kept(&[0, 1, 2, 3, 4], &gradient, &[0.0; 5]);
        assert_eq!(sparsified(&gradient, Selection::Largest(6)), all);
        assert_eq!(sparsified(&gradient, Selection::Largest(0)), kept(&[], &[], &gradient));
        assert_eq!(sparsified(&[], Selection::Largest(3)), kept(&[], &[], &[]));
    }

    #[test]
    fn values_return_to_their_positions() {
        let mut out = [1.0; 4];
        desparsify(&[1, 3], &[4.0, -2.0], 0.5, &mut out);
        assert_eq!(out, [1.0, 3.0, 1.0, 0.0]);

        let (mut residual, mut scratch) = ([0.0; 3], [0.0; SCRATCH]);
        let floats = Floats::F32(&[5.0, 1.0, 7.0]);
        let mut source =
            Source::new(floats, Some((Residual::PLAIN, &mut residual)), &mut scratch).unwrap();
        let mut workspace = Workspace::default();
        sparsify(&mut source, Selection::Above(2.0), &mut workspace);
        give_back(&mut source, &workspace.positions, &[0.5, -0.5], &mut workspace.helpers);
        assert_eq!(residual, [0.5, 1.0, -0.5]);
    }
}
