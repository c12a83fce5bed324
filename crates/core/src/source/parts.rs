//! One large tensor as the work of several threads.

use std::any::Any;
use std::fmt::Debug;
use std::iter::{self, repeat_with};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::in_order::InOrder;
use super::{BLOCK, SHORT, Slice, Source};
use crate::statistics::{Gathered, Statistics};
use crate::threads::side_by_side;
use crate::{Helpers, Workspace};

/// Elements of a part, if its unit allows it. Statistics are sums of those of parts, whatever the number of threads.
pub(crate) const PART: usize = 16 * BLOCK;
/// The least elements of a tensor that threads divide, or fewer with the feature `testing`. Starting and ending another thread takes
/// 50 to 130 µs, in which one thread compresses up to half a million elements.
pub const LEAST_DIVIDED: usize = least(1 << 20, 2 * PART);

/// The least work to share: this many elements, or `tested`, so that tests need not be large.
pub(crate) const fn least(elements: usize, tested: usize) -> usize {
    if cfg!(any(test, feature = "testing")) { tested } else { elements }
}

/// The division of a tensor into parts, each of which is the work of one thread.
///
/// A tensor consists of equal lanes, of which the last may be shorter; usually it is one lane. A part has the same places in
/// each lane. Without [`Helpers`], and for a small tensor, there is one part.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    lane: usize,
    len: usize,
}

impl Parts {
    /// Parts of a tensor of `elements` elements, each a multiple of `unit` elements, but for the last.
    pub fn new(elements: usize, unit: usize, helpers: &Helpers) -> Self {
        Self::of_lanes(elements, elements, unit, helpers)
    }

    /// Parts of a tensor of `elements` elements in lanes of `lane` elements.
    pub(crate) fn of_lanes(elements: usize, lane: usize, unit: usize, helpers: &Helpers) -> Self {
        let divided = helpers.count() > 0 && elements >= LEAST_DIVIDED;
        let places = PART / elements.div_ceil(lane.max(1)).max(1);
        let part = places.next_multiple_of(BLOCK).next_multiple_of(unit.max(1));
        let len = if divided { part.min(lane) } else { lane };
        Self { lane, len: len.max(1) }
    }

    /// Places of a lane that a part has, at least 1; the last part may have fewer.
    #[expect(clippy::len_without_is_empty, reason = "a part is not empty")]
    pub fn len(self) -> usize {
        self.len
    }

    /// The places of a lane that each part has.
    pub fn places(self) -> impl Iterator<Item = Range<usize>> {
        let place = move |start| start..self.lane.min(start + self.len);
        // There is a part even if the tensor is empty.
        (0..self.lane.max(1)).step_by(self.len).map(place)
    }

    /// Whether there is one part.
    pub fn is_one(self) -> bool {
        self.len >= self.lane
    }
}

/// What threads compute for parts, such as lists or sums, merged in the order of the parts.
pub(crate) trait PartResult: Any + Debug + Default + Send + Sync {
    /// Makes it the result of no elements.
    fn reset(&mut self);

    /// Adds the result of the part that follows.
    fn merge(&mut self, part: &Self);
}

impl<T: Copy + Debug + Send + Sync + 'static> PartResult for Vec<T> {
    fn reset(&mut self) {
        self.clear();
    }

    fn merge(&mut self, part: &Self) {
        self.extend_from_slice(part);
    }
}

impl<A: PartResult, B: PartResult> PartResult for (A, B) {
    fn reset(&mut self) {
        self.0.reset();
        self.1.reset();
    }

    fn merge(&mut self, part: &Self) {
        self.0.merge(&part.0);
        self.1.merge(&part.1);
    }
}

impl PartResult for usize {
    fn reset(&mut self) {
        *self = 0;
    }

    fn merge(&mut self, part: &Self) {
        *self += part;
    }
}

/// The workspace of the caller's thread without its helpers, which it gets back, also after a panic.
struct Lent<'a> {
    workspace: &'a mut Workspace,
    helpers: Helpers,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.workspace.helpers = std::mem::take(&mut self.helpers);
    }
}

/// Buffers for what threads write for a part.
#[derive(Debug)]
struct Pieces<P>(Vec<P>);

