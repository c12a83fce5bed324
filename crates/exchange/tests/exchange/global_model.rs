//! The law of a parameter server: its parameters are those that a worker holds plus the residual of
//! that worker's pulls; where no residual is kept, they are the worker's, bit for bit.

use crate::common::{Run, bits, saved, specs, suits};
use gradwire::{Spec, State};

const SIZES: [usize; 4] = [1023, 0, 6, 3000];
const WORKERS: usize = 3;
const STEPS: u64 = 8;

/// What the servers have saved for a tensor, under a key without the server's prefix.
fn saved_floats<'a>(state: &'a State, key: &str) -> Option<&'a [f32]> {
    (0..2).find_map(|server| state.floats(&format!("server{server}/{key}")).ok())
}

/// Checks the law after every step, where workers pull messages of `spec`.
fn obeys(name: &str, spec: &Spec) {
    let mut run = Run::new(crate::common::exchange(name), WORKERS, spec, &SIZES);
    run.momentum = true;
    let steps = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        let step = |step| {
            run.step(rank, step, exchange, &mut parameters);
            (parameters.clone(), saved(exchange))
        };
        (0..STEPS).map(step).collect::<Vec<_>>()
    });
    for step in 0..STEPS as usize {
        let state = &steps[0][step].1;
        for (worker, steps) in steps.iter().enumerate() {
            for (tensor, held) in run.tensors.iter().zip(&steps[step].0) {
                let name = tensor.name();
                let own = saved_floats(state, &format!("base{worker}/{name}"));
                let (server, pull) = match own {
                    Some(base) => (base, format!("pull{worker}")),
                    None => {
                        (saved_floats(state, &format!("global/{name}")).unwrap(), "pull".into())
                    }
                };
                let what = format!("{spec} over {}, step {step}, {name}", run.exchange);
                let Some(residual) = saved_floats(state, &format!("{pull}/residual/{name}")) else {
                    assert!(bits(&[server.to_vec()]) == bits(std::slice::from_ref(held)), "{what}");
                    continue;
                };
                for ((server, held), residual) in server.iter().zip(held).zip(residual) {
                    let error =
                        (f64::from(*server) - f64::from(*held) - f64::from(*residual)).abs();
                    assert!(error < 1e-5 * (1.0 + f64::from(server.abs())), "{what}: {error}");
                }
            }
        }
    }
}

fn check_all(names: &[&str]) {
    let weighted = "topk:ratio=0.1,beta=0.5,gamma=0.5".parse().unwrap();
    let uncorrected = ["topk:ratio=0.1,ef=off", "onebit:ef=off"].map(|text| text.parse().unwrap());
    let all = specs();
    let all = all.iter().chain(&uncorrected).chain([&weighted]);
    // Servers cannot send votes.
    for spec in all.filter(|spec| !spec.compressor().votes()) {
        names.iter().filter(|name| suits(name, spec)).for_each(|name| obeys(name, spec));
    }
}

#[test]
fn a_server_holds_what_its_workers_hold_and_the_residual() {
    check_all(&["server", "server:servers=2"]);
}

#[test]
fn an_asynchronous_server_does_so_for_each_worker() {
    check_all(&["server:stale=0", "server:servers=2,mode=async"]);
}
