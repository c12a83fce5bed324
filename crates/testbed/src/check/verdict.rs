//! The verdict on a run from the comparison with its repetition.

use std::fmt;

use gradwire_train::Metric;

/// The largest difference of fractions such as accuracies that count as the same: half a point.
const QUALITY: f64 = 0.005;
/// The same for perplexities, relative to the smaller one.
const PERPLEXITY: f64 = 0.01;
/// The same for bytes, relative to the smaller number.
const BYTES: f64 = 0.01;

/// The figures of a run that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The digest of the parameters.
    pub digest: String,
    /// The quality at the end; `None` if the run was not repeated to its end.
    pub quality: Option<f64>,
    /// The bytes that a worker sent and received; `None` if the run was not repeated to its end.
    pub bytes: Option<f64>,
}

/// How a repetition compares with the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// All bits are equal: the digest, the quality and the bytes.
    Identical,
    /// The digest and the quality are equal, and the bytes within 1 %. The text says why they
    /// differ.
    OtherBytes(String),
    /// Other bits, but the quality is within half a point (a perplexity within 1 %), and the bytes
    /// within 1 %. The text says why the bits differ.
    SameFigures(String),
    /// Other figures, or other bits after the first steps. The text says why.
    Differs(String),
    /// The run cannot be repeated here, for this reason.
    NotChecked(String),
}

impl Verdict {
    /// The verdict on figures of this metric; `why` says why bits may differ.
    pub(super) fn of(metric: Metric, before: &Figures, now: &Figures, why: String) -> Self {
        if before == now {
            return Self::Identical;
        }
        let close = |one: Option<f64>, other: Option<f64>, is_close: &dyn Fn(f64, f64) -> bool| {
            one.zip(other).is_some_and(|(one, other)| is_close(one, other))
        };
        let within = |part: f64| {
            move |one: f64, other: f64| (one - other).abs() <= part * one.abs().min(other.abs())
        };
        let same_quality = match metric.is_fraction() {
            true => {
                close(before.quality, now.quality, &|one, other| (one - other).abs() <= QUALITY)
            }
            false => close(before.quality, now.quality, &within(PERPLEXITY)),
        };
        let same_bits = before.digest == now.digest && before.quality == now.quality;
        match same_quality && close(before.bytes, now.bytes, &within(BYTES)) {
            true if same_bits => Self::OtherBytes(why),
            true => Self::SameFigures(why),
            false => Self::Differs(why),
        }
    }

    /// Whether the repetition contradicts the run.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Differs(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Identical => f.write_str("identical"),
            Self::OtherBytes(why) => write!(f, "same digest, other bytes ({why})"),
            Self::SameFigures(why) => write!(f, "same figures, other bits ({why})"),
            Self::Differs(why) => write!(f, "differs ({why})"),
            Self::NotChecked(reason) => write!(f, "not checked: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(digest: &str, quality: f64, bytes: f64) -> Figures {
        Figures { digest: digest.to_owned(), quality: Some(quality), bytes: Some(bytes) }
    }

    #[test]
    fn figures_are_the_same_within_half_a_point_and_one_percent() {
        let verdict = |metric, before: (f64, f64), now: (f64, f64)| {
            let (before, now) = (figures("a", before.0, before.1), figures("b", now.0, now.1));
            Verdict::of(metric, &before, &now, "model".to_owned()).to_string()
        };
        let (same, differs) = ("same figures, other bits (model)", "differs (model)");
        let accuracy = |now| verdict(Metric::Accuracy, (0.9575, 1000.0), now);
        assert_eq!(accuracy((0.953, 1009.0)), same);
        assert_eq!(accuracy((0.952, 1000.0)), differs);
        assert_eq!(accuracy((0.9575, 1011.0)), differs);
        let perplexity = |now| verdict(Metric::Perplexity, (30.5, 1000.0), (now, 1000.0));
        assert_eq!((perplexity(30.28).as_str(), perplexity(30.1).as_str()), (same, differs));
    }

    #[test]
    fn identical_is_every_bit_and_every_byte() {
        let verdict = |before: &Figures, now: &Figures| {
            Verdict::of(Metric::Accuracy, before, now, String::new())
        };
        let run = figures("a", 0.5, 10.0);
        assert_eq!(verdict(&run, &run), Verdict::Identical);
        let other_bytes = verdict(&run, &figures("a", 0.5, 10.01)).to_string();
        assert!(other_bytes.starts_with("same digest, other bytes"), "{other_bytes}");
        // After the first steps only the digest is known.
        let first =
            |digest: &str| Figures { quality: None, bytes: None, ..figures(digest, 0.0, 0.0) };
        assert_eq!(verdict(&first("a"), &first("a")), Verdict::Identical);
        assert!(verdict(&first("a"), &first("b")).is_failure());
    }
}