impl<P> Default for Pieces<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'a> Source<'a> {
    /// Calls `work` for each part with the value that belongs to it, such as its slice of a buffer. The [`Helpers`] of the
    /// workspace share the parts.
    ///
    /// `work` gets a source of the part, and a workspace of its thread. It [peeks](Self::peek) at and [takes](Self::take) the
    /// part's elements by their indices in the tensor; [`take_blocks`](Self::take_blocks) takes all of them. Statistics are
    /// those of the whole tensor. If the method keeps a number for each element of a tensor in one lane, each
    /// part of a divided tensor has those of its elements; of other arrays that the method keeps it has nothing. An empty tensor has one part; without a value for it `work` is not called.
    ///
    /// # Panics
    /// If `work` panics, if there are fewer values than parts of a divided tensor, or if `work` asks for statistics that were
    /// not gathered before.
    pub fn in_parts<T: Send>(
        &mut self,
        parts: Parts,
        workspace: &mut Workspace,
        mut values: impl Iterator<Item = T>,
        work: impl Fn(&mut Source<'_>, T, &mut Workspace) + Sync,
    ) {
        if parts.is_one() {
            return values.take(1).for_each(|value| work(self, value, workspace));
        }
        self.in_divided(parts, workspace, &mut values, &work);
    }

    /// [`in_parts`](Self::in_parts) of a divided tensor. Compiled once for each type of values, not for each `work`.
    fn in_divided<T: Send>(
        &mut self,
        parts: Parts,
        workspace: &mut Workspace,
        values: &mut dyn Iterator<Item = T>,
        work: &(dyn Fn(&mut Source<'_>, T, &mut Workspace) + Sync),
    ) {
        let (plain, checked) = (self.plain, self.checked);
        let gathered = self.gathered;
        let total = Mutex::new((self.gathered.largest, self.taken));
        let divides_kept = self.kept.len() == self.own.len() && parts.lane == self.own.len();
        let mut kept = if divides_kept { &mut *self.kept } else { &mut [] };
        let jobs: Vec<_> = divide(self.own.reborrow(), parts)
            .into_iter()
            .map(|slices| {
                let kept = kept.split_off_mut(..parts.len().min(kept.len())).unwrap_or_default();
                (slices, kept, values.next().expect("there is a value for each part"))
            })
            .collect();
        let mut lent = Lent { helpers: std::mem::take(&mut workspace.helpers), workspace };
        let own = (&mut *lent.workspace, &mut *self.scratch);
        side_by_side(
            own,
            lent.helpers.each(),
            jobs.into_iter(),
            |(slices, kept, value), buffers| {
                let (workspace, scratch) = buffers;
                let ((own, others), taken) = (slices, false);
                let mut part =
                    Source { own, others, kept, scratch, gathered, plain, checked, taken };
                work(&mut part, value, workspace);
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                *total = (part.gathered.largest.max(total.0), part.taken || total.1);
            },
        );
        (self.gathered.largest, self.taken) =
            total.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    /// As [`in_parts`](Self::in_parts), and appends what `work` appends for each part, in the order of the parts.
    pub fn append_in_parts<T: Send>(
        &mut self,
        parts: Parts,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
        values: impl Iterator<Item = T>,
        work: impl Fn(&mut Source<'_>, T, &mut Vec<u8>, &mut Workspace) + Sync,
    ) {
        if parts.is_one() {
            return values.take(1).for_each(|value| work(self, value, message, workspace));
        }
        let work =
            |source: &mut Source<'_>, value, piece: &mut Vec<u8>, workspace: &mut Workspace| {
                piece.clear();
                work(source, value, piece, workspace);
            };
        self.each_in_order(parts, workspace, values, work, |piece| {
            message.extend_from_slice(piece)
        });
    }

    /// As [`in_parts`](Self::in_parts), and calls `take` with what `work` has written for each part, in the order of the parts and as
    /// soon as possible, while it is in the cache. One thread at a time calls `take`, while others work. What `work` writes to has
    /// the content of an earlier part, or is the default.
    pub(crate) fn each_in_order<P: Any + Debug + Default + Send + Sync, T: Send>(
        &mut self,
        parts: Parts,
        workspace: &mut Workspace,
        values: impl Iterator<Item = T>,
        work: impl Fn(&mut Source<'_>, T, &mut P, &mut Workspace) + Sync,
        mut take: impl FnMut(&P) + Send,
    ) {
        let Pieces(spare) = std::mem::take(workspace.own());
        let (in_order, values) = (InOrder::new(spare, &mut take), values.enumerate());
        self.in_parts(parts, workspace, values, |source, (at, value), workspace| {
            in_order.write(at, |piece| work(source, value, piece, workspace));
        });
        let mut spare = in_order.into_spare();
        // A thread that was held up has made the others wait with many.
        spare.truncate(2 * (workspace.helpers.count() + 1));
        *workspace.own() = Pieces(spare);
    }

    /// Adds to `all` what `work` computes for each part, of a multiple of `unit` elements. The helpers share the parts.
    pub(crate) fn merge_parts<R: PartResult>(
        &mut self,
        unit: usize,
        workspace: &mut Workspace,
        all: &mut R,
        work: impl Fn(&mut Source<'_>, &mut R) + Sync,
    ) {
        let parts = Parts::new(self.len(), unit, &workspace.helpers);
        if parts.is_one() {
            return work(self, all);
        }
        let work = |source: &mut Source<'_>, _, result: &mut R, _: &mut Workspace| {
            result.reset();
            work(source, result);
        };
        self.each_in_order(parts, workspace, parts.places(), work, |part| all.merge(part));
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

    /// Shows all elements, which must have been checked. Every run of [`PART`] elements has its own value from `values`; `look` updates it
    /// with each short block, whose offset it gets, too. `add` then gets the values in order, so that sums do not depend on the number of
    /// threads. The helpers share the runs.
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

    /// [`peek_parts`](Self::peek_parts), where `look` gets the slice of all elements and a scratch as long as the block.
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
        if helpers.count() == 0 || elements < LEAST_DIVIDED {
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
}

/// The slices of each part: that of the first lane, and those of the others.
fn divide(mut whole: Slice<'_>, parts: Parts) -> Vec<(Slice<'_>, Vec<Slice<'_>>)> {
    let mut first = whole.split_off(parts.lane);
    let lanes = iter::from_fn(|| (whole.len() > 0).then(|| whole.split_off(parts.lane)));
    let mut others: Vec<_> = lanes.collect();
    let part = iter::from_fn(|| {
        let rest = others.iter_mut().map(|lane| lane.split_off(parts.len)).collect();
        (first.len() > 0).then(|| (first.split_off(parts.len), rest))
    });
    part.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::{Floats, Residual, SCRATCH, Threads};

    /// Calls `using` with a source whose elements are their indices, and a workspace with two helpers; returns the residual.
    fn divided(elements: usize, using: impl FnOnce(&mut Source<'_>, &mut Workspace)) -> Vec<f32> {
        let gradient: Vec<f32> = (0..elements).map(|at| at as f32).collect();
        let (mut residual, mut scratch) = (vec![0.0; elements], [0.0; SCRATCH]);
        let feedback = Some((Residual::PLAIN, &mut residual[..]));
        let mut source = Source::new(Floats::F32(&gradient), feedback, &mut scratch).unwrap();
        Threads::new(3).with_helpers(|buffers| using(&mut source, &mut buffers.workspace));
        residual
    }

    #[test]
    fn threads_append_at_the_same_time_and_the_parts_are_in_order() {
        // More parts than threads.
        let residual = divided(4 * PART + 50, |source, workspace| {
            let parts = Parts::new(source.len(), 3, &workspace.helpers);
            assert_eq!(parts.len(), PART.next_multiple_of(3));
            // It opens when three threads have a part.
            let (barrier, mut message) = (Barrier::new(3), vec![7]);
            let ends = [0, parts.len(), 2 * parts.len()];
            let each = parts.places();
            source.append_in_parts(
                parts,
                workspace,
                &mut message,
                each,
                |source, places, message, _| {
                    if ends.contains(&places.start) {
                        barrier.wait();
                    }
                    let mut next = places.start;
                    source.take_blocks(|offset, block| {
                        assert_eq!((offset, block[0]), (next, next as f32));
                        next += block.len();
                        block.fill(-1.0);
                    });
                    assert_eq!(next, places.end);
                    message.push((places.start / parts.len()) as u8);
                },
            );
            assert_eq!(message, [7, 0, 1, 2, 3, 4]);
        });
        assert_eq!(residual, vec![-1.0; 4 * PART + 50]);
    }

    #[test]
    fn a_part_has_the_same_places_of_each_lane() {
        let elements = LEAST_DIVIDED + 5;
        let lane = elements.div_ceil(5);
        let residual = divided(elements, |source, workspace| {
            let parts = Parts::of_lanes(elements, lane, 1, &workspace.helpers);
            assert!(!parts.is_one());
            source.in_parts(parts, workspace, parts.places(), |source, places, _| {
                for (start, at) in (0..5).flat_map(|at| places.clone().map(move |p| (p, at))) {
                    let index = at * lane + start;
                    if index < elements {
                        source.peek(index, 1, |block| assert_eq!(block, [index as f32]));
                        source.take(index, 1, |block| block[0] = -(index as f32));
                    }
                }
            });
        });
        assert!(residual.iter().enumerate().all(|(at, left)| *left == -(at as f32)));
    }

    #[test]
    fn one_part_without_helpers_or_of_a_small_tensor() {
        assert!(Parts::new(LEAST_DIVIDED, 1, &Helpers::default()).is_one());
        let of_none = Parts::new(0, 1, &Helpers::default());
        assert!(of_none.places().eq(iter::once(0..0)));
        divided(LEAST_DIVIDED - 1, |source, workspace| {
            let parts = Parts::new(source.len(), 1, &workspace.helpers);
            assert!(parts.is_one() && parts.len() == LEAST_DIVIDED - 1);
            assert!(parts.places().eq(iter::once(0..LEAST_DIVIDED - 1)));
        });
    }

    #[test]
    fn helpers_change_no_statistics_and_find_what_is_not_finite() {
        let mut gradient: Vec<f32> =
            (0..LEAST_DIVIDED + 9).map(|at| (at as f32).sin() / 3.0).collect();
        let all = |gradient: &[f32], kind, threads: &mut Threads| {
            threads.with_helpers(|buffers| {
                let (floats, scratch) = (Floats::F32(gradient), &mut buffers.scratch[..]);
                let helpers = &mut buffers.workspace.helpers;
                let source = Source::unchecked(floats, None, scratch);
                let source = source.with_statistics(kind, helpers);
                source.map(|mut source| {
                    let extremes = source.extremes();
                    (source.sums_by_sign(), format!("{:?}", source.moments()), extremes)
                })
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
