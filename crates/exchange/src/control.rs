//! What ranks tell each other beside tensors: whether they agree on the configuration and hold equal parameters, and
//! small messages between worker 0 and the others.
//!
//! Whoever holds a rank's transport hands out a [`Control`]; all ranks then call the same of its methods between the
//! same two steps. In a comparison every rank sends what it holds to rank 0, which sends its verdict to all: empty if
//! they agree, else the reason with which all of them fail.

use std::sync::mpsc;

use crate::collectives::all_reduce;
use crate::transport::or_abort;
use crate::{ExchangeError, Operation, Phase, Traffic, Transport, digest};

/// Work on a rank's transport.
pub(crate) type Task = Box<dyn FnOnce(&mut dyn Transport) -> Result<(), ExchangeError> + Send>;

/// Who holds a rank's transport, in the caller's thread or in another.
pub(crate) trait Channel {
    /// Runs a task after all that was submitted before, and waits for it. After an error of the task the other ranks
    /// are told to stop.
    fn run(&mut self, task: Task) -> Result<(), ExchangeError>;
}

/// A rank's access to the others beside the exchange of tensors.
///
/// All ranks call the same of its methods between the same two steps.
pub struct Control<'a> {
    channel: &'a mut dyn Channel,
    workers: usize,
    replicas_are_identical: bool,
}

impl<'a> Control<'a> {
    /// Reaches the first `workers` ranks.
    pub(crate) fn new(
        channel: &'a mut dyn Channel,
        workers: usize,
        replicas_are_identical: bool,
    ) -> Self {
        Self { channel, workers, replicas_are_identical }
    }

    fn ask<R: Send + 'static>(
        &mut self,
        task: impl FnOnce(&mut dyn Transport) -> Result<R, ExchangeError> + Send + 'static,
    ) -> Result<R, ExchangeError> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.channel.run(Box::new(move |transport| {
            // The caller waits for it.
            let _ = answer.send(task(transport)?);
            Ok(())
        }))?;
        answered.recv().map_err(|_| ExchangeError::ended())
    }

    /// Gives worker 0 the bytes of every worker, in the order of ranks; the others get `None`.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        let workers = self.workers;
        self.ask(move |transport| gather(transport, workers, own))
    }

    /// Gives every worker the `message` of worker 0.
    ///
    /// # Errors
    /// Those of the transport.
    pub fn broadcast(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError> {
        let (workers, mut own) = (self.workers, std::mem::take(message));
        *message = self.ask(move |transport| {
            broadcast(transport, workers, &mut own)?;
            Ok(own)
        })?;
        Ok(())
    }

    /// Compares a [digest](crate::digest()) of the workers' parameters and fails on every worker, naming the ranks that
    /// differ. Compares nothing where workers hold different parameters by design: in an asynchronous parameter server.
    ///
    /// # Errors
    /// `Config` where parameters differ; those of the transport.
    pub fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<(), ExchangeError> {
        if !self.replicas_are_identical {
            return Ok(());
        }
        let (workers, digest) = (self.workers, digest(parameters));
        let verdict =
            self.ask(move |transport| compare_parameters(transport, workers, step, digest))?;
        accept(verdict)
    }

    /// Replaces `values`, one flat buffer a tensor, by their exact mean over all ranks, by an uncompressed all-reduce.
    /// Returns the bytes it took.
    ///
    /// # Errors
    /// `Config` where there are servers among the ranks; `Codec` for a value that is not finite; those of the transport.
    pub fn exact_mean(
        &mut self,
        step: u64,
        values: &mut Vec<Vec<f32>>,
    ) -> Result<Traffic, ExchangeError> {
        let (workers, mut own) = (self.workers, std::mem::take(values));
        let (mean, traffic) = self.ask(move |transport| {
            if transport.size() != workers {
                return Err(ExchangeError::Config(
                    "an exact mean needs workers only, and there are servers among the ranks; use all-reduce, \
                     all-gather or scatter-reduce"
                        .to_owned(),
                ));
            }
            let before = transport.traffic();
            all_reduce::exact_mean(transport, step, &mut own)?;
            Ok((own, transport.traffic() - before))
        })?;
        *values = mean;
        Ok(traffic)
    }
}

