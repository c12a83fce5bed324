//! Count sketches: tables of sums that reveal the large elements of a long vector.
//!
//! Each row of the table adds every element, with a random sign, to a random column. The table of a
//! sum is the sum of the tables. The estimate of an element is the median over rows of its column
//! times its sign. The error is about the norm of the other elements divided by the square root of
//! the number of columns.
//!
//! Neighbours in runs of 16 share a hash: the first element goes to the hashed column, and the
//! others to the next columns, around the end of the row, all with the same sign. Two elements of
//! different runs still share a column with a probability of one in the number of columns, and
//! their signs are independent. Two elements of one run never share a column. So estimates have the
//! same mean as with a hash per element, and no greater variance; but memory is accessed in runs,
//! which is several times as fast.

use std::ops::Range;

use gradwire_bits::kernels;

use crate::{Helpers, MIN_DIVIDED};

/// The hash functions of a table: multiply, add and shift, which makes the columns and signs of any
/// two runs independent (Dietzfelbinger 1996).
#[derive(Debug, Clone)]
pub struct CountSketch {
    /// Factor and term of each row.
    keys: [[u64; 2]; MAX_ROWS],
    rows: usize,
    columns: usize,
}

impl CountSketch {
    /// A table with a row for each pair of keys, up to [`MAX_ROWS`], and at least one column.
    pub fn new(pairs: impl IntoIterator<Item = [u64; 2]>, columns: usize) -> Self {
        let (mut keys, mut rows) = ([[0; 2]; MAX_ROWS], 0);
        for (key, pair) in keys.iter_mut().zip(pairs) {
            *key = pair;
            rows += 1;
        }
        Self { keys, rows, columns }
    }

    fn keys(&self) -> &[[u64; 2]] {
        &self.keys[..self.rows]
    }

    /// Numbers in the table.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether the table has no numbers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of a run: the largest power of two that exceeds neither 16 nor the number of
    /// columns.
    fn run(&self) -> usize {
        1 << self.columns.min(kernels::RUN).ilog2()
    }

    /// The columns and signs, in a row, of the runs of `len` elements from `first` on, a multiple
    /// of [`PART`].
    fn place<'a>(
        &self,
        [factor, term]: [u64; 2],
        first: usize,
        len: usize,
        places: &'a mut Places,
    ) -> kernels::Runs<'a> {
        let (run, columns) = (self.run(), self.columns as u32);
        let hash = factor.wrapping_mul((first / run) as u64).wrapping_add(term);
        let Places { columns: first_columns, signs } = places;
        let count = len.div_ceil(run);
        let (first_columns, signs) = (&mut first_columns[..count], &mut signs[..count]);
        kernels::columns_and_signs(hash, factor, columns, first_columns, signs);
        kernels::Runs { len: run, columns: first_columns, signs }
    }

    /// Adds a vector to a table, row by row in `table`. The helpers share the rows.
    pub fn add(&self, values: &[f32], table: &mut [f32], helpers: &mut Helpers) {
        let threads = if values.len() < MIN_DIVIDED { 1 } else { helpers.count() + 1 };
        let rows = self.rows.div_ceil(threads).max(1);
        let of_threads = self.keys().chunks(rows).zip(table.chunks_mut(rows * self.columns));
        helpers.share(of_threads, |(keys, table)| self.add_rows(keys, values, table));
    }

    /// Adds a vector to the rows with these keys.
    fn add_rows(&self, keys: &[[u64; 2]], values: &[f32], table: &mut [f32]) {
        let mut places = Places::NONE;
        for (at, values) in values.chunks(CACHED).enumerate() {
            for (&key, row) in keys.iter().zip(table.chunks_exact_mut(self.columns)) {
                for (part, values) in values.chunks(PART).enumerate() {
                    let first = at * CACHED + part * PART;
                    let runs = self.place(key, first, values.len(), &mut places);
                    kernels::add_runs(values, runs, row);
                }
            }
        }
    }

    /// Calls `take` with the estimates of a range of elements that begins at a multiple of
    /// [`PART`]: a part at a time, with the offset of its first element. `found` is working memory.
    pub fn estimates(
        &self,
        table: &[f32],
        elements: Range<usize>,
        found: &mut Vec<f32>,
        mut take: impl FnMut(usize, &mut [f32]),
    ) {
        assert!(elements.start.is_multiple_of(PART), "runs of a part begin with its first element");
        found.resize(self.rows * PART, 0.0);
        let (found, _) = found.as_chunks_mut::<PART>();
        let mut places = Places::NONE;
        for start in elements.clone().step_by(PART) {
            let len = PART.min(elements.end - start);
            let rows = self.keys().iter().zip(table.chunks_exact(self.columns));
            for ((&key, row), found) in rows.zip(&mut *found) {
                let runs = self.place(key, start, len, &mut places);
                kernels::read_runs(row, runs, &mut found[..len]);
            }
            take(start, &mut medians(found)[..len]);
        }
    }
}

