//! Progress on standard error: a bar on a terminal, plain lines elsewhere and on a terminal that
//! cannot move its cursor (`TERM=dumb`).

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradwire_testbed::runner::Progress;
use gradwire_train::{Evaluation, Observer, RunConfig, RunRecord, StepRecord, TrainError};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::{interrupt, output};

const TEMPLATE: &str = "{prefix} {wide_bar} {pos}/{len} steps, {eta} left  {msg}";

/// The shortest time between two estimates on a terminal.
const REFRESH: Duration = Duration::from_secs(1);

/// Whether standard error is a terminal on which a bar can be drawn again and again.
fn draws_bars() -> bool {
    stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Shows the progress of a command's runs, one after the other.
pub(crate) struct Bars {
    terminal: bool,
    /// Whether another process shows the progress.
    silent: AtomicBool,
    /// The reason if the last checkpoint could not be written.
    unsaved: Mutex<Option<String>>,
    state: Mutex<State>,
}

struct State {
    bar: ProgressBar,
    name: String,
    steps: u64,
    /// Runs after this one.
    later_runs: u64,
    /// The number of steps that are left of this run.
    left: u64,
    /// Whether no step of this run is done here yet.
    is_fresh: bool,
    pace: Pace,
    quality: String,
}

/// How long steps take: those of all runs of this process so far.
#[derive(Debug, Clone, Copy)]
struct Pace {
    start: Instant,
    shown: Instant,
    steps: u64,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { start: now, shown: now, steps: 0 }
    }

    /// The expected time of `steps` more steps, if the steps so far took `elapsed`.
    fn estimate(&self, elapsed: Duration, steps: u64) -> Option<Duration> {
        let done = self.steps;
        (done > 0).then(|| elapsed.mul_f64(steps as f64 / done as f64))
    }
}

impl State {
    /// Shows the bar, or a line without a terminal.
    fn begin(&mut self, terminal: bool) {
        if terminal {
            let style = ProgressStyle::with_template(TEMPLATE).expect("the template is valid");
            self.bar =
                ProgressBar::with_draw_target(Some(self.steps), ProgressDrawTarget::stderr())
                    .with_style(style)
                    .with_prefix(self.name.clone());
            self.bar.enable_steady_tick(Duration::from_millis(500));
        } else {
            output::note(format!("{}: {} steps", self.name, self.steps));
        }
    }

    /// The time that is left of all runs, as a part of a line; empty if there is no other run, or
    /// no step to judge by.
    fn left_of_all(&self) -> String {
        let steps = self.left + self.later_runs * self.steps;
        match self.pace.estimate(self.pace.start.elapsed(), steps) {
            Some(left) if self.later_runs > 0 => {
                format!(", {} left of all runs", HumanDuration(left))
            }
            _ => String::new(),
        }
    }

    fn show(&mut self) {
        self.pace.shown = Instant::now();
        let text = format!("{}{}", self.quality, self.left_of_all());
        self.bar.set_message(text.trim_start_matches(", ").to_owned());
    }
}

impl Bars {
    /// Shows nothing before the first run starts, and nothing at all unless this process `reports`.
    pub(crate) fn new(reports: bool) -> Self {
        let state = State {
            bar: ProgressBar::hidden(),
            name: String::new(),
            steps: 0,
            later_runs: 0,
            left: 0,
            is_fresh: true,
            pace: Pace::new(),
            quality: String::new(),
        };
        let silent = AtomicBool::new(!reports);
        let unsaved = Mutex::default();
        Self { terminal: draws_bars(), silent, unsaved, state: Mutex::new(state) }
    }

    /// Whether this process reports.
    pub(crate) fn report(&self) -> bool {
        !self.silent.load(Ordering::Relaxed)
    }

