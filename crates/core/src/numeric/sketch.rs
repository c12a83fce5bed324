//! Count sketches: a table of sums from which the heavy elements of a long vector can be told.
//!
//! Each row of the table adds every element, with a random sign, to a random one of its columns. The table
//! of a sum is the sum of tables. An element is estimated by the median over rows of its column, signed:
//! wrong by about the norm of the rest by the root of the columns.

/// Hash functions of a table: multiply, add and shift, which makes any two elements' columns and signs
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

    /// The column and the sign of an element in a row.
    fn place(&self, [factor, term]: [u64; 2], element: usize) -> (usize, f32) {
        let hash = factor.wrapping_mul(element as u64).wrapping_add(term) >> 32;
        let column = (hash * self.columns as u64) >> 32;
        (column as usize, if hash & 1 == 0 { 1.0 } else { -1.0 })
    }

    /// Adds a vector to a table, row by row in `table`.
    pub fn add(&self, values: &[f32], table: &mut [f32]) {
        for (&key, row) in self.keys().iter().zip(table.chunks_exact_mut(self.columns)) {
            for (element, value) in values.iter().enumerate() {
                let (column, sign) = self.place(key, element);
                row[column] += sign * value;
            }
        }
    }

    /// An element's estimate.
    pub fn estimate(&self, table: &[f32], element: usize) -> f32 {
        let mut found = [0.0; MAX_ROWS];
        let found = &mut found[..self.rows];
        for ((found, &key), row) in
            found.iter_mut().zip(self.keys()).zip(table.chunks_exact(self.columns))
        {
            let (column, sign) = self.place(key, element);
            *found = sign * row[column];
        }
        found.sort_unstable_by(f32::total_cmp);
        let half = found.len() / 2;
        match found.len() % 2 {
            1 => found[half],
            _ => found[half - 1] / 2.0 + found[half] / 2.0,
        }
    }
}

/// The most rows of a table.
pub const MAX_ROWS: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_signs_are_those_of_the_hash() {
        // Factor 2^32 and term 0 hash element x to x: column x·4 >> 32 = 0, sign by the lowest bit.
        let sketch = CountSketch::new([[1 << 32, 0], [1 << 32, 3 << 62]], 4);
        let mut table = vec![0.0; 8];
        sketch.add(&[1.0, 10.0, 100.0], &mut table);
        // The second row's term is three quarters of the range: column 3.
        assert_eq!(table, [91.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 91.0]);
        // The mean of two.
        assert_eq!(sketch.estimate(&[5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0], 1), -3.5);
    }

    #[test]
    fn heavy_elements_stand_out_and_tables_add() {
        let mut keys = crate::Rng::new(1, 2, 3, 4, 5);
        let keys = (0..5).map(|_| [keys.next_u64(), keys.next_u64()]);
        let sketch = CountSketch::new(keys, 500);
        let light: Vec<f32> =
            (0..20_000).map(|i| ((i * 7919) % 101) as f32 / 100.0 - 0.5).collect();
        let mut heavy = vec![0.0; 20_000];
        (heavy[17], heavy[19_999]) = (60.0, -70.0);
        let (mut a, mut b) = (vec![0.0; sketch.len()], vec![0.0; sketch.len()]);
        sketch.add(&light, &mut a);
        sketch.add(&heavy, &mut b);
        a.iter_mut().zip(&b).for_each(|(a, b)| *a += b);
        // The norm of the rest is 41, by the root of 500 columns 1.8.
        assert!((sketch.estimate(&a, 17) - 60.0).abs() < 6.0);
        assert!((sketch.estimate(&a, 19_999) + 70.0).abs() < 6.0);
        let worst = (0..20_000)
            .filter(|&i| heavy[i] == 0.0)
            .map(|i| sketch.estimate(&a, i).abs())
            .fold(0.0, f32::max);
        assert!(worst < 20.0, "{worst}");
    }
}
