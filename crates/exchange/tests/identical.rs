//! All ranks end with the same bits: every strategy, compressor, world size and tensor size.

mod common;

use common::checks::ends_identical;
use common::engine::Threads;

#[test]
fn all_reduce() {
    ends_identical(&mut Threads, "all-reduce");
}

#[test]
fn all_gather() {
    ends_identical(&mut Threads, "all-gather");
}

#[test]
fn scatter_reduce() {
    ends_identical(&mut Threads, "scatter-reduce");
}

#[test]
fn sparse_all_reduce() {
    ends_identical(&mut Threads, "sparse-all-reduce");
}

#[test]
fn hierarchical() {
    ends_identical(&mut Threads, "hierarchical");
}

#[test]
fn hierarchical_of_three() {
    ends_identical(&mut Threads, "hierarchical:node=3");
}

#[test]
fn one_server() {
    ends_identical(&mut Threads, "server");
}

#[test]
fn one_server_without_slack() {
    ends_identical(&mut Threads, "server:stale=0");
}

#[test]
fn three_servers() {
    ends_identical(&mut Threads, "server:servers=3");
}
