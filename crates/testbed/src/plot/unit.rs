//! The units of values on axes.

/// What the numbers of an axis are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unit {
    /// Numbers; the label of the axis has the unit, if there is one.
    #[default]
    Number,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl Unit {
    /// A round value as the text of a tick mark: `10 MB`.
    pub(super) fn tick(self, value: f64) -> String {
        self.shown(value, 6)
    }

    /// A value with four significant digits.
    pub(super) fn exact(self, value: f64) -> String {
        self.shown(value, 4)
    }

    /// A value with `digits` significant digits at most.
    fn shown(self, value: f64, digits: usize) -> String {
        let (factor, prefix) = self.prefix(value.abs());
        let rounded = format!("{:.*e}", digits - 1, value / factor);
        let number = match rounded.parse::<f64>() {
            Ok(number) if number != 0.0 && number.abs() < 1e-3 => format!("{number:e}"),
            Ok(number) => number.to_string(),
            Err(_) => rounded,
        };
        if prefix.is_empty() { number } else { format!("{number}\u{a0}{prefix}") }
    }

    /// The factor and the name of the largest prefix that fits: SI, but none for many seconds.
    fn prefix(self, size: f64) -> (f64, &'static str) {
        // The least size, the factor, and the prefix with the unit.
        let all: &[(f64, f64, &'static str)] = match self {
            Unit::Number => &[(1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")],
            Unit::Bytes => &[
                (1e12, 1e12, "TB"),
                (1e9, 1e9, "GB"),
                (1e6, 1e6, "MB"),
                (1e3, 1e3, "kB"),
                (0.0, 1.0, "B"),
            ],
            Unit::Seconds => &[(1.0, 1.0, "s"), (1e-3, 1e-3, "ms"), (0.0, 1e-6, "µs")],
        };
        let fits = all.iter().find(|(least, ..)| size > 0.0 && size >= *least);
        fits.map_or((1.0, ""), |(_, factor, prefix)| (*factor, prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_si_prefixes() {
        let space = |text: &str| text.replace(' ', "\u{a0}");
        for (unit, value, text) in [
            (Unit::Bytes, 1e7, "10 MB"),
            (Unit::Bytes, 500.0, "500 B"),
            (Unit::Bytes, 0.5, "0.5 B"),
            (Unit::Bytes, 0.0, "0"),
            (Unit::Seconds, 0.02, "20 ms"),
            (Unit::Seconds, 2000.0, "2000 s"),
            (Unit::Seconds, 5e-6, "5 µs"),
            (Unit::Number, 2000.0, "2000"),
            (Unit::Number, 20_000.0, "20 k"),
            (Unit::Number, 3e6, "3 M"),
            (Unit::Number, -0.5, "-0.5"),
            (Unit::Number, 1e-8, "1e-8"),
            (Unit::Number, 0.1 + 0.2, "0.3"),
        ] {
            assert_eq!(unit.tick(value), space(text), "{unit:?} {value}");
        }
    }

    #[test]
    fn values_have_four_digits() {
        assert_eq!(Unit::Number.exact(91.2549), "91.25");
        assert_eq!(Unit::Number.exact(0.000_012_345), "1.234e-5");
        assert_eq!(Unit::Bytes.exact(1_724_320.0), "1.724\u{a0}MB");
        assert_eq!(Unit::Seconds.exact(0.0123), "12.3\u{a0}ms");
    }
}
