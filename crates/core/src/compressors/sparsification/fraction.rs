//! The number of elements that a ratio keeps.

/// The number of elements that the ratio keeps: rounded to nearest, but at least 1 unless
/// `elements` is 0.
pub(in crate::compressors) fn kept(ratio: f64, elements: usize) -> usize {
    // A multiplication and a rounding in f64 give the same result on every machine.
    ((ratio * elements as f64).round() as usize).clamp(elements.min(1), elements)
}

/// The largest tensor size at which the ratio keeps at most `count` elements.
pub(in crate::compressors) fn largest(ratio: f64, count: usize) -> usize {
    (((count as f64 + 1.0) / ratio) as usize).max(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_count_but_one_at_least() {
        assert_eq!(kept(0.01, 0), 0);
        assert_eq!(kept(0.01, 1), 1);
        assert_eq!(kept(0.01, 249), 2);
        assert_eq!(kept(0.01, 251), 3);
        assert_eq!(kept(1.0, 7), 7);
    }

    #[test]
    fn the_inverse_bounds_the_elements() {
        for ratio in [0.001, 0.01, 0.3, 1.0] {
            for elements in (1..2000).step_by(7) {
                assert!(elements <= largest(ratio, kept(ratio, elements)));
            }
        }
    }
}
