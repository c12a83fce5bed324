//! A training loop of candle over two processes: model, back-propagation and steps are candle's,
//! and gradwire averages the gradients.
//!
//! ```text
//! cargo run --release --bin two_processes
//! ```
//!
//! starts itself a second time as rank 1. The transport is that of the example `two_processes` of
//! `gradwire-exchange`, plain TCP; `gradwire-mpi` has one over MPI.

#[path = "../../../../crates/exchange/examples/two_processes/tcp.rs"]
mod tcp;

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use candle_core::{Tensor, Var};
use gradwire::{Rng, Spec};
use gradwire_exchange::{OnNonFinite, Policy, Reducer, ReducerConfig, Transport, digest};
use spirals::{Network, points};
use tcp::Tcp;

/// How long a rank waits for the other.
const DEADLINE: Duration = Duration::from_secs(30);
const STEPS: u64 = 400;
const BATCH: usize = 32;
const RATE: f64 = 0.2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [rank, addresses @ ..] = &arguments[..] {
        let addresses = addresses.iter().map(|one| one.parse()).collect::<Result<Vec<_>, _>>()?;
        return run(rank.parse()?, &addresses);
    }
    let free = || TcpListener::bind("127.0.0.1:0");
    let addresses = [free()?, free()?].map(|listener| listener.local_addr());
    let addresses = addresses.into_iter().collect::<Result<Vec<_>, _>>()?;
    let texts = addresses.iter().map(ToString::to_string);
    let mut other = Command::new(std::env::current_exe()?).arg("1").args(texts).spawn()?;
    run(0, &addresses)?;
    if other.wait()?.success() { Ok(()) } else { Err("rank 1 failed".into()) }
}

fn run(rank: usize, addresses: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let address = addresses.get(rank).ok_or("give an address for each rank")?;
    let transport = Tcp::connect(TcpListener::bind(address)?, rank, addresses, DEADLINE)?;
    let [first, last] = train(Box::new(transport))?;
    println!("rank {rank}: loss {first:.3} at the first step, {last:.3} at the last");
    if last < 0.5 * first { Ok(()) } else { Err("the loss has not halved".into()) }
}

/// Trains as one rank; returns the loss of the first step and of the last one.
fn train(transport: Box<dyn Transport>) -> Result<[f32; 2], Box<dyn Error>> {
    let rank = transport.rank() as u32;
    let network = Network { hidden: 64 };
    let tensors = network.tensors();
    let names: Vec<String> = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
    let compressor: Spec = "eden".parse()?;
    let config = ReducerConfig {
        exchange: "all-gather".parse()?,
        policy: Policy::new(compressor),
        tensors,
        seed: 0,
        on_non_finite: OnNonFinite::Refuse,
    };
    let mut reducer = Reducer::new(transport, config)?;
    let group = reducer.form(&names)?;
    let variables = network.variables(&network.initial_parameters(0))?;
    let (data, mut losses) = (points().train, Vec::new());
    for step in 0..STEPS {
        let mut rng = Rng::new(0, 0, rank, step, 0);
        let mut draw = |_| data[rng.below(data.len() as u64) as usize];
        let (points, arms): (Vec<_>, Vec<_>) = (0..BATCH).map(&mut draw).unzip();
        let loss = network.loss(&network.scores(&variables, &points)?, &arms)?;
        let gradients = loss.backward()?;
        let gradient = |variable: &Var| {
            let gradient = gradients.get(variable).ok_or("a variable has no gradient")?;
            Ok::<_, Box<dyn Error>>(gradient.flatten_all()?.to_vec1::<f32>()?)
        };
        let mut flat = variables.iter().map(gradient).collect::<Result<Vec<_>, _>>()?.concat();
        // The mean over ranks, in place.
        reducer.average(group, step, &mut flat)?;
        let mut rest = &flat[..];
        for variable in &variables {
            let (values, others) = rest.split_at(variable.elem_count());
            rest = others;
            let mean = Tensor::from_slice(values, variable.dims(), variable.device())?;
            variable.set(&variable.sub(&(mean * RATE)?)?)?;
        }
        losses.push(loss.to_scalar::<f32>()?);
    }
    reducer.flush()?;
    let values = variables.iter().map(|variable| variable.flatten_all()?.to_vec1::<f32>());
    let values = values.collect::<Result<Vec<_>, _>>()?;
    println!("rank {rank}: the weights have the digest {:016x}", digest(&values));
    Ok([losses[0], losses[losses.len() - 1]])
}