/// Elements that are looked up at a time. The estimates by five rows take 20 KiB and stay in the
/// first-level cache.
pub const PART: usize = 1024;
/// Elements that are added to one row after the other: 128 KiB, which stay in the second-level
/// cache beside a row.
const CACHED: usize = 32 * PART;

/// Columns and signs of the runs of a part.
struct Places {
    columns: [u32; PART],
    signs: [u32; PART],
}

impl Places {
    const NONE: Self = Self { columns: [0; PART], signs: [0; PART] };
}

/// The medians over rows; for an even number of rows the means of the middle two.
///
/// Rows are sorted up to the middle by the same exchanges for all elements, without branches: a
/// branch on the order of random numbers is mispredicted half of the time.
fn medians(rows: &mut [[f32; PART]]) -> &mut [f32; PART] {
    if let [a, b, c, d, e] = rows {
        kernels::median_of_five(a, b, c, d, e);
        return c;
    }
    let (count, middle) = (rows.len(), rows.len() / 2);
    for sorted in 0..=middle {
        for at in 1..count - sorted {
            let (before, after) = rows.split_at_mut(at);
            kernels::smaller_first(&mut before[at - 1], &mut after[0]);
        }
    }
    if count % 2 == 0 {
        let (below, above) = rows.split_at_mut(middle);
        kernels::middle(&below[middle - 1], &mut above[0]);
    }
    &mut rows[middle]
}

