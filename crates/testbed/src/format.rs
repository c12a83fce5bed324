//! Formatting of numbers for readers.

use gradwire_exchange::Link;

/// `value` with three significant digits.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    // Rounding may carry into another digit: 9.996 is 10.0, not 10.00.
    let digits = text.chars().filter(char::is_ascii_digit).collect::<String>();
    if decimals > 0 && digits.trim_start_matches('0').len() > 3 {
        format!("{value:.0$}", decimals - 1)
    } else {
        text
    }
}

/// A ratio or a factor: `12.3×`.
pub(crate) fn times(value: f64) -> String {
    format!("{}×", significant(value))
}

/// Bytes in decimal units.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
}

/// A time given in seconds.
pub(crate) fn seconds(value: f64) -> String {
    if value >= 120.0 {
        let minutes = (value / 60.0).round() as u64;
        return if minutes >= 120 {
            format!("{} h {:02} min", minutes / 60, minutes % 60)
        } else {
            format!("{minutes} min")
        };
    }
    scaled(value, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")])
}

/// A time given in seconds, to compare with others of any length: three digits, and no minutes.
pub(crate) fn step_seconds(value: f64) -> String {
    scaled(value, &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")])
}

/// A bandwidth given in bits per second.
pub(crate) fn bandwidth(bits_per_second: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
    let (unit, name) = pick(bits_per_second, &units);
    format!("{} {name}", bits_per_second / unit)
}

/// A link: its bandwidth and, if it is not 0, its latency.
pub(crate) fn link(link: &Link) -> String {
    let bandwidth = bandwidth(link.bits_per_second);
    match link.latency.as_nanos() {
        0 => bandwidth,
        nanos => format!("{bandwidth} with {} ms", nanos as f64 / 1e6),
    }
}

/// A text such as `10 Mbit/s` as a part of a file's name: `10-mbit-s`.
pub(crate) fn file_name(text: &str) -> String {
    text.replace([' ', '/'], "-").to_lowercase()
}

/// A difference of fractions in percentage points, with its sign.
pub(crate) fn points(value: f64) -> String {
    format!("{:+.2}", value * 100.0)
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (unit, name) = pick(value, units);
    format!("{} {name}", significant(value / unit))
}

/// The largest unit that `value` reaches, else the smallest.
fn pick<'a>(value: f64, units: &[(f64, &'a str)]) -> (f64, &'a str) {
    let fits = units.iter().find(|(unit, _)| value >= *unit);
    *fits.or(units.last()).expect("there are units")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_no_more() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (0.9996, "1.00"),
            (123.4, "123"),
            (12345.6, "12346"),
            (0.01234, "0.0123"),
            (-0.5, "-0.500"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn units() {
        assert_eq!(bytes(1_724_320.0), "1.72 MB");
        assert_eq!(bytes(12.0), "12.0 B");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(90.0), "90.0 s");
        assert_eq!(seconds(1800.0), "30 min");
        assert_eq!(seconds(9000.0), "2 h 30 min");
        assert_eq!(bandwidth(1e7), "10 Mbit/s");
        assert_eq!(bandwidth(1e10), "10 Gbit/s");
        let slow: Link = "10mbit/20ms".parse().unwrap();
        assert_eq!([link(&slow), link(&Link::mbit(10.0))], ["10 Mbit/s with 20 ms", "10 Mbit/s"]);
        assert_eq!(file_name(&bandwidth(1e7)), "10-mbit-s");
        assert_eq!(points(-0.0012), "-0.12");
        assert_eq!(times(106.5), "106×");
    }
}
