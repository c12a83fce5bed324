//! One rank of a run whose ranks are processes.

use std::path::Path;
use std::time::Duration;

use gradwire::{State, StateError};
use gradwire_exchange::{ExchangeError, Operation, Phase, Role, Transport, agree};

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::elastic::{Attempt, Interrupted, check_fewer, config_for, lost_peer};
use crate::error::TrainError;
use crate::memory::check_memory;
use crate::observer::Observer;
use crate::options::{RunOptions, Save};
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

/// Trains as one of the ranks that `transport` connects: first the workers, then the servers. Every
/// rank calls it with the same configuration; together they give the result of
/// [`run`](crate::run()), with the same bits.
///
/// The first worker reads and writes checkpoints, keeps the record and returns it. The other
/// workers ask their observers whether to stop, and send their states, so the
/// [intervals](Save::every) of checkpoints must be the same on all ranks.
///
/// # Errors
/// As [`run`](crate::run()); if this rank fails first, the errors of the other ranks name it. Ranks
/// of different versions, configurations or data fail with the first difference.
pub fn run_rank(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    transport: Box<dyn Transport>,
) -> Result<Option<RunRecord>, TrainError> {
    if config.min_workers.is_some() {
        let reason =
            "min_workers needs a function that connects the remaining ranks; call run_elastic_rank";
        return Err(TrainError::Config(reason.to_owned()));
    }
    let mut transport = Some(transport);
    let once = || transport.take().ok_or_else(|| ExchangeError::config("there is one transport"));
    run_elastic_rank(config, observer, options, once)
}

/// [`run_rank`] for runs that may go on without ranks that are lost. `connect` returns a transport
/// between the ranks of the job. After the loss of a rank, all ranks that are left call it again,
/// and are renumbered in the same order. The last ranks become the servers.
///
/// The first worker keeps the state after the last exchange. If the first worker is lost, the run
/// goes on from the last checkpoint in a file, which the new first worker must be able to read.
///
/// # Errors
/// The errors of [`run_rank`] and of `connect`. The loss of a rank is an error without
/// [`min_workers`](crate::TrainingSettings::min_workers), if fewer workers are left, or if the
/// state is lost. An error that is not the loss of a rank, such as a loss that is not finite, ends
/// the run on all ranks.
pub fn run_elastic_rank(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    mut connect: impl FnMut() -> Result<Box<dyn Transport>, ExchangeError>,
) -> Result<Option<RunRecord>, TrainError> {
    validate(config)?;
    check_fewer(config)?;
    check_memory(config, 1)?;
    let mut attempt = Attempt::first(config, None);
    // Whether this process has the state at the beginning. Later only the first worker has it.
    let mut has_state = true;
    let mut ended: Option<TrainError> = None;
    let mut before: Option<Former> = None;
    loop {
        let mut transport = connect().map_err(|source| {
            // The error that ended this rank explains more than the news that the others went on
            // without it.
            let own = ended.take().filter(|error| lost_peer(error).is_none());
            own.unwrap_or(TrainError::Servers(source))
        })?;
        let now = Former { rank: transport.rank(), ranks: transport.size() };
        let former = before.replace(now).unwrap_or(now);
        let loss = match ended.take() {
            None => {
                check_size(config, transport.size())?;
                None
            }
            Some(error) => Some(loss_of(error, former.rank, &mut *transport)?),
        };
        let workers = transport.size().saturating_sub(config.exchange.servers());
        if let Some((_, error)) = &loss {
            check_enough(config, workers, error)?;
        }
        let start = match transport.rank() {
            0 => Start::of_first(&attempt, has_state, observer, options),
            _ => Ok(Start::Beginning),
        };
        let beginning = Beginning { former, loss, start, observer, options };
        let error = match beginning.agree(&attempt, workers, &mut *transport) {
            Err(error) if lost_peer(&error).is_none() => return Err(error),
            Err(error) => error,
            Ok(next) => {
                has_state = transport.rank() == 0;
                attempt = next;
                match train(&attempt, observer, options, transport) {
                    Ok(record) => return Ok(record),
                    Err(Interrupted { error, kept, .. }) => {
                        attempt.checkpoint = kept.or(attempt.checkpoint.take());
                        error
                    }
                }
            }
        };
        let ends = matches!(error, TrainError::Stopped { .. } | TrainError::Panicked { .. });
        if ends || config.min_workers.is_none() {
            return Err(error);
        }
        ended = Some(error);
    }
}

