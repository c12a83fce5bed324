//! The parameter server: workers push gradients, servers update the model and send its change back.
//!
//! Ranks `0..n` are workers, ranks `n..n + k` servers, over which the tensors are spread by size.
//! A worker compresses each gradient with its own residual and pushes it, from the last tensor to
//! the first, as back-propagation yields them. A server takes a tensor on by itself: as soon as its
//! pushes are in, it averages them in rank order, runs the optimizer on its full-precision
//! parameters, compresses the *change*, once, with the server's residual, and sends the same bytes
//! to every worker, which adds them to its own copy. There is no barrier for the whole model.
//!
//! All workers add the same bytes to the same parameters and so hold the same bits. Their copies
//! differ from the server's by what the server's residual holds, and by rounding, which nothing
//! corrects; a pull compressor without error feedback (`terngrad`, `fp16`) lets them drift apart.
//!
//! With `b` backup workers, a tensor goes on with the first `n − b` pushes of a step, averaged over
//! those; later ones are dropped and counted, and what their messages carried is lost. Pulls go to
//! all, and a late worker applies them in order.
//!
//! A server may also be asynchronous (`mode=async`), or bound the staleness of its workers (`stale=S`): then
//! pushes are applied one by one as they come, and every worker has pulls of its own, the change since its last.
//! A server holds a pull back while its worker is more than S steps ahead of the slowest.
//!
//! This is the system of 3LC (Lim, Andersen, Kaminsky, 2019, section 2), in which the same scheme
//! compresses pushes and pulls.

mod pulls;
mod service;
mod slot;
mod staleness;
mod worker;

use gradwire::Tensor;

pub use service::{Server, ServerReport};
pub use worker::Worker;

use crate::{ExchangeError, Operation};

/// Spreads tensors over `servers`: largest first, each to the server with the least so far, ties to
/// the earlier tensor and the lower server. Answers each tensor's server.
///
/// A tensor weighs its elements and one more, so that every server gets one while there are any.
///
/// # Panics
/// If there are no servers.
pub fn assign(tensors: &[Tensor], servers: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(tensors[index].elements()));
    let mut loads = vec![0; servers];
    let mut homes = vec![0; tensors.len()];
    for index in order {
        let home = (0..servers).min_by_key(|&server| loads[server]).expect("there is a server");
        loads[home] += tensors[index].elements() + 1;
        homes[index] = home;
    }
    homes
}

/// A message that has no place in the protocol.
fn unexpected(peer: usize, operation: Operation<'_>, what: impl ToString) -> ExchangeError {
    ExchangeError::Protocol { peer, operation: operation.to_string(), what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(sizes: &[usize], servers: usize) -> Vec<usize> {
        let tensors: Vec<_> = sizes.iter().map(|&n| Tensor::new(format!("{n}"), &[n])).collect();
        assign(&tensors, servers)
    }

    #[test]
    fn the_largest_tensors_are_spread_first() {
        assert_eq!(homes(&[1, 10, 4, 4], 2), [1, 0, 1, 1]);
        assert_eq!(homes(&[7, 7, 7], 3), [0, 1, 2]);
        assert_eq!(homes(&[3, 2, 1], 1), [0, 0, 0]);
        assert_eq!(homes(&[0, 0], 2), [0, 1]);
    }
}
