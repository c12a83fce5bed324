//! Whether ranks agree: on the configuration at the start, on the parameters later.
//!
//! Every rank sends what it holds to rank 0, which compares and sends its verdict to all: empty if
//! they agree, else the reason with which all of them fail.

use crate::transport::or_abort;
use crate::{ExchangeError, Operation, Phase, Transport};

/// Fails on every rank unless all were started with the same `description`, a fact a line.
pub(crate) fn on_configuration(
    transport: &mut dyn Transport,
    description: &str,
) -> Result<(), ExchangeError> {
    let operation = Operation::whole(Phase::Handshake, 0);
    let ranks = transport.size();
    settle(transport, ranks, operation, description.as_bytes(), |all| {
        all.iter().enumerate().skip(1).find_map(|(rank, theirs)| difference(&all[0], theirs, rank))
    })
}

/// Fails on every rank unless all were started with the same `facts`, a fact a line; the error names the first that
/// differs, and both values. Every rank calls it before anything else.
///
/// # Errors
/// `Config` where facts differ; those of the transport.
pub fn agree(transport: &mut dyn Transport, facts: &str) -> Result<(), ExchangeError> {
    on_configuration(transport, facts)
}

/// Fails on each of the first `workers` ranks unless all hold parameters of the same digest.
pub(crate) fn on_parameters(
    transport: &mut dyn Transport,
    workers: usize,
    step: u64,
    digest: u64,
) -> Result<(), ExchangeError> {
    let operation = Operation::whole(Phase::Check, step);
    settle(transport, workers, operation, &digest.to_le_bytes(), |all| {
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

/// Fails with the verdict. It reaches every rank, so that none needs to be told to stop by force.
fn settle(
    transport: &mut dyn Transport,
    ranks: usize,
    operation: Operation<'_>,
    own: &[u8],
    compare: impl FnOnce(&[Vec<u8>]) -> Option<String>,
) -> Result<(), ExchangeError> {
    let verdict = verdict(transport, ranks, operation, own, compare);
    let verdict = or_abort(transport, verdict)?;
    if verdict.is_empty() {
        return Ok(());
    }
    Err(ExchangeError::Config(String::from_utf8_lossy(&verdict).into_owned()))
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
}
