//! One rank of a run whose ranks are processes.

use std::time::{Duration, Instant};

use gradwire::State;
use gradwire_exchange::{ExchangeError, Operation, Phase, Role, Transport, agree};

use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::observer::Observer;
use crate::options::RunOptions;
use crate::record::RunRecord;
use crate::resolution::Resolution;
use crate::session::{Session, read_checkpoint};
use crate::validation::validate;

/// How long a rank of such a run waits for another: the deadline to give to the transports.
///
/// # Errors
/// As [`run`](crate::run()), for a configuration that cannot work.
pub fn deadline(config: &RunConfig) -> Result<Duration, TrainError> {
    validate(config)?;
    Ok(Resolution::new(config, 0..1)?.deadline(config))
}

/// Trains as one of the ranks that `transport` connects: first the workers, then the servers. Every rank calls it with
/// the same configuration; together they do what [`run`](crate::run()) does, with the same bits.
///
/// The first worker reads and writes checkpoints, keeps the record and returns it; the other workers only ask their
/// observers whether to stop.
///
/// # Errors
/// As [`run`](crate::run()); if this rank fails first, the errors of the other ranks name it. Ranks of different
/// versions, configurations or data fail with the first difference.
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
    if rank == 0 {
        options.check_save()?;
    }
    let checkpoint = share_checkpoint(config, observer, options, &mut *transport)?;
    let session = Session { config, observer, options, checkpoint, start: Instant::now() };
    // A server needs the tensors of a model, but trains none.
    let own = if rank < config.workers { rank } else { 0 };
    let mut resolution = session.resolve(own..own + 1)?;
    let exchange = match resolution.join(config, transport).map_err(failed)? {
        Role::Worker(exchange) => exchange,
        Role::Server(server) => return server.run().map(|_| None).map_err(TrainError::Servers),
    };
    let replica = resolution.replicas.remove(0);
    let workers = vec![(rank, replica, exchange)];
    let (recorder, parameters) = session.train(workers, &resolution, None, None)?;
    Ok((rank == 0).then(|| session.record(recorder, &resolution, &parameters)))
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
    let refused = |source| TrainError::Resume { path: path.clone(), source };
    let mut bytes = match rank {
        0 => read_checkpoint(path, config, observer)?.to_bytes().map_err(refused)?,
        _ => Vec::new(),
    };
    let shared = transport.broadcast(0, Operation::whole(Phase::Broadcast, 0), &mut bytes);
    shared.map_err(|source| TrainError::Exchange { rank, source })?;
    let checkpoint = State::from_bytes(&bytes).and_then(|state| Checkpoint::of(state, config));
    checkpoint.map(Some).map_err(refused)
}
