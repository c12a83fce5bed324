//! What workers tell each other beside the exchange of tensors: scores, states, whether to stop.

use crate::transport::or_abort;
use crate::{ExchangeError, Operation, Phase, Transport};

/// Gives worker 0 what each of the first `workers` ranks has to say, in the order of ranks; the others nothing.
pub(crate) fn collect(
    transport: &mut dyn Transport,
    workers: usize,
    own: Vec<u8>,
) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
    let operation = Operation::whole(Phase::Report, 0);
    if transport.rank() > 0 {
        let sent = transport.send(0, operation, &own);
        return or_abort(transport, sent).map(|()| None);
    }
    let mut all = vec![own];
    for from in 1..workers {
        let mut theirs = Vec::new();
        let received = transport.recv(from, operation, &mut theirs);
        or_abort(transport, received)?;
        all.push(theirs);
    }
    Ok(Some(all))
}

/// Gives each of the first `workers` ranks what worker 0 has to say.
pub(crate) fn announce(
    transport: &mut dyn Transport,
    workers: usize,
    message: &mut Vec<u8>,
) -> Result<(), ExchangeError> {
    let operation = Operation::whole(Phase::Report, 0);
    let result = if transport.rank() > 0 {
        transport.recv(0, operation, message)
    } else {
        (1..workers).try_for_each(|to| transport.send(to, operation, message))
    };
    or_abort(transport, result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process;

    #[test]
    fn worker_0_hears_all_and_all_hear_worker_0() {
        // The fourth rank is a server and hears nothing.
        let ranks = in_process::connect(4, in_process::Options::default());
        let heard = std::thread::scope(|scope| {
            let threads: Vec<_> = ranks
                .into_iter()
                .take(3)
                .map(|mut rank| {
                    scope.spawn(move || {
                        let own = vec![rank.rank() as u8; rank.rank()];
                        let all = collect(&mut rank, 3, own).unwrap();
                        let mut message = all.map_or_else(Vec::new, |all| all.concat());
                        announce(&mut rank, 3, &mut message).unwrap();
                        message
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(heard, [[1, 2, 2], [1, 2, 2], [1, 2, 2]]);
    }
}
