//! The bandwidth below which a candidate is faster than no compression.

/// A bandwidth in bits per second that no link has. A candidate that is faster at this bandwidth is
/// faster on any link.
pub const ANY_LINK: f64 = 1e13;

/// The least bandwidth that is tried.
const SLOWEST: f64 = 1e3;

/// The bandwidth in bits per second below which a candidate pays. It is a range if measured times
/// are uncertain. `None` if the candidate pays at no bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossover {
    /// If the measured times are off against the candidate.
    pub least: Option<f64>,
    /// With the measured times.
    pub likely: Option<f64>,
    /// If the measured times are off for the candidate.
    pub most: Option<f64>,
}

impl Crossover {
    /// No bandwidth at which the candidate pays.
    pub(crate) const NOWHERE: Self = Self { least: None, likely: None, most: None };

    /// Finds the crossover of a candidate. `pays(bandwidth, gift)` returns whether the candidate
    /// would be faster at this bandwidth if each of its steps were `gift` seconds shorter. Measured
    /// times may be off by `noise` seconds.
    pub(crate) fn find(pays: impl Fn(f64, f64) -> bool, noise: f64) -> Self {
        let at = |gift| below(|bandwidth| pays(bandwidth, gift));
        let likely = at(0.0);
        if noise == 0.0 {
            return Self { least: likely, likely, most: likely };
        }
        Self { least: at(-noise), likely, most: at(noise) }
    }

    /// Corrects the crossover by a measurement at one bandwidth, which says whether the candidate
    /// pays there.
    pub(crate) fn with_known(self, bandwidth: f64, pays: bool) -> Self {
        let correct = |found: Option<f64>| match found {
            None => pays.then_some(bandwidth),
            Some(found) if pays => Some(found.max(bandwidth)),
            Some(found) => Some(found.min(bandwidth)),
        };
        Self { least: correct(self.least), likely: correct(self.likely), most: correct(self.most) }
    }

    /// The crossover of two candidates together: the higher one.
    pub(crate) fn max(self, other: Self) -> Self {
        // `None` is less than any number.
        let max = |a: Option<f64>, b: Option<f64>| if a > b { a } else { b };
        Self {
            least: max(self.least, other.least),
            likely: max(self.likely, other.likely),
            most: max(self.most, other.most),
        }
    }
}

/// The bandwidth below which `pays` holds. The saving grows as the bandwidth falls, so there is at
/// most one.
fn below(pays: impl Fn(f64) -> bool) -> Option<f64> {
    let (mut low, mut high) = (SLOWEST, ANY_LINK);
    if !pays(low) {
        return None;
    }
    if pays(high) {
        return Some(high);
    }
    while high / low > 1.01 {
        let middle = (low * high).sqrt();
        *(if pays(middle) { &mut low } else { &mut high }) = middle;
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Saves a megabit, and costs 10 ms: pays below 100 Mbit/s.
    fn pays(bandwidth: f64, gift: f64) -> bool {
        1e6 / bandwidth + gift > 0.01
    }

    #[test]
    fn noise_makes_a_range() {
        let near = |found: Option<f64>, mbit: f64| (found.unwrap() / 1e6 / mbit - 1.0).abs() < 0.02;
        let exact = Crossover::find(pays, 0.0);
        assert!(near(exact.likely, 100.0));
        assert_eq!((exact.least, exact.most), (exact.likely, exact.likely));
        // 1 Mbit in 15, 10 and 5 ms.
        let noisy = Crossover::find(pays, 0.005);
        assert!(near(noisy.least, 66.7) && near(noisy.likely, 100.0) && near(noisy.most, 200.0));
        // It may cost nothing.
        let most = Crossover::find(pays, 0.02).most;
        assert_eq!(most, Some(ANY_LINK));
        assert_eq!(below(|_| false), None);
    }

    #[test]
    fn what_is_known_of_one_bandwidth_bounds_it() {
        let found = Crossover::find(pays, 0.005);
        let slower = found.with_known(80e6, false);
        assert_eq!((slower.least, slower.likely, slower.most), (found.least, Some(8e7), Some(8e7)));
        let faster = found.with_known(150e6, true);
        assert_eq!(
            (faster.least, faster.likely, faster.most),
            (Some(15e7), Some(15e7), found.most)
        );
        let never = Crossover { least: None, likely: None, most: None };
        assert_eq!(never.with_known(80e6, false), never);
        assert_eq!(never.with_known(80e6, true).least, Some(8e7));
        assert_eq!(never.max(found), found);
    }
}
