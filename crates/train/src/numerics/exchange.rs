//! The mark of an exchange.

use std::thread;

use gradwire::Tensor;
use gradwire_exchange::{
    AddUpdate, CompressionSchedule, Exchange, ExchangeError, GroupConfig, Participation, Policy,
    Role, StepInput, in_process, launch,
};

use super::cache::cached;
use super::mark::{Mark, values};
use crate::settings::TrainingSettings;

/// The most workers.
pub(super) const WORKERS: usize = 4;
/// The most servers.
const SERVERS: usize = 2;
const STEPS: u64 = 3;

pub(super) fn mark(
    settings: &TrainingSettings,
    compressor: &CompressionSchedule,
) -> Option<String> {
    let (exchange, workers) = (smaller(settings.exchange)?, settings.workers.min(WORKERS));
    let spec = compressor.first().clone().with_every(1);
    cached(format!("exchange {exchange} {workers} {spec}"), || {
        let policy = Policy::new(spec);
        exchanged(exchange, workers, &policy).ok()
    })
}

/// The exchange with few servers; `None` if it does not repeat its bits.
pub(super) fn smaller(exchange: Exchange) -> Option<Exchange> {
    match exchange {
        Exchange::ParameterServer { servers, backups: 0, synchronization }
            if exchange.keeps_replicas_identical() =>
        {
            let servers = servers.min(SERVERS);
            Some(Exchange::ParameterServer { servers, backups: 0, synchronization })
        }
        Exchange::ParameterServer { .. } => None,
        _ => Some(exchange),
    }
}

/// The mark of the parameters of all workers after a few steps in which they add the mean.
fn exchanged(exchange: Exchange, workers: usize, policy: &Policy) -> Result<String, ExchangeError> {
    let tensors = [Tensor::new("weight", &[48, 80]), Tensor::new("bias", &[80])];
    let zeros = tensors.each_ref().map(|tensor| vec![0.0; tensor.elements()]);
    let setup = GroupConfig {
        exchange,
        policy,
        participation: &Participation::equal(workers),
        tensors: &tensors,
        seed: 0,
        initial: &zeros,
    };
    let join = |transport| Role::join(transport, &setup, || Box::new(AddUpdate));
    let launched = launch(&setup, in_process::Options::default(), join)?;
    let ends = thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(launched.workers)
            .map(|(rank, mut end)| {
                let (tensors, mut parameters) = (&tensors, zeros.to_vec());
                scope.spawn(move || {
                    for step in 0..STEPS {
                        let gradient = |(index, tensor): (u64, &Tensor)| {
                            values(tensor.elements(), index, rank, step)
                        };
                        let gradients: Vec<_> = (0..).zip(tensors).map(gradient).collect();
                        end.step(StepInput::new(step, 0.01, &gradients), &mut parameters)?;
                    }
                    Ok(parameters)
                })
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
        threads.into_iter().map(join).collect::<Vec<thread::Result<Result<_, ExchangeError>>>>()
    });
    launched.servers.join()?;
    let mut mark = Mark::default();
    for end in ends {
        mark.tensors(&end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    }
    Ok(mark.text())
}
