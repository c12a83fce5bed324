//! One rank of a run whose ranks are processes.

use std::time::{Duration, Instant};

use gradwire::State;
use gradwire_exchange::{ExchangeError, Operation, Phase, Role, Transport, agree};

use super::company::Company;
use super::session::{Member, Run, read_checkpoint};
use super::setup::validate;
use super::{Observer, RunConfig, RunOptions, RunRecord, TrainError};
use crate::checkpoint::{self, Checkpoint};

/// How long a rank of such a run waits for another. Whoever makes the transports gives it to them.
///
/// # Errors
/// As [`run`](super::run), for a configuration that cannot work.
pub fn deadline(config: &RunConfig) -> Result<Duration, TrainError> {
    validate(config)?;
    let options = RunOptions::default();
    let run =
        Run { config, observer: &(), options: &options, checkpoint: None, start: Instant::now() };
    Ok(run.parts(0..1)?.deadline(config))
}

/// Trains as one of the ranks that `transport` connects: first the workers, then the servers. Every rank calls it with
/// the same configuration; together they do what [`run`](super::run) does, with the same bits.
///
/// The first worker reads and writes checkpoints, keeps the record, and is the only one to observe more than whether
/// to stop. Others get `None`.
///
/// # Errors
/// As [`run`](super::run); the others' errors name this rank where it was the first to fail. Ranks of different
/// versions, configurations or data are told so, with the first difference.
pub fn run_rank(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    mut transport: Box<dyn Transport>,
) -> Result<Option<RunRecord>, TrainError> {
    validate(config)?;
    let rank = transport.rank();
    let needed = config.exchange.ranks(config.workers);
    if transport.size() != needed {
        return Err(TrainError::Config(format!(
            "'{}' with {} workers takes {needed} ranks, and {} were started; give as many ranks, or workers",
            config.exchange,
            config.workers,
            transport.size()
        )));
    }
    let failed = |source: ExchangeError| TrainError::Exchange { rank, source };
    agree(&mut *transport, &checkpoint::facts(config)).map_err(failed)?;
    let checkpoint = share_checkpoint(config, observer, options, &mut *transport)?;
    let run = Run { config, observer, options, checkpoint, start: Instant::now() };
    // A server has a model's tensors, and learns nothing.
    let own = if rank < config.workers { rank } else { 0 };
    let mut parts = run.parts(own..own + 1)?;
    let exchange = match parts.join(config, transport).map_err(failed)? {
        Role::Worker(exchange) => exchange,
        Role::Server(server) => return server.run().map(|_| None).map_err(TrainError::Servers),
    };
    let learner = parts.learners.remove(0);
    let members = vec![Member { rank, learner, exchange }];
    let (recorder, parameters) = run.train(members, &parts, Company::Apart, None)?;
    Ok((rank == 0).then(|| run.record(recorder, &parts, &parameters)))
}

/// Gives every rank the checkpoint that the first one reads.
fn share_checkpoint(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    transport: &mut dyn Transport,
) -> Result<Option<Checkpoint>, TrainError> {
    let Some(path) = &options.resume else { return Ok(None) };
    let rank = transport.rank();
    let operation = Operation::whole(Phase::Broadcast, 0);
    let spread = |transport: &mut dyn Transport, bytes: &mut Vec<u8>| {
        let spread = transport.broadcast(0, operation, bytes);
        spread.map_err(|source| TrainError::Exchange { rank, source })
    };
    let refused = |source| TrainError::Resume { path: path.clone(), source };
    if rank > 0 {
        let mut bytes = Vec::new();
        spread(transport, &mut bytes)?;
        let state = State::from_bytes(&bytes).map_err(refused)?;
        return Checkpoint::of(state, config).map(Some).map_err(refused);
    }
    let checkpoint = read_checkpoint(path, config, observer)?;
    let mut bytes = checkpoint.to_bytes().map_err(refused)?;
    spread(transport, &mut bytes)?;
    Ok(Some(checkpoint))
}
