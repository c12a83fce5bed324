//! Equi-depth buckets: the positive and the negative elements, each divided by absolute value into
//! parts of about equal size.
//!
//! The quantiles come from a histogram over the upper 16 bits of the elements: sign, exponent and 7
//! bits of mantissa. Cells are not divided: a bucket exceeds its share if one of its cells does,
//! and values with a relative difference below 2⁻⁷ are mostly in the same bucket.

/// The most buckets of a side.
pub(super) const MOST: usize = 256;
/// The fewest elements per bucket: a side has at most one bucket for this number of elements.
const DEPTH: u64 = 8;
/// Cells of the histogram: for elements above zero, then below.
const CELLS: usize = 1 << 16;

/// The buckets of a tensor.
pub(super) struct Buckets<'a> {
    /// The bucket of each cell. Buckets of negative elements are numbered from [`MOST`].
    of_cell: &'a [u32],
    /// The number of buckets of each side.
    pub(super) sides: [usize; 2],
    /// The number of elements of each bucket.
    pub(super) counts: [usize; 2 * MOST],
}

/// The number of the cell of an element: the sign, then the absolute value.
fn cell(value: f32) -> usize {
    (value.to_bits() >> 16) as usize
}

impl<'a> Buckets<'a> {
    /// Divides non-zero elements into up to `most` buckets per side.
    pub(super) fn new(values: &[f32], most: usize, cells: &'a mut Vec<u32>) -> Self {
        cells.clear();
        cells.resize(CELLS, 0);
        values.iter().for_each(|&value| cells[cell(value)] += 1);
        let (mut sides, mut counts) = ([0; 2], [0; 2 * MOST]);
        for (side, cells) in cells.chunks_mut(CELLS / 2).enumerate() {
            let elements: u64 = cells.iter().map(|&count| u64::from(count)).sum();
            let parts = most.min(elements.div_ceil(DEPTH) as usize) as u64;
            let (mut before, mut last) = (0, u64::MAX);
            for cell in cells.iter_mut().filter(|count| **count > 0) {
                // A part consists of the cells that begin in it; it may be empty.
                let (count, part) = (*cell, before * parts / elements);
                sides[side] += usize::from(part != last);
                last = part;
                before += u64::from(count);
                let bucket = side * MOST + sides[side] - 1;
                counts[bucket] += count as usize;
                *cell = bucket as u32;
            }
        }
        Self { of_cell: cells, sides, counts }
    }

    /// The bucket of an element.
    pub(super) fn of(&self, value: f32) -> usize {
        self.of_cell[cell(value)] as usize
    }

    /// The mean absolute value of each bucket's elements.
    pub(super) fn means(&self, values: &[f32]) -> [f32; 2 * MOST] {
        let mut sums = [0f64; 2 * MOST];
        values.iter().for_each(|&value| sums[self.of(value)] += f64::from(value.abs()));
        std::array::from_fn(|bucket| (sums[bucket] / self.counts[bucket].max(1) as f64) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_worked_by_hand() {
        // Sixteen above zero: two buckets of eight. Eight below: one.
        let values: Vec<f32> = (1..=16).chain(-8..=-1).map(|x| x as f32).collect();
        let mut cells = Vec::new();
        let buckets = Buckets::new(&values, 256, &mut cells);
        assert_eq!(buckets.sides, [2, 1]);
        assert_eq!(
            [1.0, 8.0, 9.0, 16.0, -1.0, -8.0].map(|x| buckets.of(x)),
            [0, 0, 1, 1, 256, 256]
        );
        assert_eq!([0, 1, 2, 256].map(|bucket| buckets.counts[bucket]), [8, 8, 0, 8]);
        let means = buckets.means(&values);
        assert_eq!([means[0], means[1], means[256]], [4.5, 12.5, 4.5]);
    }

    #[test]
    fn equal_values_are_not_divided_and_leave_no_bucket_empty() {
        let mut values = vec![1.0; 100];
        values.extend([2.0; 3]);
        let mut cells = Vec::new();
        let buckets = Buckets::new(&values, 10, &mut cells);
        assert_eq!((buckets.sides, buckets.counts[0], buckets.counts[1]), ([2, 0], 100, 3));
        let none = Buckets::new(&[], 10, &mut cells);
        assert_eq!(none.sides, [0, 0]);
    }

    #[test]
    fn buckets_are_about_equally_deep_and_in_order() {
        let values: Vec<f32> = (1..=100_000).map(|x| (x as f32 / 1e4).powi(3)).collect();
        let mut cells = Vec::new();
        let buckets = Buckets::new(&values, 64, &mut cells);
        assert_eq!(buckets.sides, [64, 0]);
        // A bucket is due 1562 or 1563 elements; a cell has up to 2⁻⁷ / 3 of all elements, 260.
        assert!(buckets.counts[..64].iter().all(|&count| (1300..1830).contains(&count)));
        assert!(values.is_sorted_by_key(|&value| buckets.of(value)));
        assert!(buckets.means(&values)[..64].is_sorted());
    }
}
