//! Which compressor a run uses when: one throughout, several in turn, or as a budget of bytes allows.
//!
//! | text | what |
//! |---|---|
//! | `sbc:p=0.01,every=10` | the same throughout |
//! | `sbc2 until 0.5 then sbc1` | another from half of the steps on |
//! | `none until 100 then topk` | another from step 100 on |
//! | `sbc2 until drop then sbc1` | another from the first drop of the learning rate on |
//! | `none until 0.1 then topk` | a warm-up without compression |
//! | `topk:ratio=0.001 from ratio=0.25 over 0.05` | a parameter that moves to its value, in eight equal ratios, over a part of the steps or a number of steps |
//! | `sbc within 2MB` | delay and sparsity such that a worker sends two megabytes over the run |
//!
//! The stages of one plan are of one compressor with different parameters, and residuals are carried over; but
//! for stages that keep nothing, which any other may follow. Parameters move as in the warm-up of Lin et al. ("Deep
//! gradient compression", 2018, section 3.3), from sparsity 75 % to 99.9 %; whole ones are rounded.
//!
//! A budget follows what Sattler, Wiedemann, Müller and Samek ("Sparse binary compression", 2018,
//! section III) saw: communication delay serves better while the learning rate is high, gradient
//! sparsity after it has dropped. Until the first drop the spec's own sparsity is kept and rounds are
//! as far apart as these steps' share of the budget asks; from then on every step is a round if it can
//! be, and sparsity is what is left. Messages are counted at the most that their positions can
//! take, headers included, so a compressor that sends exactly the ratio asked for stays within the
//! budget; with a part of the workers in each round, on average.

mod budget;
mod text;

use gradwire::Spec;

pub use budget::position_bits;

/// Compressors over a run. Parses from and prints to the texts of the [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    stages: Vec<Stage>,
    budget: Option<u64>,
}

/// A compressor, and when the next takes over.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    spec: Spec,
    ramp: Option<Ramp>,
    until: Until,
}

/// A parameter on its way to the value it has in the spec.
#[derive(Debug, Clone, PartialEq)]
struct Ramp {
    key: String,
    from: f64,
    over: Length,
}

/// A number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Length {
    /// As a part of all steps, in (0, 1).
    Part(f64),
    /// As it is, at least 1.
    Steps(u64),
}

impl Length {
    fn of(self, steps: u64) -> u64 {
        match self {
            Length::Part(part) => (part * steps as f64).round() as u64,
            Length::Steps(steps) => steps,
        }
    }
}

/// Values a parameter takes on its way, in equal ratios.
const RAMP: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Until {
    /// So far into the run.
    After(Length),
    /// The next drop of the learning rate.
    Drop,
    /// The run's end.
    End,
}

/// Why a text is no plan, or a plan does not fit a run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A stage's compressor.
    #[error(transparent)]
    Spec(#[from] gradwire::SpecError),
    /// The form.
    #[error(
        "'{text}' is no plan: {reason}; give SPEC, 'SPEC until 0.5 then SPEC', 'SPEC until 100 then SPEC', 'SPEC until drop then SPEC', 'SPEC from KEY=VALUE over 0.05' or 'SPEC within 2MB'"
    )]
    Form {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The plan does not fit the run.
    #[error("the plan '{plan}' does not fit the run: {reason}")]
    Unfit {
        /// The plan.
        plan: String,
        /// Why.
        reason: String,
    },
}

/// What a plan is resolved for.
#[derive(Debug, Clone, Copy)]
pub struct Course<'a> {
    /// Steps of the run.
    pub steps: u64,
    /// The steps at which the learning rate drops, ascending.
    pub drops: &'a [u64],
    /// Elements of each tensor that is compressed.
    pub compressed: &'a [usize],
    /// Elements of each tensor that is sent uncompressed.
    pub raw: &'a [usize],
    /// How often a worker sends its messages in a round, on average: to so many receivers, in so
    /// many of the rounds.
    pub sends: f64,
    /// Bytes of headers around the messages of all tensors to one receiver.
    pub headers: usize,
}

/// A spec from some step on.
pub type Phase = (u64, Spec);

