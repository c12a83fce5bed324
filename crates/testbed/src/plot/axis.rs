//! Axes with round tick marks, linear or logarithmic.

use super::unit::Unit;

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
pub(super) struct Axis {
    scale: Scale,
    unit: Unit,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis for `values`; any range without values.
    pub(super) fn around(scale: Scale, unit: Unit, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|x| scale.shows(*x))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let (low, high) = if low <= high { (low, high) } else { (1.0, 2.0) };
        match scale {
            Scale::Linear => {
                let margin = 0.04 * (high - low).max(1e-3 * high.abs()).max(1e-9);
                Self { scale, unit, low: low - margin, high: high + margin }
            }
            Scale::Log => {
                let margin = (high / low).powf(0.04).max(1.1);
                Self { scale, unit, low: low / margin, high: high * margin }
            }
        }
    }

    /// Round values within the axis, about `most` of them at most, each with its text.
    pub(super) fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => linear_ticks(self.low, self.high, most),
            Scale::Log => log_ticks(self.low, self.high, most),
        };
        values.into_iter().map(|value| (value, self.unit.tick(value))).collect()
    }

    /// Where a value lies: 0 at the low end of the axis, 1 at the high end.
    pub(super) fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// The nearest value on the axis.
    pub(super) fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }
}

impl Scale {
    /// Whether an axis of this scale shows a value. It omits the perplexity of a diverged run,
    /// beside which all other points would coincide.
    pub(super) fn shows(self, value: f64) -> bool {
        value.abs() <= MOST && (self == Scale::Linear || value > 0.0)
    }

    /// The other scale.
    pub(super) fn other(self) -> Self {
        match self {
            Scale::Linear => Scale::Log,
            Scale::Log => Scale::Linear,
        }
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

/// 1, 2 and 5 times powers of ten; powers of ten alone, or some of them, if these are too many; as
/// on a linear axis if there would be only one.
fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let decades = |first: f64, stride: usize| {
        (first as i32..=high.log10().ceil() as i32).step_by(stride).map(|at| 10f64.powi(at))
    };
    let within = |tick: &f64| (low..=high).contains(tick);
    let all =
        decades(low.log10().floor(), 1).flat_map(|one| [1.0, 2.0, 5.0].map(|part| part * one));
    let fine: Vec<f64> = all.filter(within).collect();
    let coarse = |stride| decades(low.log10().ceil(), stride).filter(within).collect::<Vec<f64>>();
    let ticks = match fine.len() <= most {
        true => fine,
        false => (1..).map(coarse).find(|ticks| ticks.len() <= most.max(1)).unwrap_or_default(),
    };
    if ticks.len() < 2 { linear_ticks(low, high, most) } else { ticks }
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
        assert_eq!(log_ticks(0.9, 2e6, 4), [1.0, 100.0, 1e4, 1e6]);
    }

    #[test]
    fn values_have_their_place() {
        let axis = |scale, low, high| Axis { scale, unit: Unit::Number, low, high };
        assert!((axis(Scale::Log, 1.0, 100.0).place(10.0) - 0.5).abs() < 1e-12);
        assert_eq!(axis(Scale::Linear, 0.0, 4.0).place(1.0), 0.25);
        let ticks = Axis { unit: Unit::Bytes, ..axis(Scale::Log, 9e5, 2e8) }.ticks(4);
        let texts: Vec<&str> = ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["1\u{a0}MB", "10\u{a0}MB", "100\u{a0}MB"]);
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_is_still_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            let beyond = vec![2.0, f64::MAX, f64::INFINITY];
            for values in [vec![], vec![5.0], vec![f64::NAN], vec![0.0, -1.0], beyond] {
                let axis = Axis::around(scale, Unit::Number, values.iter().copied());
                assert!(axis.low < axis.high && axis.high < 1e13, "{scale:?} {values:?}");
                assert!(!axis.ticks(8).is_empty() || axis.high - axis.low < 1.0);
            }
        }
    }
}
