//! Messages between ranks apart from the exchange of tensors: comparisons of configurations and
//! parameters, and small messages between worker 0 and the other workers.
//!
//! The owner of a rank's transport lends a [`Control`]. All ranks call the same methods between the
//! same two steps. In a comparison, every rank sends its value to rank 0, and rank 0 sends a
//! verdict to all: empty if the values are equal, otherwise the error for all ranks.

use std::sync::mpsc;
use std::time::Instant;

use crate::error::refuse;
use crate::mean;
use crate::patience::patience;
use crate::transport::or_abort;
use crate::{ExchangeError, GroupConfig, Operation, Phase, Result, Traffic, Transport, digest};

/// Work on a rank's transport.
pub(crate) type TransportJob = Box<dyn FnOnce(&mut dyn Transport) -> Result<()> + Send>;

/// The owner of a rank's transport, in the caller's thread or in another.
pub(crate) trait TransportOwner {
    /// Runs a task after all work submitted before, and waits for it. If the task fails, it aborts
    /// the run on all ranks.
    fn run(&mut self, task: TransportJob) -> Result<()>;
}

/// Messages to the other ranks apart from the exchange of tensors.
///
/// All ranks call the same methods between the same two steps.
pub struct Control<'a> {
    owner: &'a mut dyn TransportOwner,
    workers: usize,
    replicas_are_identical: bool,
}

impl<'a> Control<'a> {
    /// A channel between the first `workers` ranks.
    pub(crate) fn new(
        owner: &'a mut dyn TransportOwner,
        workers: usize,
        replicas_are_identical: bool,
    ) -> Self {
        Self { owner, workers, replicas_are_identical }
    }

    fn ask<R: Send + 'static>(
        &mut self,
        task: impl FnOnce(&mut dyn Transport) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.owner.run(Box::new(move |transport| {
            // The caller waits for it.
            let _ = answer.send(task(transport)?);
            Ok(())
        }))?;
        answered.recv().map_err(|_| ExchangeError::ended())
    }

    /// Collects the bytes of every worker at worker 0, in rank order; returns `None` on the other
    /// workers.
    ///
    /// # Errors
    /// The errors of the transport.
    pub fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        let workers = self.workers;
        self.ask(move |transport| gather(transport, workers, REPORT, own))
    }

    /// Sends worker 0's `message` to every worker.
    ///
    /// # Errors
    /// The errors of the transport.
    pub fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<()> {
        let (workers, mut own) = (self.workers, std::mem::take(message));
        *message = self.ask(move |transport| {
            broadcast(transport, workers, REPORT, &mut own)?;
            Ok(own)
        })?;
        Ok(())
    }

    /// Compares a [digest](crate::digest()) of the workers' parameters. If they differ, it fails on
    /// every worker and names the ranks that differ. With an asynchronous parameter server it
    /// compares nothing: its workers differ by design.
    ///
    /// # Errors
    /// `Diverged` if parameters differ; the errors of the transport.
    pub fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<()> {
        if !self.replicas_are_identical {
            return Ok(());
        }
        let (workers, digest) = (self.workers, digest(parameters));
        let verdict =
            self.ask(move |transport| compare_parameters(transport, workers, step, digest))?;
        accept(verdict, ExchangeError::Diverged)
    }

    /// Replaces `values`, one flat buffer per tensor, with their exact mean over all ranks, with an
    /// uncompressed all-reduce. Returns its traffic.
    ///
    /// # Errors
    /// `Config` if there are servers among the ranks; `Codec` for a value that is not finite; the
    /// errors of the transport.
    pub fn exact_mean(&mut self, step: u64, values: &mut Vec<Vec<f32>>) -> Result<Traffic> {
        let (workers, mut own) = (self.workers, std::mem::take(values));
        let (mean, traffic) = self.ask(move |transport| {
            if transport.size() != workers {
                return refuse(
                    "an exact mean is over workers, but some ranks are servers; use all-reduce, \
                     all-gather or scatter-reduce",
                );
            }
            let before = transport.traffic();
            mean::exact_mean(transport, step, &mut own)?;
            Ok((own, transport.traffic() - before))
        })?;
        *values = mean;
        Ok(traffic)
    }
}

