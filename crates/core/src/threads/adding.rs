//! Work that several threads share on one large tensor, or on elements at many of its positions.

use crate::parts::least;
use crate::workspace::Helpers;

/// One thread works on fewer positions. Adding to this many uncached elements takes about a
/// millisecond, ten times as long as starting another thread.
const MIN_ADDED: usize = least(1 << 16, 1 << 10);
/// Stretches of positions per thread: several, so no thread waits long for another.
const STRETCHES: usize = 4;

/// The smallest range that can be decoded by itself: this many elements, from this many items of a
/// list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Items of the list.
    pub items: usize,
    /// Elements of the tensor.
    pub elements: usize,
}

impl Unit {
    /// An element, from one item.
    pub const ONE: Self = Self { items: 1, elements: 1 };
}

impl Helpers {
    /// Calls `add` for each part of the elements of a tensor, with the index of its first element
    /// and the part's items of `from`. A part is a multiple of the unit. The helpers share the
    /// parts.
    pub fn add_in_parts<S: Sync>(
        &mut self,
        from: &[S],
        unit: Unit,
        out: &mut [f32],
        add: impl Fn(usize, &[S], &mut [f32]) + Sync,
    ) {
        let parts = self.parts(out.len(), unit.elements);
        if parts.is_one() {
            return add(0, from, out);
        }
        let of_part = from.chunks(parts.len().div_ceil(unit.elements) * unit.items);
        let jobs = parts.places().zip(of_part).zip(out.chunks_mut(parts.len()));
        self.share(jobs, |((places, from), out)| add(places.start, from, out));
    }

    /// Adds the value of each item to the element at its position; positions increase. The helpers
    /// share the work if there are many.
    ///
    /// # Panics
    /// If items and positions differ in number, if a position is out of range, or if the work is
    /// shared and positions do not increase.
    pub fn add_at<T: Copy + Sync>(
        &mut self,
        positions: &[u32],
        items: &[T],
        out: &mut [f32],
        value: impl Fn(T) -> f32 + Sync,
    ) {
        assert_eq!(positions.len(), items.len(), "each position has an item");
        self.in_stretches(positions, out, |first, positions, start, out| {
            for (&position, &item) in positions.iter().zip(&items[first..]) {
                out[position as usize - start] += value(item);
            }
        });
    }

    /// Calls `work` for stretches of increasing positions. It gets the index of the stretch's first
    /// position in the list, a multiple of 8; the positions; the offset of the range of elements
    /// around them; and these elements. The helpers share the stretches. A short list is one
    /// stretch.
    ///
    /// # Panics
    /// If the work is shared, and a position is out of range or they do not increase.
    pub(crate) fn in_stretches(
        &mut self,
        positions: &[u32],
        elements: &mut [f32],
        work: impl Fn(usize, &[u32], usize, &mut [f32]) + Sync,
    ) {
        if self.count() == 0 || positions.len() < MIN_ADDED {
            return work(0, positions, 0, elements);
        }
        let len = positions.len().div_ceil(STRETCHES * (self.count() + 1)).next_multiple_of(8);
        let (mut start, mut rest) = (0, elements);
        let stretches = positions.chunks(len).enumerate().map(|(at, positions)| {
            let end = positions.last().map_or(start, |&last| last as usize + 1);
            let own = rest.split_off_mut(..end - start).expect("positions are within the tensor");
            let stretch = (at * len, positions, start, own);
            start = end;
            stretch
        });
        self.share(stretches, |(first, positions, start, elements)| {
            work(first, positions, start, elements);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_loop_adds() {
        let sizes = [0, 1, MIN_ADDED - 1, MIN_ADDED, 5 * MIN_ADDED + 3];
        for (count, helpers) in
            sizes.into_iter().flat_map(|count| [(count, 0), (count, 1), (count, 6)])
        {
            // Dense runs with gaps between them; the first and the last element are among them.
            let positions: Vec<u32> = (0..count as u32).map(|at| at + at / 7 * 13).collect();
            let elements = positions.last().map_or(3, |&last| last as usize + 1);
            let items: Vec<u16> = (0..count).map(|at| (at % 1000) as u16).collect();
            let mut expected = vec![0.5; elements];
            for (&position, &item) in positions.iter().zip(&items) {
                expected[position as usize] += 2.0 * f32::from(item);
            }
            let mut out = vec![0.5; elements];
            let value = |item: u16| 2.0 * f32::from(item);
            Helpers::new(helpers).add_at(&positions, &items, &mut out, value);
            assert!(out == expected, "{count} positions, {helpers} helpers");
        }
    }

    #[test]
    #[should_panic(expected = "within the tensor")]
    fn positions_out_of_range_are_refused() {
        let positions: Vec<u32> = (1..=MIN_ADDED as u32).collect();
        let mut out = vec![0.0; MIN_ADDED];
        Helpers::new(2).add_at(&positions, &positions, &mut out, |_| 1.0);
    }

    #[test]
    #[should_panic(expected = "each position has an item")]
    fn missing_items_are_refused() {
        Helpers::default().add_at(&[0, 1], &[1.0], &mut [0.0; 2], |value| value);
    }
}
