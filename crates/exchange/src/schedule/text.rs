//! Compression schedules as texts: parsing and printing.

use std::fmt;
use std::str::FromStr;

use gradwire::{Spec, SpecError};

use super::{CompressionSchedule, Length, RAMP, Ramp, Schedule, ScheduleError, Stage, Until};

impl FromStr for CompressionSchedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let form = |reason| ScheduleError::Form { text: text.to_owned(), reason };
        // A remainder with a keyword of schedules is an incomplete schedule, such as 'none until'.
        let one = |spec: &str| match spec.parse::<Spec>() {
            Err(SpecError::Schedule { .. }) => Err(form("a part is missing")),
            parsed => Ok(parsed?),
        };
        let (stages, budget) = match text.split_once(" within ") {
            Some((stages, size)) => {
                let bytes = bytes(size).ok_or_else(|| form("write the size like 500kB or 2MB"))?;
                (stages, Some(bytes))
            }
            None => (text, None),
        };
        let mut parts = stages.split(" then ").peekable();
        let mut stages = Vec::new();
        while let Some(part) = parts.next() {
            let (spec, until) = match part.split_once(" until ") {
                Some((spec, moment)) => {
                    let reason = "after until comes a part of the steps, or a step";
                    (spec, until(moment.trim()).ok_or_else(|| form(reason))?)
                }
                None => (part, Until::End),
            };
            if (until == Until::End) == parts.peek().is_some() {
                return Err(form("every stage but the last needs an until"));
            }
            let (spec, ramp) = match spec.split_once(" from ") {
                Some((spec, ramp)) => {
                    let spec = one(spec)?;
                    let ramp = read_ramp(ramp, &spec).ok_or_else(|| {
                        form(
                            "from needs a numeric parameter of the compressor, its first value, \
                            and 'over' with a part of the steps or with at least eight steps",
                        )
                    })?;
                    let first = spec.clone().with_number(&ramp.key, ramp.from)?;
                    if !spec.can_follow(&first) {
                        return Err(form(
                            "this parameter sets the size of the state, so it cannot change; give \
                             its last value from the start",
                        ));
                    }
                    (spec, Some(ramp))
                }
                None => (one(spec)?, None),
            };
            stages.push(Stage { spec, ramp, until });
        }
        let follows = |pair: &[Stage]| pair[1].spec.can_follow(&pair[0].spec);
        if !stages.windows(2).all(follows) {
            return Err(form(
                "a compressor cannot use the residuals, factors or sums of another compressor, or \
                 of the same compressor with another rank",
            ));
        }
        if budget.is_some() && (stages.len() > 1 || stages[0].ramp.is_some()) {
            return Err(form("a schedule with a budget can have only one stage"));
        }
        Ok(Self { stages, budget })
    }
}

/// Reads `KEY=VALUE over PART`; `None` unless `spec` has the parameter and allows the value.
fn read_ramp(text: &str, spec: &Spec) -> Option<Ramp> {
    let (item, part) = text.split_once(" over ")?;
    let (key, value) = item.trim().split_once('=')?;
    let (key, from) = (key.trim(), value.trim().parse().ok()?);
    let over =
        Length::read(part).filter(|over| !matches!(over, Length::Steps(steps) if *steps < RAMP))?;
    // Ratios need both ends on one side of zero.
    let moves = spec.number(key).is_some_and(|to| from > 0.0 && to > 0.0);
    let fits = moves && spec.clone().with_number(key, from).is_ok();
    fits.then(|| Ramp { key: key.to_owned(), from, over })
}

fn until(moment: &str) -> Option<Until> {
    if moment == "drop" {
        return Some(Until::Drop);
    }
    Length::read(moment).map(Until::After)
}

