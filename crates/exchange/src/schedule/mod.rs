//! Compression schedules: which compressor is used at which step of a run.
//!
//! | text | meaning |
//! |---|---|
//! | `sbc:p=0.01,every=10` | one compressor for all steps |
//! | `sbc2 until 0.5 then sbc1` | another compressor from half of the steps on |
//! | `none until 100 then topk` | another compressor from step 100 on |
//! | `sbc2 until drop then sbc1` | another compressor from the first drop of the learning rate on |
//! | `none until 0.1 then topk` | a warm-up without compression |
//! | `topk:ratio=0.001 from ratio=0.25 over 0.05` | a parameter that reaches its value in eight equal ratios, over a part of the steps or a number of steps |
//! | `sbc within 2MB` | delay and sparsity chosen such that a worker sends at most two megabytes over the run |
//!
//! A [`CompressionSchedule`] is such a text. [`resolve`](CompressionSchedule::resolve) applies it
//! to a run and gives a [`Schedule`], which names the compressor of every step.
//!
//! A stage that keeps residuals or other state is followed by the same compressor with other
//! parameters, and the state is carried over. A stage that keeps no state may be followed by any
//! compressor. A parameter moves as in the warm-up of Lin et al. ("Deep gradient compression",
//! 2018, section 3.3), from sparsity 75 % to 99.9 %; integers are rounded.
//!
//! The budget follows Sattler, Wiedemann, Müller and Samek ("Sparse binary compression", 2018,
//! section III): they found communication delay better while the learning rate is high, and
//! gradient sparsity after it has dropped. Until the first drop, the sparsity of the spec is kept,
//! and the delay is chosen such that these steps take their share of the budget. From the drop on,
//! every step is a round if possible, and the sparsity uses the rest of the budget. Each message
//! counts with its headers and the longest possible code of its positions, so a compressor that
//! sends exactly its ratio stays within the budget. If only some workers take part in a round, this
//! holds on average.

mod budget;
mod stages;
mod text;

use gradwire::Spec;

pub use budget::position_bits;
pub use stages::Schedule;

/// A compression schedule as a user writes it. Parses from and prints to the texts of the
/// [module](self).
#[derive(Debug, Clone, PartialEq)]
pub struct CompressionSchedule {
    stages: Vec<Stage>,
    budget: Option<u64>,
}

/// A compressor, and when the next one takes over.
#[derive(Debug, Clone, PartialEq)]
struct Stage {
    spec: Spec,
    ramp: Option<Ramp>,
    until: Until,
}

/// A parameter that moves to its value in the spec.
#[derive(Debug, Clone, PartialEq)]
struct Ramp {
    key: String,
    from: f64,
    over: Length,
}

/// A number of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Length {
    /// A part of all steps, in (0, 1).
    Part(f64),
    /// At least 1.
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

/// The number of values of a ramp before the last one; their ratios are equal.
const RAMP: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Until {
    /// The end of this part of the run.
    After(Length),
    /// The next drop of the learning rate.
    Drop,
    /// The run's end.
    End,
}

/// The reason why a text is not a compression schedule, or does not fit a run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// The compressor of a stage.
    #[error(transparent)]
    Spec(#[from] gradwire::SpecError),
    /// The form of the text.
    #[error(
        "'{text}' is not a compression schedule: {reason}; give SPEC, 'SPEC until 0.5 then SPEC', 'SPEC until 100 then SPEC', 'SPEC until drop then SPEC', 'SPEC from KEY=VALUE over 0.05' or 'SPEC within 2MB'"
    )]
    Form {
        /// The given text.
        text: String,
        /// The fault.
        reason: &'static str,
    },
    /// The schedule does not fit the run.
    #[error("the compression schedule '{schedule}' does not fit the run: {reason}")]
    Unfit {
        /// The schedule.
        schedule: String,
        /// The reason.
        reason: String,
    },
}

