//! Stochastic rounding to a table of integers; the expectation is the value.

use super::vectorised;

/// The most that the last integer of a table may be.
const MOST: usize = 32;

/// A table of integers that increase from 0, prepared for [`stochastic_entries`]. For each integer below the last it has
/// the entry at or below this integer.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    last: f32,
    entries: [f32; MOST],
    /// The distances to the next entries.
    steps: [f32; MOST],
    indices: [u32; MOST],
}

impl Table {
    /// Prepares a table.
    ///
    /// # Panics
    /// If the first integer is not 0, one is not above the one before it, or the last is above 32.
    pub const fn new(table: &[u8]) -> Self {
        let last = table[table.len() - 1] as usize;
        assert!(table[0] == 0 && last <= MOST, "a table goes from 0 to at most 32");
        let (mut entries, mut steps, mut indices) = ([0.0; MOST], [0.0; MOST], [0; MOST]);
        let mut index = 0;
        while index + 1 < table.len() {
            assert!(table[index] < table[index + 1], "a table increases");
            let mut at = table[index] as usize;
            while at < table[index + 1] as usize {
                entries[at] = table[index] as f32;
                steps[at] = (table[index + 1] - table[index]) as f32;
                indices[at] = index as u32;
                at += 1;
            }
            index += 1;
        }
        Self { last: last as f32, entries, steps, indices }
    }
}

vectorised! {
    /// Writes for each `t = value·scale + offset`, clipped to the table's range, the index of the entry at or below t, or
    /// that of the next one: of this if the upper 24 bits of a random word, as a part of 1, are below t's part of the way to it. A
    /// NaN may become any index. Processes the shortest length.
    pub fn stochastic_entries / stochastic_entries_scalar(
        values: &[f32],
        scale: f32,
        offset: f32,
        table: &Table,
        random: &[u32],
        indices: &mut [u16],
    ) {
        for ((value, word), index) in values.iter().zip(random).zip(indices) {
            let t = value * scale + offset;
            let t = if t > 0.0 { t } else { 0.0 };
            let t = if t < table.last { t } else { table.last };
            let cell = (t as i32).min(table.last as i32 - 1) as usize & (MOST - 1);
            let chance = (word >> 8) as i32 as f32 * (1.0 / 16_777_216.0);
            let up = chance * table.steps[cell] < t - table.entries[cell];
            *index = (table.indices[cell] + u32::from(up)) as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_by_hand() {
        // Entries 0, 2 and 5; t = 2·value + 1.
        let table = Table::new(&[0, 2, 5]);
        let values = [0.0, 0.0, 0.5, 1.25, 1.25, 9.0, -9.0, f32::INFINITY];
        // Half of the way from 0 to 2 twice, at 2, half of the way from 2 to 5 twice, clipped.
        let half = 1 << 31;
        let words = [half - 1, half, 0, half - 1, half, u32::MAX, 0, 0];
        let mut indices = [9; 8];
        stochastic_entries(&values, 2.0, 1.0, &table, &words, &mut indices);
        assert_eq!(indices, [1, 0, 1, 2, 1, 2, 0, 2]);
    }

    #[test]
    fn the_mean_is_the_value() {
        let entries = [0u8, 3, 4, 30];
        let table = Table::new(&entries);
        let mut words = [0; 4096];
        super::super::philox4x32([1, 2], [0; 4], &mut words);
        for t in [0.5, 2.9, 3.25, 4.0, 11.0, 29.5] {
            let (values, mut indices) = ([t; 4096], [9; 4096]);
            stochastic_entries(&values, 1.0, 0.0, &table, &words, &mut indices);
            let sum: f32 =
                indices.iter().map(|&index| f32::from(entries[usize::from(index)])).sum();
            assert!((sum / 4096.0 - t).abs() < 1.0, "{t}");
        }
    }
}