/// The rank whose loss ended an attempt, and the error of that loss. `former` is the number that
/// this rank had in the attempt.
///
/// # Errors
/// An error that is not the loss of a rank. The other ranks would take this rank for lost, so it
/// sends them the error, which ends the run on all ranks.
fn loss_of(
    error: TrainError,
    former: usize,
    transport: &mut dyn Transport,
) -> Result<(usize, TrainError), TrainError> {
    match lost_peer(&error) {
        Some(peer) => Ok((peer, error)),
        None => {
            let _ = share_failure(Some(&error), former, transport);
            Err(error)
        }
    }
}

/// Refuses to go on with fewer workers than the run needs, after the loss that `error` names.
fn check_enough(config: &RunConfig, workers: usize, error: &TrainError) -> Result<(), TrainError> {
    if config.min_workers.is_none_or(|least| workers >= least) {
        return Ok(());
    }
    Err(TrainError::Config(format!(
        "{error}; only {workers} workers are left, fewer than min_workers"
    )))
}

/// The number of this rank in the attempt before, and the number of ranks there.
#[derive(Clone, Copy)]
struct Former {
    rank: usize,
    ranks: usize,
}

/// This rank's knowledge at the beginning of an attempt.
struct Beginning<'a> {
    former: Former,
    /// The rank whose loss ended the attempt before, and the error of that loss.
    loss: Option<(usize, TrainError)>,
    /// The start of the attempt, if this is the first rank.
    start: Result<Start, TrainError>,
    observer: &'a dyn Observer,
    options: &'a RunOptions,
}

impl Beginning<'_> {
    /// Gives all ranks the start of the first rank for the attempt after `before`.
    ///
    /// # Errors
    /// On all ranks, if one of them cannot go on.
    fn agree(
        self,
        before: &Attempt,
        workers: usize,
        transport: &mut dyn Transport,
    ) -> Result<Attempt, TrainError> {
        let Self { former, mut loss, start, observer, options } = self;
        let config = config_for(&before.config, workers);
        if config.min_workers.is_some() {
            let left = share_failure(start.as_ref().err(), former.rank, transport)?;
            // The error names the rank that this rank waited for. That rank may have waited for the
            // lost one.
            let absent = (0..former.ranks).find(|rank| !left.contains(rank));
            if let (Some((lost, _)), Some(absent)) = (&mut loss, absent) {
                *lost = absent;
            }
        }
        if transport.rank() == 0 && former.rank != 0 {
            observer.leads();
        }
        let loss = loss.as_ref();
        let checkpoint = agree_on(&start?, &config, options, transport)?.checkpoint(loss)?;
        match loss {
            None => Ok(Attempt::first(&config, checkpoint)),
            Some(_) => before.resume_with(workers, checkpoint, loss, observer),
        }
    }
}

/// Tells all ranks the error of this rank, if it has one, and its number in the attempt before.
/// Returns the former numbers of all ranks.
///
/// # Errors
/// The error of another rank, if this one has none.
fn share_failure(
    own: Option<&TrainError>,
    former: usize,
    transport: &mut dyn Transport,
) -> Result<Vec<usize>, TrainError> {
    let rank = transport.rank();
    let mut messages = vec![Vec::new(); transport.size()];
    messages[rank] = (former as u32).to_le_bytes().to_vec();
    messages[rank].extend(own.iter().flat_map(|error| error.to_string().into_bytes()));
    let shared = transport.all_gather_v(Operation::whole(Phase::Gather, 0), &mut messages);
    shared.map_err(|source| TrainError::Exchange { rank, source })?;
    let mut left = Vec::new();
    for (peer, message) in messages.iter().enumerate() {
        let Some((former, reason)) = message.split_first_chunk() else {
            return Err(TrainError::Config(format!(
                "rank {peer} does not say which rank it was before"
            )));
        };
        if !reason.is_empty() && own.is_none() {
            let reason = String::from_utf8_lossy(reason);
            return Err(TrainError::Config(format!("rank {peer} has ended the run: {reason}")));
        }
        left.push(u32::from_le_bytes(*former) as usize);
    }
    Ok(left)
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
        "'{}' with {} workers needs {needed} ranks, but {ranks} were started; start {needed} \
         ranks, or change the number of workers",
        config.exchange, config.workers
    )))
}

/// Where an attempt begins.
enum Start {
    Beginning,
    At(Box<Checkpoint>),
    /// The first worker was lost, and the state with it.
    Lost,
}

