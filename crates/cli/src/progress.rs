//! Progress on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gradwire_testbed::runner::Progress;
use gradwire_train::{Evaluation, Observer, RunConfig, RunRecord, StepRecord, TrainError};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::{interrupt, output};

const TEMPLATE: &str = "{prefix} {wide_bar} {pos}/{len} steps, {per_sec}, {eta} left  {msg}";

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
}

impl Bars {
    /// Shows nothing before the first run starts, and nothing at all unless this process `reports`.
    pub(crate) fn new(reports: bool) -> Self {
        let state = State { bar: ProgressBar::hidden(), name: String::new(), steps: 0 };
        let silent = AtomicBool::new(!reports);
        let unsaved = Mutex::default();
        Self { terminal: stderr().is_terminal(), silent, unsaved, state: Mutex::new(state) }
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
        let state = self.state();
        if state.bar.length() != Some(total) {
            state.bar.set_length(total);
        }
        // A resumed run begins in the middle; earlier steps do not count in the rate.
        if state.bar.position() == 0 && step.step > 0 {
            state.bar.set_position(step.step);
            state.bar.reset_eta();
        }
        state.bar.set_position(step.step + 1);
    }

    fn evaluated(&self, evaluation: &Evaluation) {
        let state = self.state();
        let metric = evaluation.metric;
        let quality = format!("{} {}", metric.name(), metric.show(evaluation.quality));
        if self.terminal {
            state.bar.set_message(quality);
        } else if self.report() {
            let (name, step, steps) = (&state.name, evaluation.step, state.steps);
            output::note(format!("{name}: step {step}/{steps}, {quality}"));
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
        // Draws nothing if standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(Self::PARTS), ProgressDrawTarget::stderr())
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
