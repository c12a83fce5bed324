//! Numbers on the command line. The errors say what to give; clap adds the flag and the value.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Reads a whole number from 0.
pub(crate) fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| "give a whole number from 0, such as 4".to_owned())
}

/// Reads a finite number.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let value = text.trim().parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| "give a number, such as 0.5 or 20".to_owned())
}

/// Reads whole numbers in a range.
pub(crate) fn whole_in<T: FromStr + PartialOrd + Display + Clone>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let value = text.trim().parse().ok().filter(|value| range.contains(value));
        value
            .ok_or_else(|| format!("give a whole number from {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_give() {
        assert_eq!(whole::<u64>(" 7 "), Ok(7));
        assert!(whole::<u64>("-1").unwrap_err().contains("whole number from 0"));
        assert_eq!(number("1e3"), Ok(1000.0));
        assert!(["x", "nan", "inf", ""].iter().all(|text| number(text).is_err()));
        let ranks = whole_in(2..=9u32);
        assert_eq!((ranks("2"), ranks("9")), (Ok(2), Ok(9)));
        assert_eq!(ranks("1").unwrap_err(), "give a whole number from 2 to 9");
    }
}