/// Validates `config` and compares it with the configurations of all other ranks. `settings` are
/// compared too, one per line.
pub(crate) fn join(
    config: &GroupConfig<'_>,
    transport: &mut dyn Transport,
    settings: &str,
) -> Result<()> {
    config.validate()?;
    let ranks = config.exchange.ranks(config.workers());
    if transport.size() != ranks {
        return refuse(format!(
            "'{}' with {} workers needs {ranks} ranks, but the transport connects {}",
            config.exchange,
            config.workers(),
            transport.size()
        ));
    }
    let digest = digest(config.initial);
    agree(transport, &format!("{}initial parameters {digest:016x}\n{settings}", config.describe()))
}

/// Fails on every rank unless all were started with the same `settings`, one per line; the error
/// names the first line that differs, with both values. Every rank calls it before anything else.
///
/// # Errors
/// `Config` if settings differ; the errors of the transport.
pub fn agree(transport: &mut dyn Transport, settings: &str) -> Result<()> {
    let operation = Operation::whole(Phase::Handshake, 0);
    let ranks = transport.size();
    let compared = verdict(transport, ranks, operation, settings.as_bytes().to_vec(), |all| {
        all.iter().enumerate().skip(1).find_map(|(rank, theirs)| difference(&all[0], theirs, rank))
    });
    accept(or_abort(transport, compared)?, ExchangeError::Config)
}

/// The verdict on the parameters of the first `workers` ranks.
fn compare_parameters(
    transport: &mut dyn Transport,
    workers: usize,
    step: u64,
    digest: u64,
) -> Result<Vec<u8>> {
    let operation = Operation::whole(Phase::Check, step);
    verdict(transport, workers, operation, digest.to_le_bytes().to_vec(), |all| {
        let differ: Vec<_> =
            (1..workers).filter(|&rank| all[rank] != all[0]).map(|rank| rank.to_string()).collect();
        (!differ.is_empty()).then(|| {
            format!(
                "after step {step} the parameters of rank {} differ from the parameters of rank \
                 0; the ranks run different builds, or something outside the exchange changed the \
                 parameters",
                differ.join(", ")
            )
        })
    })
}

/// Fails with the reason in a verdict. Every rank receives the verdict and fails, so no abort is
/// needed.
fn accept(verdict: Vec<u8>, error: fn(String) -> ExchangeError) -> Result<()> {
    if verdict.is_empty() {
        return Ok(());
    }
    Err(error(String::from_utf8_lossy(&verdict).into_owned()))
}

/// The operation of messages whose content the caller defines.
const REPORT: Operation<'static> = Operation { phase: Phase::Report, tensor: None, step: 0 };

/// Collects the bytes of all ranks at rank 0, with one deadline for all of them.
fn gather(
    transport: &mut dyn Transport,
    ranks: usize,
    operation: Operation<'_>,
    own: Vec<u8>,
) -> Result<Option<Vec<Vec<u8>>>> {
    if transport.rank() > 0 {
        transport.send_in_parts(0, operation, &own)?;
        // The caller may compute for a long time before it calls the transport again.
        return transport.flush().map(|()| None);
    }
    let deadline = transport.deadline();
    let until = Instant::now() + deadline;
    let mut all = vec![Vec::new(); ranks];
    all[0] = own;
    for (from, theirs) in all.iter_mut().enumerate().skip(1) {
        let left = until.saturating_duration_since(Instant::now());
        transport.recv_within(from, operation, left, theirs).map_err(|error| match error {
            ExchangeError::Deadline { peer, operation, .. } => {
                ExchangeError::late(peer, operation, deadline)
            }
            error => error,
        })?;
        transport.recv_rest(from, operation, theirs)?;
    }
    Ok(Some(all))
}

