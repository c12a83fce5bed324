//! Passes over one large tensor, in parts that several threads share.

use std::any::Any;
use std::fmt::Debug;
use std::iter::{self, repeat_with};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::Source;
use super::slice::Slice;
use crate::parts::{BLOCK, MIN_DIVIDED, PART, PartResult, Parts, SHORT};
use crate::statistics::{Gathered, Statistics};
use crate::threads::{InOrder, side_by_side};
use crate::workspace::{Helpers, Workspace};

/// Buffers for the output of threads, one per part.
#[derive(Debug)]
struct Written<P>(Vec<P>);

impl<P> Default for Written<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Source<'_> {
    /// Calls `work` for each part with the value that `value` returns for the part's places, such
    /// as its slice of a buffer. The [`Helpers`] of the workspace share the parts. Every part but
    /// the last is a whole number of [blocks](crate::BLOCK).
    ///
    /// `work` gets a source of the part, and a workspace of its thread. It [peeks](Self::peek) at
    /// and [takes](Self::take) the part's elements by their indices in the tensor;
    /// [`take_blocks`](Self::take_blocks) takes all of them. Statistics are of the whole tensor. If
    /// the method keeps a number per element, each part has the numbers of its elements. Other kept
    /// arrays are not available in the parts of a divided tensor. An empty tensor has one part.
    ///
    /// # Panics
    /// If `work` panics, or asks for statistics that were not gathered before.
    pub fn in_parts<T: Send>(
        &mut self,
        workspace: &mut Workspace,
        mut value: impl FnMut(Range<usize>) -> T,
        work: impl Fn(&mut Source<'_>, T, &mut Workspace) + Sync,
    ) {
        let parts = workspace.helpers.parts(self.len(), BLOCK);
        if parts.is_one() {
            return work(self, value(0..self.len()), workspace);
        }
        self.divide(parts, workspace, &mut value, &work);
    }

    /// Appends the output of `work` for each part, in the order of the parts. The [`Helpers`] of
    /// the workspace share the parts. Every part but the last is a whole number of
    /// [blocks](crate::BLOCK). `work` gets a source of the part, as for
    /// [`in_parts`](Self::in_parts), and must not read the earlier content of the message.
    pub fn append(
        &mut self,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
        work: impl Fn(&mut Source<'_>, &mut Vec<u8>) + Sync,
    ) {
        let work = |source: &mut Source<'_>, (), message: &mut _, _: &mut _| work(source, message);
        self.append_in_parts(BLOCK, workspace, message, |_| (), work);
    }

    /// As [`append`](Self::append), for parts of a multiple of `unit` elements. As for
    /// [`in_parts`](Self::in_parts), `work` gets a value for the part and a workspace of its
    /// thread.
    pub fn append_in_parts<T: Send>(
        &mut self,
        unit: usize,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
        mut value: impl FnMut(Range<usize>) -> T,
        work: impl Fn(&mut Source<'_>, T, &mut Vec<u8>, &mut Workspace) + Sync,
    ) {
        let parts = workspace.helpers.parts(self.len(), unit);
        if parts.is_one() {
            return work(self, value(0..self.len()), message, workspace);
        }
        let work =
            |source: &mut Source<'_>, value, piece: &mut Vec<u8>, workspace: &mut Workspace| {
                piece.clear();
                work(source, value, piece, workspace);
            };
        self.each_in_order(parts, workspace, value, work, |piece| message.extend_from_slice(piece));
    }

    /// Adds the result of `work` for each part, of a multiple of `unit` elements, to `all`. The
    /// helpers share the parts.
    pub(crate) fn merge_parts<R: PartResult>(
        &mut self,
        unit: usize,
        workspace: &mut Workspace,
        all: &mut R,
        work: impl Fn(&mut Source<'_>, &mut R) + Sync,
    ) {
        let parts = workspace.helpers.parts(self.len(), unit);
        if parts.is_one() {
            return work(self, all);
        }
        let work = |source: &mut Source<'_>, (), result: &mut R, _: &mut Workspace| {
            result.reset();
            work(source, result);
        };
        self.each_in_order(parts, workspace, |_| (), work, |part| all.merge(part));
    }

    /// Calls `take` with the output of `work` for each part of a divided tensor, in the order of
    /// the parts and as soon as possible, while the output is in the cache. One thread at a time
    /// calls `take`, while others work. The buffer that `work` writes to is the default or has the
    /// content of an earlier part.
    pub(crate) fn each_in_order<P: Any + Debug + Default + Send + Sync, T: Send>(
        &mut self,
        parts: Parts,
        workspace: &mut Workspace,
        mut value: impl FnMut(Range<usize>) -> T,
        work: impl Fn(&mut Source<'_>, T, &mut P, &mut Workspace) + Sync,
        mut take: impl FnMut(&P) + Send,
    ) {
        let Written(spare) = std::mem::take(workspace.own());
        let in_order = InOrder::new(spare, &mut take);
        let mut count = 0;
        let mut numbered = |places| {
            count += 1;
            (count - 1, value(places))
        };
        self.divide(parts, workspace, &mut numbered, &|source, (at, value), workspace| {
            in_order.write(at, |piece| work(source, value, piece, workspace));
        });
        let mut spare = in_order.into_spare();
        // If a thread was held up, many buffers have piled up behind its part.
        spare.truncate(2 * (workspace.helpers.count() + 1));
        *workspace.own() = Written(spare);
    }

    /// [`in_parts`](Self::in_parts) of a divided tensor. Compiled once for each type of values, not
    /// for each `work`.
    fn divide<T: Send>(
        &mut self,
        parts: Parts,
        workspace: &mut Workspace,
        value: &mut dyn FnMut(Range<usize>) -> T,
        work: &(dyn Fn(&mut Source<'_>, T, &mut Workspace) + Sync),
    ) {
        let Self { plain, checked, gathered, .. } = *self;
        let total = Mutex::new((gathered.largest, self.taken));
        let divides_kept = self.kept.len() == self.own.len() && parts.lane == self.own.len();
        let mut kept = if divides_kept { &mut *self.kept } else { &mut [] };
        let jobs: Vec<_> = slices(self.own.reborrow(), parts)
            .into_iter()
            .zip(parts.places())
            .map(|(slices, places)| {
                let kept = kept.split_off_mut(..parts.len().min(kept.len())).unwrap_or_default();
                (slices, kept, value(places))
            })
            .collect();
        let mut helpers = std::mem::take(&mut workspace.helpers);
        let buffers = (&mut *workspace, &mut *self.scratch);
        let work = |((own, others), kept, value), buffers: &mut (&mut Workspace, &mut [f32])| {
            let (workspace, scratch) = buffers;
            let mut part =
                Source { own, others, kept, scratch, gathered, plain, checked, taken: 0 };
            work(&mut part, value, workspace);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            *total = (part.gathered.largest.max(total.0), part.taken + total.1);
        };
        side_by_side(buffers, helpers.each(), jobs.into_iter(), work);
        workspace.helpers = helpers;
        (self.gathered.largest, self.taken) =
            total.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    /// Statistics of all elements, in a pass that the helpers share.
    pub(super) fn gather(&mut self, kind: Statistics, helpers: &mut Helpers) -> Gathered {
        let mut total = Gathered::new(kind);
        self.look_in_parts(
            helpers,
            repeat_with(|| Gathered::new(kind)),
            |gathered, whole, start, scratch| {
                let bits = match kind {
                    Statistics::None => whole.check_bits(start, scratch),
                    Statistics::Largest => whole.abs_max_bits(start, scratch),
                    _ => return gathered.add(whole.peek(start, scratch)),
                };
                gathered.largest = gathered.largest.max(bits);
            },
            |part| total += part,
        );
        total
    }

    /// Shows all elements, which must have been checked. Every run of [`PART`] elements has its own
    /// value from `values`. `look` gets the value, and the offset and elements of each short block.
    /// `add` gets the values in order, so sums do not depend on the number of threads. The helpers
    /// share the runs.
    pub(crate) fn peek_parts<T: Send>(
        &mut self,
        helpers: &mut Helpers,
        values: impl Iterator<Item = T>,
        look: impl Fn(&mut T, usize, &[f32]) + Sync,
        add: impl FnMut(T),
    ) {
        assert!(self.checked, "elements are checked before they are added");
        let look = |value: &mut T, whole: &Slice<'_>, start, scratch: &mut [f32]| {
            look(value, start, whole.peek(start, scratch));
        };
        self.look_in_parts(helpers, values, look, add);
    }

    /// As [`peek_parts`](Self::peek_parts), but `look` gets the slice of all elements and a scratch
    /// as long as the block.
    fn look_in_parts<T: Send>(
        &mut self,
        helpers: &mut Helpers,
        values: impl Iterator<Item = T>,
        look: impl Fn(&mut T, &Slice<'_>, usize, &mut [f32]) + Sync,
        add: impl FnMut(T),
    ) {
        let (elements, whole) = (self.own.len(), &self.own);
        assert!(whole.first == 0 && self.others.is_empty(), "a part has no parts of its own");
        let look_at = |start: usize, value: &mut T, scratch: &mut [f32]| {
            for start in (start..elements.min(start + PART)).step_by(SHORT) {
                look(value, whole, start, &mut scratch[..SHORT.min(elements - start)]);
            }
        };
        let parts = (0..elements).step_by(PART).zip(values);
        if helpers.count() == 0 || elements < MIN_DIVIDED {
            let looked_at = |(start, mut value)| {
                look_at(start, &mut value, self.scratch);
                value
            };
            return parts.map(looked_at).for_each(add);
        }
        let mut parts: Vec<_> = parts.collect();
        let scratches = helpers.each().map(|(_, scratch)| scratch);
        side_by_side(&mut *self.scratch, scratches, parts.iter_mut(), |(start, value), scratch| {
            look_at(*start, value, scratch);
        });
        parts.into_iter().map(|(_, value)| value).for_each(add);
    }

    /// If there is a residual, writes unsent values back to it, at their increasing positions. The
    /// helpers share the work.
    pub(crate) fn give_back(&mut self, positions: &[u32], values: &[f32], helpers: &mut Helpers) {
        let Some(left) = self.left() else { return };
        helpers.in_stretches(positions, left, |first, positions, start, left| {
            for (&position, &value) in positions.iter().zip(&values[first..]) {
                left[position as usize - start] = value;
            }
        });
    }
}

/// The slices of each part: the slice of the first lane, and the slices of the others.
fn slices(mut whole: Slice<'_>, parts: Parts) -> Vec<(Slice<'_>, Vec<Slice<'_>>)> {
    let mut first = whole.split_off(parts.lane);
    let lanes = iter::from_fn(|| (whole.len() > 0).then(|| whole.split_off(parts.lane)));
    let mut others: Vec<_> = lanes.collect();
    let part = iter::from_fn(|| {
        let rest = others.iter_mut().map(|lane| lane.split_off(parts.len())).collect();
        (first.len() > 0).then(|| (first.split_off(parts.len()), rest))
    });
    part.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::workspace::ThreadBuffers;
    use crate::{Floats, Residual, SCRATCH, Threads};

    /// Calls `using` with a source whose elements are their indices, and a workspace with two
    /// helpers; returns the residual.
    fn divided(elements: usize, using: impl FnOnce(&mut Source<'_>, &mut Workspace)) -> Vec<f32> {
        let gradient: Vec<f32> = (0..elements).map(|at| at as f32).collect();
        let (mut residual, mut scratch) = (vec![0.0; elements], [0.0; SCRATCH]);
        let feedback = Some((Residual::PLAIN, &mut residual[..]));
        let mut source = Source::new(Floats::F32(&gradient), feedback, &mut scratch).unwrap();
        using(&mut source, &mut Threads::new(3).buffers().workspace);
        residual
    }

    #[test]
    fn threads_append_at_the_same_time_and_the_parts_are_in_order() {
        // More parts than threads.
        let residual = divided(4 * PART + 50, |source, workspace| {
            let len = PART.next_multiple_of(3);
            // It opens when three threads have a part.
            let (barrier, mut message) = (Barrier::new(3), vec![7]);
            let places = |places| places;
            source.append_in_parts(
                3,
                workspace,
                &mut message,
                places,
                |source, places, message, _| {
                    if [0, len, 2 * len].contains(&places.start) {
                        barrier.wait();
                    }
                    let mut next = places.start;
                    source.take_blocks(|offset, block| {
                        assert_eq!((offset, block[0]), (next, next as f32));
                        next += block.len();
                        block.fill(-1.0);
                    });
                    assert_eq!(next, places.end);
                    message.push((places.start / len) as u8);
                },
            );
            assert_eq!(message, [7, 0, 1, 2, 3, 4]);
        });
        assert_eq!(residual, vec![-1.0; 4 * PART + 50]);
    }

    #[test]
    fn a_part_has_the_same_places_of_each_lane() {
        let elements = MIN_DIVIDED + 5;
        let lane = elements.div_ceil(5);
        let residual = divided(elements, |source, workspace| {
            let parts = workspace.helpers.parts_of_lanes(elements, lane, 1);
            assert!(!parts.is_one());
            let work = |source: &mut Source<'_>, places: Range<usize>, _: &mut (), _: &mut _| {
                for (start, at) in (0..5).flat_map(|at| places.clone().map(move |p| (p, at))) {
                    let index = at * lane + start;
                    if index < elements {
                        source.peek(index, 1, |block| assert_eq!(block, [index as f32]));
                        source.take(index, 1, |block| block[0] = -(index as f32));
                    }
                }
            };
            source.each_in_order(parts, workspace, |places| places, work, |()| ());
        });
        assert!(residual.iter().enumerate().all(|(at, left)| *left == -(at as f32)));
    }

    #[test]
    fn values_return_to_their_positions() {
        let positions: Vec<u32> = (0..3 * 4096 + 5).map(|at| 2 * at + 1).collect();
        let values: Vec<f32> = positions.iter().map(|&position| position as f32).collect();
        let gradient = vec![0.0; 2 * positions.len() + 1];
        for helpers in [0, 3] {
            let (mut residual, mut scratch) = (vec![0.0; gradient.len()], [0.0; SCRATCH]);
            let feedback = Some((Residual::PLAIN, &mut residual[..]));
            let mut source = Source::new(Floats::F32(&gradient), feedback, &mut scratch).unwrap();
            source.give_back(&positions, &values, &mut Helpers::new(helpers));
            let left = |at: usize| if at % 2 == 1 { at as f32 } else { 0.0 };
            assert!((0..residual.len()).all(|at| residual[at] == left(at)), "{helpers} helpers");
        }
    }

    #[test]
    fn helpers_change_no_statistics_and_find_what_is_not_finite() {
        let mut gradient: Vec<f32> =
            (0..MIN_DIVIDED + 9).map(|at| (at as f32).sin() / 3.0).collect();
        let all = |gradient: &[f32], kind, threads: &mut Threads| {
            let ThreadBuffers { workspace, scratch } = threads.buffers();
            let source = Source::unchecked(Floats::F32(gradient), None, scratch);
            let source = source.with_statistics(kind, &mut workspace.helpers);
            source.map(|mut source| {
                let extremes = source.extremes();
                (source.sums_by_sign(), format!("{:?}", source.moments()), extremes)
            })
        };
        let kinds = [Statistics::Signs, Statistics::Moments, Statistics::Extremes];
        for kind in kinds {
            let alone = all(&gradient, kind, &mut Threads::new(1)).unwrap();
            let together = all(&gradient, kind, &mut Threads::new(3)).unwrap();
            assert_eq!(alone, together);
        }
        gradient[2 * PART + 1] = f32::NAN;
        let bad = all(&gradient, Statistics::Largest, &mut Threads::new(3)).unwrap_err();
        assert_eq!(bad.index, 2 * PART + 1);
    }
}
