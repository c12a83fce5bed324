//! Refusing runs that would not fit into memory, before they allocate any. The system kills a
//! process that uses more memory than there is; its unsaved work would be lost.

use std::thread::available_parallelism;

use gradwire::{Compressor, Spec, Tensor, memory};
use gradwire_exchange::Exchange;
use gradwire_models::tasks::BatchBytes;

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::resolution::Resolution;

/// The memory of a run in bytes: a low estimate, without the allocator's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// The workers of this process.
    workers: u64,
    /// For each worker: the model, its gradients, optimizer and residuals, the messages of the
    /// others, and the loaded batch.
    each: u64,
    /// The activations of the workers that compute at the same time.
    activations: u64,
}

/// The memory of a worker with any model: its thread, and the buffers of its compressor. Measured
/// with models of a few kilobytes.
const WORKER: u64 = 4 << 20;

/// One over the part of the available memory that is reserved for everything outside the estimate.
const MARGIN: u64 = 16;

/// Refuses a run if the workers that this process trains need more memory than there is. Makes the
/// model of one worker.
///
/// # Errors
/// The estimate does not fit, or the configuration cannot work.
pub fn check_memory(config: &RunConfig, workers: usize) -> Result<(), TrainError> {
    let Some(available) = memory::available() else { return Ok(()) };
    Estimate::new(config, workers)?.check(config, available)
}

impl Estimate {
    fn new(config: &RunConfig, workers: usize) -> Result<Self, TrainError> {
        let resolution = Resolution::new(config, 0..1)?;
        let BatchBytes { loaded, activations } = resolution.replicas[0].batch_bytes();
        let cores = available_parallelism().map_or(1, usize::from).min(workers);
        let each = state_bytes(config, &resolution).saturating_add(loaded).saturating_add(WORKER);
        Ok(Self {
            workers: workers as u64,
            each,
            activations: activations.saturating_mul(cores as u64),
        })
    }

    fn total(self) -> u64 {
        self.each.saturating_mul(self.workers).saturating_add(self.activations)
    }