/// The run for which a schedule is resolved.
#[derive(Debug, Clone, Copy)]
pub struct RunDescription<'a> {
    /// Steps of the run.
    pub steps: u64,
    /// The steps at which the learning rate drops, ascending.
    pub drops: &'a [u64],
    /// Elements of each tensor that is compressed.
    pub compressed: &'a [usize],
    /// Elements of each tensor that is sent uncompressed.
    pub raw: &'a [usize],
    /// How often a worker sends its messages in a round, on average: the number of receivers times
    /// the share of rounds in which the worker takes part.
    pub sends: f64,
    /// Bytes of headers around the messages of all tensors to one receiver.
    pub headers: usize,
}

impl<'a> RunDescription<'a> {
    /// A run of which only the number of steps matters, as for schedules without a budget.
    pub fn of_steps(steps: u64) -> Self {
        Self { steps, drops: &[], compressed: &[], raw: &[], sends: 1.0, headers: 0 }
    }
}

impl From<Spec> for CompressionSchedule {
    fn from(spec: Spec) -> Self {
        Self { stages: vec![Stage { spec, ramp: None, until: Until::End }], budget: None }
    }
}

impl CompressionSchedule {
    /// The compressor the run begins with.
    pub fn first(&self) -> &Spec {
        &self.stages[0].spec
    }