/// Sends rank 0's message to the first `ranks` ranks. The others wait longer than the deadline:
/// rank 0 may be waiting for a missing rank, and then names it.
fn broadcast(
    transport: &mut dyn Transport,
    ranks: usize,
    operation: Operation<'_>,
    message: &mut Vec<u8>,
) -> Result<()> {
    if transport.rank() > 0 {
        transport.recv_within(0, operation, patience(transport.deadline(), 1), message)?;
        return transport.recv_rest(0, operation, message);
    }
    (1..ranks).try_for_each(|to| transport.send_in_parts(to, operation, message))?;
    transport.flush()
}

fn verdict(
    transport: &mut dyn Transport,
    ranks: usize,
    operation: Operation<'_>,
    own: Vec<u8>,
    compare: impl FnOnce(&[Vec<u8>]) -> Option<String>,
) -> Result<Vec<u8>> {
    let all = gather(transport, ranks, operation, own)?;
    let mut verdict = all.and_then(|all| compare(&all)).unwrap_or_default().into_bytes();
    broadcast(transport, ranks, operation, &mut verdict)?;
    Ok(verdict)
}

/// The first line in which two descriptions differ, as an error message.
fn difference(first: &[u8], theirs: &[u8], rank: usize) -> Option<String> {
    if first == theirs {
        return None;
    }
    let (first, theirs) = (String::from_utf8_lossy(first), String::from_utf8_lossy(theirs));
    let (mut ours, mut others) = (first.lines(), theirs.lines());
    loop {
        let (a, b) = (ours.next(), others.next());
        if a != b || a.is_none() {
            let [a, b] = [a, b].map(|line| line.unwrap_or("no more tensors"));
            let remedy = match a.starts_with("tensor ") || b.starts_with("tensor ") {
                true => "give the model the same tensors on all ranks, and start them with",
                false => "start all ranks with",
            };
            return Some(format!(
                "rank {rank} was started with {b}, rank 0 with {a}; {remedy} the same configuration and build"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_first_different_line_is_named_with_both_ranks() {
        assert_eq!(difference(b"a\nb\n", b"a\nb\n", 3), None);
        let message = difference(b"seed 1\nworkers 2\n", b"seed 2\nworkers 3\n", 3).unwrap();
        assert!(message.starts_with("rank 3 was started with seed 2, rank 0 with seed 1;"));
        let message = difference(b"a\ntensor 'w' [2]\n", b"a\n", 1).unwrap();
        assert!(
            message.contains("rank 1 was started with no more tensors, rank 0 with tensor 'w'")
        );
    }

    #[test]
    fn worker_0_gets_all_messages_and_all_get_that_of_worker_0() {
        // The fourth rank is a server and takes no part.
        let ranks = crate::in_process::connect(4, crate::in_process::Options::default());
        std::thread::scope(|scope| {
            for mut rank in ranks.into_iter().take(3) {
                scope.spawn(move || {
                    let own = vec![rank.rank() as u8; rank.rank()];
                    let all = gather(&mut rank, 3, REPORT, own).unwrap();
                    let mut message = all.map_or_else(Vec::new, |all| all.concat());
                    broadcast(&mut rank, 3, REPORT, &mut message).unwrap();
                    assert_eq!(message, [1, 2, 2]);
                });
            }
        });
    }

    #[test]
    fn a_rank_that_is_missing_is_named_by_those_who_wait_for_rank_0() {
        let deadline = Duration::from_secs(1);
        let options = crate::in_process::Options { deadline, link: None };
        let mut ranks = crate::in_process::connect(4, options);
        let _missing = ranks.pop();
        std::thread::scope(|scope| {
            for mut rank in ranks {
                scope.spawn(move || {
                    // Rank 0 waits for this one first.
                    if rank.rank() == 2 {
                        std::thread::sleep(deadline / 2);
                    }
                    let error = agree(&mut rank, "the same").unwrap_err();
                    assert_eq!(error.culprit(rank.rank()), 3, "rank {}: {error}", rank.rank());
                });
            }
        });
    }
}