impl From<Spec> for Plan {
    fn from(spec: Spec) -> Self {
        Self { stages: vec![Stage { spec, ramp: None, until: Until::End }], budget: None }
    }
}

impl Plan {
    /// The compressor the run begins with.
    pub fn first(&self) -> &Spec {
        &self.stages[0].spec
    }

    /// Whether it is a budget that decides.
    pub fn has_budget(&self) -> bool {
        self.budget.is_some()
    }

    /// Whether all stages are of one compressor, if with different parameters.
    pub fn is_of_one(&self) -> bool {
        self.stages.iter().all(|stage| stage.spec.entry().id == self.first().entry().id)
    }

    /// The one compressor, if it is the same throughout.
    pub fn only(&self) -> Option<&Spec> {
        let moves = self.stages.len() > 1 || self.stages[0].ramp.is_some();
        (!moves && self.budget.is_none()).then(|| self.first())
    }

    /// Whether it says when by numbers of steps alone, so that it serves a run whose length is not known.
    pub fn is_absolute(&self) -> bool {
        let part = |length: &Length| matches!(length, Length::Part(_));
        let ramps = |stage: &Stage| stage.ramp.as_ref().is_some_and(|ramp| part(&ramp.over));
        let ends = |stage: &Stage| match &stage.until {
            Until::After(length) => part(length),
            Until::Drop => true,
            Until::End => false,
        };
        self.budget.is_none() && !self.stages.iter().any(|stage| ramps(stage) || ends(stage))
    }

    /// The specs in order, each with the step it begins with; the first begins with step 0.
    ///
    /// # Errors
    /// `Unfit` if the learning rate has too few drops, moments are not in order, or a budget
    /// cannot be kept or does not go with the compressor.
    pub fn resolve(&self, course: Course<'_>) -> Result<Vec<Phase>, PlanError> {
        if let Some(bytes) = self.budget {
            return self.within(bytes, course.drops.first().copied(), course);
        }
        let mut drops = course.drops.iter().copied();
        let mut phases = Vec::new();
        let mut start = 0;
        for stage in &self.stages {
            let ramp = self.ramp(stage, start, course.steps)?;
            let last = ramp.last().map_or(start, |(step, _)| *step);
            phases.extend(ramp);
            let next = match stage.until {
                Until::End => break,
                Until::After(length) => length.of(course.steps),
                Until::Drop => drops.find(|&drop| drop > start).ok_or_else(|| {
                    self.unfit("the learning rate has no further drop; use step:…,at=… or a part")
                })?,
            };
            if next <= last || next >= course.steps {
                return Err(self.unfit(format!(
                    "a stage would begin at step {next}, not between {last} and {}",
                    course.steps
                )));
            }
            start = next;
        }
        Ok(phases)
    }

    /// The phases of a stage that begins at step `start`: one, or the values a parameter takes on its way and the
    /// one it comes to.
    fn ramp(&self, stage: &Stage, start: u64, steps: u64) -> Result<Vec<Phase>, PlanError> {
        let Some(Ramp { key, from, over }) = &stage.ramp else {
            return Ok(vec![(start, stage.spec.clone())]);
        };
        let span = over.of(steps);
        if span < RAMP || start + span >= steps {
            return Err(self.unfit(format!(
                "a parameter moves over {span} steps from step {start} on; it takes at least {RAMP}, and ends before \
                 step {steps}"
            )));
        }
        let to = stage.spec.number(key).unwrap_or(*from);
        let on_the_way = (0..RAMP).map(|at| {
            let value = from * (to / from).powf(at as f64 / RAMP as f64);
            // In four digits, which print short, but not beyond the ends.
            let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
            let value = if at == 0 { *from } else { value.clamp(from.min(to), from.max(to)) };
            Ok((start + span * at / RAMP, stage.spec.clone().with_number(key, value)?))
        });
        on_the_way.chain(std::iter::once(Ok((start + span, stage.spec.clone())))).collect()
    }