/// The most rows of a table.
pub const MAX_ROWS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// The column and the sign of an element in a row, by definition.
    fn place(sketch: &CountSketch, [factor, term]: [u64; 2], element: u64) -> (usize, f32) {
        let columns = sketch.columns as u64;
        let run = [16, 8, 4, 2, 1].into_iter().find(|&run| run <= columns).unwrap();
        let hash = factor.wrapping_mul(element / run).wrapping_add(term) >> 32;
        let column = (((hash * columns) >> 32) + element % run) % columns;
        (column as usize, if hash % 2 == 0 { 1.0 } else { -1.0 })
    }

    /// An element's estimate by definition.
    fn estimate(sketch: &CountSketch, table: &[f32], element: u64) -> f32 {
        let rows = sketch.keys().iter().zip(table.chunks(sketch.columns));
        let mut found: Vec<f32> = rows
            .map(|(&key, row)| {
                let (column, sign) = place(sketch, key, element);
                sign * row[column]
            })
            .collect();
        found.sort_by(f32::total_cmp);
        let half = found.len() / 2;
        match found.len() % 2 {
            1 => found[half],
            _ => found[half - 1] / 2.0 + found[half] / 2.0,
        }
    }

    fn estimates(sketch: &CountSketch, table: &[f32], elements: usize) -> Vec<f32> {
        let mut all = Vec::new();
        sketch.estimates(table, 0..elements, &mut vec![7.0; 3], |start, block| {
            assert_eq!(start, all.len());
            all.extend_from_slice(block);
        });
        all
    }

    fn sketch(rows: usize, columns: usize) -> CountSketch {
        let mut keys = crate::Rng::new(1, 2, 3, 4, 5);
        CountSketch::new((0..rows).map(|_| [keys.next_u64(), keys.next_u64()]), columns)
    }

    #[test]
    fn runs_worked_by_hand() {
        // Factor 2^32 and term 0 hash run r to r. With four columns, runs have four elements and
        // begin in column r·4 >> 32 = 0; odd runs are negative. The second row's term is three
        // quarters of the range: column 3, then 0, 1 and 2.
        let sketch = CountSketch::new([[1 << 32, 0], [1 << 32, 3 << 62]], 4);
        let mut table = vec![0.0; 8];
        sketch.add(&[1.0, 2.0, 3.0, 4.0, 10.0, 20.0], &mut table, &mut Helpers::default());
        assert_eq!(table, [-9.0, -18.0, 3.0, 4.0, -18.0, 3.0, 4.0, -9.0]);
        // The means of two.
        let found = estimates(&sketch, &table, 6);
        assert_eq!(found, [-9.0, -18.0, 3.0, 4.0, 9.0, 18.0]);
    }

    #[test]
    fn a_step_of_an_eighth_worked_by_hand() {
        // Three columns, runs of two. Factor 2^61 + 2^32 and term 2^63: run r hashes to r and 4 + r
        // eighths of the range, which is column 1 of 3 for r = 0 and 1, then 2; odd runs are
        // negative.
        let sketch = CountSketch::new([[(1 << 61) + (1 << 32), 1 << 63]], 3);
        let mut table = vec![0.0; 3];
        sketch.add(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], &mut table, &mut Helpers::default());
        // Columns 1 and 2, the same, 2 and 0, and 2.
        assert_eq!(table, [32.0, 1.0 - 4.0, 2.0 - 8.0 + 16.0 - 64.0]);
        let found = estimates(&sketch, &table, 7);
        assert_eq!(found, [-3.0, -54.0, 3.0, 54.0, -54.0, 32.0, 54.0]);
    }

    #[test]
    fn tables_are_sums_by_the_definition() {
        for columns in [1, 2, 3, 7, 15, 16, 17, 40, 1000] {
            let sketch = sketch(3, columns);
            // Whole numbers, so sums are exact.
            let values: Vec<f32> = (0..CACHED + 1500).map(|i| (i % 7) as f32 - 3.0).collect();
            let (mut table, mut expected) = (vec![0.0; sketch.len()], vec![0.0; sketch.len()]);
            sketch.add(&values, &mut table, &mut Helpers::default());
            for (&key, row) in sketch.keys().iter().zip(expected.chunks_mut(columns)) {
                for (element, value) in values.iter().enumerate() {
                    let (column, sign) = place(&sketch, key, element as u64);
                    row[column] += sign * value;
                }
            }
            assert_eq!(table, expected, "{columns}");
        }
    }

    #[test]
    fn two_elements_share_a_column_as_often_as_by_chance() {
        // Over 20 000 tables of 40 columns, 1 in 40 is 500, with a standard deviation of 22; never
        // within a run.
        let meet = |a: u64, b: u64| {
            let mut keys = crate::Rng::new(1, 2, 3, 4, 5);
            let mut sum = 0.0;
            let together = (0..20_000).filter(|_| {
                let key = [keys.next_u64(), keys.next_u64()];
                let sketch = CountSketch::new([key], 40);
                let ((left, x), (right, y)) = (place(&sketch, key, a), place(&sketch, key, b));
                sum += if left == right { x * y } else { 0.0 };
                left == right
            });
            (together.count(), sum)
        };
        for (a, b) in [(0, 16), (3, 21), (15, 16), (7, 1000)] {
            let (together, sum) = meet(a, b);
            assert!((390..610).contains(&together), "{a} and {b}: {together}");
            assert!(sum.abs() < 110.0, "{a} and {b}: signs sum to {sum}");
        }
        assert_eq!(meet(0, 15).0, 0);
    }

    #[test]
    fn estimates_are_medians_of_any_number_of_rows() {
        let elements = PART + 100;
        for rows in 1..=MAX_ROWS {
            let sketch = sketch(rows, 77);
            // There are few distinct values, so ties are common.
            let table: Vec<f32> = (0..sketch.len()).map(|i| (i * 7919 % 13) as f32 - 6.0).collect();
            for (at, found) in estimates(&sketch, &table, elements).into_iter().enumerate() {
                assert_eq!(found, estimate(&sketch, &table, at as u64), "{rows} rows, {at}");
            }
        }
    }

    #[test]
    fn heavy_elements_stand_out_and_tables_add() {
        let sketch = sketch(5, 500);
        let light: Vec<f32> =
            (0..20_000).map(|i| ((i * 7919) % 101) as f32 / 100.0 - 0.5).collect();
        let mut heavy = vec![0.0; 20_000];
        (heavy[17], heavy[19_999]) = (60.0, -70.0);
        let (mut a, mut b) = (vec![0.0; sketch.len()], vec![0.0; sketch.len()]);
        sketch.add(&light, &mut a, &mut Helpers::default());
        sketch.add(&heavy, &mut b, &mut Helpers::default());
        a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
        // The norm of the rest is 41; divided by the root of 500 columns, 1.8.
        let mut found = estimates(&sketch, &a, 20_000);
        assert!((found[17] - 60.0).abs() < 6.0);
        assert!((found[19_999] + 70.0).abs() < 6.0);
        (found[17], found[19_999]) = (0.0, 0.0);
        let worst = found.iter().fold(0.0, |worst: f32, x| worst.max(x.abs()));
        assert!(worst < 20.0, "{worst}");
    }
}