/// A size in bytes, with kB, MB or GB for powers of a thousand.
fn bytes(size: &str) -> Option<u64> {
    let size = size.trim();
    let units = [("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("B", 1.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, unit)| size.strip_suffix(name).map(|number| (number, unit)))?;
    let bytes = number.trim().parse::<f64>().ok()? * unit;
    (1.0..1e18).contains(&bytes).then_some(bytes.round() as u64)
}

impl Length {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(steps) = text.parse() {
            return (steps > 0).then_some(Length::Steps(steps));
        }
        text.parse().ok().filter(|part| *part > 0.0 && *part < 1.0).map(Length::Part)
    }
}

impl fmt::Display for CompressionSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Stage { spec, ramp, until }) in self.stages.iter().enumerate() {
            if at > 0 {
                f.write_str(" then ")?;
            }
            write!(f, "{spec}")?;
            if let Some(Ramp { key, from, over }) = ramp {
                write!(f, " from {key}={from} over {over}")?;
            }
            match until {
                Until::After(length) => write!(f, " until {length}")?,
                Until::Drop => f.write_str(" until drop")?,
                Until::End => {}
            }
        }
        match self.budget {
            Some(bytes) if bytes.is_multiple_of(1_000_000) => {
                write!(f, " within {}MB", bytes / 1_000_000)
            }
            Some(bytes) if bytes.is_multiple_of(1000) => write!(f, " within {}kB", bytes / 1000),
            Some(bytes) => write!(f, " within {bytes}B"),
            None => Ok(()),
        }
    }
}

/// Prints the text of an absolute [`CompressionSchedule`]: each compressor with the first step of
/// the next.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.later.iter().try_for_each(|(step, spec)| write!(f, " until {step} then {spec}"))
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Length::Part(part) => write!(f, "{part}"),
            Length::Steps(steps) => write!(f, "{steps}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{named, resolved, schedule};
    use super::*;

    #[test]
    fn schedules_go_through_text_and_back() {
        for text in [
            "3lc",
            "topk:ratio=0.1,every=10 until 0.5 then topk",
            "topk until drop then topk:ratio=0.001 until 0.9 then topk:ratio=0.5",
            "topk within 2MB",
            "topk within 1500B",
            "none until 0.1 then topk",
            "topk:ratio=0.001 from ratio=0.25 over 0.05",
            "fp16 until 0.1 then 3lc from s=1.5 over 0.2 until drop then 3lc:s=1.9",
            "none until 100 then topk:ratio=0.001 from ratio=0.25 over 80",
        ] {
            assert_eq!(schedule(text).to_string(), text);
        }
        assert!(
            schedule("none until 100 then topk").is_absolute() && schedule("3lc").is_absolute()
        );
        for text in ["none until 0.1 then topk", "3lc from s=1.5 over 0.2", "topk within 2MB"] {
            assert!(!schedule(text).is_absolute());
        }
        assert_eq!(schedule("topk within 2000 kB"), schedule("topk within 2MB"));
        assert_eq!(schedule("3lc"), CompressionSchedule::from("3lc".parse::<Spec>().unwrap()));
    }

    #[test]
    fn a_schedule_of_steps_prints_a_text_that_is_read_as_the_same_steps() {
        let text = "none until 10 then topk:ratio=0.1 until 20 then topk:ratio=0.2";
        let spec = |text: &str| text.parse::<Spec>().unwrap();
        let later = vec![(10, spec("topk:ratio=0.1")), (20, spec("topk:ratio=0.2"))];
        let steps = Schedule { first: spec("none"), later };
        assert_eq!(steps.to_string(), text);
        let read = [(0, "none"), (10, "topk:ratio=0.1"), (20, "topk:ratio=0.2")];
        assert_eq!(resolved(text, &[]), named(&read));
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, says) in [
            ("topk then topk", "needs an until"),
            ("topk until 0.5", "needs an until"),
            ("topk until 1.5 then topk", "part of the steps"),
            ("topk until 0.5 then 3lc", "cannot use the residuals"),
            ("topk within 3 sheep", "like 500kB"),
            ("topk until 0.5 then topk within 2MB", "one stage"),
            ("5lc until 0.5 then 5lc", "unknown compressor"),
            ("none until", "'none until' is not a compression schedule"),
            ("none then", "a part is missing"),
        ] {
            let error = text.parse::<CompressionSchedule>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
