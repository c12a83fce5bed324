//! The training loop of `crates/exchange/examples/two_processes` over MPI.
//!
//! ```text
//! cargo build --release -p gradwire-mpi --example two_processes
//! mpirun -n 2 target/release/examples/two_processes
//! ```

#[path = "../../exchange/examples/two_processes/training.rs"]
mod training;

use std::error::Error;
use std::time::Duration;

use gradwire_mpi::World;

fn main() -> Result<(), Box<dyn Error>> {
    let mut world = World::init(Duration::from_secs(30))?;
    let [first, last] = training::train(Box::new(world.connect()?))?;
    println!("rank {}: loss {first:.3} at the first step, {last:.3} at the last", world.rank());
    Ok(world.finish()?)
}
