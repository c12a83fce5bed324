//! All ranks end with the same bits: every strategy, compressor, world size and tensor size.

mod common;

use common::{Run, SIZES, adds, bits, specs, strategy};

fn ends_identical(name: &str) {
    for spec in specs() {
        if name == "all-reduce" && !adds(&spec) {
            continue;
        }
        for workers in [1, 2, 3, 4, 7] {
            let run = Run::new(strategy(name), workers, &spec, &SIZES);
            let ranks = run.steps(3);
            let first = bits(&ranks[0].parameters);
            for (rank, other) in ranks.iter().enumerate().skip(1) {
                assert!(bits(&other.parameters) == first, "{name}, {spec}: {rank} of {workers}");
            }
            let moved = run.initial.iter().zip(&ranks[0].parameters).filter(|(a, b)| a != b);
            // Means of ±τ, and a learning rate times them, reach τ again only after some more steps.
            let later = spec.entry().id == "strom" && name != "all-gather";
            assert!(later || moved.count() >= 6, "{name}, {spec}: nothing was learned");
        }
    }
}

#[test]
fn all_reduce() {
    ends_identical("all-reduce");
}

#[test]
fn all_gather() {
    ends_identical("all-gather");
}

#[test]
fn scatter_reduce() {
    ends_identical("scatter-reduce");
}

#[test]
fn one_server() {
    ends_identical("server");
}

#[test]
fn three_servers() {
    ends_identical("server:servers=3");
}
