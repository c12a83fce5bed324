//! The parameter server: workers push gradients, servers update the model and send its change back.
//!
//! Ranks `0..n` are workers, ranks `n..n + k` are servers. The tensors are spread over the servers
//! by size. A worker compresses each gradient with its own residual and pushes it, from the last
//! tensor to the first, the order in which back-propagation computes them. A server processes each
//! tensor separately. When all pushes of the tensor have arrived, it averages them in rank order
//! and runs the optimizer on its full-precision parameters. It compresses the *change* once, with
//! the server's residual, and sends the same bytes to every worker, which adds them to its own
//! copy. There is no barrier for the whole model.
//!
//! All workers add the same bytes to the same parameters, so they hold the same bits. The server's
//! parameters are the workers' parameters plus the residual of the pulls. If the pull compressor
//! has no error feedback (such as `none`, `terngrad`, `fp16`), there is no residual: the server
//! continues from the parameters that it has sent, so it holds the workers' bits.
//!
//! With `b` backup workers, a server averages the first `n − b` pushes of a tensor. It drops and
//! counts later pushes; the content of their messages is lost. Pulls go to all workers, and a late
//! worker applies them in order.
//!
//! A server may also be asynchronous (`mode=async`), or bound the staleness of its workers
//! (`stale=S`). It then applies each push as it arrives, and each worker has its own pulls: the
//! change since its last pull. A server holds a pull back while its worker is more than S steps
//! ahead of the slowest.
//!
//! This is the system of 3LC (Lim, Andersen, Kaminsky, 2019, section 2), which compresses pushes
//! and pulls with the same scheme.

mod pulls;
mod service;
mod slot;
mod staleness;
mod worker;

use gradwire::Tensor;

pub use service::{Server, ServerReport};
pub use worker::ServerWorker;

use crate::error::refuse;
use crate::{Exchange, Result, Synchronization};

/// The numbers of servers and of backup workers, and how workers wait for each other.
///
/// # Errors
/// `Config` for an exchange without servers.
fn parameters(exchange: Exchange) -> Result<(usize, usize, Synchronization)> {
    match exchange {
        Exchange::ParameterServer { servers, backups, synchronization } => {
            Ok((servers, backups, synchronization))
        }
        _ => refuse(format!("'{exchange}' has no servers")),
    }
}

/// Spreads tensors over `servers` and returns the server of each tensor. The largest come first;
/// each goes to the server with the smallest load so far. Ties go to the earlier tensor and the
/// lower server.
///
/// The load of a tensor is its elements plus one, so every server gets a tensor if there are
/// enough.
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