    /// Fails if the checkpoint after the last step could not be written.
    pub(crate) fn saved(&self) -> Result<(), Failure> {
        let unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).take();
        unsaved.map_or(Ok(()), |error| Err(Failure::Run(error)))
    }

    /// Removes the bar of an unfinished run, if any.
    pub(crate) fn clear(&self) {
        self.state().bar.finish_and_clear();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Bars {
    fn step(&self, step: &StepRecord, total: u64) {
        let mut state = self.state();
        if state.bar.length() != Some(total) {
            state.bar.set_length(total);
        }
        // A resumed run begins in the middle; earlier steps do not count in the rate.
        if std::mem::take(&mut state.is_fresh) && step.step > 0 {
            state.bar.set_position(step.step);
            state.bar.reset_eta();
            if self.report() {
                let text = format!("{}: resumed at step {}", state.name, step.step);
                state.bar.suspend(|| output::note(text));
            }
        }
        state.bar.set_position(step.step + 1);
        state.pace.steps += 1;
        state.left = total.saturating_sub(step.step + 1);
        if self.terminal && state.pace.shown.elapsed() >= REFRESH {
            state.show();
        }
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        let mut state = self.state();
        let metric = evaluation.metric;
        state.quality = format!("{} {}", metric.name(), metric.show(evaluation.quality));
        if self.terminal {
            state.show();
        } else if self.report() {
            let State { name, steps, quality, .. } = &*state;
            let (step, left) = (evaluation.step, state.left_of_all());
            output::note(format!("{name}: step {step}/{steps}, {quality}{left}"));
        }
    }

    fn warned(&self, warning: &str) {
        if !self.report() {
            return;
        }
        let state = self.state();
        let text = format!("warning: {}: {warning}", state.name);
        state.bar.suspend(|| output::note(text));
    }

    fn unsaved(&self, error: &TrainError) {
        *self.unsaved.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    fn leads(&self) {
        if self.silent.swap(false, Ordering::Relaxed) {
            self.state().begin(self.terminal);
        }
    }

    fn stop(&self) -> bool {
        interrupt::asked()
    }
}

impl Progress for Bars {
    fn started(&self, at: usize, of: usize, run: &RunConfig) {
        let mut state = self.state();
        // Even if another process shows them: this one may have to take over.
        state.steps = run.steps;
        state.later_runs = (of - at).saturating_sub(1) as u64;
        (state.left, state.is_fresh) = (run.steps, true);
        state.quality.clear();
        state.name = format!("[{}/{of}] {}, seed {}", at + 1, run.compressor, run.seed);
        if self.report() {
            state.begin(self.terminal);
        }
    }

    fn finished(&self, run: &RunRecord) {
        let state = self.state();
        state.bar.finish_and_clear();
        output::note(format!(
            "{}: {} {}, {:.3} bits/parameter, {:.1} s",
            state.name,
            run.metric.name(),
            run.metric.show(run.quality),
            run.bits_per_parameter(),
            run.seconds
        ));
    }

    fn note(&self, text: &str) {
        if self.report() {
            output::note(text);
        }
    }
}

/// Shows the progress of the trials of `advise`: a bar on a terminal, nothing elsewhere.
pub(crate) struct TrialBar(ProgressBar);

impl TrialBar {
    /// Parts of the bar.
    const PARTS: u64 = 1000;

    pub(crate) fn new() -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {eta} left  {msg}");
        let target = match draws_bars() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(Self::PARTS), target)
            .with_style(style.expect("the template is valid"));
        Self(bar)
    }

    pub(crate) fn show(&self, at: &gradwire_advice::Progress<'_>) {
        self.0.set_message(format!("[{}/{}] {}", at.finished + 1, at.trials, at.candidate));
        self.0.set_position((at.done * Self::PARTS as f64) as u64);
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gradwire_models::data;
    use gradwire_testbed::experiment::Experiment;

    use super::*;

    #[test]
    fn the_time_left_follows_from_the_steps_so_far() {
        let pace = Pace { steps: 20, ..Pace::new() };
        let seconds = Duration::from_secs;
        assert_eq!(pace.estimate(seconds(4), 60), Some(seconds(12)));
        assert_eq!(Pace::new().estimate(seconds(4), 60), None);
    }

    #[test]
    fn a_process_that_goes_on_with_a_run_knows_its_name() {
        let data = Arc::new(data::embedded_sized(0, 20, 10));
        let run = Experiment::default().runs(&data).remove(0);
        let bars = Bars::new(false);
        bars.started(0, 3, &run);
        assert!(!bars.report());
        bars.leads();
        assert!(bars.report());
        let state = bars.state();
        assert_eq!((state.name.as_str(), state.steps), ("[1/3] none, seed 0", run.steps));
    }
}
