//! A training loop of its own over two processes: the compressor, the exchange and the bytes are
//! gradwire's; the model, the optimizer and the processes are the caller's.
//!
//! ```text
//! cargo run --release -p gradwire-exchange --example two_processes
//! ```
//!
//! starts itself a second time as rank 1; both print the loss. On several machines start
//! `two_processes RANK ADDRESS ADDRESS` on each. The transport is plain TCP (`tcp.rs`), as an
//! example of a transport; the same loop over MPI is `crates/mpi/examples/two_processes.rs`.

mod tcp;
mod training;

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use tcp::Tcp;

/// How long a rank waits for the other.
const DEADLINE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [rank, addresses @ ..] = &arguments[..] {
        let addresses = addresses.iter().map(|one| one.parse()).collect::<Result<Vec<_>, _>>()?;
        return run(rank.parse()?, &addresses);
    }
    let addresses = free_addresses(2)?;
    let texts = addresses.iter().map(ToString::to_string);
    let mut other = Command::new(std::env::current_exe()?).arg("1").args(texts).spawn()?;
    run(0, &addresses)?;
    if other.wait()?.success() { Ok(()) } else { Err("rank 1 failed".into()) }
}

fn run(rank: usize, addresses: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let address = addresses.get(rank).ok_or("give an address for each rank")?;
    let transport = Tcp::connect(TcpListener::bind(address)?, rank, addresses, DEADLINE)?;
    let [first, last] = training::train(Box::new(transport))?;
    println!("rank {rank}: loss {first:.3} at the first step, {last:.3} at the last");
    Ok(())
}

/// Addresses of this machine that no program uses.
fn free_addresses(count: usize) -> std::io::Result<Vec<SocketAddr>> {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use gradwire_exchange::{Transport, laws};

    use super::*;

    /// The ends of connected ranks of this process.
    fn connected(ranks: usize, deadline: Duration) -> Vec<Tcp> {
        let listeners: Vec<_> =
            (0..ranks).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
        thread::scope(|scope| {
            let connect = |(rank, listener)| {
                let addresses = &addresses;
                scope.spawn(move || Tcp::connect(listener, rank, addresses, deadline).unwrap())
            };
            let threads: Vec<_> = listeners.into_iter().enumerate().map(connect).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn tcp_obeys_the_laws() {
        laws::check_transport(connected);
    }

    #[test]
    fn both_ranks_learn_the_same() {
        let train = |transport: Tcp| {
            let rank = transport.rank();
            (rank, training::train(Box::new(transport)).unwrap())
        };
        let ends = connected(2, DEADLINE).into_iter().map(|end| thread::spawn(move || train(end)));
        let threads: Vec<_> = ends.collect();
        let losses: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        for (rank, [first, last]) in losses {
            assert!(last < 0.1 * first, "rank {rank}: {first}, then {last}");
        }
    }
}