    /// Refuses to use more than is available.
    fn check(self, config: &RunConfig, available: u64) -> Result<(), TrainError> {
        if self.total() <= available - available / MARGIN {
            return Ok(());
        }
        let Self { workers, each, activations } = self;
        let [total, each, activations, available] =
            [self.total(), each, activations, available].map(gigabytes);
        Err(TrainError::Config(format!(
            "the run takes about {total} of memory ({workers} × {each} for the model, optimizer, residuals and batch \
             of a worker, and {activations} for activations of a batch of {}), but only {available} are available; use \
             fewer workers, a smaller batch or a smaller model",
            config.batch
        )))
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// The memory that a worker keeps from step to step for the model's tensors.
fn state_bytes(config: &RunConfig, resolution: &Resolution<'_>) -> u64 {
    let elements: u64 = resolution.tensors.iter().map(|tensor| tensor.elements() as u64).sum();
    let optimizer = config.optimizer.vectors() as u64;
    // The parameters, their gradients, and the result of the exchange.
    let mut copies = 3;
    copies += match (config.send.is_local(), config.exchange.servers()) {
        // The parameters of local steps.
        (true, _) => 1 + optimizer,
        (false, 0) => optimizer,
        // A server has the optimizer for all workers.
        (false, _) => 0,
    };
    if config.svrg > 0 {
        // The snapshot and its gradient.
        copies += 2;
    }
    let kept: u64 =
        resolution.tensors.iter().map(|tensor| kept_bytes(config, resolution, tensor)).sum();
    elements.saturating_mul(4 * copies).saturating_add(kept)
}

/// The memory of a worker's encoder for a tensor, and of the messages of other workers that it
/// holds at once.
fn kept_bytes(config: &RunConfig, resolution: &Resolution<'_>, tensor: &Tensor) -> u64 {
    let schedule = resolution.policy.push_of(tensor);
    let spec = &schedule.first;
    let elements = tensor.elements() as u64;
    let arrays = u64::from(spec.feedback().is_some()) + u64::from(keeps_velocity(spec));
    let compressor = spec.compressor();
    // Copies of a message: being written, in transit, and being read.
    let longest = (compressor.max_len(tensor.elements()) as u64).min(4 * elements);
    let others = match config.exchange {
        Exchange::AllGather => least_len(compressor, tensor.elements()) * config.workers,
        _ => 0,
    };
    let messages = (3 * longest).saturating_add(others as u64);
    elements.saturating_mul(4 * arrays).saturating_add(messages)
}

fn keeps_velocity(spec: &Spec) -> bool {
    spec.own_memory(false).is_some_and(|memory| memory.keeps_velocity())
}

/// The shortest message that can stand for a tensor of this size.
fn least_len(compressor: &dyn Compressor, elements: usize) -> usize {
    let (mut short, mut long) = (0, compressor.max_len(elements));
    while short < long {
        let middle = short + (long - short) / 2;
        if compressor.max_elements(middle) >= elements {
            long = middle;
        } else {
            short = middle + 1;
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gradwire_models::data;

    use super::*;
    use crate::settings::TrainingSettings;

    fn config(compressor: &str, change: impl FnOnce(&mut TrainingSettings)) -> RunConfig {
        let mut settings =
            TrainingSettings { model: "mlp:100".parse().unwrap(), ..TrainingSettings::default() };
        change(&mut settings);
        let data = Arc::new(data::embedded_sized(0, 20, 10));
        RunConfig::new(settings, data, compressor.parse().unwrap())
    }

    fn each(compressor: &str, change: impl FnOnce(&mut TrainingSettings)) -> u64 {
        Estimate::new(&config(compressor, change), 2).unwrap().each
    }

    #[test]
    fn settings_that_take_more_memory_have_a_higher_estimate() {
        let plain = each("fp16", |_| {});
        // Images of 28 by 28 pixels, and a megabyte for the model.
        assert_eq!(each("fp16", |s| s.batch += 1000) - plain, 1000 * 784 * 4);
        assert!(plain > WORKER + 4 * 79_510 * 4, "{plain}");
        type Change = fn(&mut TrainingSettings);
        let more: [(&str, Change); 5] = [
            ("fp16:ef=on", |_| {}),
            ("none", |_| {}),
            ("fp16", |s| s.model = "mlp:1000".parse().unwrap()),
            ("fp16", |s| s.svrg = 1),
            ("fp16", |s| s.send = crate::Payload::Updates),
        ];
        for (compressor, change) in more {
            assert!(each(compressor, change) > plain, "{compressor}");
        }
        // Messages of fp16 have two bytes an element.
        let gathered = |workers| {
            each("fp16", |s| (s.exchange, s.workers) = ("all-gather".parse().unwrap(), workers))
        };
        let more = gathered(104) - gathered(4);
        assert!((100 * 78_400 * 2..100 * 79_510 * 4).contains(&more), "{more}");
        let (adam, sgd) = ("adam".parse().unwrap(), "sgd".parse().unwrap());
        let reduced = |optimizer| {
            each("fp16", |s| (s.exchange, s.optimizer) = ("all-reduce".parse().unwrap(), optimizer))
        };
        assert_eq!(reduced(adam) - reduced(sgd), 2 * 4 * 79_510);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_estimate() {
        let config = config("none", |s| (s.workers, s.batch) = (4096, 1 << 20));
        let estimate = Estimate::new(&config, config.workers).unwrap();
        assert!(estimate.total() > 4096 * (1 << 20) * 784 * 4);
        let error = estimate.check(&config, 22 << 30).unwrap_err().to_string();
        assert!(error.contains("about 13") && error.contains("23.6 GB are available"), "{error}");
        assert!(estimate.check(&config, u64::MAX).is_ok());
        // The margin is on top of the total.
        assert!(estimate.check(&config, estimate.total()).is_err());
        assert!(estimate.check(&config, estimate.total() / 15 * 16 + 16).is_ok());
    }
}
