//! One rank of a run whose ranks are processes.

use std::path::Path;
use std::time::Duration;

use gradwire::{State, StateError};
use gradwire_exchange::{ExchangeError, Operation, Phase, Role, Transport, agree};

use crate::checkpoint::{self, Checkpoint};
use crate::config::RunConfig;
use crate::elastic::{Attempt, Interrupted, lost};
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
    transport: Box<dyn Transport>,
) -> Result<Option<RunRecord>, TrainError> {
    if config.min_workers.is_some() {
        let reason = "min_workers needs a function that connects the ranks that are left; call run_elastic_rank";
        return Err(TrainError::Config(reason.to_owned()));
    }
    let mut transport = Some(transport);
    let once = || transport.take().ok_or_else(|| ExchangeError::config("there is one transport"));
    run_elastic_rank(config, observer, options, once)
}

/// [`run_rank`] for runs that may go on without ranks that are lost. `connect` returns a transport between the ranks of
/// the job; called again after the loss of a rank, between those that are left, which all call it and are numbered anew
/// in the same order. The last ranks become the servers.
///
/// The first worker keeps the state after the last exchange. If it is lost itself, the run goes on from the last
/// checkpoint in a file, which the new first worker must be able to read.
///
/// # Errors
/// As [`run_rank`]; those of `connect`. The loss of a rank is an error without
/// [`min_workers`](crate::TrainingSettings::min_workers), where fewer workers are left, and where the state is lost.
pub fn run_elastic_rank(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    mut connect: impl FnMut() -> Result<Box<dyn Transport>, ExchangeError>,
) -> Result<Option<RunRecord>, TrainError> {
    validate(config)?;
    let mut attempt = Attempt::first(config, None);
    // Whether this process knows where to begin. Later only the first worker does.
    let mut knows = true;
    let mut loss: Option<(usize, TrainError)> = None;
    loop {
        let mut transport = connect().map_err(TrainError::Servers)?;
        let workers = transport.size().saturating_sub(config.exchange.servers());
        match (loss.take(), config.min_workers) {
            (None, _) => check_size(config, transport.size())?,
            (Some((_, error)), Some(least)) if workers < least => return Err(error),
            (taken, _) => loss = taken,
        }
        let first = transport.rank() == 0;
        let start = match first {
            true => Start::known(&attempt, knows, observer, options)?,
            false => Start::Beginning,
        };
        let agreed = agree_on(&start, &attempt.config_for(workers), options, &mut *transport);
        let error = match agreed.and_then(|start| start.checkpoint(loss.as_ref())) {
            Err(error) => error,
            Ok(checkpoint) => {
                attempt = match &loss {
                    None => Attempt::first(config, checkpoint),
                    Some(loss) => attempt.resumed(workers, checkpoint, Some(loss), observer)?,
                };
                knows = first;
                match train(&attempt, observer, options, transport) {
                    Ok(record) => return Ok(record),
                    Err(Interrupted { error, kept }) => {
                        attempt.checkpoint = kept.or(attempt.checkpoint.take());
                        error
                    }
                }
            }
        };
        loss = match (lost(&error), config.min_workers) {
            (Some(lost), Some(_)) => Some((lost, error)),
            _ => return Err(error),
        };
    }
}

/// Trains with a fixed number of workers, as one of the ranks that `transport` connects.
fn train(
    attempt: &Attempt,
    observer: &dyn Observer,
    options: &RunOptions,
    transport: Box<dyn Transport>,
) -> Result<Option<RunRecord>, Interrupted> {
    let (config, rank) = (&attempt.config, transport.rank());
    let session = Session::new(attempt, observer, options);
    // A server needs the tensors of a model, but trains none.
    let own = if rank < config.workers { rank } else { 0 };
    let mut resolution = session.resolve(own..own + 1)?;
    let joined = resolution.join(config, transport);
    let exchange = match joined.map_err(|source| TrainError::Exchange { rank, source })? {
        Role::Worker(exchange) => exchange,
        Role::Server(server) => {
            server.run().map_err(TrainError::Servers)?;
            return Ok(None);
        }
    };
    let replica = resolution.replicas.remove(0);
    let workers = vec![(rank, replica, exchange)];
    let (recorder, parameters) = session.train(workers, &resolution, None, None)?;
    Ok((rank == 0).then(|| session.record(recorder, &resolution, &parameters)))
}

