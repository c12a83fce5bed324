//! The used positions of a kernel, and vectors that cover them.

/// The used positions of a kernel: rows of equally many columns.
#[derive(Debug, Clone)]
pub(super) struct Used {
    /// The first position of each row, in rising order.
    pub(super) rows: Vec<usize>,
    pub(super) columns: usize,
}

impl Used {
    /// The first positions of vectors of `lanes` positions that together cover each used position
    /// once. The last may be repeated to make a multiple of `group`.
    pub(super) fn vectors(&self, lanes: usize, group: usize) -> Vec<usize> {
        let mut starts = Vec::with_capacity(self.rows.len() * self.columns.div_ceil(lanes) + group);
        let mut next = 0;
        for &row in &self.rows {
            next = next.max(row);
            while next < row + self.columns {
                starts.push(next);
                next += lanes;
            }
        }
        if let Some(&last) = starts.last() {
            starts.resize(starts.len().next_multiple_of(group), last);
        }
        starts
    }
}

/// Checks that a slice of `len` values has all vectors of `lanes` values that begin at `starts`,
/// from each of the offsets on.
///
/// # Panics
/// If it is shorter.
pub(super) fn check(starts: &[usize], lanes: usize, offsets: &[usize], len: usize) {
    let [start, offset] = [starts, offsets].map(|all| all.iter().copied().max().unwrap_or(0));
    let end = start.saturating_add(offset).saturating_add(lanes);
    assert!(end <= len, "planes reach beyond each vector");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_each_position_that_is_used_once() {
        // A gap between the third row and the fourth; the others are next to each other.
        let used = Used { rows: vec![0, 13, 26, 52, 61, 70], columns: 9 };
        for lanes in [1, 4, 8, 16] {
            let vectors = used.vectors(lanes, 1);
            let covered: Vec<usize> = vectors.iter().flat_map(|&at| at..at + lanes).collect();
            assert!(covered.is_sorted_by(|a, b| a < b), "no position twice");
            for row in &used.rows {
                assert!((*row..row + 9).all(|at| covered.contains(&at)));
            }
            let grouped = used.vectors(lanes, 4);
            assert_eq!(grouped[..vectors.len()], vectors);
            assert!(grouped.len().is_multiple_of(4) && grouped.len() < vectors.len() + 4);
        }
        // With rows of 8 of 12 positions, eight lanes waste nothing, sixteen a third.
        let rows = Used { rows: (0..8).map(|row| 12 * row).collect(), columns: 8 };
        assert_eq!([8, 16].map(|lanes| rows.vectors(lanes, 1).len()), [8, 6]);
    }

    #[test]
    fn the_last_vector_has_to_fit() {
        check(&[3, 5], 8, &[2], 15);
        for (starts, lanes, offset) in [([3, 5], 8, 3), ([3, 6], 8, 2), ([3, 5], 8, usize::MAX)] {
            let refused = std::panic::catch_unwind(|| check(&starts, lanes, &[offset], 15));
            assert!(refused.is_err(), "{starts:?}, {offset}");
        }
    }
}
