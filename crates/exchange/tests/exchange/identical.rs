//! All ranks end with the same bits: every strategy, compressor, world size and tensor size.

use crate::common::checks::ends_identical;
use crate::common::engine::Threads;

#[test]
fn collectives() {
    for name in ["all-reduce", "all-gather", "scatter-reduce", "sparse-all-reduce"] {
        ends_identical(&mut Threads, name);
    }
}

#[test]
fn hierarchies_and_servers() {
    for name in
        ["hierarchical", "hierarchical:node=3", "server", "server:stale=0", "server:servers=3"]
    {
        ends_identical(&mut Threads, name);
    }
}
