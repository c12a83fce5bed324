//! Runs of neighbours, added to or read from random places of a row.

use fearless_simd::prelude::*;

use super::{cases, kernel};

/// The most elements of a run.
pub const RUN: usize = 16;

/// The places of runs of elements in a row.
#[derive(Debug, Clone, Copy)]
pub struct Runs<'a> {
    /// Elements of a run, 1 to [`RUN`] and at most the length of the row. The last run of the
    /// values may be shorter.
    pub len: usize,
    /// The column of the first element of each run; the others follow in the next columns, wrapping
    /// around at the end of the row.
    pub columns: &'a [u32],
    /// For each run 0, or the sign bit of a float to negate it.
    pub signs: &'a [u32],
}

impl Runs<'_> {
    /// The column and the sign of each run in a row of `len` elements.
    #[inline(always)]
    fn places(self, len: usize) -> impl Iterator<Item = (usize, u32)> {
        assert!(0 < self.len && self.len <= RUN.min(len), "runs of {} in a row of {len}", self.len);
        let columns = self.columns.iter().map(|&column| column as usize);
        columns.zip(self.signs.iter().copied())
    }
}

kernel! {
    /// Adds values to a row, run by run. Processes as many runs as there are.
    ///
    /// # Panics
    /// If runs are empty or longer than the row, or if a column is beyond its end.
    pub fn add_runs(simd, values: &[f32], runs: Runs<'_>, row: &mut [f32]) {
        let places = runs.places(row.len());
        for (values, (column, sign)) in values.chunks(runs.len).zip(places) {
            let whole = row.get_mut(column..column + RUN).filter(|_| values.len() == RUN);
            let Some(place) = whole else {
                add_run(values, (column, sign), row);
                continue;
            };
            let lanes = values.chunks_exact(S::f32s::LEN);
            for (place, lanes) in place.chunks_exact_mut(S::f32s::LEN).zip(lanes) {
                (S::f32s::from_slice(simd, place) + negated(simd, lanes, sign)).store_slice(place);
            }
        }
    } plain {
        let places = runs.places(row.len());
        values.chunks(runs.len).zip(places).for_each(|(values, place)| add_run(values, place, row));
    }
}

fn add_run(values: &[f32], (column, sign): (usize, u32), row: &mut [f32]) {
    let (before, after) = row.split_at_mut(column);
    for (place, value) in after.iter_mut().chain(before).zip(values) {
        *place += f32::from_bits(value.to_bits() ^ sign);
    }
}

kernel! {
    /// Reads values from a row, run by run. Processes as many runs as there are.
    ///
    /// # Panics
    /// If runs are empty or longer than the row, or if a column is beyond its end.
    pub fn read_runs(simd, row: &[f32], runs: Runs<'_>, values: &mut [f32]) {
        let places = runs.places(row.len());
        for (values, (column, sign)) in values.chunks_mut(runs.len).zip(places) {
            let whole = row.get(column..column + RUN).filter(|_| values.len() == RUN);
            let Some(place) = whole else {
                read_run(row, (column, sign), values);
                continue;
            };
            let lanes = values.chunks_exact_mut(S::f32s::LEN);
            for (place, lanes) in place.chunks_exact(S::f32s::LEN).zip(lanes) {
                negated(simd, place, sign).store_slice(lanes);
            }
        }
    } plain {
        let places = runs.places(row.len());
        values
            .chunks_mut(runs.len)
            .zip(places)
            .for_each(|(values, place)| read_run(row, place, values));
    }
}

fn read_run(row: &[f32], (column, sign): (usize, u32), values: &mut [f32]) {
    let (before, after) = row.split_at(column);
    for (place, value) in after.iter().chain(before).zip(values) {
        *value = f32::from_bits(place.to_bits() ^ sign);
    }
}

/// The lanes, negated if `sign` is the sign bit.
#[inline(always)]
fn negated<S: Simd>(simd: S, lanes: &[f32], sign: u32) -> S::f32s {
    (S::f32s::from_slice(simd, lanes).bitcast::<S::u32s>() ^ sign).bitcast()
}

cases![
    ("add_runs", |input, output| {
        let (columns, signs) = run_places(input);
        for len in [RUN, 1 + input.word(0) as usize % RUN] {
            let mut row = input.elements(input.len + RUN, |at| f32::from_bits(input.word(3 * at)));
            let runs = Runs { len, columns: &columns, signs: &signs };
            add_runs(&input.floats(), runs, &mut row);
            output.computed(&row);
        }
    }),
    ("read_runs", |input, output| {
        let (columns, signs) = run_places(input);
        let row = input.elements(input.len + RUN, |at| f32::from_bits(input.word(3 * at)));
        for len in [RUN, 1 + input.word(0) as usize % RUN] {
            let mut values = input.zeros();
            read_runs(&row, Runs { len, columns: &columns, signs: &signs }, &mut values);
            output.moved(&values);
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_by_hand() {
        // Runs of two in a row of three: columns 1 and 2, then 2 and 0, negated, then the last run
        // of one element.
        let runs = Runs { len: 2, columns: &[1, 2, 0], signs: &[0, 1 << 31, 0] };
        let mut row = [10.0, 20.0, 30.0];
        add_runs(&[1.0, 2.0, 3.0, 4.0, 5.0], runs, &mut row);
        assert_eq!(row, [10.0 - 4.0 + 5.0, 21.0, 30.0 + 2.0 - 3.0]);
        let mut values = [0.0; 5];
        read_runs(&row, runs, &mut values);
        assert_eq!(values, [21.0, 29.0, -29.0, -11.0, 11.0]);
    }

    #[test]
    fn whole_runs_by_hand() {
        // One that fits in the row, and one that wraps around.
        let runs = Runs { len: 16, columns: &[2, 10], signs: &[1 << 31, 0] };
        let values: [f32; 32] = core::array::from_fn(|at| at as f32);
        let mut row = [0.0; 20];
        add_runs(&values, runs, &mut row);
        for (column, found) in row.into_iter().enumerate() {
            let first = if (2..18).contains(&column) { 2.0 - column as f32 } else { 0.0 };
            let second = if column < 6 {
                26 + column
            } else if column < 10 {
                0
            } else {
                6 + column
            };
            assert_eq!(found, first + second as f32, "{column}");
        }
        let mut back = [0.0; 32];
        read_runs(&row, runs, &mut back);
        assert_eq!((back[0], back[15], back[16], back[31]), (-row[2], -row[17], row[10], row[5]));
    }
}