impl Start {
    /// The first rank's start. If it does not have the state after the last exchange, it uses the
    /// last checkpoint in a file, or the checkpoint with which the attempt before began.
    fn of_first(
        attempt: &Attempt,
        has_state: bool,
        observer: &dyn Observer,
        options: &RunOptions,
    ) -> Result<Self, TrainError> {
        let config = &attempt.config;
        let read = |path: &Path| read_checkpoint(path, config, observer).map(Box::new);
        let held = attempt.checkpoint.clone();
        if has_state {
            options.check_save()?;
            if let Some(checkpoint) = held {
                return Ok(Self::At(checkpoint));
            }
            refuse_other_file(config, options)?;
            return match &options.resume {
                Some(path) => Ok(Self::At(read(path)?)),
                None => Ok(Self::Beginning),
            };
        }
        let file = options.save.as_ref().filter(|save| save.path.exists());
        let saved = file.map(|save| read(&save.path)).transpose()?;
        let latest = held.into_iter().chain(saved).max_by_key(|checkpoint| checkpoint.step);
        Ok(latest.map_or(Self::Lost, Self::At))
    }

    /// The checkpoint to begin from, if any.
    ///
    /// # Errors
    /// If no rank has it.
    fn checkpoint(
        self,
        loss: Option<&(usize, TrainError)>,
    ) -> Result<Option<Box<Checkpoint>>, TrainError> {
        match (self, loss) {
            (Self::At(checkpoint), _) => Ok(Some(checkpoint)),
            (Self::Lost, Some((_, error))) => Err(TrainError::Config(format!(
                "{error}; that rank kept the state of the run: next time, name a file with --save \
                 that all ranks can read"
            ))),
            _ => Ok(None),
        }
    }

    fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        match self {
            Self::Beginning => Ok(vec![0]),
            Self::Lost => Ok(vec![1]),
            Self::At(checkpoint) => checkpoint.to_bytes(),
        }
    }

    fn from_bytes(bytes: &[u8], config: &RunConfig) -> Result<Self, StateError> {
        match bytes {
            [0] => Ok(Self::Beginning),
            [1] => Ok(Self::Lost),
            _ => {
                let checkpoint = Checkpoint::of(State::from_bytes(bytes)?, config)?;
                Ok(Self::At(Box::new(checkpoint)))
            }
        }
    }
}

/// Refuses to save to an existing file from which the run does not resume: if the first worker is
/// lost, the file could be mistaken for a checkpoint of this run.
fn refuse_other_file(config: &RunConfig, options: &RunOptions) -> Result<(), TrainError> {
    let resumed = options.resume.as_ref().and_then(|path| path.canonicalize().ok());
    // `canonicalize` succeeds for paths that exist.
    let there = |save: &&Save| save.path.canonicalize().is_ok_and(|path| Some(path) != resumed);
    match options.save.as_ref().filter(there).filter(|_| config.min_workers.is_some()) {
        None => Ok(()),
        Some(save) => Err(TrainError::Config(format!(
            "{} exists already, and with min_workers the run could resume from it after a loss; \
             remove it, resume from it, or name another file with --save",
            save.path.display()
        ))),
    }
}

/// When all workers save, one fact per line.
fn facts_of_saving(options: &RunOptions) -> String {
    match &options.save {
        Some(Save { every, at_end, .. }) => format!("save every {every}\nsave at end {at_end}\n"),
        None => "save never\n".to_owned(),
    }
}

/// Compares the configurations of all ranks, and gives every rank the start that the first rank
/// chose.
fn agree_on(
    start: &Start,
    config: &RunConfig,
    options: &RunOptions,
    transport: &mut dyn Transport,
) -> Result<Start, TrainError> {
    let rank = transport.rank();
    let failed = |source: ExchangeError| TrainError::Exchange { rank, source };
    agree(transport, &(config.text_for_ranks() + &facts_of_saving(options))).map_err(failed)?;
    let refused = |source| {
        let path = options.resume.clone().or(options.save.as_ref().map(|save| save.path.clone()));
        TrainError::Resume { path: path.unwrap_or_default(), source }
    };
    let mut bytes = if rank == 0 { start.to_bytes().map_err(refused)? } else { Vec::new() };
    let shared = transport.broadcast(0, Operation::whole(Phase::Broadcast, 0), &mut bytes);
    shared.map_err(failed)?;
    Start::from_bytes(&bytes, config).map_err(refused)
}
