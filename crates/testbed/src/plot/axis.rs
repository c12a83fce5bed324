//! Axes with round tick marks, linear or logarithmic.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// The largest magnitude on an axis.
const MOST: f64 = 1e12;

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences.
    Linear,
    /// Equal distances are equal ratios; values are positive.
    Log,
}

/// An axis, slightly wider than the range of its values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis for `values`; any range without values.
    pub(crate) fn around(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|x| scale.shows(*x))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 2.0) };
        match scale {
            Scale::Linear => {
                let margin = 0.04 * (high - low).max(1e-3 * high.abs()).max(1e-9);
                Self { scale, low: low - margin, high: high + margin }
            }
            Scale::Log => {
                let margin = (high / low).powf(0.04).max(1.1);
                Self { scale, low: low / margin, high: high * margin }
            }
        }
    }

    /// Round values within the axis, about `most` of them at most.
    fn ticks(&self, most: usize) -> Vec<f64> {
        match self.scale {
            Scale::Linear => linear_ticks(self.low, self.high, most),
            Scale::Log => log_ticks(self.low, self.high, most),
        }
    }
}

impl Scale {
    /// Whether an axis of this scale shows a value. It omits the perplexity of a diverged run,
    /// beside which all other points would coincide.
    pub(crate) fn shows(self, value: f64) -> bool {
        value.abs() <= MOST && (self == Scale::Linear || value > 0.0)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten.
fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let rough = (high - low) / most.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|multiple| multiple as f64 * step).collect()
}

/// 1, 2 and 5 times powers of ten, or powers of ten alone if these are too many; as on a linear
/// axis if there would be only one.
fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let within = |factors: &[f64]| -> Vec<f64> {
        decades
            .clone()
            .flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade)))
            .filter(|tick| (low..=high).contains(tick))
            .collect()
    };
    let fine = within(&[1.0, 2.0, 5.0]);
    let ticks = if fine.len() <= most { fine } else { within(&[1.0]) };
    if ticks.len() < 2 { linear_ticks(low, high, most) } else { ticks }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let along = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        limit.0 + (along * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Plotters also requests light grid lines, with a larger number. These axes have none.
        self.ticks(hint.bold_points().min(8))
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        let rounded = (value * 1e6).round() / 1e6;
        if rounded.abs() >= 1e5 { format!("{rounded:e}") } else { rounded.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(linear_ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear_ticks(88.3, 93.4, 6), [89.0, 90.0, 91.0, 92.0, 93.0]);
        assert_eq!(log_ticks(0.9, 21.0, 8), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(log_ticks(74.0, 105.0, 8), [75.0, 80.0, 85.0, 90.0, 95.0, 100.0, 105.0]);
        assert_eq!(log_ticks(0.9, 2e6, 8), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
    }

    #[test]
    fn values_map_onto_pixels() {
        let axis = Axis { scale: Scale::Log, low: 1.0, high: 100.0 };
        assert_eq!(axis.map(&10.0, (0, 200)), 100);
        let axis = Axis { scale: Scale::Linear, low: 0.0, high: 4.0 };
        assert_eq!(axis.map(&1.0, (100, 0)), 75);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_still_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            let beyond = vec![2.0, f64::MAX, f64::INFINITY];
            for values in [vec![], vec![5.0], vec![f64::NAN], vec![0.0, -1.0], beyond] {
                let axis = Axis::around(scale, values.iter().copied());
                assert!(axis.low < axis.high && axis.high < 1e13, "{scale:?} {values:?}");
                assert!(!axis.ticks(8).is_empty() || axis.high - axis.low < 1.0);
            }
        }
    }
}
