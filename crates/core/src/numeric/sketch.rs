//! Count sketches: a table of sums, from which the large elements of a long vector can be found.
//!
//! Each row of the table adds every element, with a random sign, to a random one of its columns. The table
//! of a sum is the sum of tables. The estimate of an element is the median over rows of its column times its sign; its
//! error is about the norm of the other elements divided by the square root of the number of columns.

use gradwire_bits::kernels;

/// The hash functions of a table: multiply, add and shift, so that the columns and signs of any two elements are
/// independent (Dietzfelbinger 1996).
#[derive(Debug, Clone)]
pub struct CountSketch {
    /// Factor and term of each row.
    keys: [[u64; 2]; MAX_ROWS],
    rows: usize,
    columns: usize,
}

impl CountSketch {
    /// A table with a row for each pair of keys, of which [`MAX_ROWS`] are used.
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

    /// Writes columns of the elements from `first` on in a row, and their signs as the sign bit of a float.
    fn place(&self, [factor, term]: [u64; 2], first: usize, to: &mut Places, len: usize) {
        let columns = self.columns as u32;
        let hash = factor.wrapping_mul(first as u64).wrapping_add(term);
        let Places { columns: places, signs } = to;
        kernels::columns_and_signs(hash, factor, columns, &mut places[..len], &mut signs[..len]);
    }

    /// Adds a vector to a table, row by row in `table`.
    pub fn add(&self, values: &[f32], table: &mut [f32]) {
        let mut places = Places::NONE;
        for (&key, row) in self.keys().iter().zip(table.chunks_exact_mut(self.columns)) {
            for (at, values) in values.chunks(PART).enumerate() {
                self.place(key, at * PART, &mut places, values.len());
                for (value, (column, sign)) in values.iter().zip(places.iter()) {
                    row[column] += f32::from_bits(value.to_bits() ^ sign);
                }
            }
        }
    }

    /// Calls `take` with the estimates of all elements, a part at a time with the offset of its first. `found` is
    /// working memory. No part has more than [`BLOCK`](crate::BLOCK) elements.
    pub fn estimates(
        &self,
        table: &[f32],
        elements: usize,
        found: &mut Vec<f32>,
        mut take: impl FnMut(usize, &mut [f32]),
    ) {
        found.resize(self.rows * PART, 0.0);
        let (found, _) = found.as_chunks_mut::<PART>();
        let mut places = Places::NONE;
        for start in (0..elements).step_by(PART) {
            let len = PART.min(elements - start);
            let rows = self.keys().iter().zip(table.chunks_exact(self.columns));
            for ((&key, row), found) in rows.zip(&mut *found) {
                self.place(key, start, &mut places, len);
                for (found, (column, sign)) in found[..len].iter_mut().zip(places.iter()) {
                    *found = f32::from_bits(row[column].to_bits() ^ sign);
                }
            }
            take(start, &mut medians(found)[..len]);
        }
    }
}

/// Elements that are looked up at a time. The estimates by five rows take 20 KiB, which stay in the first cache.
pub const PART: usize = 1024;

/// Columns and signs of some elements in a row.
struct Places {
    columns: [u32; PART],
    signs: [u32; PART],
}

impl Places {
    const NONE: Self = Self { columns: [0; PART], signs: [0; PART] };

    fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        self.columns.iter().zip(&self.signs).map(|(&column, &sign)| (column as usize, sign))
    }
}

/// The medians over rows; of an even number of rows the means of the middle two.
///
/// Rows are sorted up to the middle, by the same exchanges for all elements, without branches: a branch on the order of
/// random numbers is mispredicted half of the time.
fn medians(rows: &mut [[f32; PART]]) -> &mut [f32; PART] {
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

    /// An element's estimate by the definition.
    fn estimate(sketch: &CountSketch, table: &[f32], element: u64) -> f32 {
        let mut found: Vec<f32> = sketch.keys[..sketch.rows]
            .iter()
            .zip(table.chunks(sketch.columns))
            .map(|(&[factor, term], row)| {
                let hash = factor.wrapping_mul(element).wrapping_add(term) >> 32;
                let sign = if hash % 2 == 0 { 1.0 } else { -1.0 };
                sign * row[((hash * sketch.columns as u64) >> 32) as usize]
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
        sketch.estimates(table, elements, &mut vec![7.0; 3], |start, block| {
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
    fn columns_and_signs_are_those_of_the_hash() {
        // Factor 2^32 and term 0 hash element x to x: column x·4 >> 32 = 0, sign by the lowest bit.
        let sketch = CountSketch::new([[1 << 32, 0], [1 << 32, 3 << 62]], 4);
        let mut table = vec![0.0; 8];
        sketch.add(&[1.0, 10.0, 100.0], &mut table);
        // The second row's term is three quarters of the range: column 3.
        assert_eq!(table, [91.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 91.0]);
        // The means of two.
        let table = [5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0];
        assert_eq!(estimates(&sketch, &table, 3), [3.5, -3.5, 3.5]);
    }

    #[test]
    fn a_step_of_an_eighth_worked_by_hand() {
        // Factor 2^61 + 2^32 and term 2^63: element x hashes to x and (4 + x) mod 8 eighths of the range, which is
        // column 2 of 4 for 0 and 1, then 3, 0 and 1, two at a time; odd elements are negative.
        let sketch = CountSketch::new([[(1 << 61) + (1 << 32), 1 << 63]], 4);
        let mut table = vec![0.0; 4];
        sketch.add(&[1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0], &mut table);
        assert_eq!(table, [8.0 - 13.0, 21.0 - 34.0, 1.0 - 2.0 + 55.0, 3.0 - 5.0]);
        let found = estimates(&sketch, &table, 9);
        assert_eq!(found, [54.0, -54.0, -2.0, 2.0, -5.0, 5.0, -13.0, 13.0, 54.0]);
    }

    #[test]
    fn estimates_are_medians_of_any_number_of_rows() {
        let elements = PART + 100;
        for rows in 1..=MAX_ROWS {
            let sketch = sketch(rows, 77);
            // Few values, so that many are equal.
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
        sketch.add(&light, &mut a);
        sketch.add(&heavy, &mut b);
        a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
        // The norm of the rest is 41, by the root of 500 columns 1.8.
        let mut found = estimates(&sketch, &a, 20_000);
        assert!((found[17] - 60.0).abs() < 6.0);
        assert!((found[19_999] + 70.0).abs() < 6.0);
        (found[17], found[19_999]) = (0.0, 0.0);
        let worst = found.iter().fold(0.0, |worst: f32, x| worst.max(x.abs()));
        assert!(worst < 20.0, "{worst}");
    }
}