/// Fails on every rank unless all were started with the same `facts`, a fact a line; the error names the first that
/// differs, and both values. Every rank calls it before anything else.
///
/// # Errors
/// `Config` where facts differ; those of the transport.
pub fn agree(transport: &mut dyn Transport, facts: &str) -> Result<(), ExchangeError> {
    let operation = Operation::whole(Phase::Handshake, 0);
    let ranks = transport.size();
    let compared = verdict(transport, ranks, operation, facts.as_bytes(), |all| {
        all.iter().enumerate().skip(1).find_map(|(rank, theirs)| difference(&all[0], theirs, rank))
    });
    accept(or_abort(transport, compared)?)
}

/// The verdict on the parameters of the first `workers` ranks.
fn compare_parameters(
    transport: &mut dyn Transport,
    workers: usize,
    step: u64,
    digest: u64,
) -> Result<Vec<u8>, ExchangeError> {
    let operation = Operation::whole(Phase::Check, step);
    verdict(transport, workers, operation, &digest.to_le_bytes(), |all| {
        let differ: Vec<_> =
            (1..workers).filter(|&rank| all[rank] != all[0]).map(|rank| rank.to_string()).collect();
        (!differ.is_empty()).then(|| {
            format!(
                "after step {step} the parameters of rank {} differ from those of rank 0; ranks run \
                 different builds, or their parameters were changed outside of the exchange",
                differ.join(", ")
            )
        })
    })
}

/// Fails with the reason in a verdict. It reaches every rank, so that none needs to be told to stop.
fn accept(verdict: Vec<u8>) -> Result<(), ExchangeError> {
    if verdict.is_empty() {
        return Ok(());
    }
    Err(ExchangeError::Config(String::from_utf8_lossy(&verdict).into_owned()))
}

fn gather(
    transport: &mut dyn Transport,
    workers: usize,
    own: Vec<u8>,
) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
    let operation = Operation::whole(Phase::Report, 0);
    if transport.rank() > 0 {
        return transport.send(0, operation, &own).map(|()| None);
    }
    let mut all = vec![own];
    for from in 1..workers {
        let mut theirs = Vec::new();
        transport.recv(from, operation, &mut theirs)?;
        all.push(theirs);
    }
    Ok(Some(all))
}

fn broadcast(
    transport: &mut dyn Transport,
    workers: usize,
    message: &mut Vec<u8>,
) -> Result<(), ExchangeError> {
    let operation = Operation::whole(Phase::Report, 0);
    if transport.rank() > 0 {
        return transport.recv(0, operation, message);
    }
    (1..workers).try_for_each(|to| transport.send(to, operation, message))
}

fn verdict(
    transport: &mut dyn Transport,
    ranks: usize,
    operation: Operation<'_>,
    own: &[u8],
    compare: impl FnOnce(&[Vec<u8>]) -> Option<String>,
) -> Result<Vec<u8>, ExchangeError> {
    let mut verdict = Vec::new();
    if transport.rank() > 0 {
        transport.send(0, operation, own)?;
        transport.recv(0, operation, &mut verdict)?;
        return Ok(verdict);
    }
    let mut all = vec![Vec::new(); ranks];
    all[0].extend_from_slice(own);
    for (from, theirs) in all.iter_mut().enumerate().skip(1) {
        transport.recv(from, operation, theirs)?;
    }
    verdict.extend(compare(&all).unwrap_or_default().into_bytes());
    for to in 1..ranks {
        transport.send(to, operation, &verdict)?;
    }
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
            return Some(format!(
                "rank {rank} was started with {}, rank 0 with {}; start all ranks with the same \
                 configuration and build",
                b.unwrap_or("no more tensors"),
                a.unwrap_or("no more tensors"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
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
        let received = std::thread::scope(|scope| {
            let threads: Vec<_> = ranks
                .into_iter()
                .take(3)
                .map(|mut rank| {
                    scope.spawn(move || {
                        let own = vec![rank.rank() as u8; rank.rank()];
                        let all = gather(&mut rank, 3, own).unwrap();
                        let mut message = all.map_or_else(Vec::new, |all| all.concat());
                        broadcast(&mut rank, 3, &mut message).unwrap();
                        message
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(received, [[1, 2, 2], [1, 2, 2], [1, 2, 2]]);
    }
}
