//! The times of repetitions.

use gradwire::Moved;

/// Bytes that a copy moves per element.
const COPIED: f64 = 12.0;

/// Bytes read per element.
const READ: f64 = 4.0;

/// The seconds of the repetitions of an operation.
#[derive(Debug, Default)]
pub(super) struct Times(pub(super) Vec<f64>);

impl Times {
    pub(super) fn best(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// How much longer the median repetition took than the best one, as a fraction.
    pub(super) fn spread(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN);
        median / self.best() - 1.0
    }
}

/// The seconds to copy all elements, and to read them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bandwidth {
    pub(super) copy: f64,
    pub(super) read: f64,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self { copy: f64::INFINITY, read: f64::INFINITY }
    }
}

impl Bandwidth {
    /// Keeps the best times.
    pub(super) fn take(&mut self, copy: f64, read: f64) {
        *self = Self { copy: self.copy.min(copy), read: self.read.min(read) };
    }

    /// The least seconds for moving these bytes of each element.
    pub(super) fn least_seconds(self, moved: Moved) -> f64 {
        (self.copy * moved.bytes() / COPIED).max(self.read * moved.read / READ)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_by_hand() {
        let times = Times(vec![2.0, 5.0, 2.5]);
        assert_eq!((times.best(), times.spread()), (2.0, 0.25));
    }
}