fn check_size(config: &RunConfig, ranks: usize) -> Result<(), TrainError> {
    let needed = config.exchange.ranks(config.workers);
    if ranks == needed {
        return Ok(());
    }
    Err(TrainError::Config(format!(
        "'{}' with {} workers takes {needed} ranks, and {ranks} were started; give as many ranks, or workers",
        config.exchange, config.workers
    )))
}

/// Where an attempt begins.
enum Start {
    Beginning,
    At(Box<Checkpoint>),
    /// The first worker was lost, and the state with it.
    Unknown,
}

impl Start {
    /// Where the first rank knows that an attempt begins. If it `knows` nothing of the attempt before, it reads the last
    /// checkpoint in a file.
    fn known(
        attempt: &Attempt,
        knows: bool,
        observer: &dyn Observer,
        options: &RunOptions,
    ) -> Result<Self, TrainError> {
        let config = &attempt.config;
        if !knows {
            let read = |path: &Path| read_checkpoint(path, config, observer).ok();
            let found = options.save.as_ref().and_then(|save| read(&save.path));
            return Ok(found.map_or(Self::Unknown, |checkpoint| Self::At(Box::new(checkpoint))));
        }
        options.check_save()?;
        Ok(match (&attempt.checkpoint, &options.resume) {
            (Some(checkpoint), _) => Self::At(checkpoint.clone()),
            (None, Some(path)) => Self::At(Box::new(read_checkpoint(path, config, observer)?)),
            (None, None) => Self::Beginning,
        })
    }

    /// The checkpoint to begin from, if any.
    ///
    /// # Errors
    /// If nobody has it.
    fn checkpoint(
        self,
        loss: Option<&(usize, TrainError)>,
    ) -> Result<Option<Box<Checkpoint>>, TrainError> {
        match (self, loss) {
            (Self::At(checkpoint), _) => Ok(Some(checkpoint)),
            (Self::Unknown, Some((_, error))) => Err(TrainError::Config(format!(
                "{error}; the state of the run was with that rank: name a file with --save that all ranks can read"
            ))),
            _ => Ok(None),
        }
    }

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        match self {
            Self::Beginning => Ok(vec![0]),
            Self::Unknown => Ok(vec![1]),
            Self::At(checkpoint) => checkpoint.to_bytes(),
        }
    }

    fn from_bytes(bytes: &[u8], config: &RunConfig) -> Result<Self, StateError> {
        match bytes {
            [0] => Ok(Self::Beginning),
            [1] => Ok(Self::Unknown),
            _ => {
                let checkpoint = Checkpoint::of(State::from_bytes(bytes)?, config)?;
                Ok(Self::At(Box::new(checkpoint)))
            }
        }
    }
}

/// Compares the configurations of all ranks, and gives every rank the start that the first one has chosen.
fn agree_on(
    start: &Start,
    config: &RunConfig,
    options: &RunOptions,
    transport: &mut dyn Transport,
) -> Result<Start, TrainError> {
    let rank = transport.rank();
    let failed = |source: ExchangeError| TrainError::Exchange { rank, source };
    agree(transport, &checkpoint::facts(config)).map_err(failed)?;
    let refused = |source| {
        let path = options.resume.clone().or(options.save.as_ref().map(|save| save.path.clone()));
        TrainError::Resume { path: path.unwrap_or_default(), source }
    };
    let mut bytes = if rank == 0 { start.to_bytes().map_err(refused)? } else { Vec::new() };
    let shared = transport.broadcast(0, Operation::whole(Phase::Broadcast, 0), &mut bytes);
    shared.map_err(failed)?;
    Start::from_bytes(&bytes, config).map_err(refused)
}
