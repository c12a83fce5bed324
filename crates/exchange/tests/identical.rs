//! All ranks end with the same bits: every strategy, compressor, world size and tensor size.

mod common;

use common::checks::ends_identical;
use common::engine::Threads;

const STRATEGIES: [&str; 9] = [
    "all-reduce",
    "all-gather",
    "scatter-reduce",
    "sparse-all-reduce",
    "hierarchical",
    "hierarchical:node=3",
    "server",
    "server:stale=0",
    "server:servers=3",
];

#[test]
fn all_ranks_end_with_the_same_bits() {
    common::threads(STRATEGIES, |_, name| ends_identical(&mut Threads, name))
        .into_iter()
        .for_each(Result::unwrap);
}