    /// The compressors of all stages.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.stages.iter().map(|stage| &stage.spec)
    }

    /// Whether a budget of bytes chooses the parameters.
    pub fn has_budget(&self) -> bool {
        self.budget.is_some()
    }

    /// Whether a stage ends at a drop of the learning rate.
    pub fn has_drop(&self) -> bool {
        self.stages.iter().any(|stage| stage.until == Until::Drop)
    }

    /// Whether all stages have the same compressor, perhaps with different parameters.
    pub fn is_of_one(&self) -> bool {
        self.stages.iter().all(|stage| stage.spec.entry().id == self.first().entry().id)
    }

    /// Whether all its times are numbers of steps, so it can be resolved for a run of unknown
    /// length.
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

    /// The compressor of every step of a run.
    ///
    /// # Errors
    /// `Unfit` if the learning rate has too few drops, stages are out of order, or a budget is too
    /// small or does not suit the compressor.
    pub fn resolve(&self, run: RunDescription<'_>) -> Result<Schedule, ScheduleError> {
        match self.budget {
            Some(bytes) => self.within(bytes, run),
            None => self.in_order(run).map(Schedule::from_stages),
        }
    }

    /// The compressors in order, each with its first step. The first one starts at step 0.
    fn in_order(&self, run: RunDescription<'_>) -> Result<Vec<(u64, Spec)>, ScheduleError> {
        let mut drops = run.drops.iter().copied();
        let mut stages = Vec::new();
        let mut start = 0;
        for stage in &self.stages {
            let ramp = self.ramp(stage, start, run.steps)?;
            let last = ramp.last().map_or(start, |(step, _)| *step);
            stages.extend(ramp);
            let next = match stage.until {
                Until::End => break,
                Until::After(length) => length.of(run.steps),
                Until::Drop => drops.find(|&drop| drop > start).ok_or_else(|| {
                    self.unfit(
                        "the learning rate has no further drop; use a learning rate such \
                        as step:…,at=…, or give a part of the run",
                    )
                })?,
            };
            if next <= last || next >= run.steps {
                return Err(self.unfit(format!(
                    "a stage would begin at step {next}, but must begin between {last} and {}",
                    run.steps
                )));
            }
            start = next;
        }
        Ok(stages)
    }

    /// The compressors of a stage that begins at step `start`: one, or one for each value of its
    /// parameter.
    fn ramp(
        &self,
        stage: &Stage,
        start: u64,
        steps: u64,
    ) -> Result<Vec<(u64, Spec)>, ScheduleError> {
        let Some(Ramp { key, from, over }) = &stage.ramp else {
            return Ok(vec![(start, stage.spec.clone())]);
        };
        let span = over.of(steps);
        if span < RAMP || span >= steps.saturating_sub(start) {
            return Err(self.unfit(format!(
                "a parameter moves over {span} steps from step {start}; it must move over at \
                 least {RAMP} steps, and end before step {steps}"
            )));
        }
        let to = stage.spec.number(key).unwrap_or(*from);
        let on_the_way = (0..RAMP).map(|at| {
            let value = from * (to / from).powf(at as f64 / RAMP as f64);
            // Rounded to four digits, to print short, but not beyond the ends.
            let value: f64 = format!("{value:.3e}").parse().unwrap_or(value);
            let value = if at == 0 { *from } else { value.clamp(from.min(to), from.max(to)) };
            // As `span * at / RAMP`, without overflow.
            let passed = span / RAMP * at + span % RAMP * at / RAMP;
            Ok((start + passed, stage.spec.clone().with_number(key, value)?))
        });
        on_the_way.chain(std::iter::once(Ok((start + span, stage.spec.clone())))).collect()
    }

    fn unfit(&self, reason: impl Into<String>) -> ScheduleError {
        ScheduleError::Unfit { schedule: self.to_string(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn schedule(text: &str) -> CompressionSchedule {
        text.parse().unwrap()
    }

    pub(super) fn run(drops: &[u64]) -> RunDescription<'_> {
        let described = RunDescription::of_steps(1000);
        RunDescription { drops, compressed: &[100_000], raw: &[100], headers: 20, ..described }
    }

    pub(super) fn resolved(text: &str, drops: &[u64]) -> Vec<(u64, String)> {
        let resolved = schedule(text).resolve(run(drops)).unwrap();
        resolved.stages().map(|(step, spec)| (step, spec.to_string())).collect()
    }

    pub(super) fn named(stages: &[(u64, &str)]) -> Vec<(u64, String)> {
        stages.iter().map(|&(step, spec)| (step, spec.to_owned())).collect()
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
        // Integers are rounded: 64 over powers of the square root of 2.
        let found = resolved("qsgd:s=4 from s=64 over 0.008", &[]);
        let levels: Vec<String> = found.iter().map(|(_, spec)| spec.to_string()).collect();
        let expected = [64, 45, 32, 23, 16, 11, 8, 6, 4].map(|s| format!("qsgd:s={s}"));
        assert_eq!(levels, expected);
        // The first value is the given one if rounding to four digits would leave the range.
        for (text, first) in [
            ("qsgd:s=4 from s=32767 over 0.1", "qsgd:s=32767"),
            ("sbc from p=0.99996 over 0.1", "sbc:p=0.99996"),
            ("lpc-svrg:lambda=0.99999 from lambda=0.5 over 0.1", "lpc-svrg:lambda=0.5"),
        ] {
            assert_eq!(resolved(text, &[])[0], (0, first.to_owned()));
        }
        let long = u64::MAX;
        let text = format!("topk from ratio=0.256 over {}", long - 1);
        let ramp = schedule(&text).resolve(RunDescription::of_steps(long)).unwrap();
        let steps: Vec<u64> = ramp.stages().map(|(step, _)| step).collect();
        let eighth = |at: u128| (u128::from(long - 1) * at / 8) as u64;
        assert_eq!(steps, (0..=8).map(eighth).collect::<Vec<_>>());
        assert!("sketched-sgd:rows=5 from rows=3 over 0.1".parse::<CompressionSchedule>().is_ok());
        let (size, other, ramp) =
            ("size of the state", "cannot use the residuals", "from needs a numeric parameter");
        for (text, says) in [
            ("powersgd:rank=1 from rank=4 over 0.1", size),
            ("powersgd:rank=4 until 9 then powersgd:rank=1", other),
            ("topk until 0.5 then sbc", other),
            ("topk from p=0.1 over 0.1", ramp),
            ("topk from ratio=2 over 0.1", ramp),
            ("topk from ratio=0.1 over 1", ramp),
            ("qsgd from norm=1 over 0.1", ramp),
        ] {
            let error = text.parse::<CompressionSchedule>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn what_does_not_fit_the_run_is_refused() {
        for (text, says) in [
            ("topk until drop then topk:ratio=0.5", "no further drop"),
            ("topk until 0.5 then topk:ratio=0.1 until 0.2 then topk", "step 200"),
            ("3lc within 2MB", "p or ratio"),
            ("topk within 10B", "not even one round"),
            ("topk until 9 then topk from ratio=0.1 over 18446744073709551615", "moves over"),
        ] {
            let run = RunDescription { compressed: &[1000], ..RunDescription::of_steps(1000) };
            let error = schedule(text).resolve(run).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