    fn unfit(&self, reason: impl Into<String>) -> PlanError {
        PlanError::Unfit { plan: self.to_string(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn plan(text: &str) -> Plan {
        text.parse().unwrap()
    }

    pub(super) fn resolved(text: &str, drops: &[u64]) -> Vec<(u64, String)> {
        let course = Course {
            steps: 1000,
            drops,
            compressed: &[100_000],
            raw: &[100],
            sends: 1.0,
            headers: 20,
        };
        let phases = plan(text).resolve(course).unwrap();
        phases.into_iter().map(|(step, spec)| (step, spec.to_string())).collect()
    }

    pub(super) fn named(phases: &[(u64, &str)]) -> Vec<(u64, String)> {
        phases.iter().map(|&(step, spec)| (step, spec.to_owned())).collect()
    }

    #[test]
    fn stages_begin_where_they_say() {
        let found = resolved(
            "topk:every=10 until 0.25 then topk until drop then topk:ratio=0.5",
            &[100, 600],
        );
        let expected = [(0, "topk:every=10"), (250, "topk"), (600, "topk:ratio=0.5")];
        assert_eq!(found, named(&expected));
        let found = resolved("none until 70 then topk", &[]);
        assert_eq!(found, named(&[(0, "none"), (70, "topk")]));
    }

    #[test]
    fn parameters_move_in_equal_ratios() {
        let found =
            resolved("none until 0.5 then topk:ratio=0.001 from ratio=0.256 over 0.08", &[]);
        // 256 down to 1 in eight halvings, ten steps each.
        let expected = [
            (0, "none"),
            (500, "topk:ratio=0.256"),
            (510, "topk:ratio=0.128"),
            (520, "topk:ratio=0.064"),
            (530, "topk:ratio=0.032"),
            (540, "topk:ratio=0.016"),
            (550, "topk:ratio=0.008"),
            (560, "topk:ratio=0.004"),
            (570, "topk:ratio=0.002"),
            (580, "topk:ratio=0.001"),
        ];
        assert_eq!(found, named(&expected));
        // Whole ones are rounded: 64 over powers of the square root of 2.
        let found = resolved("qsgd:s=4 from s=64 over 0.008", &[]);
        let levels: Vec<String> = found.iter().map(|(_, spec)| spec.to_string()).collect();
        let expected = [64, 45, 32, 23, 16, 11, 8, 6, 4].map(|s| format!("qsgd:s={s}"));
        assert_eq!(levels, expected);
        // The first value is the one that was asked for, where four digits would be beyond the range.
        for (text, first) in [
            ("qsgd:s=4 from s=32767 over 0.1", "qsgd:s=32767"),
            ("sbc from p=0.99996 over 0.1", "sbc:p=0.99996"),
            ("lpc-svrg:lambda=0.99999 from lambda=0.5 over 0.1", "lpc-svrg:lambda=0.5"),
        ] {
            assert_eq!(resolved(text, &[])[0], (0, first.to_owned()));
        }
        let error = "powersgd:rank=1 from rank=4 over 0.1".parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains("as large as it says"), "{error}");
        let error =
            "powersgd:rank=4 until 9 then powersgd:rank=1".parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains("mean nothing to another"), "{error}");
        assert!("sketched-sgd:rows=5 from rows=3 over 0.1".parse::<Plan>().is_ok());
        for text in [
            "topk from p=0.1 over 0.1",
            "topk from ratio=2 over 0.1",
            "topk from ratio=0.1 over 1",
            "qsgd from norm=1 over 0.1",
        ] {
            let error = text.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains("from takes a parameter"), "{error}");
        }
        let error = "topk until 0.5 then sbc".parse::<Plan>().unwrap_err().to_string();
        assert!(error.contains("mean nothing to another"), "{error}");
    }

    #[test]
    fn what_does_not_fit_the_run_is_refused() {
        for (text, says) in [
            ("topk until drop then topk:ratio=0.5", "no further drop"),
            ("topk until 0.5 then topk:ratio=0.1 until 0.2 then topk", "step 200"),
            ("3lc within 2MB", "p or ratio"),
            ("topk within 10B", "not even one round"),
        ] {
            let course = Course {
                steps: 1000,
                drops: &[],
                compressed: &[1000],
                raw: &[],
                sends: 1.0,
                headers: 0,
            };
            let error = plan(text).resolve(course).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
